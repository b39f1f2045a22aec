"""IBM's fms-fsdp: every quantity on a line of its own, the step first; a rate of one device, tokens of all of them."""

import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.exact import Counted
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.gathering import Gathering, Open
from nlp_bench.logs.quantity import bounds, number

_HEAD = re.compile(rb"(?<![\w.-])step: (?P<iteration>\d{1,12})\s*$")
_PAIR = re.compile(
    rb"(?<!\w)(?P<key>tokens seen|(?:current|overall) step time|speed for these \d+ steps|overall speed"
    rb"|(?:current|overall) token per gpu per sec|(?:overall )?token per day|Total tok/step): (?P<value>[-+\w.]+)\s*$"
)
_CURRENT, _OVERALL = b"current token per gpu per sec", b"overall token per gpu per sec"
_DAY, _STEP_TIME, _OVERALL_TIME = b"overall token per day", b"current step time", b"overall step time"
_OLD_NAMES = {b"token per day": _DAY, b"overall speed": _OVERALL_TIME}
_MOST = 1e18
_SECONDS_PER_DAY = 86400
_KEYS = {
    b"tokens seen": "consumed_tokens",
    _STEP_TIME: "elapsed_s",
    _CURRENT: "tokens_per_second_per_device",
    _OVERALL: "",
    _DAY: "",
    _OVERALL_TIME: "",
    b"Total tok/step": "tokens",
}


class _Parser(Gathering):
    """Derives the devices from the two cumulative rates, which are no rates of a step themselves."""

    def __init__(self) -> None:
        super().__init__(_HEAD, _PAIR, _KEYS)
        self._devices = Counted()

    def rename(self, key: bytes) -> bytes:
        """Return the one name of keys that hold a number; the oldest versions say how many steps a time is the mean of."""
        return _STEP_TIME if key.startswith(b"speed for these") else _OLD_NAMES.get(key, key)

    def complete(self, record: Open, label: bytes, findings: Findings) -> None:
        """Tell the record, and narrow down the devices."""
        texts = record.texts
        if not {_STEP_TIME, _CURRENT, _OVERALL} & texts.keys():
            return
        self._devices.line = record.line
        day, mean = bounds(texts.get(_DAY, b""), 1.0), number(texts.get(_OVERALL_TIME, b""))
        if day:
            second = (day[0] / _SECONDS_PER_DAY, day[1] / _SECONDS_PER_DAY)
            self._devices.ratio(second, bounds(texts.get(_OVERALL, b""), 1.0))
            if mean and second[1] * mean < _MOST and "consumed_tokens" not in record.values:
                # Both are means since the start, so their product is the tokens of a step.
                record.values.setdefault("tokens", float(round(second[0] * mean)))
        super().complete(record, label, findings)

    def finish(self, findings: Findings) -> None:
        """Tell the devices, if only one number is possible."""
        super().finish(findings)
        self._devices.tell(findings)


DIALECTS = (
    Dialect(
        name="fms-fsdp",
        title="IBM fms-fsdp",
        source="foundation-model-stack/fms-fsdp fms_fsdp/utils/train_utils.py",
        example="step: 200\nloss: 7.2345\ntokens seen: 6553600\ncurrent step time: 2.0\noverall step time: 2.5\n"
        "current token per gpu per sec: 2048\noverall token per gpu per sec: 1638\noverall token per day: 1132462080",
        trap="`overall` rates are cumulative; the rate is of one device, the tokens per day are of all",
        needles=(
            b"step: ",
            b"tokens seen: ",
            b" step time: ",
            b"speed for these ",
            b"overall speed: ",
            b"token per gpu per sec: ",
            b"token per day: ",
            b"Total tok/step: ",
        ),
        parser=_Parser,
    ),
)
