"""Hugging Face's Trainer, and all programs that are built on it.

Sources of times, best first: token counts with a clock (their differences, since the printed rate is the mean since the start), rates
of a device, numbered steps with a clock, a mean rate, the summary at the end, the progress bar.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import PAIRS, REINFORCED, Dialect, Findings, Parser
from nlp_bench.logs.pattern import is_cut, late
from nlp_bench.logs.progress_bar import COARSE_S, BarBook, Series, report_series
from nlp_bench.logs.quantity import COUNTS_ELSE, LARGEST, UNNUMBERED, Rounded, bounds, duration_s, number, rounded
from nlp_bench.logs.scan import Line, slim

LLAMA_FACTORY, SWIFT = "llama-factory", "ms-swift"
_OWN_WORDS = {
    b"llamafactory": LLAMA_FACTORY,
    b'"current_steps"': LLAMA_FACTORY,
    b"train_speed(": SWIFT,
    b"global_step/max_steps": SWIFT,
}
"""Texts that only one program built on the Trainer prints, to its name."""
_NEEDLES = (
    *_OWN_WORDS, b"'loss'", b'"loss"', b"train_runtime", b"train_samples_per_second", b"train_steps_per_second",
    b"train_tokens_per_second", b"unning training", b"atch size (", b"ptimization steps =", b"otal steps =",
    b"ontinuing training from", b"um examples =", b"epoch    ", b"num_input_tokens_seen", b"ogging_steps", b"ogging-steps",
    b"max_memory_allocated (GB)", b"%|", b"context_parallel_size", b"sequence_parallel_", b"gradient_accumulation_steps",
    b"micro_batch_size", b"per_device_train_batch_size", b"world_size",
)  # fmt: skip
"""Lines of dicts, of the summary, of the block at the start, and bars; `--logging-steps` is the steps per dict."""
_BATCH = late(rb"(?i)total (?:train )?batch size \([^()]{1,80}\) = ([\d,]{1,20})(?!\d)")
_TOTAL = late(rb"(?i)total (?:optimization )?steps = ([\d,]{1,20})(?!\d)")
_STRIDE = late(rb"(?i)\blogging[_-]steps[= ]\s?(\d{1,9})(?:\.0)?(?![\d.])")
_OUTPUT = late(rb"TrainOutput\(global_step=(\d{1,12})(?!\d)")
_EXAMPLES = late(rb"Num examples = ([\d,]{1,20})(?!\d)")
_EPOCH = late(rb"\bepoch\s{4,24}=\s{1,20}([\d.]{1,12})(?![\w.])")  # of the summary
_RESUMED = late(rb"(?i)continuing training from (?:global step|checkpoint)[^\d]{0,80}(\d{1,12})?")
_SUMMARY = late(
    rb"\b(train_runtime|train_samples_per_second|train_steps_per_second|num_input_tokens_seen)(?:\s{1,20}=|['\"]:)\s{1,20}([\d:.]{1,20})(?![\w:.-])"
)
_SHARING = ("context_parallel_size", "sequence_parallel_size", "sequence_parallel_degree")
_FACTORS = (
    ("global_world_size", "world_size"),
    ("micro_batch_size", "per_device_train_batch_size"),
    ("gradient_accumulation_steps",),
)
_SETTING = late(
    rb"(?<![\w.])(%b)['\"]?\s{0,2}[:= ]\s{0,2}(\d{1,9})(?![\w.])"
    % "|".join((*_SHARING, *(name for names in _FACTORS for name in names))).encode()
)
"""Of the configuration that Axolotl and ms-swift print before the banner: how many ranks share a sample, and the factors of the batch."""
_SETTINGS = late(
    rb"TrainOutput\(|atch size \(|um examples =|teps =|ogging[_-]steps|ontinuing training from|"
    rb"(?:parallel|world|batch)_size|parallel_degree|gradient_accumulation_steps"
)
_SUMMARY_KEYS = (b"train_runtime", b"train_samples_per_second", b"train_steps_per_second")
_STARTS = (b"***** Running training", b"***** running training")
_STEP_KEYS = (
    b"global_step/max_steps", b"steps[global_step/max_steps]", b"iteration", b"current_steps", b"global_step",
    b"step",
)  # fmt: skip
_TOKEN_KEYS = (b"num_input_tokens_seen", b"total_tokens", b"num_tokens", b"tokens/total")
_DEVICE_KEYS = (b"tokens_per_second_per_gpu", b"tokens/train_per_sec_per_gpu")
_REINFORCED = (b"completion_length", b"completions/mean_length", b"num_completions")
_LARGEST_JUMP = 1.4
_CONTRADICTION = 0.05
_MIN_POINTS, _AGREES = 8, 0.02
"""Readings of a bar that tell more than the summary, and share by which its last one may differ from the summary's time."""
_SHORT = 0.05  # share by which less than the planned steps may seem to be done
_LATE = 1.5  # intervals of logging before the first dict: more than that, and it is not the first of its training
_TOKEN_DIGITS = 30  # least difference of rounded counts that is used, in units of their last digit

