"""LitGPT with its ancestors: the time is of a micro-batch, and the micro-batches of a step have to be added up."""

import re

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import is_cut, quantities, take_facts
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_LOSS = rb"(?P<lm_loss>[-+\d.eE]{1,40}|nan|inf)"
_MICRO = re.compile(
    rb"\biter (?P<micro>\d{1,18})(?:/\d{1,18})? step (?P<step>\d{1,18})(?:/\d{1,18})?\]?(?::| \|)"
    rb"(?: loss(?: train:)? " + _LOSS + rb",)?[^\r\n]{0,120}?\biter time: (?P<elapsed_ms>[\d.]{1,30}) ?ms"
    rb"(?P<mark> \((?:step|optimizer\.step)\))?(?P<pretrain> remaining time: )?"
)
# lightning-thunder's benchmarks: an optimizer step in every iteration, `t` is the length of the samples.
_WHOLE = re.compile(
    rb"\biter (?P<iteration>\d{1,18}): loss " + _LOSS + rb", iter time: (?P<elapsed_ms>[\d.]{1,30}) ?ms"
    rb"(?:, t: (?P<sequence_length>\d{1,9})(?=\s|$))?"
)
_LLAMA = re.compile(
    rb"\biter (?P<iteration>\d{1,18}): loss " + _LOSS + rb", time: (?P<elapsed_ms>[\d.]{1,30}) ?ms"
    rb"(?:, speed: (?P<tokens_per_second_per_device>[\d.]{1,30}|-) toks/s/device)?"
)
_BATCH = (re.compile(rb"\bglobal_batch_size=(?P<global_batch_size>\d{1,9})(?![\w-])"),)
_LENGTH = re.compile(rb"\bmax_seq_length=(\d{1,9})(?![\w-])")
_TOTAL = re.compile(rb"\| - Total tokens {1,9}: ([\d,]{1,30})\s*$")
ONE_OF_MANY = (
    "each line has the time of one micro-batch of a step only: the time of a step is not in the log, "
    "and no option can supply it"
)
NO_STEP = "no step of this log has all its micro-batches: the time of a step is not in it, and no option can supply it"


class _Parser(Parser):
    """Adds up the micro-batches from the line behind one step to the next step."""

    def __init__(self) -> None:
        self.last: tuple[int, int] | None = None
        self.elapsed_s: float | None = None
        self.length: float | None = None
        self.before = 0
        """The step whose end was met last."""
        self.is_from_start = self.has_gaps = self.was_step = self.has_micro = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read a micro-batch, an iteration that is a step, or what is said once."""
        if b"TrainArgs(" in text:
            take_facts(_BATCH, text, line, findings)
            length = _LENGTH.search(text, text.index(b"TrainArgs("))
            self.length = float(length[1]) if length else None
        self._total(line, text, findings)
        for found in _WHOLE.finditer(text):
            values, is_whole = quantities(found, cut_at=-1 if line.is_ended else len(text))
            findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)
        for found in _MICRO.finditer(text):
            self.has_micro = True
            if found[0].count(b"loss") > 1 or found[0].count(b"iter ") > 2:
                continue  # the halves of two lines
            self._micro(line, text, found, findings)

    def _micro(self, line: Line, text: bytes, found: re.Match[bytes], findings: Findings) -> None:
        micro, step = int(found["micro"]), int(found["step"])
        elapsed = number(found["elapsed_ms"])
        if found["pretrain"] and self.length:
            # In fine-tuning the length is the most that a sample may have.
            findings.fact("sequence_length", self.length, line)
        is_one_each = self._is_step(micro, step)
        self._add(micro, None if elapsed is None else elapsed / 1000, is_one_each=is_one_each)
        if self.last is None or micro <= self.last[0]:
            self.before = step - bool(found["mark"])
        self.last, self.was_step = (micro, step), bool(found["mark"] or is_one_each)
        if not self.was_step:
            return
        # Where the end of a step was lost, the time is that of several.
        is_one = is_one_each or step - self.before <= 1
        self.before = step
        if self.elapsed_s is not None and is_one:
            values = {"iteration": float(step), "elapsed_s": self.elapsed_s}
            loss = number(found["lm_loss"]) if found["lm_loss"] else None
            if loss is not None:
                values["lm_loss"] = loss
            findings.record(line, values, label=label_of(text[: found.start()]))
        self.elapsed_s = 0.0

    def _is_step(self, micro: int, step: int) -> bool:
        """Say whether every micro-batch since the step of the line before was a step of its own."""
        return self.was_step and self.last is not None and 0 < micro - self.last[0] == step - self.last[1]

    def _add(self, micro: int, elapsed_s: float | None, *, is_one_each: bool) -> None:
        if self.last is None or micro <= self.last[0]:
            # A training that begins; an excerpt may begin within a step, whose time is then not known.
            self.is_from_start = micro <= 1
            self.elapsed_s = 0.0 if self.is_from_start else None
        elif is_one_each:
            self.elapsed_s = 0.0
        elif micro - self.last[0] > 1:
            self.has_gaps, self.elapsed_s = True, None
        if self.elapsed_s is not None and elapsed_s is not None:
            self.elapsed_s += elapsed_s

    def _total(self, line: Line, text: bytes, findings: Findings) -> None:
        """Take the tokens of the whole run from the summary; its own rate is divided by a time of day."""
        found = _TOTAL.search(text)
        total = number(found[1]) if found and not is_cut(line, text, found.end()) else None
        if total and self.last and self.last[1] and self.is_from_start:
            findings.fact("tokens", total / self.last[1], line)

    def finish(self, findings: Findings) -> None:
        """Refuse where micro-batches are missing between the lines."""
        if self.has_micro and not findings.num_records:
            findings.refuse(ONE_OF_MANY if self.has_gaps else NO_STEP)


class _Llama(Parser):
    """lit-llama: a rate of one device for each step, or times of micro-batches alone."""

    def __init__(self) -> None:
        self.has_rates = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read an iteration; `-` stands for the rate of an iteration that is no step."""
        for found in _LLAMA.finditer(text):
            if found["tokens_per_second_per_device"] == b"-":
                continue
            values, is_whole = quantities(found)
            if not line.is_ended and "tokens_per_second_per_device" not in values:
                values, is_whole = {}, False  # a speed may have followed
            if "tokens_per_second_per_device" in values:
                values.pop("elapsed_s", None)
                self.has_rates = True
            findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Say what an iteration is."""
        if findings.num_records and not self.has_rates:
            findings.remark(
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
        parser=_Parser,
    ),
    Dialect(
        name="lit-llama",
        title="lit-llama",
        source="Lightning-AI/lit-llama train.py, pretrain/redpajama.py, finetune/lora.py",
        example="iter 100: loss 7.5000, time: 500.00ms, speed: 4096 toks/s/device",
        trap="time is of a micro-batch, speed of one device and of the whole step; `-` while gradients accumulate",
        needles=(b", time: ",),
        parser=_Llama,
        counts_from=0,
    ),
)
