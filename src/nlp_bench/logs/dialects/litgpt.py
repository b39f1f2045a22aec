"""LitGPT and its predecessors: the time is of a micro-batch, and the micro-batches of a step are added up."""

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.pattern import At, Match, Pattern, PatternParser, Values, is_cut, late
from nlp_bench.logs.quantity import number, numbers
from nlp_bench.logs.scan import Line

_MICRO = late(
    rb"\biter (?P<micro>\d{1,18})(?:/\d{1,18})? step (?P<step>\d{1,18})(?:/\d{1,18})?\]?(?::| \|)"
    rb"(?: loss(?: train:)? <lm_loss>,)?[^\r\n]{0,120}?\biter time: <elapsed_ms> ?ms"
    rb"(?P<mark> \((?:step|optimizer\.step)\))?(?P<pretrain> remaining time: )?"
)
_LENGTH = late(rb"TrainArgs\(.*\bmax_seq_length=(\d{1,9})(?![\w-])")
_TOTAL = late(rb"\| - Total tokens {1,9}: ([\d,]{1,30})\s*$")
_NOT_IN_IT = "the time of a step is not in the log, and no option can supply it"


class _LitGpt(PatternParser):
    """Adds up the times of the micro-batches after one step up to the next step."""

    last: tuple[int, int] | None = None
    elapsed_s: float | None = None
    length: float | None = None
    before = 0  # the last step whose end was read
    is_from_start = has_gaps = was_step = has_micro = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if b"TrainArgs(" in text:
            length = _LENGTH.search(text)
            self.length = float(length[1]) if length else None
        found = _TOTAL.search(text)
        total = number(found[1]) if found and not is_cut(line, text, found.end()) else None
        if total and self.last and self.last[1] and self.is_from_start:
            findings.fact("tokens", total / self.last[1], line)  # the summary's own rate is divided by a time of day
        super().text(text, line, findings)
        for found in _MICRO.finditer(text):
            self.has_micro = True
            self._micro(line, text, found, findings)

    def _micro(self, line: Line, text: bytes, found: Match, findings: Findings) -> None:
        micro, step = int(found["micro"]), int(found["step"])
        elapsed = number(found["elapsed_ms"])
        if found["pretrain"] and self.length:
            # In fine-tuning it is the greatest length of a sample.
            findings.fact("sequence_length", self.length, line)
        # Whether every micro-batch since the previous line was a step of its own.
        is_one_each = self.was_step and self.last is not None and 0 < micro - self.last[0] == step - self.last[1]
        self._add(micro, None if elapsed is None else elapsed / 1000, is_one_each=is_one_each)
        if self.last is None or micro <= self.last[0]:
            self.before = step - bool(found["mark"])
        self.last, self.was_step = (micro, step), bool(found["mark"] or is_one_each)
        if not self.was_step:
            return
        # Where the end of a step was lost, the time is that of several steps.
        is_one = is_one_each or step - self.before <= 1
        self.before = step
        if self.elapsed_s is not None and is_one:
            values = {"iteration": float(step), "elapsed_s": self.elapsed_s}
            values |= numbers([("lm_loss", found["lm_loss"])])
            findings.record(line, values, label=label_of(text[: found.start()]))
        self.elapsed_s = 0.0

    def _add(self, micro: int, elapsed_s: float | None, *, is_one_each: bool) -> None:
        if self.last is None or micro <= self.last[0]:
            # The start of a training, or of an excerpt, which may be within a step; its time is then unknown.
            self.is_from_start = micro <= 1
            self.elapsed_s = 0.0 if self.is_from_start else None
        elif is_one_each:
            self.elapsed_s = 0.0
        elif micro - self.last[0] > 1:
            self.has_gaps, self.elapsed_s = True, None
        if self.elapsed_s is not None and elapsed_s is not None:
            self.elapsed_s += elapsed_s

    def finish(self, findings: Findings) -> None:
        if self.has_micro and not findings.num_records:
            findings.refuse(
                f"each line has the time of one micro-batch of a step only: {_NOT_IN_IT}"
                if self.has_gaps
                else f"no step of this log has all its micro-batches: {_NOT_IN_IT}"
            )


class _Llama(PatternParser):
    """lit-llama: a rate of one device for each step, or only the times of micro-batches."""

    has_rates = False

    def values(self, values: Values, at: At) -> Values | None:
        """Prefer the rate of a step to its time; `-` is printed for the rate of an iteration that is no step."""
        if at.found["accumulates"]:
            return None
        if "tokens_per_second_per_device" in values:
            self.has_rates = True
            del values["elapsed_s"]
        return values

    def finish(self, findings: Findings) -> None:
        if findings.num_records and not self.has_rates:
            findings.doubt(
                "an iteration of lit-llama is one micro-batch on every GPU: --global-batch-size has to be that of one"
            )


DIALECTS = (
    Dialect(
        name="litgpt",
        title="LitGPT, lit-gpt, TinyLlama, lightning-thunder benchmarks",
        source="Lightning-AI/litgpt litgpt/pretrain.py, litgpt/finetune/lora.py; jzhang38/TinyLlama pretrain/tinyllama.py",
        example="Epoch 1 | iter 1 step 1 | loss train: 1.500, val: n/a | iter time: 500.00 ms (step) "
        "remaining time: 1:00:00",
        trap="iter is a micro-batch of one device, step the optimizer's; Tok/sec of the summary is wrong in the source",
        needles=(b"iter time: ", b"TrainArgs(", b"| - Total tokens "),
        parser=Pattern(
            # lightning-thunder's benchmarks: an optimizer step in every iteration, `t` is the length of the samples.
            record=rb"\biter <iteration>: loss <lm_loss>, iter time: <elapsed_ms> ?ms(?:, t: <sequence_length>(?=\s|$))?",
            facts=(rb"TrainArgs\(.*\bglobal_batch_size=<global_batch_size>(?![\w-])",),
            reads_each_line=False,
            reading=_LitGpt,
        ),
    ),
    Dialect(
        name="lit-llama",
        title="lit-llama",
        source="Lightning-AI/lit-llama train.py, pretrain/redpajama.py, finetune/lora.py",
        example="iter 100: loss 7.5000, time: 500.00ms, speed: 4096 toks/s/device",
        trap="time is of a micro-batch, speed of one device and of the whole step; `-` while gradients accumulate",
        needles=(b", time: ",),
        parser=Pattern(
            record=rb"\biter <iteration>: loss <lm_loss>, time: <elapsed_ms> ?ms(?:, speed: "
            rb"(?:<tokens_per_second_per_device>|(?P<accumulates>-)) toks/s/device)?",
            reads_each_line=False,
            reading=_Llama,
        ),
        counts_from=0,
    ),
)