_RESUMED_SUMMARY = (
    "the Trainer's summary of a training that was resumed, or whose log lacks its beginning or has another training before it, divides the "
    "steps since step 0 by the time since it was resumed, and nothing shows how many steps that time took"
)
_STOPPED_SUMMARY = (
    "the Trainer's summary of a training that was stopped early divides all planned steps by the time of those that were done; "
    "the progress bar, on standard error, times them"
)

_DICT = late(rb"\{([^{}]{10,20000})(?:\}|$)")
# A pair ends with a comma or the brace: one that ends with the line may be cut.
_PAIR = late(
    rb"""(['"])([^'"{}]{1,80})\1\s{0,4}:\s{0,4}(?:(['"])([^'"{}]{0,80})\3|([-+]?[\w.][-+\w.]{0,39}))(?=\s{0,4}[,}])"""
)
# Between two pairs there may be one whose value is neither a number nor plain text.
_OTHER_PAIR = late(rb"""[\s,]{0,8}(?:$|(['"])[^'"]{1,80}\1\s{0,4}:)""")


def _dicts(text: bytes) -> Iterator[Mapping[bytes, bytes]]:
    """Yield every dict of a line that has pairs: key to the text of its value, without quotes.

    One with a duplicate key is spliced from two dicts and left out.
    """
    for found in _DICT.finditer(text):
        pairs: dict[bytes, bytes] = {}
        is_torn, end = False, 1
        for pair in _PAIR.finditer(found[0]):
            if pair.start() > end + 2:
                between = found[0][end : pair.start()]
                is_torn |= between.count(pair[1]) % 2 == 1 or not _OTHER_PAIR.match(between)
            end = pair.end()
            value = pair[4] if pair[3] else pair[5]
            is_torn |= pair[2] in pairs
            pairs[pair[2]] = value
        if pairs and not is_torn:
            yield pairs


def is_joined(key: bytes, names: Iterable[bytes]) -> bool:
    """Say whether `key` is the beginning of one of `names` and the end of another: spliced from two lines."""
    others = [name for name in names if name != key]
    places = [at for at in range(1, len(key)) if any(name.startswith(key[:at]) for name in others)]
    return any(name.endswith(key[at:]) for at in places for name in others)


def _count(text: bytes) -> Rounded | None:
    found = rounded(text)
    return found if found and 0 <= found.value < LARGEST else None


@dataclass
class _Entry:
    """One dict of a training step."""

    line: Line
    label: bytes
    step: int | None = None
    tokens: float | None = None
    token_error: float = 0.0
    clock_s: float | None = None
    is_coarse: bool = False
    device_rate: float | None = None
    mean_rate: float | None = None
    loss: float | None = None
    epoch: tuple[float, float] | None = None  # its bounds
    bar: tuple[int, float] | None = None  # steps and seconds of the bar that is drawn next to it
    stated_rate: float | None = None
    """Tokens per second since the start, where the dict states them as well as tokens and time."""
    keys: tuple[bytes, ...] = ()  # the names in it

    @property
    def identity(self) -> tuple[float | None, ...] | None:
        """What two prints of one dict have in common; None where it has too little to compare."""
        counts = (self.step, self.tokens, self.mean_rate)
        return (*counts, self.clock_s, self.loss) if any(counts) else None


@dataclass
class _Attempt:
    """The output of one start of the program."""

    entries: list[_Entry] = field(default_factory=list)
    book: BarBook = field(default_factory=BarBook)
    bar: tuple[int, float] | None = None
    total_of_bar: int | None = None
    dicts_by_total: Counter[int | None] = field(default_factory=Counter)
    """Number of dicts printed next to bars of each total."""
    waiting: _Entry | None = None
    summary: dict[bytes, float] = field(default_factory=dict)
    summary_line: Line | None = None
    is_gaudi: bool = False
    is_trainer: bool = False
    total_steps: float | None = None
    done_steps: float | None = None  # as its output says at the end
    num_examples: float | None = None
    epoch: float | None = None
    tokens: float | None = None  # of the whole training, in its summary
    token_rate: float | None = None  # train_tokens_per_second of its summary
    stride: int | None = None
    start_step: int | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self.entries or self.summary or (self.bar and self.bar[0] > 0))

    @property
    def total(self) -> dict[str, float]:
        return {"total_iterations": self.total_steps} if self.total_steps else {}


