"""Megatron-Bridge's own line per logging interval, for logs that have lost the line of Megatron-LM that follows it."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.dialects.megatron_facts import NEEDLES, Settings
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line

_STEP = re.compile(rb"Step Time : (\d{1,9}\.\d{1,9})s GPU utilization: (\d{1,9}\.\d{1,9})(?:MODEL_)?TFLOP/s/GPU")


class _Parser:
    """Counts the lines: they do not say which iteration they are of."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.num_lines = 0

    def take(self, line: Line, findings: Findings) -> None:
        """Read a record, or what else the line says."""
        for text in pieces(line.text):
            found = _STEP.search(text)
            if not found:
                self.settings.take(text, line, findings)
                continue
            self.num_lines += 1
            values = {"iteration": float(self.num_lines), "elapsed_s": float(found[1])}
            if float(found[2]):  # a hybrid model prints 0
                values["model_tflops"] = float(found[2])
            findings.record(line, values, label=label_of(text[: found.start()]))

    def finish(self, findings: Findings) -> None:
        """Say what the numbers of the iterations are."""
        self.settings.finish(findings)
        if self.num_lines:
            findings.remark("the lines do not number their iterations: they are counted in their order")


DIALECTS = (
    Dialect(
        name="megatron-bridge",
        title="Megatron-Bridge, NeMo since 25.09",
        source="NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/utils/train_utils.py",
        example="Step Time : 12.50s GPU utilization: 800.0MODEL_TFLOP/s/GPU",
        trap="neither batch nor sequence length; TFLOP/s are of one GPU, and 0 for hybrid models",
        needles=(b"Step Time :", *NEEDLES),
        parser=_Parser,
        yields_to=("megatron-lm",),
    ),
)
