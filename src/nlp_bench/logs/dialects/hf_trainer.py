"""Hugging Face's Trainer, and all programs that are built on it.

Sources of times, best first: dicts with a clock and tokens or steps (their differences, since the printed rate is the mean since the
start), a mean rate, the progress bar where it covers the whole run, the summary at the end, any other progress bar.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import PAIRS, REINFORCED, Dialect, Findings, Parser
from nlp_bench.logs.pattern import is_cut, late
from nlp_bench.logs.progress_bar import COARSE_S, BarBook, Series, report_series
from nlp_bench.logs.quantity import LARGEST, UNNUMBERED, Rounded, bounds, duration_s, number, rounded
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
    b"max_memory_allocated (GB)", b"%|", b"context_parallel_size", b"sequence_parallel_",
)  # fmt: skip
"""Lines of dicts, of the summary, of the block at the start, and bars; `--logging-steps` is the steps per dict."""
_BATCH = late(rb"(?i)total (?:train )?batch size \([^()]{1,80}\) = ([\d,]{1,20})(?!\d)")
_STATED = {
    "total": late(rb"(?i)total (?:optimization )?steps = ([\d,]{1,20})(?!\d)"),
    "done": late(rb"TrainOutput\(global_step=(\d{1,12})(?!\d)"),
    "examples": late(rb"Num examples = ([\d,]{1,20})(?!\d)"),
    "stride": late(rb"(?i)\blogging[_-]steps[= ]\s?(\d{1,9})(?:\.0)?(?![\d.])"),
    "start": late(rb"(?i)continuing training from (?:global step|checkpoint)[^\d]{0,80}(\d{1,12})?"),
}
"""What a start of the program states: planned and done steps, examples of the training (an evaluation prints its own behind them),
steps per dict, and the step from which it was resumed."""
_SUMMARY = late(
    rb"\b(train_runtime|train_samples_per_second|train_steps_per_second|num_input_tokens_seen|epoch|max_memory_allocated \(GB\))"
    rb"(?:\s{1,24}=|['\"]:)\s{1,20}([\d:.]{1,20})(?![\w:.-])"
)
_SHARING = (b"context_parallel_size", b"sequence_parallel_size", b"sequence_parallel_degree")
_SHARED = late(rb"(?<![\w.])(?:%b)['\"]?\s{0,2}[:= ]\s{0,2}(\d{1,9})(?![\w.])" % b"|".join(_SHARING))
"""Of the configuration that Axolotl and ms-swift print before the banner: how many ranks work on one sample."""
_SETTINGS = late(
    rb"TrainOutput\(|atch size \(|um examples =|teps =|ogging[_-]steps|ontinuing training from|"
    rb"parallel_(?:size|degree)"
)
_STEP_KEYS = (
    b"global_step/max_steps", b"steps[global_step/max_steps]", b"iteration", b"current_steps", b"global_step",
    b"step",
)  # fmt: skip
_TOKEN_KEYS = (b"num_input_tokens_seen", b"total_tokens", b"num_tokens", b"tokens/total")
_DEVICE_KEYS = (b"tokens_per_second_per_gpu", b"tokens/train_per_sec_per_gpu")
_REINFORCED = (b"completion_length", b"completions/mean_length", b"num_completions")
_GAUDI = b"max_memory_allocated (GB)"
"""Of optimum-habana, which leaves warm-up and evaluation out of its rates, not out of the runtime."""
_LARGEST_JUMP = 1.4  # of the tokens per step where each dict has a bar of its own
_MIN_POINTS, _AGREES = 8, 0.02
"""Readings of a bar that tell more than the summary, and share by which its last one may differ from the summary's time."""
_SHORT = 0.05  # share by which less than the planned steps may seem to be done
_LATE = 1.5  # intervals of logging before the first dict: more than that, and it is not the first of its training
_LEFT_OUT = 3.0
"""Tokens of one dict, in those of the usual one, from which on dicts are missing before it; batches that are padded differ by less."""
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