class _Trainer(Parser):
    """Parser of the Trainer's log; programs that are built on it are recognized by _OWN_WORDS."""

    def __init__(self) -> None:
        self.attempt = _Attempt()
        self.name = ""
        self.configuration: dict[str, int] = {}

    def take(self, line: Line, findings: Findings) -> None:
        if not self.name:
            self.name = next((name for words, name in _OWN_WORDS.items() if words in line.text), "")
        if b"%|" in line.text:
            self._bars(line)
        for text in pieces(line.text):
            if not text.startswith(b"{"):  # not just the dict of a step
                if b"unning training" in text and any(words in text for words in _STARTS):
                    self._start(line, findings)
                if _SETTINGS.search(text):
                    self._settings(text, line, findings)
            if b"{" in text:
                for pairs in _dicts(text):
                    self._dict(pairs, text, line, findings)
            elif (
                b"train_" in text
                or b"max_memory_allocated" in text
                or b"epoch    " in text
                or b"num_input_tokens" in text
            ):
                self._summary_block(text, line)

    def _bars(self, line: Line) -> None:
        attempt = self.attempt
        for bar in attempt.book.take(line, "train"):
            if attempt.total_steps and bar.total != attempt.total_steps:
                continue
            attempt.total_of_bar = bar.total
            if attempt.bar is None or bar.done >= attempt.bar[0]:
                attempt.bar = bar.done, bar.clock_s
                if attempt.waiting:
                    attempt.waiting.bar, attempt.waiting = attempt.bar, None

    def _start(self, line: Line, findings: Findings) -> None:
        has_begun = self.attempt.has_begun
        if has_begun:
            self.finish(findings)
            self.attempt = _Attempt()
        if has_begun or not findings.num_records:
            # Not only behind steps: after a start that came to none `auto_find_batch_size` tries another batch.
            findings.start(line)
        self.attempt.is_trainer, self.attempt.num_examples = True, None

    def _settings(self, text: bytes, line: Line, findings: Findings) -> None:
        attempt = self.attempt
        self.configuration |= {found[1].decode(): int(found[2]) for found in _SETTING.finditer(text)}
        if found := _BATCH.search(text):
            self._batch(float(found[1].replace(b",", b"") or 0), line, findings)
            attempt.is_trainer = True
        if found := _TOTAL.search(text):
            attempt.total_steps = float(found[1].replace(b",", b"") or 0) or None
        if found := _OUTPUT.search(text):
            attempt.done_steps = float(found[1])
            attempt.total_steps = attempt.total_steps or attempt.done_steps
        if found := _EXAMPLES.search(text):  # of the training; an evaluation prints its own behind them
            attempt.num_examples = attempt.num_examples or float(found[1].replace(b",", b"") or 0)
        if found := _STRIDE.search(text):
            attempt.stride = attempt.stride or int(found[1]) or None
        if found := _RESUMED.search(text):
            attempt.start_step = int(found[1] or 0)

    def _batch(self, batch: float, line: Line, findings: Findings) -> None:
        """Report the batch of the banner, which in some versions counts all ranks, those that share a sample included."""
        known = self.configuration
        setting = max(_SHARING, key=lambda name: known.get(name, 1))  # one of the names has it
        sharing = known.get(setting, 1)
        factors = [next((known[name] for name in names if name in known), None) for names in _FACTORS]
        of_all_ranks = None if None in factors else math.prod(factor or 0 for factor in factors)
        if sharing > 1 and of_all_ranks not in {batch, batch * sharing}:
            findings.remark(
                f"{setting} is {sharing}, and nothing shows whether the batch of {batch:.0f} in line {line.number} counts each sample "
                f"{sharing} times: it is not used"
            )
        else:
            findings.fact("global_batch_size", batch / sharing if of_all_ranks == batch else batch, line)

    def _dict(self, pairs: Mapping[bytes, bytes], text: bytes, line: Line, findings: Findings) -> None:
        attempt = self.attempt
        _judge(pairs, findings)
        if b"train_runtime" in pairs and b"loss" not in pairs:
            if not attempt.summary:
                texts = ((key, number(pairs.get(key, b""))) for key in _SUMMARY_KEYS)
                attempt.summary = {key: value for key, value in texts if value is not None}
                attempt.summary_line = slim(line)
                attempt.epoch = number(pairs.get(b"epoch", b""))
                attempt.tokens = number(_first(pairs, _TOKEN_KEYS))
                attempt.token_rate = number(pairs.get(b"train_tokens_per_second", b""))
                # Gaudi's trainer leaves warm-up and evaluation out of its rates, not out of the runtime.
                attempt.is_gaudi = b"max_memory_allocated (GB)" in pairs
        elif b"train_tokens_per_second" in pairs and b"loss" not in pairs:
            findings.record(line, {}, is_whole=False)  # what is left of a summary
        elif b"loss" in pairs and not any(key.startswith(b"eval_") for key in pairs):
            entry = _entry(pairs, slim(line), label_of(text[: text.find(b"{")]))
            # A loss that is no number is printed as 0 (`logging_nan_inf_filter`).
            norm = number(pairs.get(b"grad_norm", b"")) or 0.0
            if entry.loss is not None and not math.isfinite(norm if entry.loss == 0 else entry.loss):
                findings.refuse(
                    f"line {line.number} shows that the loss is no number any more: nothing is trained from there on"
                )
            entry.mean_rate = number(pairs.get(b"throughput", b"")) if self.name == LLAMA_FACTORY else None
            if attempt.entries and entry.identity and entry.identity == attempt.entries[-1].identity:
                return  # printed by another process, or twice
            if attempt.waiting:
                attempt.waiting.bar = None  # its bar is lost
            entry.bar = attempt.bar
            if attempt.bar:
                attempt.dicts_by_total[attempt.total_of_bar] += 1
            attempt.entries.append(entry)
            attempt.waiting = entry
            total = _count(pairs.get(b"total_steps", b""))
            attempt.total_steps = attempt.total_steps or (total and total.value) or _ratio(pairs)[1]

    def _summary_block(self, text: bytes, line: Line) -> None:
        attempt = self.attempt
        if (found := _EPOCH.search(text)) and not is_cut(line, text, found.end()):
            attempt.epoch = attempt.epoch or number(found[1])
        for found in _SUMMARY.finditer(text):
            key, value = found.groups()
            if is_cut(line, text, found.end()):
                continue
            # A clock is written as 0:01:40.00; a shorter one is cut.
            is_clock = value.count(b":") > 1
            seconds = duration_s(value) if is_clock else None if b":" in value else number(value)
            if seconds and key == b"num_input_tokens_seen":
                attempt.tokens = attempt.tokens or seconds
            elif seconds:
                attempt.summary.setdefault(key, seconds)
                attempt.summary_line = attempt.summary_line or slim(line)
        attempt.is_gaudi = attempt.is_gaudi or b"max_memory_allocated (GB)" in text

    def finish(self, findings: Findings) -> None:
        _report(self.attempt, findings)
        if self.name:
            findings.rename(self.name)


