"""MindSpore Transformers (MindFormers): a step and, on the next line, samples per second and processor."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_STEP = re.compile(
    rb"(?:\{ ?)?(?:Epoch:\[ {0,9}(?P<epoch>\d{1,9})/ {0,9}(?P<epochs>\d{1,9})\], )?"
    rb"\bstep:? ?\[? {0,9}(?P<iteration>\d{1,9}) ?/ {0,9}(?P<total_iterations>\d{1,9})\]?, "
    rb"loss:? ?\[? {0,20}(?:(?P<lm_loss>[-+\d.eE]{1,40}|nan|inf)|N/A)[^\r\n]{0,200}?"
    rb"(?:per_step_time: {0,9}(?P<elapsed_ms>\d{1,12}) ?ms|, time: {0,9}(?P<time_ms>[\d.]{1,20}) ?ms)"
)
_RATE = re.compile(rb"\| {0,9}([\d.]{1,20}) samples/s/p\b")
_MAX_NEXT = 2  # the second line follows at once; another rank's words may slip in between


class _Parser:
    """Keeps nothing: the rate of a step is looked for in the lines behind it."""

    def take(self, line: Line, findings: Findings) -> None:
        """Read a step; the steps of an epoch are counted from 1 anew."""
        for text in pieces(line.text):
            found = _STEP.search(text)
            if not found:
                continue
            values, is_whole = quantities(found)
            values["iteration"] += (values.pop("epoch", 1.0) - 1) * values["total_iterations"]
            values["total_iterations"] *= values.pop("epochs", 1.0)
            if "time_ms" in values:
                values["elapsed_s"] = values.pop("time_ms") / 1000
            rate = _rate(text, line)
            if rate is not None:
                values["samples_per_second_per_device"] = rate
            findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def _rate(text: bytes, line: Line) -> float | None:
    for candidate in (text, *line.following(_MAX_NEXT)):
        if candidate is not text and b"per_step_time" in candidate:
            return None
        found = _RATE.search(candidate)
        if found:
            return number(found[1])
    return None


DIALECTS = (
    Dialect(
        name="mindformers",
        title="MindSpore Transformers (MindFormers)",
        source="mindspore/mindformers mindformers/core/callback/callback.py (MFLossMonitor), "
        "mindformers/pynative/callback (LossCallback)",
        example="2026-01-01 10:00:00,000 - [mindformers/core/callback/callback.py:529] - INFO - "
        "{ Epoch:[  1/  2], step:[   10/  100], loss: 8.500, per_step_time: 2000ms, lr: 1e-05, overflow cond: False, "
        "loss_scale: 1.0, global_norm: [1.5], train_throughput_per_npu: 150.000T",
        trap="train_throughput_per_npu is in TFLOP/s, samples/s/p is of one processor, the first step compiles",
        needles=(b"per_step_time:", b", loss_scale:", b", overflow cond:"),
        parser=_Parser,
    ),
)
