"""Shanghai AI Laboratory's programs: InternEvo (InternLM), and XTuner, on mmengine (an iteration is a micro-batch) or with its own trainer."""

from nlp_bench.logs.clean import stamp_s, unwrapped
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.scan import Line

_HEAD, _CONSUMED = b"tgs (tokens/gpu/second)=", late(rb"[\s,]num_consumed_tokens=\d{1,18}(?=[\s,])")


class _InternEvo(PatternParser):
    """Pairs separated by commas (2023) or blanks; the rate is of one device, the consumed tokens are exact and of all devices.

    Where the log does not state the devices, the time stamps of the lines (milliseconds) give the time of a step.
    """

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(unwrapped(line, text, _HEAD, _CONSUMED), line, findings)

    def values(self, values: Values, at: At) -> Values:
        now = stamp_s(at.found.string[: at.found.start()], is_fine=True)
        if now is not None and "consumed_tokens" in values and at.findings.known("num_devices") is None:
            values["clock_s"] = now
            at.findings.remark(
                "the number of devices is not stated; the time of a step is the difference of the lines' time stamps"
            )
        return values


_OTHER = late(
    rb"\((?:val|test|train)\) |\beta: [^\r\n]{0,4000}\beta: |\btime: [^\r\n]{0,4000}(?<!_)\btime: |\[ {0,18}\d{1,18}/"
)
_CONFIG = late(
    rb"^(batch_size|accumulative_counts|max_length|sequence_parallel_size) = (\d{1,9})(?![\w-])|^(pack_to_max_length) = (True)\b"
    rb"|^ {0,20}(GPU number): (\d{1,9})\s*$"
)
_IMAGE = rb"\b(?:decode|aux)\.\w|\bloss_(?:cls|bbox|mask|rpn|dfl|kpt|heatmap)|\bacc_seg:|\btop[15]_acc:|\baccuracy_top-"


class _XTuner(PatternParser):
    """Remembers the configuration, which has the number of micro-batches of a step."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.config: dict[bytes, float] = {}
        self.has_iterations = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if config := _CONFIG.search(text):
            name, value = (group for group in config.groups() if group)
            self.config.setdefault(name, float(value) if value != b"True" else 1.0)
        super().text(text, line, findings)

    def values(self, values: Values, at: At) -> Values | None:
        """Convert the time of a micro-batch to that of a step, where the configuration is in the log."""
        if _OTHER.search(at.found.string, at.found.end()):
            return None
        if "consumed_tokens" in values:
            values.pop("tokens_per_device", None)  # packs differ between GPUs
        if "epoch" not in at.found.groupdict():
            return values
        self.has_iterations = True
        config, accumulation = self.config, self.config.get(b"accumulative_counts")
        if accumulation and "elapsed_s" in values:
            values["elapsed_s"] *= accumulation
        devices = config.get(b"GPU number", 0.0)
        at.findings.fact("num_devices", devices, at.line)
        if b"pack_to_max_length" in config:
            at.findings.fact("sequence_length", config.get(b"max_length", 0.0), at.line)
        replicas = devices / config.get(b"sequence_parallel_size", 1.0)
        at.findings.fact(
            "global_batch_size", config.get(b"batch_size", 0.0) * (accumulation or 0.0) * replicas, at.line
        )
        return values

    def finish(self, findings: Findings) -> None:
        """Say what an iteration is."""
        if self.has_iterations and b"accumulative_counts" not in self.config:
            findings.doubt(
                "an iteration of XTuner is one micro-batch on every GPU, and the log does not say how many make a "
                "step (accumulative_counts): --global-batch-size has to be that of one iteration"
            )


DIALECTS = (
    Dialect(
        name="internevo",
        title="InternEvo, InternLM",
        source="InternLM/InternEvo internlm/train/pipeline.py",
        example="2026-01-01 10:00:02,000 INFO pipeline.py:562 in record_current_batch_training_metrics -- tflops=100.0 step=1 "
        "loss=9.1 tgs (tokens/gpu/second)=4096.0 tgs/tgs_all=2000.0 lr=1e-05 num_consumed_tokens=131072 fwd_bwd_time=1.9 ",
        trap="tgs is of one device, and other tgs of the line are averages; the first versions separate by commas",
        needles=(b"tgs (tokens/gpu/second)=", b"data parallel size: "),
        parser=Pattern(
            record=rb"(?:tflops=[\d.]{1,30}[\s,]{1,4})?(?<![\w.])step=<iteration>(?=[\s,][^\r\n]*[\s,]tgs \(tokens/gpu/second\)=[\d.]+[\s,])",
            fields=(
                rb"[\s,]tgs \(tokens/gpu/second\)=<tokens_per_second_per_device>(?=[\s,])",
                rb"[\s,]num_consumed_tokens=<consumed_tokens>(?=[\s,])",
                rb"[\s,]loss=(?P<lm_loss>[-+\w.]+)(?=[\s,])",
            ),
            facts=(
                (
                    rb"data parallel size: (?P<num_devices__data>\d{1,7}), pipeline parallel size: (?P<num_devices__pipeline>\d{1,7}), "
                    rb"tensor parallel size: (?P<num_devices__tensor>\d{1,7})(?=[,\s]|$)"
                ),
            ),
            start=rb"data parallel size: ",
            reads_each_line=False,
            reading=_InternEvo,
        ),
        counts_from=0,
    ),
    Dialect(
        name="xtuner",
        title="XTuner on mmengine, and its own trainer",
        source="InternLM/xtuner xtuner/engine/hooks/throughput_hook.py, xtuner/v1/train/trainer.py; "
        "open-mmlab/mmengine mmengine/logging (LogProcessor)",
        example="01/01 10:00:00 - mmengine - INFO - Iter(train) [  20/1000]  lr: 2.0e-04  eta: 0:30:00  time: 2.0000  "
        "data_time: 0.0080  memory: 12000  loss: 2.5000  grad_norm: 0.9000",
        trap="time is of a micro-batch; tgs is of one GPU, exp_tgs and e2e_tgs are running means",
        needles=(
            *(b"(train) ", b" tgs: ", b"GPU number: ", b"accumulative_counts = ", b"max_length = ", b"batch_size = "),
            b"sequence_parallel_size = ",
        ),
        parser=Pattern(
            record=(
                rb"\b(?:Iter|Epoch)\(train\)\s{1,8}(?:\[ {0,9}(?P<epoch>\d{1,9})\])?\[ {0,18}<iteration>/ {0,18}<total_iterations>\]",
                rb"\bStep <iteration>/<total_iterations>(?=\s[^\r\n]{0,600}?\btgs: \d)",
            ),
            pairs=(
                rb"(?<![\w.])(?P<key>[A-Za-z_]{2,40}): (?P<value>[-+\d.eE]{1,40}|nan|inf)(?=s?\s|s?$)",
                {
                    b"time": "elapsed_s",
                    b"loss": "lm_loss",
                    b"total_loss": "lm_loss",
                    b"grad_norm": "grad_norm",
                    b"tokens_per_sec": "tokens_per_second_per_device",
                    b"tgs": "tokens_per_second_per_device",
                    b"text_tokens": "tokens_per_device",
                    b"reduced_consumed_tokens": "consumed_tokens",
                },
            ),
            skip=_IMAGE,  # of other programs on mmengine
            reads_each_line=False,
            reading=_XTuner,
        ),
    ),
)