def _judge(pairs: Mapping[bytes, bytes], findings: Findings) -> None:
    """Refuse reinforcement learning, and doubt a training on pairs, which the names in a dict tell."""
    if any(key in pairs for key in _REINFORCED):
        findings.refuse(REINFORCED)
    if b"rewards/chosen" in pairs:
        findings.doubt(PAIRS)


def _first(pairs: Mapping[bytes, bytes], keys: Iterable[bytes]) -> bytes:
    return next((pairs[key] for key in keys if key in pairs), b"")


def _ratio(pairs: Mapping[bytes, bytes]) -> tuple[float | None, float | None]:
    """Return step and total of `5/100`; the total of a plain number is None."""
    text = _first(pairs, _STEP_KEYS)
    if not text:
        return None, None
    step, _, total = (_count(part) for part in text.partition(b"/"))
    return step and step.value, total and total.value


def _entry(pairs: Mapping[bytes, bytes], line: Line, label: bytes) -> _Entry:
    step, _ = _ratio(pairs)
    entry = _Entry(line, label, None if step is None else int(step))
    if counted := _count(_first(pairs, _TOKEN_KEYS)):
        entry.tokens, entry.token_error = counted
    runtime, rate = number(pairs.get(b"train_runtime", b"")), number(pairs.get(b"train_tokens_per_second", b""))
    entry.keys, entry.epoch = tuple(pairs), bounds(pairs.get(b"epoch", b""))
    if runtime:
        entry.clock_s, entry.stated_rate = runtime, rate
        if entry.tokens is None and rate:
            entry.tokens = rate * runtime
    elif (elapsed := duration_s(pairs.get(b"elapsed_time", b""))) is not None:
        entry.clock_s, entry.is_coarse = _finer(elapsed, entry.step, pairs), True
    entry.device_rate, entry.loss = number(_first(pairs, _DEVICE_KEYS)), number(pairs.get(b"loss", b""))
    return entry


