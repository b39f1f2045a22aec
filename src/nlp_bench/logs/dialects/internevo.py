"""InternEvo and InternLM: `key=value` pairs, separated by commas (2023) or blanks; several rates, one of which is of the step.

The rate is of one device; the tokens of all devices so far are exact. Where the log does not state the devices, the time
stamps of the lines (milliseconds) give the time of a step.
"""

from nlp_bench.logs.clean import label_of, unwrapped
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import Match, late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line
from nlp_bench.logs.stamp import stamp_s

_HEAD = b"tgs (tokens/gpu/second)="
_RATE = late(rb"(?:^|[\s,])tgs \(tokens/gpu/second\)=([\d.]+)(?=[\s,])")
_STEP = late(rb"(?:^|[\s,])step=(\d{1,12})(?=[\s,])")
_PAIRS = {
    "consumed_tokens": late(rb"[\s,]num_consumed_tokens=(\d{1,18})(?=[\s,])"),
    "lm_loss": late(rb"(?:^|[\s,])loss=([-+\w.]+)(?=[\s,])"),
}
_WORLD = late(
    rb"data parallel size: (\d{1,7}), pipeline parallel size: (\d{1,7}), tensor parallel size: (\d{1,7})(?=[,\s]|$)"
)
_TWICE = late(
    rb"\bstep=\d[^\r\n]{0,4000}\sstep=\d|,step=\d[^\r\n]{0,4000},step=\d|\bloss=[^\r\n]{0,4000}[\s,]loss="
    rb"| -- [^\r\n]{0,4000} -- "
)
_BY_STAMPS = "the number of devices is not stated; the time of a step is the difference of the lines' time stamps"


class _Parser(Parser):
    """Remembers when each process printed last."""

    def __init__(self) -> None:
        self._before: dict[bytes, tuple[int, float]] = {}

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read records and the parallel sizes."""
        world = _WORLD.search(text)
        if world:
            findings.start(line)
            data, pipeline, tensor = (int(size) for size in world.groups())
            findings.fact("num_devices", data * pipeline * tensor, line)
        text = unwrapped(line, text, _is_complete, _HEAD)  # the same line, whole
        step, rate = _STEP.search(text), _RATE.search(text)
        if step and rate and not _TWICE.search(text):
            self._record(text, step, rate, line, findings)

    def _record(self, text: bytes, step: Match, rate: Match, line: Line, findings: Findings) -> None:
        iteration = int(step[1])
        values = {"iteration": float(iteration)}
        per_device = number(rate[1])
        if per_device is not None:
            values["tokens_per_second_per_device"] = per_device
        for name, expression in _PAIRS.items():
            found = expression.search(text)
            value = number(found[1]) if found else None
            if value is not None:
                values[name] = value
        prefix = text[: min(step.start(), rate.start())]
        label = label_of(prefix.rpartition(b"tflops=")[0] or prefix)
        if findings.known("num_devices") is None and "consumed_tokens" in values:
            self._by_stamps(label, iteration, prefix, values, findings)
        findings.record(line, values, label=label)

    def _by_stamps(
        self, label: bytes, iteration: int, prefix: bytes, values: dict[str, float], findings: Findings
    ) -> None:
        now = stamp_s(prefix, is_fine=True)
        before = self._before.get(label)
        if now is None:
            return
        self._before[label] = iteration, now
        if before and iteration > before[0] and now > before[1]:
            values["elapsed_s"] = (now - before[1]) / (iteration - before[0])
            findings.remark(_BY_STAMPS)


def _is_complete(text: bytes) -> bool:
    """Say whether a record in `text` has come to its tokens, or is none."""
    begin = text.find(_HEAD)
    return begin < 0 or _PAIRS["consumed_tokens"].search(text, begin) is not None


DIALECTS = (
    Dialect(
        name="internevo",
        title="InternEvo, InternLM",
        source="InternLM/InternEvo internlm/train/pipeline.py",
        example="2026-01-01 10:00:02,000 INFO pipeline.py:562 in record_current_batch_training_metrics -- tflops=100.0 step=1 "
        "loss=9.1 tgs (tokens/gpu/second)=4096.0 tgs/tgs_all=2000.0 lr=1e-05 num_consumed_tokens=131072 fwd_bwd_time=1.9 ",
        trap="tgs is of one device, and other tgs of the line are averages; the first versions separate by commas",
        needles=(b"tgs (tokens/gpu/second)=", b"data parallel size: "),
        parser=_Parser,
        counts_from=0,
    ),
)
