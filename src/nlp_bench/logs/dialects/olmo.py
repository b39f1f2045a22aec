"""OLMo: `[step=N/M]`, then a line for each metric; the rates are those of one device over a running window.

The device count is not stated. Tokens per step of all devices x steps per second / tokens per second of one device is that
count, and all three are printed.
"""

import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.gathering import Gathering, Open
from nlp_bench.logs.quantity import bounds

_TOLERANCE = 1e-3
HEAD = re.compile(rb"\[step=(?P<iteration>\d{1,12})/(?:(?P<total_iterations>\d{1,12})|\?\?\?)[^\]\r\n]{0,200}\]\s*$")


class Steps(Gathering):
    """Counts devices from the differences of the cumulative tokens."""

    def __init__(self, pair: re.Pattern[bytes], rate: bytes, steps: bytes, tokens: bytes) -> None:
        keys = {rate: "tokens_per_second_per_device", steps: "", tokens: "consumed_tokens"}
        super().__init__(HEAD, pair, keys)
        self._rate, self._steps = rate, steps
        self._devices = Counted()
        self._before: tuple[float, float] | None = None
        self._per_step = 0.0

    def complete(self, record: Open, label: bytes, findings: Findings) -> None:
        """Tell the record, and narrow down the devices."""
        iteration, tokens = record.values["iteration"], record.values.get("consumed_tokens")
        if tokens is not None:
            if self._before and iteration > self._before[0]:
                per_step = (tokens - self._before[1]) / (iteration - self._before[0])
                # Where the head of a record is lost, its lines join another: two ways to the tokens of a step must agree.
                known = (self._per_step, tokens / iteration)
                if any(abs(per_step - other) <= _TOLERANCE * per_step for other in known):
                    self._count(per_step, record)
                self._per_step = per_step
            self._before = iteration, tokens
        self._devices.line = record.line
        super().complete(record, label, findings)

    def _count(self, per_step: float, record: Open) -> None:
        # Numbers above 1000 are cut to whole ones, so a unit of the last digit is possible on both sides.
        rate = bounds(record.texts.get(self._rate, b""), 1.0)
        steps = bounds(record.texts.get(self._steps, b""), 1.0)
        if rate and steps:
            self._devices.ratio((per_step * steps[0], per_step * steps[1]), rate)

    def finish(self, findings: Findings) -> None:
        """Tell the devices, if only one number is possible."""
        super().finish(findings)
        self._devices.tell(findings)


class _Old(Steps):
    """Names of OLMo."""

    def __init__(self) -> None:
        super().__init__(
            re.compile(
                rb"(?P<key>throughput/(?:total_tokens|device/(?:tokens|batches)_per_second))=(?P<value>[\d,.]+)\s*$"
            ),
            b"throughput/device/tokens_per_second",
            b"throughput/device/batches_per_second",
            b"throughput/total_tokens",
        )


DIALECTS = (
    Dialect(
        name="olmo",
        title="OLMo",
        source="allenai/OLMo olmo/train.py",
        example="[2026-01-01 10:00:10] INFO     [olmo.train:816, rank=0] [step=2/1000]\n"
        "    throughput/total_tokens=131,072\n"
        "    throughput/device/tokens_per_second=4,096\n"
        "    throughput/device/batches_per_second=0.5000",
        trap="one record goes on over several lines; the rate is of one device, total_tokens are of all",
        needles=(b"[step=", b"throughput/"),
        parser=_Old,
    ),
)