def _finer(elapsed: float, step: int | None, pairs: Mapping[bytes, bytes]) -> float:
    """Return the elapsed time computed from the mean speed since the start, where it agrees with the whole seconds."""
    per_second, per_step = number(pairs.get(b"train_speed(iter/s)", b"")), number(pairs.get(b"train_speed(s/it)", b""))
    fine = step / per_second if step and per_second else step * per_step if step and per_step else elapsed
    return fine if abs(fine - elapsed) <= 1.5 else elapsed


def _report(attempt: _Attempt, findings: Findings) -> None:
    """Report the records of one attempt from the best source that it has."""
    attempt.entries = _without_halves(attempt)
    if not any(entry.clock_s for entry in attempt.entries) and _are_paired(attempt):
        for entry in attempt.entries:
            if entry.bar and entry.tokens:
                entry.clock_s, entry.is_coarse = entry.bar[1], True
    exact, means = (_report_tokens, _report_steps, _report_mean), (_report_whole_bar, _report_summary, _report_bar)
    any(source(attempt, findings) for source in (*exact, *means, _report_devices, _report_clocks))


def _without_halves(attempt: _Attempt) -> list[_Entry]:
    """Return the dicts without those spliced from two, as a name or a rate shows."""
    numbers = Counter(key for entry in attempt.entries for key in entry.keys)
    usual = [key for key, number in numbers.items() if number > 1]
    odd = {key for key, number in numbers.items() if number == 1 and is_joined(key, usual)}
    kept = [entry for entry in attempt.entries if odd.isdisjoint(entry.keys)] if odd else attempt.entries
    stated = [(e, e.tokens / e.clock_s / e.stated_rate) for e in kept if e.tokens and e.clock_s and e.stated_rate]
    wrong = {id(entry) for entry, ratio in stated if attempt.start_step is None and abs(ratio - 1) > _CONTRADICTION}
    # Where most dicts contradict, the program defines its rate differently.
    is_few = len(wrong) == 1 or 2 * len(wrong) < len(kept)
    return [entry for entry in kept if id(entry) not in wrong] if wrong and is_few else kept


def _are_paired(attempt: _Attempt) -> bool:
    """Say whether dicts and bars match: most dicts have one, and where one was lost, tokens per step jump."""
    counted = [entry for entry in attempt.entries if entry.tokens]
    known = [(entry.tokens, entry.bar[0]) for entry in counted if entry.tokens and entry.bar]
    if 2 * len(known) < len(counted):
        return False
    counts = [(0.0, 0), *known] if attempt.start_step is None else known
    shares = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(counts) if b[1] > a[1] and b[0] > a[0]]
    return not shares or max(shares) < _LARGEST_JUMP * min(shares)


def _record(entry: _Entry, values: Mapping[str, float], findings: Findings) -> None:
    loss = {} if entry.loss is None else {"lm_loss": entry.loss}
    findings.record(entry.line, {**values, **loss}, label=entry.label)


def _report_devices(attempt: _Attempt, findings: Findings) -> bool:
    entries = [entry for entry in attempt.entries if entry.device_rate]
    for index, entry in enumerate(entries, 1):
        values = {"iteration": float(entry.step or index), "tokens_per_second_per_device": entry.device_rate or 0.0}
        _record(entry, values, findings)
    if entries:
        findings.fact(COUNTS_ELSE, "the trained tokens of one micro-batch", entries[0].line)
    return bool(entries)


def _report_mean(attempt: _Attempt, findings: Findings) -> bool:
    entries = [entry for entry in attempt.entries if entry.mean_rate]
    if entries:
        values = {"iteration": float(len(entries)), "tokens_per_second": entries[-1].mean_rate or 0.0}
        findings.record(entries[-1].line, values, label=entries[-1].label)
        findings.remark("the rate is the mean since the start of the training: warm-up is inside")
    return bool(entries)


def _bar_of(attempt: _Attempt) -> Series | None:
    total = max(attempt.dicts_by_total, key=lambda total: attempt.dicts_by_total[total], default=None)
    return attempt.book.longest(attempt.total_steps or total)


def _report_bar(attempt: _Attempt, findings: Findings) -> bool:
    series, is_training = _bar_of(attempt), attempt.is_trainer or attempt.entries or attempt.summary
    return bool(series and is_training and _report_series(series, attempt, findings))


def _report_series(series: Series, attempt: _Attempt, findings: Findings, steps: float | None = None) -> bool:
    return report_series(series, findings, each=_tokens_per_step(attempt, steps), losses=_losses(attempt)) > 0


