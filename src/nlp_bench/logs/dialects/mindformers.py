"""MindSpore Transformers (MindFormers): a step and, on the next line, samples per second of one processor."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import number

_RATE = late(rb"\| {0,9}([\d.]{1,20}) samples/s/p\b")
_MAX_NEXT = 2  # the second line follows at once, or after one of another rank


class _Parser(PatternParser):
    """Looks for the rate of a step in its line and the next ones."""

    def values(self, values: Values, at: At) -> Values:
        for text in (at.found.string, *at.line.following(_MAX_NEXT)):
            if text is not at.found.string and b"per_step_time" in text:
                break
            if rate := _RATE.search(text):
                value = number(rate[1])
                return values if value is None else {**values, "samples_per_second_per_device": value}
        return values


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
        parser=Pattern(
            record=rb"(?:\{ ?)?(?:Epoch:\[ {0,9}(?P<epoch>\d{1,9})/ {0,9}(?P<epochs>\d{1,9})\], )?"
            rb"\bstep:? ?\[? {0,9}<iteration> ?/ {0,9}<total_iterations>\]?, "
            rb"loss:? ?\[? {0,20}(?:<lm_loss>|N/A)[^\r\n]{0,200}?"
            rb"(?:per_step_time: {0,9}|, time: {0,9})<elapsed_ms> ?ms",
            reading=_Parser,
        ),
    ),
)
