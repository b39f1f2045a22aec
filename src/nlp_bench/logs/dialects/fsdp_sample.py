"""The PyTorch FSDP sample of AWS (awsome-distributed-training) and the SageMaker samples of the same line."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities
from nlp_bench.logs.scan import Line

_RECORD = re.compile(
    rb"\bBatch (?P<iteration>\d{1,18}) Loss: (?P<lm_loss>[-+\d.eE]{1,40}|nan|inf), "
    rb"Speed: (?P<samples_per_second>[\d.]{1,40}) samples/sec"
)
# What the launcher says of itself. --max_context_width is left alone: train.py does not hand it to its data loader.
_LAUNCH = {
    "nodes": re.compile(rb"--nnodes[= ](\d{1,6})(?![\w-])"),
    "processes": re.compile(rb"--nproc[_-]per[_-]node[= ](\d{1,4})(?![\w-])"),
    "batch": re.compile(rb"--train_batch_size[= ](\d{1,9})(?![\w-])"),
}


class _Parser:
    """Puts the global batch together from what the launcher printed."""

    def __init__(self) -> None:
        self.launch: dict[str, int] = {}

    def take(self, line: Line, findings: Findings) -> None:
        """Read a step or the words of the launcher."""
        for text in pieces(line.text):
            for name, expression in _LAUNCH.items():
                found = expression.search(text)
                if found:
                    self.launch.setdefault(name, int(found[1]))
                    self._facts(line, findings)
            for found in _RECORD.finditer(text):
                values, is_whole = quantities(found)
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def _facts(self, line: Line, findings: Findings) -> None:
        if not {"nodes", "processes"} <= self.launch.keys():
            return
        devices = self.launch["nodes"] * self.launch["processes"]
        findings.fact("num_devices", float(devices), line)
        if "batch" in self.launch:
            findings.fact("global_batch_size", float(self.launch["batch"] * devices), line)

    def finish(self, findings: Findings) -> None:
        """Say what a person who gives the length of a sample has to know."""
        if findings.num_records:
            findings.remark(
                "--max_context_width is not what this program trains with: "
                "its data loader has a length of its own (4096 unless changed)"
            )


DIALECTS = (
    Dialect(
        name="aws-fsdp",
        title="AWS awsome-distributed-training, PyTorch FSDP",
        source="aws-samples/awsome-distributed-training 3.test_cases/pytorch/FSDP/src/train.py",
        example="0: 2026-01-01 10:00:00 I [train.py:103] Batch 12 Loss: 7.50000, Speed: 16.00 samples/sec, lr: 0.000100",
        trap="Speed is of the machine; the printed --max_context_width is not the length of the samples",
        needles=(b" samples/sec, ", b"--nproc_per_node", b"--nproc-per-node", b"--train_batch_size"),
        parser=_Parser,
        counts_from=0,
    ),
)