def _dicts(text: bytes) -> Iterator[Mapping[bytes, bytes]]:
    """Yield every dict of a line that has pairs: key to the text of its value, without quotes.

    One with a duplicate key is spliced from two dicts and left out.
    """
    for found in _DICT.finditer(text):
        pairs = [(pair[2], pair[4] if pair[3] else pair[5]) for pair in _PAIR.finditer(found[0])]
        if len(pairs) == len(dict(pairs)) > 0:
            yield dict(pairs)


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

    @property
    def at(self) -> float:
        """Steps that were done by then, 0 where it is unknown."""
        return self.step or (self.bar[0] if self.bar else 0)


@dataclass
class _Attempt:
    """The output of one start of the program."""

    entries: list[_Entry] = field(default_factory=list)
    book: BarBook = field(default_factory=BarBook)
    bar: tuple[int, float] | None = None
    waiting: _Entry | None = None
    stated: dict[str, float] = field(default_factory=dict)
    """By the names of _STATED."""
    summary: dict[bytes, float] = field(default_factory=dict)
    summary_line: Line | None = None
    is_trainer: bool = False

    @property
    def has_begun(self) -> bool:
        return bool(self.entries or self.summary or self.bar)

    @property
    def series(self) -> Series | None:
        return self.book.longest(self.stated.get("total"))

    @property
    def tokens(self) -> float:
        return next((self.summary[key] for key in _TOKEN_KEYS if key in self.summary), 0.0)


class _Trainer(Parser):
    """Parser of the Trainer's log; programs that are built on it are recognized by _OWN_WORDS."""

    def __init__(self) -> None:
        self.attempt = _Attempt()
        self.name = ""
        self.sharing = 1  # ranks that work on one sample

    def take(self, line: Line, findings: Findings) -> None:
        if not self.name:
            self.name = next((name for words, name in _OWN_WORDS.items() if words in line.text), "")
        if b"%|" in line.text:
            self._bars(line)
        for text in pieces(line.text):
            if not text.startswith(b"{"):  # not just the dict of a step
                if b"unning training *****" in text:
                    self._start(line, findings)
                if _SETTINGS.search(text):
                    self._settings(text, line, findings)
            if b"{" in text:
                for pairs in _dicts(text):
                    self._dict(pairs, text, line, findings)
            else:
                self._summary_block(text, line)

    def _bars(self, line: Line) -> None:
        attempt = self.attempt
        total = attempt.stated.get("total")
        for bar in attempt.book.take(line, "train"):
            if total in {None, bar.total} and (attempt.bar is None or bar.done >= attempt.bar[0]):
                attempt.bar = bar.done, bar.clock_s
                if attempt.waiting:
                    attempt.waiting.bar, attempt.waiting = attempt.bar, None

    def _start(self, line: Line, findings: Findings) -> None:
        if self.attempt.has_begun:
            self.finish(findings)
            self.attempt = _Attempt()
        # Not only behind steps: after a start that came to none `auto_find_batch_size` tries another batch.
        findings.start(line)
        self.attempt.is_trainer = True

    def _settings(self, text: bytes, line: Line, findings: Findings) -> None:
        attempt = self.attempt
        self.sharing = max(self.sharing, *map(int, _SHARED.findall(text)), 1)
        if found := _BATCH.search(text):
            self._batch(number(found[1]) or 0.0, line, findings)
            attempt.is_trainer = True
        for name, form in _STATED.items():
            if found := form.search(text):
                attempt.stated.setdefault(name, number(found[1] or b"0") or 0.0)

    def _batch(self, batch: float, line: Line, findings: Findings) -> None:
        """Report the batch of the banner, which in some versions counts all ranks, those that share a sample included."""
        if self.sharing > 1:
            findings.remark(
                f"{self.sharing} ranks work on one sample, and nothing shows whether the batch of {batch:.0f} in line {line.number} counts "
                f"each sample {self.sharing} times: it is not used"
            )
        else:
            findings.fact("global_batch_size", batch, line)

    def _dict(self, pairs: Mapping[bytes, bytes], text: bytes, line: Line, findings: Findings) -> None:
        attempt = self.attempt
        if any(key in pairs for key in _REINFORCED):
            findings.refuse(REINFORCED)
        if b"rewards/chosen" in pairs:
            findings.doubt(PAIRS)
        if b"loss" not in pairs:
            if b"train_runtime" in pairs and not attempt.summary:
                attempt.summary = {key: value for key, text in pairs.items() if (value := number(text)) is not None}
                attempt.summary_line = slim(line)
            return
        if any(key.startswith(b"eval_") for key in pairs):
            return
        entry, total = _entry(pairs, slim(line), label_of(text[: text.find(b"{")]))
        # A loss that is no number is printed as 0 (`logging_nan_inf_filter`).
        shown = entry.loss or number(pairs.get(b"grad_norm", b""))
        if shown is not None and not math.isfinite(shown):
            findings.refuse(
                f"line {line.number} shows that the loss is no number any more: nothing is trained from there on"
            )
        entry.mean_rate = number(pairs.get(b"throughput", b"")) if self.name == LLAMA_FACTORY else None
        if attempt.entries and _is_echo(attempt.entries[-1], entry):
            return
        if attempt.waiting:
            attempt.waiting.bar = None  # its bar is lost
        entry.bar, attempt.waiting = attempt.bar, entry
        attempt.entries.append(entry)
        if total:
            attempt.stated.setdefault("total", total)

    def _summary_block(self, text: bytes, line: Line) -> None:
        attempt = self.attempt
        for found in _SUMMARY.finditer(text):
            # A clock is written as 0:01:40.00; a shorter one is cut.
            value = duration_s(found[2]) if found[2].count(b":") > 1 else number(found[2])
            if value and not is_cut(line, text, found.end()):
                attempt.summary.setdefault(found[1], value)
                attempt.summary_line = attempt.summary_line or slim(line)

    def finish(self, findings: Findings) -> None:
        _report(self.attempt, findings)
        if self.name:
            findings.rename(self.name)


