"""Meta lingua: a line per logging interval, and metrics.jsonl with all digits; the rate is of one device.

The line names micro-steps (`acc`); `iter` is the time of the last of them, not of a step. metrics.jsonl has the tokens of all
devices and the time of day, which give the rate of the machine.
"""

import json
import math
import re
from typing import Any

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line
from nlp_bench.logs.stamp import stamp_s

_WORD = b"  wps: "
_FRONT = re.compile(rb"step: (?P<iteration>\d{1,12})  (?:acc: (?P<acc>\d{1,9})  )?")
_BACK = re.compile(rb"([-+\d.e]{1,24})  iter: +[\d.e-]{1,24}  data:")
_LOSS = re.compile(rb"\bloss(?:_avg)?: +([-+\w.]+)")
_JSON = re.compile(rb"\{\"(?=[^\r\n]*\"speed/wps\")[^\r\n]*\}\s*$")


class _Parser:
    """Remembers the time of the last line of metrics.jsonl."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def take(self, line: Line, findings: Findings) -> None:
        """Read records of either form."""
        for text in pieces(line.text):
            if _WORD in text:
                _record(text, line, findings)
            elif b'"speed/wps"' in text:
                self._metrics(text, line, findings)

    def _metrics(self, text: bytes, line: Line, findings: Findings) -> None:
        found = _JSON.search(text)
        try:
            said: dict[str, Any] = json.loads(found[0], object_pairs_hook=_once) if found else {}
        except (ValueError, RecursionError):
            said = {}
        names = {
            "global_step": "iteration",
            "speed/wps": "tokens_per_second_per_device",
            "optim/total_tokens": "consumed_tokens",
            "loss/out": "lm_loss",
        }
        values = {
            n: float(said[k]) for k, n in names.items() if isinstance(said.get(k), float) or type(said.get(k)) is int
        }
        if not math.isfinite(values.get("iteration", math.nan)) or said.get("acc_step"):
            findings.record(line, {}, is_whole=bool(said))
            return
        now = stamp_s(str(said.get("created_at", "")).encode(), is_fine=True)
        if now is not None and "consumed_tokens" in values:
            before, self._before = self._before, (values["iteration"], now)
            if before and values["iteration"] > before[0] and now > before[1]:
                values["elapsed_s"] = (now - before[1]) / (values["iteration"] - before[0])
        findings.record(line, values)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; one that has a key twice is the halves of two lines."""
    said = dict(pairs)
    if len(said) < len(pairs):
        raise ValueError("a key stands twice")
    return said


def _record(text: bytes, line: Line, findings: Findings) -> None:
    front, _, back = text.partition(_WORD)
    begin = front.rfind(b"step: ", -400)
    head, rate = _FRONT.match(front, begin) if begin >= 0 else None, _BACK.match(back)
    per_device = number(rate[1]) if rate else None
    if not head or per_device is None or int(head["acc"] or 0):
        return
    values = {"iteration": float(head["iteration"]), "tokens_per_second_per_device": per_device}
    loss = _LOSS.search(front, begin)
    value = number(loss[1]) if loss else None
    if value is not None:
        values["lm_loss"] = value
    findings.record(line, values, label=label_of(front[:begin].partition(b"INFO")[0]))


DIALECTS = (
    Dialect(
        name="lingua",
        title="Meta lingua and its forks",
        source="facebookresearch/lingua apps/main/train.py, lingua/metrics.py",
        example="0: INFO    26-01-01 10:00:10.000000 - 0:01:23 - step: 10  acc: 0  loss: 10.8765  grad: 1.23e+00  flops: 4.12e+14  "
        "wps: 5.43e+04  iter:  0.2512  data: 0.0012  lr: 3.00e-05  mem: 64%  pow: 612.3 W",
        trap="wps is of one device, with three digits; iter is the time of the last micro-step",
        needles=(b"  wps: ", b'"speed/wps"'),
        parser=_Parser,
    ),
)
