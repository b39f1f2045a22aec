"""torchtune: `Step N | name:value name:value` of its disk and stdout loggers, and its progress bar.

The rate is of one device. The bar has steps per second alone; its speed is a recent mean.
"""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import is_cut
from nlp_bench.logs.quantity import in_unit, number
from nlp_bench.logs.scan import Line

_STEP = re.compile(rb"(?<!\w)Step (\d{1,12}) \| (?=[\w/]+:)")
_PAIR = re.compile(rb"(?<!\S)([\w/]+):(\S+)")
_KEYS = {
    b"loss": "lm_loss",
    b"grad_norm": "grad_norm",
    b"time_per_step_s": "elapsed_s",
    b"tokens_per_second_per_gpu": "tokens_per_second_per_device",
    b"tokens_per_second": "tokens_per_second_per_device",
}
_BAR = re.compile(
    rb"(?<![\d|])\d{1,6}\|(\d{1,12})\|Loss: ([-+\w.]+):[^\r\n\[]{0,400}\[[\d:]+<[\d:?]+,\s*([\d.]+)(s/it|it/s)[,\]]"
)


class _Parser:
    """Reads both forms; where the loggers wrote, the bar beside them is left out."""

    def __init__(self) -> None:
        self._has_lines = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read records."""
        for text in pieces(line.text):
            step = _STEP.search(text)
            if step:
                self._step(text, step, line, findings)
            elif not self._has_lines:
                for bar in _BAR.finditer(text):
                    _bar(text, bar, line, findings)

    def _step(self, text: bytes, step: re.Match[bytes], line: Line, findings: Findings) -> None:
        values = {"iteration": float(step[1])}
        is_whole = True
        for pair in _PAIR.finditer(text, step.end()):
            name = _KEYS.get(pair[1])
            value = number(pair[2])
            if not name or name in values:
                continue
            if value is None or is_cut(line, text, pair.end()):
                is_whole = False
                continue
            values[name] = value
        if "tokens_per_second_per_device" in values or "elapsed_s" in values:
            self._has_lines = True
            findings.record(line, values, label=label_of(text[: step.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def _bar(text: bytes, bar: re.Match[bytes], line: Line, findings: Findings) -> None:
    speed, loss = number(bar[3]), number(bar[2])
    if speed is None:
        return
    name, value = in_unit("elapsed_s" if bar[4] == b"s/it" else "iterations_per_second", speed)
    values = {"iteration": float(bar[1]), name: value} | ({} if loss is None else {"lm_loss": loss})
    findings.record(line, values, label=label_of(text[: bar.start()]))


DIALECTS = (
    Dialect(
        name="torchtune",
        title="torchtune",
        source="pytorch/torchtune torchtune/training/metric_logging.py",
        example="Step 12 | loss:1.2345678 lr:2e-05 tokens_per_second_per_gpu:2048.0 peak_memory_active:21.3 grad_norm:1.23 ",
        trap="the rate is of one device, and its number is not in the log",
        needles=(b"tokens_per_second", b"time_per_step_s:", b"|Loss: "),
        parser=_Parser,
    ),
)