def _tokens_per_step(attempt: _Attempt, steps: float | None) -> dict[str, float]:
    """Return the mean tokens of a step by the last dict that counts them, none where there is none; `steps` are those of the whole training, where it was done."""
    if steps and attempt.tokens:
        return {"tokens": attempt.tokens / steps}
    entry = next((entry for entry in reversed(attempt.entries) if entry.tokens), None)
    if entry is None or not entry.tokens:
        return {}
    at: float | None = entry.step or (entry.bar and entry.bar[0])
    if steps and attempt.epoch and entry.epoch:  # a bar beside it may be some steps off
        at = steps * min(1.0, sum(entry.epoch) / 2 / attempt.epoch)
    return {"tokens": entry.tokens / at} if at else {}


def _losses(attempt: _Attempt) -> list[tuple[float, float]]:
    """Return each loss with the steps that were done by then."""
    numbered = [(entry.step or (entry.bar and entry.bar[0]), entry.loss) for entry in attempt.entries]
    return sorted((float(at), loss) for at, loss in numbered if at and loss is not None)


def _report_whole_bar(attempt: _Attempt, findings: Findings) -> bool:
    """Report the bar of a whole run whose summary agrees with it: the summary alone has the evaluations in one mean, without an interval."""
    series, runtime = _bar_of(attempt), attempt.summary.get(b"train_runtime")
    if not (series and series.last and runtime) or series.num_bars > 1 or len(series.points) < _MIN_POINTS:
        return False
    bar = series.last[1]
    if _counts_on(attempt) or bar.done != series.total or abs(bar.clock_s - runtime) > _AGREES * runtime:
        return False
    findings.remark(
        f"the steps are timed by the progress bar; by the Trainer's summary they took {runtime / bar.done:.4g} s in the mean of the whole run"
    )
    return _report_series(series, attempt, findings, bar.done)


def _numbered(entries: list[_Entry], attempt: _Attempt, findings: Findings) -> list[float]:
    """Return the step of each dict: stated, from its bar, or counted by the logging interval, 1 where it is unknown."""
    stated = [entry.step for entry in entries]
    drawn = [entry.bar[0] if entry.bar else None for entry in entries]
    for numbers in (stated, drawn):
        known = [float(n) for n in numbers if n]
        if len(known) == len(entries) and all(a < b for a, b in pairwise(known)):
            return known
    stride = attempt.stride
    if not stride and attempt.summary and attempt.start_step is None:  # a whole training
        each, rest = divmod(attempt.total_steps or 0.0, len(entries))
        # With more dicts than steps in each, no steps behind the last dict can make it a whole number.
        stride = int(each) if not rest and each < len(entries) else None
    if not stride:
        findings.fact(UNNUMBERED, 1.0, entries[0].line)
        findings.remark("the log does not number its steps: an iteration here is one interval of logging")
    return [n * float(stride or 1) for n in _counted(entries)]


_LEFT_OUT = 3.0
"""Tokens of one dict, in those of the usual one, from which on dicts are missing before it; batches that are padded differ by less."""


def _counted(entries: list[_Entry]) -> list[int]:
    """Return the number of each dict, with the numbers of those that are missing before it by its count of tokens."""
    tokens = [entry.tokens for entry in entries if entry.tokens is not None]
    steps = [after - before for before, after in pairwise(tokens)] if len(tokens) == len(entries) else []
    usual = statistics.median(steps) if steps else 0.0
    if usual <= 0:
        return [*range(1, len(entries) + 1)]
    return [*accumulate((round(step / usual) if step >= _LEFT_OUT * usual else 1 for step in steps), initial=1)]


def _is_late(counts: list[float]) -> bool:
    """Say whether the first dict counts much more than lies between two: it is not the first one since the count was 0."""
    return len(counts) > 1 and counts[0] > _LATE * (counts[-1] - counts[0]) / (len(counts) - 1)


def _report_tokens(attempt: _Attempt, findings: Findings) -> bool:
    """Report the tokens and the time between two dicts; those of the first one count from the start of the training."""
    entries = _without_echoes([entry for entry in attempt.entries if entry.tokens and entry.clock_s])
    if not entries:
        return False
    steps = _numbered(entries, attempt, findings)
    is_late = attempt.start_step is not None or _is_late([entry.tokens or 0.0 for entry in entries])
    before: tuple[float, float, float] | None = None if is_late else (0.0, 0.0, 0.0)
    has_records = False
    spaced = _spaced(list(zip(entries, steps, strict=True)))
    for (entry, step), (following, _) in zip(spaced, [*spaced[1:], spaced[-1]], strict=True):
        tokens, clock = entry.tokens or 0.0, entry.clock_s or 0.0
        # A resumed training counts its tokens on, but its clock begins anew, and stays so: a single time may be torn.
        if before is None or tokens < before[1] or max(clock, following.clock_s or 0.0) < before[2]:
            before = step, tokens, clock
            continue
        new_tokens, seconds = tokens - before[1], clock - before[2]
        if seconds <= 0.0 or new_tokens <= 2 * _TOKEN_DIGITS * entry.token_error:
            continue
        rates = {"tokens": new_tokens / max(1.0, step - before[0]), "tokens_per_second": new_tokens / seconds}
        _record(entry, {"iteration": step, **rates, **attempt.total}, findings)
        before, has_records = (step, tokens, clock), True
    return has_records


