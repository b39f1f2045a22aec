"""Composer and LLM Foundry: `[epoch=1][batch=5/20]:`, then a line for each metric; rates are means of a sliding window.

The tokens are real ones, without padding, so batch x sequence length would be too many.
"""

import math
import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.gathering import Gathering, Open
from nlp_bench.logs.quantity import number

_HEAD = re.compile(
    rb"(?:\[epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?\])?"
    rb"\[(?P<unit>batch|sample|token)=(?P<count>\d{1,18})(?:/(?P<of>\d{1,18}))?\]:\s*$"
)
_PAIR = re.compile(rb"(?<!\w)Train (?P<key>(?:throughput|time|loss)/[\w/]+): (?P<value>[-+\w.]+)\s*$")
_RATE, _DEVICE_RATE = b"throughput/tokens_per_sec", b"throughput/device/tokens_per_sec"
_SAMPLES, _DEVICE_SAMPLES = b"throughput/samples_per_sec", b"throughput/device/samples_per_sec"
_KEYS = {
    _RATE: "tokens_per_second",
    _DEVICE_RATE: "tokens_per_second_per_device",
    _SAMPLES: "samples_per_second",
    _DEVICE_SAMPLES: "",
    b"time/batch": "",
    b"time/token": "consumed_tokens",
    b"loss/train/total": "lm_loss",
}


class _Parser(Gathering):
    """Numbers the batches through all epochs, and derives the devices from the two rates."""

    def __init__(self) -> None:
        super().__init__(_HEAD, _PAIR, _KEYS)
        self._devices = Counted()

    def begin(self, head: re.Match[bytes]) -> tuple[dict[str, float], bool]:
        """Return the number of the batch where the head counts batches."""
        if head["unit"] != b"batch":
            return {}, True
        before = (int(head["epoch"]) - 1) * int(head["of"] or 0) if head["epoch"] else 0
        return {"iteration": float(before + int(head["count"]))}, True

    def complete(self, record: Open, label: bytes, findings: Findings) -> None:
        """Tell the record, and narrow down the devices."""
        batches = number(record.texts.get(b"time/batch", b""))
        if batches is not None and math.isfinite(batches):
            record.values["iteration"] = batches + 1  # counted before the batch
        if "iteration" not in record.values:
            return
        for whole, part in ((_RATE, _DEVICE_RATE), (_SAMPLES, _DEVICE_SAMPLES)):
            self._devices.quotient(record.line, record.texts.get(whole), record.texts.get(part))
        super().complete(record, label, findings)

    def finish(self, findings: Findings) -> None:
        """Tell the devices, if only one number is possible."""
        super().finish(findings)
        self._devices.tell(findings)


DIALECTS = (
    Dialect(
        name="composer",
        title="Composer, LLM Foundry",
        source="mosaicml/composer composer/loggers/console_logger.py, composer/callbacks/speed_monitor.py",
        example="[epoch=1][batch=20/100]:\n"
        "\t Train time/token: 2621440\n"
        "\t Train throughput/tokens_per_sec: 16384.0000\n"
        "\t Train throughput/device/tokens_per_sec: 2048.0000",
        trap="one record goes on over several lines, the rate of the machine and of one device have nearly the same name; tokens "
        "are real ones, without padding",
        needles=(b"Train throughput/", b"Train time/", b"Train loss/train/total", b"[batch=", b"[token=", b"[sample="),
        parser=_Parser,
    ),
)
