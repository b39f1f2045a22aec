"""picotron: `[rank N] Step: N | Loss: X | Global batch size: 2.05K | Tokens/s: X | Tokens/s/GPU: X | Tokens: X | ...`.

The batch is in tokens, rounded to three digits; the tokens of all steps so far bound it more closely from step to step.
"""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Bracket, Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import bounds, number
from nlp_bench.logs.scan import Line

_N = rb"[\d.]+[KMBT]?"
_RECORD = re.compile(
    rb"(?<!\w)Step: (?P<iteration>\d{1,12})\s*\| Loss:\s*(?P<loss>[-+\w.]+) \| Global batch size:\s*(?P<batch>"
    + _N
    + rb") \| Tokens/s:\s*(?P<rate>"
    + _N
    + rb") \| Tokens/s/GPU:\s*(?P<gpu>"
    + _N
    + rb") \| (?:Tokens:\s*(?P<tokens>"
    + _N
    + rb")[/ ])?"
)


class _Parser:
    """Narrows down tokens per step and devices from record to record."""

    def __init__(self) -> None:
        self._batch, self._total = Bracket(), Bracket()
        self._devices = Counted()

    def take(self, line: Line, findings: Findings) -> None:
        """Read records."""
        for text in pieces(line.text):
            for found in _RECORD.finditer(text):
                self._record(text, found, line, findings)

    def _record(self, text: bytes, found: re.Match[bytes], line: Line, findings: Findings) -> None:
        iteration, loss = int(found["iteration"]), number(found["loss"])
        batch = bounds(found["batch"])
        if batch:
            self._batch.narrow(*batch)
        total = bounds(found["tokens"] or b"")
        if total and iteration:
            self._total.narrow(total[0] / iteration, total[1] / iteration)
        self._devices.quotient(line, found["rate"], found["gpu"])
        values = {
            "iteration": float(iteration),
            "tokens_per_second": number(found["rate"]),
            "tokens_per_second_per_device": number(found["gpu"]),
            "lm_loss": loss,
        }
        known = {name: value for name, value in values.items() if value is not None}
        findings.record(line, known, label=label_of(text[: found.start()]))

    def finish(self, findings: Findings) -> None:
        """Tell the tokens of a step and the devices, as far as the digits allow."""
        line = self._devices.line
        if not line:
            return
        both = Bracket()
        both.narrow(self._batch.low, self._batch.high)
        both.narrow(self._total.low, self._total.high)
        # The sum says something only if the batch has been the same from the first step on.
        tokens = both.roundest or self._batch.roundest
        if tokens:
            findings.fact("tokens", tokens, line)
        self._devices.tell(findings)


DIALECTS = (
    Dialect(
        name="picotron",
        title="picotron",
        source="huggingface/picotron train.py",
        example="[rank 0] Step: 10    | Loss: 8.5469 | Global batch size:   2.05K | Tokens/s:   4.10K | Tokens/s/GPU:   1.02K | "
        "Tokens:  20.48K | MFU:  0.07% | Memory usage:   1.75GB",
        trap="`Global batch size` is in tokens",
        needles=(b"Tokens/s/GPU:",),
        parser=_Parser,
    ),
)