def _first(pairs: Mapping[bytes, bytes], keys: Iterable[bytes]) -> bytes:
    return next((pairs[key] for key in keys if key in pairs), b"")


def _entry(pairs: Mapping[bytes, bytes], line: Line, label: bytes) -> tuple[_Entry, float]:
    """Return the dict of a step, and all steps of the training, 0 where it does not state them; `5/100` has both."""
    step, _, total = _first(pairs, _STEP_KEYS).partition(b"/")
    at, of = _count(step), _count(total or pairs.get(b"total_steps", b""))
    entry = _Entry(line, label, int(at.value) if at else None)
    if counted := _count(_first(pairs, _TOKEN_KEYS)):
        entry.tokens, entry.token_error = counted
    runtime, rate = number(pairs.get(b"train_runtime", b"")), number(pairs.get(b"train_tokens_per_second", b""))
    if runtime:
        entry.clock_s = runtime
        if entry.tokens is None and rate:
            entry.tokens = rate * runtime
    elif (elapsed := duration_s(pairs.get(b"elapsed_time", b""))) is not None:
        entry.clock_s, entry.is_coarse = _finer(elapsed, entry.step or 0, pairs), True
    entry.device_rate, entry.loss = number(_first(pairs, _DEVICE_KEYS)), number(pairs.get(b"loss", b""))
    entry.epoch = bounds(pairs.get(b"epoch", b""))
    return entry, of.value if of else 0.0


def _finer(elapsed: float, step: int, pairs: Mapping[bytes, bytes]) -> float:
    """Return the elapsed time by the mean speed since the start, where it agrees with the whole seconds."""
    per_second, per_step = (number(pairs.get(b"train_speed(%b)" % unit, b"")) for unit in (b"iter/s", b"s/it"))
    fine = step / per_second if per_second else step * (per_step or 0.0)
    return fine if fine and abs(fine - elapsed) <= 1.5 else elapsed


