"""EasyLM: a dictionary without any time, and a bar without graphics: `12% 1200/10000 [10:02<1:13:37, 1.99it/s]`.

A bar alone is nobody's: it counts once the dictionary has been seen.
"""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import in_unit, number
from nlp_bench.logs.scan import Line

_BAR = re.compile(
    rb"(?<![\w.])\d{1,3}% (?P<count>\d{1,12})/(?P<total>\d{1,12}) \[[\d:]+<[\d:?]+,\s*(?P<rate>[\d.]+)(?P<unit>it/s|s/it)\]"
)


class _Parser:
    """Waits for the dictionary."""

    def __init__(self) -> None:
        self._said: set[bytes] = set()
        self._count = b""

    def take(self, line: Line, findings: Findings) -> None:
        """Read the bars."""
        for text in pieces(line.text):
            self._said |= {word for word in (b"'gradient_norm'", b"'param_norm'") if word in text}
            if len(self._said) > 1:
                for bar in _BAR.finditer(text):
                    self._bar(text, bar, line, findings)

    def _bar(self, text: bytes, bar: re.Match[bytes], line: Line, findings: Findings) -> None:
        rate = number(bar["rate"])
        if rate is None or bar["count"] == self._count:
            return
        self._count = bar["count"]
        name, value = in_unit("elapsed_s" if bar["unit"] == b"s/it" else "iterations_per_second", rate)
        values = {"iteration": float(bar["count"]), "total_iterations": float(bar["total"]), name: value}
        findings.record(line, values, label=label_of(text[: bar.start()]))

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


DIALECTS = (
    Dialect(
        name="easylm",
        title="EasyLM",
        source="young-geng/EasyLM EasyLM/models/llama/llama_train.py",
        example="{'accuracy': 0.1,\n 'gradient_norm': 1.2,\n 'loss': 9.1,\n 'param_norm': 300.0,\n 'step': 1200}\n"
        " 12% 1200/10000 [10:00<1:13:20, 2.00it/s]",
        trap="neither tokens nor batch are in the log, only steps per second",
        needles=(b"'gradient_norm'", b"'param_norm'", b"it/s]", b"s/it]"),
        parser=_Parser,
    ),
)
