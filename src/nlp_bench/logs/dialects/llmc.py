"""llm.c: the trainers in CUDA, C and Python, and their ports; the number before `ms` and before `tok/s` counts."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities, take_facts
from nlp_bench.logs.scan import Line

_LOSS = rb"(?:(?:train )?loss:? )(?P<lm_loss>[-+\d.eE]{1,40}|-?nan|-?inf|NaN)"
# Between loss and time stand norm, learning rate and z-scores, which have changed with every version.
_STEP = re.compile(
    rb"\bstep {1,9}(?P<iteration>\d{1,18})(?: ?/ ?(?P<total_iterations>\d{1,18}))? ?(?:\||:) "
    + _LOSS
    + rb"[^\r\n]{0,160}?[ (](?:(?P<elapsed_ms>[\d.]{1,30}) ms|(?P<elapsed_s>[\d.]{1,30}) s)\b"
    rb"(?:[^\r\n]{0,60}? (?P<tokens_per_second>\d{1,18}) tok/s)?"
)
# Tests of single steps, and the line of build-nanogpt, which is near enough to be taken for this one.
_SKIP = re.compile(rb"\bOK = \d|\bdt: ")
_FACTS = (
    re.compile(rb"\| total batch size {1,40}\| (?P<tokens>\d{1,18}) "),
    re.compile(rb"\| sequence length T {1,40}\| (?P<sequence_length>\d{1,9}) "),
    re.compile(rb"\| num_processes {1,40}\| (?P<num_devices>\d{1,9}) "),
    re.compile(
        rb"batch_size B=\d{1,9} \* seq_len T=(?P<sequence_length>\d{1,9}) \* num_processes=(?P<num_devices>\d{1,9}) "
        rb"and total_batch_size=(?P<tokens>\d{1,18})"
    ),
    re.compile(rb"^total desired batch size: (?P<tokens>[\d,]{1,30})(?=\s|$)"),
)
_LOSS_ONLY = re.compile(rb"^s:\d{1,18} (?:tel|trl|eval):[-+\d.]")
_MANY = 3


class _Parser:
    """Counts the lines of the trainer's own log file, which has no times at all."""

    def __init__(self) -> None:
        self.num_losses = 0
        self.is_smoothed = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read a step, a size, or a loss without a time."""
        for text in pieces(line.text):
            take_facts(_FACTS, text, line, findings)
            self.num_losses += _LOSS_ONLY.search(text) is not None
            found = _STEP.search(text)
            if found and not _SKIP.search(text):
                self.is_smoothed = self.is_smoothed or b" MFU" in text
                values, is_whole = quantities(found)
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Refuse a log of losses; say what the rate is when nothing better is there."""
        if not findings.num_records and self.num_losses >= _MANY:
            findings.refuse("the log has losses only, no times: no tokens per second can be computed")
        elif self.is_smoothed and not findings.known("tokens"):
            findings.remark("tok/s of the CUDA trainer is a running mean")


DIALECTS = (
    Dialect(
        name="llm-c",
        title="llm.c (CUDA, C, Python) and its ports",
        source="karpathy/llm.c train_gpt2.cu, train_gpt2.py, train_gpt2.c, llmc/logger.h",
        example="step   20/1000 | loss 7.250000 (+0.50z)| norm 1.5000 (-0.10z)| lr 1.00e-04 | 500.00 ms | "
        "40.0% bf16 MFU | 1048576 tok/s",
        trap="tok/s is a running mean, total batch size is in tokens; the file main.log has no times",
        needles=(
            b" tok/s",
            b" ms)",
            b"| total batch size ",
            b"| sequence length T ",
            b"| num_processes ",
            b" and total_batch_size=",
            b"total desired batch size: ",
            b" tel:",
            b" trl:",
        ),
        parser=_Parser,
    ),
)