def _is_echo(before: _Entry, entry: _Entry) -> bool:
    """Say whether another process or node printed the same dict; with too little in it to compare it is another one."""
    one, two = ((dict_.step, dict_.tokens, dict_.mean_rate) for dict_ in (before, entry))
    return one == two and any(two)


def _report(attempt: _Attempt, findings: Findings) -> None:
    """Report the records of one attempt from the best source that it has."""
    if not any(entry.clock_s for entry in attempt.entries) and _are_paired(attempt):
        for entry in attempt.entries:
            if entry.bar and entry.tokens:
                entry.clock_s, entry.is_coarse = entry.bar[1], True
    sources = (_report_clock, _report_mean, _report_summary, _report_bar, _report_rest)
    any(source(attempt, findings) for source in sources)


def _are_paired(attempt: _Attempt) -> bool:
    """Say whether each dict has a bar of its own: where one was lost, or bars are drawn every few steps, tokens per step jump."""
    counted = [entry for entry in attempt.entries if entry.tokens]
    known = [(entry.tokens or 0.0, entry.bar[0]) for entry in counted if entry.bar]
    shares = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise([(0.0, 0), *known]) if b[1] > a[1]]
    return len(known) == len(counted) > 0 < len(shares) and max(shares) < _LARGEST_JUMP * min(shares)


def _record(entry: _Entry, values: Mapping[str, float], findings: Findings) -> None:
    loss = {} if entry.loss is None else {"lm_loss": entry.loss}
    findings.record(entry.line, {**values, **loss}, label=entry.label)


def _report_rest(attempt: _Attempt, findings: Findings) -> bool:
    """Refuse what is no measure of all tokens: rates of one micro-batch, and clocks without steps."""
    if any(entry.device_rate for entry in attempt.entries):
        findings.refuse(
            "the only rate counts the trained tokens of one micro-batch: nothing shows how many tokens a step has, or its time"
        )
    elif sum(entry.clock_s is not None for entry in attempt.entries) > 1:
        findings.refuse("train_runtime is stated without steps or tokens: nothing shows how much was trained in it")
    return True


def _report_mean(attempt: _Attempt, findings: Findings) -> bool:
    entries = [entry for entry in attempt.entries if entry.mean_rate]
    if entries:
        _record(
            entries[-1], {"iteration": float(len(entries)), "tokens_per_second": entries[-1].mean_rate or 0.0}, findings
        )
        findings.remark("the rate is the mean since the start of the training: warm-up is inside")
    return bool(entries)


def _report_bar(attempt: _Attempt, findings: Findings, steps: float = 0.0) -> bool:
    series = attempt.series
    if not (series and (attempt.is_trainer or attempt.entries or attempt.summary)):
        return False
    losses = sorted((entry.at, entry.loss) for entry in attempt.entries if entry.at and entry.loss is not None)
    return report_series(series, findings, each=_tokens_per_step(attempt, steps), losses=losses) > 0


def _tokens_per_step(attempt: _Attempt, steps: float) -> dict[str, float]:
    """Return the mean tokens of a step by the summary or the last dict that counts them, none where there is none.

    `steps` are those of the whole training, where it was done.
    """
    if steps and attempt.tokens:
        return {"tokens": attempt.tokens / steps}
    entry = next((entry for entry in reversed(attempt.entries) if entry.tokens), None)
    if entry is None:
        return {}
    at, epoch = entry.at, attempt.summary.get(b"epoch")
    if steps and epoch and entry.epoch:  # a bar beside it may be some steps off
        at = steps * min(1.0, sum(entry.epoch) / 2 / epoch)
    return {"tokens": (entry.tokens or 0.0) / at} if at else {}


