"""OLMo-core: OLMo's form with other names; TPS is of one device and of the last step, `actual avg` is cumulative."""

import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.dialects.olmo import Steps


class _Core(Steps):
    """Names of OLMo-core."""

    def __init__(self) -> None:
        super().__init__(
            re.compile(rb"(?P<key>throughput/(?:total tokens|device/[TB]PS))=(?P<value>[\d,.]+)\s*$"),
            b"throughput/device/TPS",
            b"throughput/device/BPS",
            b"throughput/total tokens",
        )


DIALECTS = (
    Dialect(
        name="olmo-core",
        title="OLMo-core",
        source="allenai/OLMo-core src/olmo_core/train/callbacks/speed_monitor.py, console_logger.py",
        example="2026-01-01 10:00:10.000\thost:0\tolmo_core.train:512\tINFO\t[step=10/1000,epoch=1,eta=1:23:45]\n"
        "    throughput/device/TPS=4,096\n"
        "    throughput/total tokens=1,310,720",
        trap="TPS is of one device and of the last step alone; `TPS (actual avg)` is cumulative",
        needles=(b"[step=", b"throughput/"),
        parser=_Core,
    ),
)