def _spaced(entries: list[tuple[_Entry, float]]) -> list[tuple[_Entry, float]]:
    """Return the dicts whose coarse clocks are far enough apart, from the end on: a shorter interval is the first one, which is warm-up."""
    kept = entries[-1:]
    for entry, step in reversed(entries[:-1]):
        seconds = (kept[-1][0].clock_s or 0.0) - (entry.clock_s or 0.0)
        if not entry.is_coarse or not 0 <= seconds <= COARSE_S:
            kept.append((entry, step))
    return kept[::-1]


def _without_echoes(entries: list[_Entry]) -> list[_Entry]:
    """Return the dicts without those that another node printed, and without outliers (torn lines)."""
    kept = entries[:1]
    for entry in entries[1:]:
        if entry.tokens != kept[-1].tokens or (entry.step is not None and entry.step != kept[-1].step):
            kept.append(entry)
    return [entry for index, entry in enumerate(kept) if not _is_outlier(kept, index)]


def _is_outlier(entries: list[_Entry], index: int) -> bool:
    """Say whether the tokens of a dict fall, or exceed those of the next one, although the clock advances."""
    one, two = entries[max(0, index - 1)], entries[index]
    three = entries[min(len(entries) - 1, index + 1)]
    tokens = [entry.tokens or 0.0 for entry in (one, two, three)]
    clocks = [entry.clock_s or 0.0 for entry in (one, two, three)]
    is_low = tokens[1] < tokens[0] <= tokens[2] and clocks[1] > clocks[0]
    return is_low or (tokens[0] <= tokens[2] < tokens[1] and clocks[2] > clocks[1] and index > 0)


def _report_steps(attempt: _Attempt, findings: Findings) -> bool:
    """Report the clock at numbered steps; a clock of whole seconds every COARSE_S. It begins with this start of the program."""
    entries = [entry for entry in attempt.entries if entry.clock_s is not None and entry.step is not None]
    if not entries:
        return False
    last = None
    if attempt.start_step is None and not _is_late([float(entry.step or 0) for entry in entries]):
        findings.record(entries[0].line, {"iteration": 0.0, "clock_s": 0.0, **attempt.total}, label=entries[0].label)
        last = 0.0
    for entry in entries:
        clock = entry.clock_s or 0.0
        if last is not None and last <= clock < last + COARSE_S * entry.is_coarse:
            continue
        _record(entry, {"iteration": float(entry.step or 0), "clock_s": clock, **attempt.total}, findings)
        last = clock
    return True


def _report_clocks(attempt: _Attempt, findings: Findings) -> bool:
    """Report the clock of dicts without the number of their step, one interval of logging each."""
    entries = [entry for entry in attempt.entries if entry.clock_s is not None]
    if len(entries) > 1:
        steps = _numbered(entries, attempt, findings)
        if findings.known(UNNUMBERED):
            findings.refuse("train_runtime is stated without steps or tokens: nothing shows how much was trained in it")
        for entry, step in zip(entries, steps, strict=True):
            _record(entry, {"iteration": step, "clock_s": entry.clock_s or 0.0, **attempt.total}, findings)
    return len(entries) > 1


def _counts_on(attempt: _Attempt) -> bool | None:
    """Say whether the training was resumed, by its bar, its header or the epochs of its dicts; None where nothing shows it."""
    series = _bar_of(attempt)
    if attempt.start_step is not None or (series and series.is_resumed):
        return True
    epochs = [entry.epoch for entry in attempt.entries if entry.epoch]
    if len(epochs) > 1 and _is_late([epochs[0][0], *(epoch[1] for epoch in epochs[1:])]):
        return True  # the header too, where its line of that was filtered out
    return False if attempt.is_trainer or (series and series.mean_s) or len(epochs) > 1 else None


def _shares_done(attempt: _Attempt, batch: float | None) -> list[float]:
    """Return which share of the planned steps was done, by the Trainer's output, its epochs and its bar, as far as the log has them."""
    series, runtime = _bar_of(attempt), attempt.summary.get(b"train_runtime", 0.0)
    total = attempt.total_steps or (series and series.total) or 0.0
    shares = [attempt.done_steps / total] if attempt.done_steps and total else []
    epochs = [entry.epoch[1] for entry in attempt.entries if entry.epoch]
    epoch = attempt.epoch or (2 * epochs[-1] - epochs[-2] if len(epochs) > 1 else None)
    if epoch and total and batch and attempt.num_examples:  # an epoch may end with a part of a batch
        shares.append((epoch + 0.01) * (attempt.num_examples / batch + 1) / total)
    if series and series.last and total and 2 * series.seconds > runtime > 0:
        shares.append(runtime / total * (series.base[0] + series.last[1].done) / series.seconds)
    return shares


