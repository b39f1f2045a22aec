"""MaxText and its forks: `completed step: N, seconds: X, TFLOP/s/device: X, Tokens/s/device: X, total_weights: N, loss: X`.

`Tokens/s/device` counts padding; `total_weights` are the real tokens of all devices. Without padding the number of devices is their
quotient; otherwise only the log or the command line can state it. `seconds` of the first steps may be the time of the dispatch alone.
"""

from nlp_bench.logs.clean import label_of, unwrapped
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import Match, late
from nlp_bench.logs.quantity import Bracket, bounds, number, numbers
from nlp_bench.logs.scan import Line

_STEP = late(rb"completed step: (\d{1,12}), seconds: (\d+(?:\.\d+)?)(?=,|\s|$)")
_END = late(rb", (?:loss|Tokens/s/chip): ")  # two old versions end with the rate of the chip
_KEYS = {
    b"Tokens/s/device": "tokens_per_second_per_device",
    b"TFLOP/s/device": "model_tflops",
    b"loss": "lm_loss",
    b"grad_norm": "grad_norm",
}
_NEVER_LAST = (b"TFLOP/s/device", b"TFLOP/s", b"Tokens/s/device", b"total_weights")
"""Fields that are never the last in any version: a line that ends with one was cut."""
_FACTS = {
    "global_batch_size": late(rb"Config param global_batch_size_to_train_on: (\d+)\s*$"),
    "sequence_length": late(rb"Config param max_target_length: (\d+)\s*$"),
    "num_devices": late(rb"\bNum_devices: (\d+), shape"),
}
_PREFERENCE = "a preference training (DPO): Tokens/s/device counts a pair of answers as one sequence"
_PADDED = "Tokens/s/device and the batch count padding; total_weights, the real tokens, are fewer"


class _Parser(Parser):
    """Collects the facts until the kind of training is known."""

    reads_each_line = True

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._facts: dict[tuple[str, float], Line] = {}
        self._last: Line | None = None
        self._devices = Bracket()
        self._weights: set[float] = set()
        self._sums = (0.0, 0.0, 0)  # real tokens, those that one device counts, steps
        self._per_device = Bracket()
        self._is_preference = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read records and facts; an elastic training may restart within one log."""
        if b"Elastic attempt " in text:
            self.finish(findings)
            self._begin()
            findings.start(line)
        for name, expression in _FACTS.items():
            if fact := expression.search(text):
                self._facts.setdefault((name, float(fact[1])), line)
        text = unwrapped(line, text, b"completed step: ", _END)
        if step := _STEP.search(text):
            self._record(text, step, line, findings)

    def _record(self, text: bytes, step: Match, line: Line, findings: Findings) -> None:
        fields = dict(piece.strip().partition(b": ")[::2] for piece in text[step.end() :].split(b","))
        is_cut = not line.is_ended
        if fields and (is_cut or next(reversed(fields)) in _NEVER_LAST):
            fields.popitem()  # its number may be cut
        values = {"iteration": float(step[1])}
        if not (is_cut and step.end() == len(text)):
            values["elapsed_s"] = float(step[2])
        values |= numbers((name, fields.get(key)) for key, name in _KEYS.items())
        self._is_preference |= b"reward_accuracy" in fields or b"dpo_loss" in fields
        self._last = line
        self._weigh(step[2], fields)
        findings.record(line, values, label=label_of(text[: step.start()]), is_whole=not is_cut)

    def _weigh(self, seconds: bytes, fields: dict[bytes, bytes]) -> None:
        weights, rate, time = number(fields.get(b"total_weights", b"")), fields.get(b"Tokens/s/device"), bounds(seconds)
        per_second = bounds(rate) if rate else None
        if not (weights and per_second and time):
            return
        real, counted, steps = self._sums
        self._sums = real + weights, counted + sum(per_second) / 2 * sum(time) / 2, steps + 1
        if len(self._weights) < 2:  # two show that they differ
            self._weights.add(weights)
        self._per_device.narrow(per_second[0] * time[0], per_second[1] * time[1])
        self._devices.ratio((weights, weights), (per_second[0] * time[0], per_second[1] * time[1]))

    def finish(self, findings: Findings) -> None:
        if self._is_preference:
            findings.remark(_PREFERENCE)
            return
        for (name, value), line in self._facts.items():
            findings.fact(name, value, line)
        sizes = [findings.known(name) for name in ("global_batch_size", "sequence_length")]
        whole = sizes[0] * sizes[1] if sizes[0] and sizes[1] else 0.0
        if len(self._weights) > 1 or any(weights < whole for weights in self._weights):
            real, counted, steps = self._sums
            findings.remark(f"{_PADDED}: {real / steps:.0f} a step, where each device counts {counted / steps:.0f}")
        if not (self._last and len(self._weights) == 1):
            return
        (weights,), devices = self._weights, self._devices.whole
        # Rules out an integer by chance: each device must have an integer share, and the rates must agree with it.
        if devices and weights % devices == 0 and self._per_device.low <= weights / devices <= self._per_device.high:
            findings.fact("num_devices", devices, self._last)
            findings.fact("tokens", weights, self._last)


DIALECTS = (
    Dialect(
        name="maxtext",
        title="MaxText and its forks",
        source="AI-Hypercomputer/maxtext src/maxtext/common/metric_logger.py",
        example="completed step: 7, seconds: 4.000, TFLOP/s/device: 100.000, Tokens/s/device: 2048.000, total_weights: 32768, "
        "loss: 9.123",
        trap="the rate is of one device and counts padding, total_weights are the real tokens of all; the first step or two may "
        "state the time of the dispatch alone",
        needles=(
            b"completed step: ",
            b"Elastic attempt ",
            b"global_batch_size_to_train_on: ",
            b"max_target_length: ",
            b"Num_devices: ",
        ),
        parser=_Parser,
    ),
)
