"""Levanter: a progress bar as log lines (counts of three digits), and the JSON of its json_logger tracker.

The bar knows steps per second alone. The JSON states tokens per second of all devices and the time of each step.
"""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import in_unit, number
from nlp_bench.logs.scan import Line

_BAR = re.compile(
    rb"Progress on:train (?P<count>[\d.]+[kKMG]?)it/[\d.]+[kKMG]?it rate:(?P<rate>[\d.]+)(?P<unit>it/s|s/it)"
    rb"(?: [^\r\n]{0,200}?postfix:[^\r\n]{0,80}?loss=(?P<loss>[-+\d.einfa]+))?"
)
_STEP = re.compile(rb'"step": (\d{1,12})[,}]')
_JSON = {
    "tokens_per_second": re.compile(rb'"throughput/tokens_per_second": ([-+\d.eE]+)[,}]'),
    "elapsed_s": re.compile(rb'"throughput/duration": ([-+\d.eE]+)[,}]'),
    "lm_loss": re.compile(rb'"train/loss": ([-+\w.]+)[,}]'),
}


class _Parser:
    """Remembers the last count: rounded to three digits it may stay the same for many steps."""

    def __init__(self) -> None:
        self._count = b""

    def take(self, line: Line, findings: Findings) -> None:
        """Read records; bars of evaluations have another name."""
        for text in pieces(line.text):
            for bar in _BAR.finditer(text):
                self._bar(text, bar, line, findings)
            step = _STEP.search(text)
            if step and b'"throughput/tokens_per_second"' in text:
                _metrics(text, step, line, findings)

    def _bar(self, text: bytes, bar: re.Match[bytes], line: Line, findings: Findings) -> None:
        count, rate = number(bar["count"]), number(bar["rate"])
        if count is None or rate is None or bar["count"] == self._count:
            return
        self._count = bar["count"]
        name, value = in_unit("elapsed_s" if bar["unit"] == b"s/it" else "iterations_per_second", rate)
        values = {"iteration": count, name: value}
        loss = number(bar["loss"] or b"")
        if loss is not None:
            values["lm_loss"] = loss
        findings.record(line, values, label=label_of(text[: bar.start()]))

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def _metrics(text: bytes, step: re.Match[bytes], line: Line, findings: Findings) -> None:
    values = {"iteration": float(step[1])}
    for name, expression in _JSON.items():
        found = expression.search(text)
        value = number(found[1]) if found else None
        if value is not None:
            values[name] = value
    findings.record(line, values, label=label_of(text.partition(b"{")[0]))


DIALECTS = (
    Dialect(
        name="levanter",
        title="Levanter, Marin",
        source="stanford-crfm/levanter src/levanter/callbacks/_metrics.py, src/levanter/tracker/json_logger.py",
        example="Progress on:train 1.20kit/10.0kit rate:2.0it/s remaining:1:13:20 elapsed:10:00 postfix:loss=3.21",
        trap="rate flips between it/s and s/it; counts have three digits; the line stands before anything ran, too",
        needles=(b"Progress on:train", b'"throughput/tokens_per_second"'),
        parser=_Parser,
    ),
)