def _report_summary(attempt: _Attempt, findings: Findings) -> bool:
    """Report the means of the whole run; `train_tokens_per_second` is not used, as its meaning changes with the version, nor are tokens that contradict it.

    The rates of a run that was resumed or stopped early divide all planned steps by the time of those that were done.
    """
    summary, line = attempt.summary, attempt.summary_line
    if not summary or line is None:
        return False
    counts_on, total, start = _counts_on(attempt), attempt.total_steps or 0.0, attempt.start_step or 0
    steps = total - start
    is_unknown = counts_on and (not start or steps <= 0 or attempt.is_gaudi)
    shares = _shares_done(attempt, findings.known("global_batch_size"))
    if is_unknown or any(share < 1 - _SHORT for share in shares):
        if not _report_bar(attempt, findings):
            findings.refuse(_RESUMED_SUMMARY if is_unknown else _STOPPED_SUMMARY)
        return True
    values = {"iteration": steps} if steps > 0 else {}
    runtime, samples = summary.get(b"train_runtime"), summary.get(b"train_samples_per_second")
    if steps <= 0 and runtime and (per_second := summary.get(b"train_steps_per_second")):
        values["iteration"] = max(1.0, round(runtime * per_second))
    each, done = _tokens_per_step(attempt, total or values.get("iteration")), values.get("iteration", 0.0)
    is_other = (
        attempt.token_rate and each and abs(each["tokens"] * done / attempt.token_rate / (runtime or 1.0) - 1) > _SHORT
    )
    values |= {} if is_other else each
    if runtime and (steps > 0 or {"tokens", "iteration"} <= values.keys()) and not attempt.is_gaudi:
        values["elapsed_s"] = runtime / values["iteration"]
    if samples:
        values["samples_per_second"] = samples * steps / total if start else samples
    losses = [entry.loss for entry in attempt.entries if entry.loss is not None]
    if losses:
        values["lm_loss"] = losses[-1]
    findings.record(line, values)
    findings.remark("mean over the whole run of the Trainer: warm-up, evaluations and checkpoints are inside")
    unknown = ["began at step 0"] * (counts_on is None) + ["did all planned steps"] * (not shares)
    if unknown:
        findings.remark(
            f"nothing shows that the Trainer {' and '.join(unknown)}: the summary of a training that was resumed or stopped early is too "
            "fast, as it counts all planned steps"
        )
    return True


DIALECTS = (
    Dialect(
        name="hf-trainer",
        title="Hugging Face Trainer, TRL, Axolotl, unsloth, optimum-habana",
        source="huggingface/transformers src/transformers/trainer.py, trainer_callback.py, trainer_utils.py",
        example="{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_input_tokens_seen': 819200, 'train_runtime': 100.0, "
        "'train_tokens_per_second': 8192.0}",
        trap="train_tokens_per_second is the mean since the start in the dict of a step, and another quantity in the summary; "
        "dicts have no step number",
        needles=_NEEDLES,
        parser=_Trainer,
        yields_to=("paddlenlp",),
    ),
    Dialect(
        name=LLAMA_FACTORY,
        title="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory src/llamafactory/train/callbacks.py",
        example='{"current_steps": 10, "total_steps": 100, "loss": 2.5, "lr": 5e-05, "epoch": 0.1, "percentage": 10.0, '
        '"elapsed_time": "0:01:40", "remaining_time": "0:15:00", "throughput": 8192.0, "total_tokens": 819200}',
        trap="each step is printed twice, and throughput is the mean since the start",
    ),
    Dialect(
        name=SWIFT,
        title="ms-swift, also with Megatron",
        source="modelscope/ms-swift swift/trainers/callback.py, swift/trainers/mixin.py",
        example="{'loss': 1.5, 'token_acc': 0.6, 'learning_rate': 0.0001, 'memory(GiB)': 20.5, 'train_speed(iter/s)': 0.25, "
        "'epoch': 0.1, 'global_step/max_steps': '10/100', 'percentage': '10.00%', 'elapsed_time': '40s', 'remaining_time': '6m 0s'}",
        trap="train_speed is steps per second (or its inverse) as the mean since the start, which a resumed run has wrong",
    ),
)
