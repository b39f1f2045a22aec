"""nanoGPT and llama2.c: the time of one iteration, with an evaluation inside it every now and then."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities, take_facts
from nlp_bench.logs.scan import Line

_NUMBER = rb"[-+\d.eE]{1,40}|nan|inf"
_NANOGPT = re.compile(
    rb"(?<![\w.])iter (?P<iteration>\d{1,18}): loss (?P<lm_loss>" + _NUMBER + rb"), "
    rb"time (?P<elapsed_ms>[\d.]{1,30}) ?ms(?=[\s,]|$)"
)
_LLAMA2_C = re.compile(
    rb"(?:^|\s)(?P<iteration>\d{1,18}) \| loss (?P<lm_loss>" + _NUMBER + rb") \| lr [-+\d.eE]{1,40} \| "
    rb"(?P<elapsed_ms>[\d.]{1,30}) ?ms \| mfu "
)
_EVALUATION = re.compile(rb"(?:^|\s)step (\d{1,18}): train loss ")
_TORN_EVALUATION = re.compile(rb"loss [-+\d.nainf]{1,30}, val loss ")  # of an iteration whose number is lost
_TOKENS = re.compile(rb"tokens per iteration will be: (?P<tokens>[\d,]{1,30})(?=\s|$)")
_PARTS = re.compile(
    rb"breaks down as: (\d{1,9}) grad accum steps \* (\d{1,9}) processes \* (\d{1,9}) batch size \* (\d{1,9}) max seq len"
)
_BLOCK = re.compile(rb"^Overriding: block_size = (?P<sequence_length>\d{1,9})\s*$")


class _Parser:
    """Remembers the last evaluation: it falls into the time of the iteration of the same number."""

    def __init__(self, record: re.Pattern[bytes]) -> None:
        self.record = record
        self.evaluated: int | None = None
        self.is_next = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read an iteration, an evaluation or the sizes that are printed at the start."""
        for text in pieces(line.text):
            take_facts((_TOKENS, _BLOCK), text, line, findings)
            _take_parts(line, text, findings)
            evaluation = _EVALUATION.search(text)
            if evaluation:
                self.evaluated = int(evaluation[1])
            elif _TORN_EVALUATION.search(text):
                self.is_next = True
            for found in self.record.finditer(text):
                values, is_whole = quantities(found)
                if values["iteration"] == self.evaluated or self.is_next:
                    self.is_next = False
                    values.pop("elapsed_s", None)
                    findings.remark("the times of iterations with an evaluation inside are left out")
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def _take_parts(line: Line, text: bytes, findings: Findings) -> None:
    parts = _PARTS.search(text)
    if parts:
        accumulation, processes, batch, length = (float(part) for part in parts.groups())
        findings.fact("num_devices", processes, line)
        findings.fact("global_batch_size", accumulation * processes * batch, line)
        findings.fact("sequence_length", length, line)


DIALECTS = (
    Dialect(
        name="nanogpt",
        title="nanoGPT",
        source="karpathy/nanoGPT train.py",
        example="iter 1200: loss 3.5000, time 250.00ms, mfu 40.00%",
        trap="mfu is of one process; an iteration with an evaluation contains its time",
        needles=(
            b"ms, mfu ",
            b", time ",
            b"tokens per iteration will be: ",
            b", val loss ",
            b"Overriding: block_size",
        ),
        parser=lambda: _Parser(_NANOGPT),
        counts_from=0,
    ),
    Dialect(
        name="llama2-c",
        title="llama2.c",
        source="karpathy/llama2.c train.py",
        example="1200 | loss 1.9500 | lr 5.000000e-04 | 125.00ms | mfu 28.31%",
        trap="the iteration has no word in front of it; mfu is a running mean of one process",
        needles=(b"ms | mfu ", b"tokens per iteration will be: ", b", val loss ", b"breaks down as: "),
        parser=lambda: _Parser(_LLAMA2_C),
        counts_from=0,
    ),
)