def _numbered(entries: list[_Entry], attempt: _Attempt) -> tuple[list[float], bool]:
    """Return the step of each dict, and whether it is known: stated, from its bar, or counted by the logging interval."""
    for numbers in ([entry.step for entry in entries], [entry.bar[0] if entry.bar else None for entry in entries]):
        known = [float(n) for n in numbers if n]
        if len(known) == len(entries) and known == sorted({*known}):
            return known, True
    stride = attempt.stated.get("stride")
    if not stride and attempt.summary and "start" not in attempt.stated:  # a whole training
        each, rest = divmod(attempt.stated.get("total", 0.0), len(entries))
        # With more dicts than steps in each, no steps behind the last dict can make it a whole number.
        stride = each if not rest and each < len(entries) else None
    # Dicts that are missing between two show in the tokens.
    tokens = [entry.tokens or 0.0 for entry in entries]
    steps = [after - before for before, after in pairwise(tokens)]
    usual = statistics.median(steps) if steps else 0.0
    gaps = (round(step / usual) if 0 < _LEFT_OUT * usual <= step else 1 for step in steps)
    return [n * (stride or 1.0) for n in accumulate(gaps, initial=1)], bool(stride)


def _is_late(counts: list[float]) -> bool:
    """Say whether the first dict counts much more than lies between two: it is not the first one since the count was 0."""
    return len(counts) > 1 and counts[0] > _LATE * (counts[-1] - counts[0]) / (len(counts) - 1)


def _report_clock(attempt: _Attempt, findings: Findings) -> bool:
    """Report the tokens and the time between two dicts, or else the clock; those of the first count from the start of the training."""
    timed = [entry for entry in attempt.entries if entry.clock_s is not None]
    counted = _without_outliers([entry for entry in timed if entry.tokens])
    entries = counted or [entry for entry in timed if entry.step is not None] or timed
    steps, is_numbered = _numbered(entries, attempt) if entries else ([], False)
    if not is_numbered:
        if not counted:
            return False
        findings.fact(UNNUMBERED, 1.0, entries[0].line)
        findings.remark("the log does not number its steps: an iteration here is one interval of logging")
    total = {"total_iterations": attempt.stated["total"]} if attempt.stated.get("total") else {}
    counts = [entry.tokens or step for entry, step in zip(entries, steps, strict=True)]
    before = None if "start" in attempt.stated or _is_late(counts) else (0.0, 0.0, 0.0)
    if before and not counted:
        findings.record(entries[0].line, {"iteration": 0.0, "clock_s": 0.0, **total}, label=entries[0].label)
    for entry, step in _spaced(list(zip(entries, steps, strict=True))):
        tokens, clock = entry.tokens or 0.0, entry.clock_s or 0.0
        values = {"iteration": step, **total}
        if counted:
            # A resumed training counts its tokens on, but its clock begins anew.
            if before is None or tokens < before[1] or clock <= before[2]:
                before = step, tokens, clock
                continue
            new = tokens - before[1]
            if new <= 2 * _TOKEN_DIGITS * entry.token_error:
                continue
            values |= {"tokens": new / max(1.0, step - before[0]), "tokens_per_second": new / (clock - before[2])}
            before = step, tokens, clock
        else:
            values["clock_s"] = clock
        _record(entry, values, findings)
    return True


def _without_outliers(entries: list[_Entry]) -> list[_Entry]:
    """Return the dicts without those whose tokens are not between those of the dicts around them, which fit: a torn line."""
    tokens = [entry.tokens or 0.0 for entry in entries]
    around = zip([*tokens[:1], *tokens], tokens, [*tokens[1:], *tokens[-1:]], strict=False)
    is_odd = [two < one <= three or one <= three < two for one, two, three in around]
    return [entry for entry, odd in zip(entries, is_odd, strict=True) if not odd]


def _spaced(entries: list[tuple[_Entry, float]]) -> list[tuple[_Entry, float]]:
    """Return the dicts whose coarse clocks are far enough apart, from the end on: a shorter interval is the first one, which is warm-up."""
    kept = entries[-1:]
    for entry, step in reversed(entries[:-1]):
        seconds = (kept[-1][0].clock_s or 0.0) - (entry.clock_s or 0.0)
        if not entry.is_coarse or not 0 <= seconds <= COARSE_S:
            kept.append((entry, step))
    return kept[::-1]


