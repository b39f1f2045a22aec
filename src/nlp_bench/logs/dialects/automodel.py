"""NeMo-Automodel: `step N | epoch N | loss X | ... | tps X(Y/gpu) | num_label_tokens N`: all devices, and one in brackets."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_RECORD = re.compile(
    rb"(?<!\w)step (?P<iteration>\d{1,12}) \| epoch \d+ \| (?P<fields>[^\r\n]{0,300}?)\| tps (?P<rate>[\d.]+)\((?P<gpu>[\d.]+)/gpu\)"
    rb"(?P<end> \| num_label_tokens \d+)?"
)
_PAIRS = (("lm_loss", re.compile(rb"\bloss ([-+\w.]+)")), ("grad_norm", re.compile(rb"\bgrad_norm ([-+\w.]+)")))


class _Parser:
    """Derives the devices from the two rates."""

    def __init__(self) -> None:
        self._devices = Counted()

    def take(self, line: Line, findings: Findings) -> None:
        """Read records; validation lines state no tps."""
        for text in pieces(line.text):
            for found in _RECORD.finditer(text):
                self._record(text, found, line, findings)

    def _record(self, text: bytes, found: re.Match[bytes], line: Line, findings: Findings) -> None:
        label = label_of(text[: found.start()])
        if not line.is_ended and not found["end"] and found.end() < len(text):
            findings.record(line, {}, label=label, is_whole=False)
            return
        written = [("tokens_per_second", found["rate"]), ("tokens_per_second_per_device", found["gpu"])]
        pairs = ((name, expression.search(found["fields"])) for name, expression in _PAIRS)
        written += [(name, pair[1]) for name, pair in pairs if pair]
        values = {name: value for name, digits in written if (value := number(digits)) is not None}
        self._devices.quotient(line, found["rate"], found["gpu"])
        findings.record(line, {"iteration": float(found["iteration"]), **values}, label=label)

    def finish(self, findings: Findings) -> None:
        """Tell the devices, if only one number is possible."""
        self._devices.tell(findings)


DIALECTS = (
    Dialect(
        name="nemo-automodel",
        title="NeMo-Automodel",
        source="NVIDIA-NeMo/Automodel nemo_automodel/recipes/llm/train_ft.py",
        example="2026-01-01 10:00:10 | INFO | root | step 10 | epoch 0 | loss 1.2345 | grad_norm 1.0000 | lr 1.00e-05 | "
        "mem 24.00 GiB | tps 16384.00(2048.00/gpu) | num_label_tokens 20000",
        trap="the number in brackets is of one device; num_label_tokens is not what tps counts",
        needles=(b"/gpu)",),
        parser=_Parser,
    ),
)
