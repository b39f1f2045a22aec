"""The JAX trainers of Google and Apple: T5X and others that log through CLU, PaxML, AXLearn."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import Pattern
from nlp_bench.logs.quantity import in_unit, number
from nlp_bench.logs.scan import Line

_HEAD = re.compile(rb"\[(\d{1,12})\] (collection=train )?(?!collection=)(?=[\w/ ]{1,200}=)")
_OTHER = re.compile(rb"\bcollection=|\] \[\d{1,12}\] |\.py:\d")
_NAMED = b"] collection="
_TORN_NAME = re.compile(rb"\w{1,40}=[a-zA-Z_]{1,40}(?:/\S{1,80})? ")
_PAIR = re.compile(rb"(?<![\w/])(?:timing/)?(\w+)=([-+\d.eE]+)(?=,|\s|$)")
_RATE, _CORE = b"target_tokens_per_second", b"target_tokens_per_second_per_core"
_KEYS = {
    _RATE: "tokens_per_second",
    _CORE: "tokens_per_second_per_device",
    b"seqs_per_second": "samples_per_second",
    b"steps_per_second": "iterations_per_second",
    b"steps_per_sec": "iterations_per_second",
    b"loss": "lm_loss",
}
_TARGETS = "target tokens alone are counted, padding included; the tokens of the encoder are not"


class _Clu:
    """Reads `[step] name=value, name=value`, and derives the devices from the two rates."""

    def __init__(self) -> None:
        self._devices = Counted()
        self._is_named = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read records; other collections than train are evaluations."""
        for text in pieces(line.text):
            head = _HEAD.search(text)
            self._is_named = self._is_named or _NAMED in text
            # Behind the head of an evaluation, or of any other line, the numbers are another's.
            if not head or _OTHER.search(text, head.end()):
                continue
            # A program that names the collection names it on every line: where it is missing, it was lost.
            if head[2] or not (self._is_named or _TORN_NAME.match(text, head.end())):
                self._record(text, head, line, findings)

    def _record(self, text: bytes, head: re.Match[bytes], line: Line, findings: Findings) -> None:
        written: dict[bytes, bytes] = {}
        for pair in _PAIR.finditer(text, head.end()):
            is_whole = line.is_ended or pair.end() < len(text)
            if is_whole and written.setdefault(pair[1], pair[2]) != pair[2]:
                findings.record(line, {}, is_whole=False)  # the halves of two lines
                return
        values = {"iteration": float(head[1])}
        for key, name in _KEYS.items():
            value = number(written.get(key, b""))
            if value is not None:
                quantity, values[quantity] = in_unit(name, value)
        if not {"elapsed_s", "tokens_per_second", "samples_per_second"} & values.keys():
            return
        if "tokens_per_second" in values:
            findings.remark(_TARGETS)
        self._devices.quotient(line, written.get(_RATE), written.get(_CORE))
        findings.record(line, values, label=label_of(text[: head.start()]), is_whole=line.is_ended)

    def finish(self, findings: Findings) -> None:
        """Tell the devices, if only one number is possible."""
        self._devices.tell(findings)


class _Pax:
    """Counts the steps of each process itself: the line does not."""

    _step = re.compile(rb"\[PAX STATUS\]: train_step\(\) took (\d+\.\d+) seconds\.")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def take(self, line: Line, findings: Findings) -> None:
        """Read records."""
        for text in pieces(line.text):
            if b"[PAX STATUS]: Starting training loop" in text:
                findings.start(line)
                self._counts.clear()
            for step in self._step.finditer(text):
                label = label_of(text[: step.start()])
                self._counts[label] = self._counts.get(label, 0) + 1
                values = {"iteration": float(self._counts[label]), "elapsed_s": float(step[1])}
                findings.record(line, values, label=label)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


DIALECTS = (
    Dialect(
        name="t5x",
        title="T5X, Flax examples and others through CLU",
        source="google-research/t5x t5x/models.py; google/CommonLoopUtils clu/metric_writers/logging_writer.py",
        example="I0101 10:00:00.000000 140 logging_writer.py:48] [500] collection=train loss=3.1, timing/seconds=50.0, "
        "timing/seqs=6400, timing/seqs_per_second=128.0, timing/steps_per_second=10.0, "
        "timing/target_tokens_per_second=16384.0, timing/target_tokens_per_second_per_core=2048.0",
        trap="rates are of all devices and per core on the same line; only target tokens are counted",
        needles=(b"steps_per_sec",),
        parser=_Clu,
    ),
    Dialect(
        name="paxml",
        title="PaxML",
        source="google/paxml paxml/programs.py",
        example="I0101 10:00:00.000000 140737350317184 programs.py:366] [PAX STATUS]: train_step() took 7.470000 seconds.",
        trap="neither the step nor the batch is on the line",
        needles=(b"[PAX STATUS]: train_step() took ", b"[PAX STATUS]: Starting training loop"),
        parser=_Pax,
    ),
    Dialect(
        name="axlearn",
        title="AXLearn",
        source="apple/axlearn axlearn/common/trainer.py",
        example="I0101 10:00:00.000000 140 trainer.py:450] trainer process   0 step      100] Average step time: 1.25 seconds",
        trap="the mean of 100 steps; neither tokens nor batch are in the log",
        needles=(b"Average step time: ",),
        parser=Pattern(
            record=re.compile(
                rb"process +\d{1,6} step +(?P<iteration>\d{1,12})\] Average step time: (?P<elapsed_s>[\d.]+(?:e-\d+)?) seconds"
            )
        ),
    ),
)
