"""XTuner: the lines of mmengine, whose iteration is a micro-batch, and its own with `tgs`."""

from math import isfinite

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import Match, is_cut, late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_ITERATION = late(
    rb"\b(?:Iter|Epoch)\(train\)\s{1,8}(?:\[ {0,9}(?P<epoch>\d{1,9})\])?"
    rb"\[ {0,18}(?P<iteration>\d{1,18})/ {0,18}(?P<total>\d{1,18})\]"
)
_STEP = late(rb"\bStep (?P<iteration>\d{1,18})/(?P<total>\d{1,18})\s[^\r\n]{0,600}?\btgs: \d")
_OTHER = late(
    rb"\((?:val|test|train)\) |\beta: [^\r\n]{0,4000}\beta: |\btime: [^\r\n]{0,4000}(?<!_)\btime: |\[ {0,18}\d{1,18}/"
)
_PAIR = late(rb"(?<![\w.])([A-Za-z_]{2,40}): ([-+\d.eE]{1,40}|nan|inf)(?=s?\s|s?$)")
_IMAGE = late(
    rb"\b(?:decode|aux)\.\w|\bloss_(?:cls|bbox|mask|rpn|dfl|kpt|heatmap)|\bacc_seg:|\btop[15]_acc:|\baccuracy_top-"
)
_CONFIG = late(
    rb"^(batch_size|accumulative_counts|max_length|sequence_parallel_size) = (\d{1,9})(?![\w-])|^(pack_to_max_length) = (True)\b"
    rb"|^ {0,20}(GPU number): (\d{1,9})\s*$"
)
_NAMES = {
    b"time": "elapsed_s",
    b"loss": "lm_loss",
    b"total_loss": "lm_loss",
    b"grad_norm": "grad_norm",
    b"tokens_per_sec": "tokens_per_second_per_device",
    b"tgs": "tokens_per_second_per_device",
    b"text_tokens": "tokens_per_device",
    b"reduced_consumed_tokens": "consumed_tokens",
}


class _Parser(Parser):
    """Remembers the configuration, which says how many micro-batches make a step."""

    def __init__(self) -> None:
        self.config: dict[bytes, float] = {}
        self.is_image = self.has_iterations = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read an iteration or a word of the configuration."""
        config = _CONFIG.search(text)
        if config:
            name, value = next((config[i], config[i + 1]) for i in (1, 3, 5) if config[i])
            self.config.setdefault(name, float(value) if value != b"True" else 1.0)
        found = _ITERATION.search(text) or _STEP.search(text)
        if found and not _OTHER.search(text, found.end("total")):
            self._record(line, text, found, findings)

    def _record(self, line: Line, text: bytes, found: Match, findings: Findings) -> None:
        self.is_image = self.is_image or _IMAGE.search(text) is not None
        iteration, total = float(found["iteration"]), float(found["total"])
        values = {"iteration": iteration, "total_iterations": total}
        if found.groupdict().get("epoch"):
            values = {"iteration": (float(found["epoch"]) - 1) * total + iteration}
        for pair in _PAIR.finditer(text, found.end("total")):
            name, value = _NAMES.get(pair[1]), number(pair[2])
            if not name or value is None or is_cut(line, text, pair.end(2)):
                continue
            if isfinite(value) or name in {"lm_loss", "grad_norm"}:
                values.setdefault(name, value)
        if "consumed_tokens" in values:
            values.pop("tokens_per_device", None)  # packs differ between GPUs
        if "epoch" in found.groupdict():
            self.has_iterations = True
            self._of_step(line, values, findings)
        is_whole = "elapsed_s" in values or "tokens_per_second_per_device" in values
        findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def _of_step(self, line: Line, values: dict[str, float], findings: Findings) -> None:
        """Turn the time of a micro-batch into that of a step, as far as the configuration is in the log."""
        accumulation = self.config.get(b"accumulative_counts")
        if accumulation and "elapsed_s" in values:
            values["elapsed_s"] *= accumulation
        devices = self.config.get(b"GPU number")
        if devices:
            findings.fact("num_devices", devices, line)
        if b"max_length" in self.config and b"pack_to_max_length" in self.config:
            findings.fact("sequence_length", self.config[b"max_length"], line)
        if accumulation and devices and b"batch_size" in self.config:
            replicas = devices / self.config.get(b"sequence_parallel_size", 1.0)
            findings.fact("global_batch_size", self.config[b"batch_size"] * accumulation * replicas, line)

    def finish(self, findings: Findings) -> None:
        """Refuse other programs of mmengine; say what an iteration is."""
        if self.is_image:
            findings.refuse("not an LLM training log: mmengine with an image model")
        elif self.has_iterations and b"accumulative_counts" not in self.config:
            findings.remark(
                "an iteration of XTuner is one micro-batch on every GPU, and the log does not say how many make a "
                "step (accumulative_counts): --global-batch-size has to be that of one iteration"
            )


DIALECTS = (
    Dialect(
        name="xtuner",
        title="XTuner on mmengine, and its own trainer",
        source="InternLM/xtuner xtuner/engine/hooks/throughput_hook.py, xtuner/v1/train/trainer.py; "
        "open-mmlab/mmengine mmengine/logging (LogProcessor)",
        example="01/01 10:00:00 - mmengine - INFO - Iter(train) [  20/1000]  lr: 2.0e-04  eta: 0:30:00  time: 2.0000  "
        "data_time: 0.0080  memory: 12000  loss: 2.5000  grad_norm: 0.9000",
        trap="time is of a micro-batch; tgs is of one GPU, exp_tgs and e2e_tgs are running means",
        needles=(
            b"(train) ",
            b" tgs: ",
            b"GPU number: ",
            b"accumulative_counts = ",
            b"max_length = ",
            b"batch_size = ",
            b"sequence_parallel_size = ",
        ),
        parser=_Parser,
    ),
)
