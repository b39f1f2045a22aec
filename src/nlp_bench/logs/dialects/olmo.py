"""OLMo and OLMo-core: `[step=N/M]`, then a line for each metric; the rates are those of one device over a moving window.

The number of devices is not stated. It is tokens per step of all devices x steps per second / tokens per second of one device, which
are all printed.
"""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.pattern import Lines, LinesParser, Open
from nlp_bench.logs.quantity import bounds

_TOLERANCE = 1e-3


class _Olmo(LinesParser):
    """Counts devices from the differences of the cumulative tokens."""

    def __init__(self, form: Lines) -> None:
        super().__init__(form)
        self._before: tuple[float, float] | None = None
        self._per_step = 0.0

    def derive(self, record: Open) -> bool:
        self.devices.line = record.line
        iteration, tokens = record.values["iteration"], record.values.get("consumed_tokens")
        if tokens is None:
            return True
        if self._before and iteration > self._before[0]:
            per_step = (tokens - self._before[1]) / (iteration - self._before[0])
            # Where the head of a record is lost, its lines join another one: two derivations of the tokens per step must agree.
            known = (self._per_step, tokens / iteration)
            # Numbers above 1000 are truncated to integers, so the error may be one unit on either side.
            rate, steps = (bounds(record.texts.get(key, b""), 1.0) for key in list(self.form.keys)[:2])
            if rate and steps and any(abs(per_step - other) <= _TOLERANCE * per_step for other in known):
                self.devices.ratio((per_step * steps[0], per_step * steps[1]), rate)
            self._per_step = per_step
        self._before = iteration, tokens
        return True


def _lines(rate: bytes, steps: bytes, tokens: bytes, loss: bytes) -> Lines:
    """Return the form of one of the programs, by its names of the rates and of the loss."""
    keys = {rate: "tokens_per_second_per_device", steps: "", tokens: "consumed_tokens", loss: "lm_loss"}
    return Lines(
        head=rb"\[step=<iteration>/(?:<total_iterations>|\?\?\?)[^\]\r\n]{0,200}\]\s*$",
        pair=rb"(?P<key>%b)=(?P<value>[\d,.]+|nan|inf)\s*$" % b"|".join(keys),
        keys=keys,
        reading=_Olmo,
    )


DIALECTS = (
    Dialect(
        name="olmo",
        title="OLMo",
        source="allenai/OLMo olmo/train.py",
        example="[2026-01-01 10:00:10] INFO     [olmo.train:816, rank=0] [step=2/1000]\n"
        "    train/CrossEntropyLoss=10.73\n"
        "    throughput/total_tokens=131,072\n"
        "    throughput/device/tokens_per_second=4,096\n"
        "    throughput/device/batches_per_second=0.5000",
        trap="one record goes on over several lines; the rate is of one device, total_tokens are of all",
        needles=(b"[step=", b"throughput/", b"train/C"),
        parser=_lines(
            b"throughput/device/tokens_per_second",
            b"throughput/device/batches_per_second",
            b"throughput/total_tokens",
            b"train/CrossEntropyLoss",
        ),
    ),
    Dialect(
        name="olmo-core",
        title="OLMo-core",
        source="allenai/OLMo-core src/olmo_core/train/callbacks/speed_monitor.py, console_logger.py",
        example="2026-01-01 10:00:10.000\thost:0\tolmo_core.train:512\tINFO\t[step=10/1000,epoch=1,eta=1:23:45]\n"
        "    train/CE loss=10.12\n"
        "    throughput/device/TPS=4,096\n"
        "    throughput/total tokens=1,310,720",
        trap="TPS is of one device and of the last step alone; `TPS (actual avg)` is cumulative",
        needles=(b"[step=", b"throughput/", b"train/C"),
        parser=_lines(b"throughput/device/TPS", b"throughput/device/BPS", b"throughput/total tokens", b"train/CE loss"),
    ),
)