def _counts_on(attempt: _Attempt, series: Series | None) -> bool | None:
    """Say whether the training was resumed, by its bar, its header or the epochs of its dicts; None where nothing shows it."""
    epochs = [entry.epoch for entry in attempt.entries if entry.epoch]
    # By the epochs also where the line of the header was filtered out.
    is_late = len(epochs) > 1 and _is_late([epochs[0][0], *(epoch[1] for epoch in epochs[1:])])
    if "start" in attempt.stated or (series and series.is_resumed) or is_late:
        return True
    return False if attempt.is_trainer or (series and series.mean_s) or len(epochs) > 1 else None


def _shares_done(attempt: _Attempt, series: Series | None, batch: float | None) -> list[float]:
    """Return which share of the planned steps was done, by the Trainer's output, its epochs and its bar, as far as the log has them."""
    stated, runtime = attempt.stated, attempt.summary.get(b"train_runtime", 0.0)
    total = stated.get("total") or stated.get("done") or (series and series.total)
    if not total:
        return []
    shares = [stated["done"] / total] if "done" in stated else []
    epochs = [entry.epoch[1] for entry in attempt.entries if entry.epoch]
    epoch = attempt.summary.get(b"epoch") or (2 * epochs[-1] - epochs[-2] if len(epochs) > 1 else None)
    if epoch and batch and "examples" in stated:  # an epoch may end with a part of a batch
        shares.append((epoch + 0.01) * (stated["examples"] / batch + 1) / total)
    if series and series.last and 2 * series.seconds > runtime > 0:
        shares.append(runtime / total * (series.base[0] + series.last[1].done) / series.seconds)
    return shares


def _is_whole(series: Series, runtime: float) -> bool:
    """Say whether a bar covers the whole run of a summary, and in enough readings."""
    if not series.last or series.num_bars > 1 or len(series.points) < _MIN_POINTS:
        return False
    return series.last[1].done == series.total and abs(series.seconds - runtime) <= _AGREES * runtime


def _report_summary(attempt: _Attempt, findings: Findings) -> bool:
    """Report the means of the whole run, or its bar where that covers the same time: the summary has the evaluations in one mean.

    `train_tokens_per_second` is not used, as its meaning changes with the version, nor are tokens that contradict it. The rates of a
    run that was resumed or stopped early divide all planned steps by the time of those that were done.
    """
    summary, line, stated, series = attempt.summary, attempt.summary_line, attempt.stated, attempt.series
    if line is None or not any(key.startswith(b"train_") for key in summary):
        return False
    counts_on, steps = _counts_on(attempt, series), stated.get("total") or stated.get("done", 0.0)
    runtime, is_gaudi = summary.get(b"train_runtime", 0.0), _GAUDI in summary
    if series and not counts_on and _is_whole(series, runtime):
        findings.remark(
            f"the steps are timed by the progress bar; by the Trainer's summary they took {runtime / (series.total or 1):.4g} s in the mean "
            "of the whole run"
        )
        return _report_bar(attempt, findings, series.total or 0)
    shares = _shares_done(attempt, series, findings.known("global_batch_size"))
    if counts_on or any(share < 1 - _SHORT for share in shares):
        if not _report_bar(attempt, findings):
            findings.refuse(_RESUMED_SUMMARY if counts_on else _STOPPED_SUMMARY)
        return True
    done = steps or round(runtime * summary.get(b"train_steps_per_second", 0.0))
    values = {"iteration": float(done)} if done else {}
    each, rate = _tokens_per_step(attempt, done), summary.get(b"train_tokens_per_second")
    if not (rate and each and runtime and abs(each["tokens"] * done / rate / runtime - 1) > _SHORT):
        values |= each
    if runtime and (steps or {"tokens", "iteration"} <= values.keys()) and not is_gaudi:
        values["elapsed_s"] = runtime / done
    if samples := summary.get(b"train_samples_per_second"):
        values["samples_per_second"] = samples
    if losses := [entry.loss for entry in attempt.entries if entry.loss is not None]:
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
