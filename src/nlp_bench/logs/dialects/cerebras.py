"""Cerebras: one line for training and its twin for evaluation."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities, take_facts
from nlp_bench.logs.scan import Line

# Rate is of the last interval (smoothed by the program), GlobalRate the mean since the start.
_TRAIN = re.compile(
    rb"\| ?Train Device=[\w:]{1,40}, (?:Global)?Step=(?P<iteration>\d{1,18}),"
    rb"(?: Loss=(?P<lm_loss>[-+\d.eE]{1,40}|nan|inf),)?[^\r\n]{0,200}? "
    rb"Rate=(?P<samples_per_second>[\d.eE+]{1,40}) samples/sec"
)
_TORN = re.compile(rb"Device=[^\r\n]{0,4000}Device=|\bBatch=|, Loss=(?:[-+\d.eE]{1,40}|nan|inf), (?!(?:Global)?Rate=)")
_EVAL = re.compile(rb"\| ?Eval Device=")
_FACTS = (
    re.compile(rb"Effective batch size is (?P<global_batch_size>\d{1,12})(?![\w-])"),
    re.compile(rb"Preparing to execute using (?P<num_devices>\d{1,9}) CSX\b"),
)
ONLY_EVALUATION = "evaluation only: the log has no training step, and the rate of an evaluation is none of training"


class _Parser:
    """Remembers that evaluations were seen, in case there is nothing else."""

    def __init__(self) -> None:
        self.has_evaluated = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read a training line; an evaluation line is only noted."""
        for text in pieces(line.text):
            take_facts(_FACTS, text, line, findings)
            self.has_evaluated = self.has_evaluated or _EVAL.search(text) is not None
            for found in _TRAIN.finditer(text):
                values, is_whole = quantities(found)
                if _TORN.search(text):
                    values, is_whole = {}, False
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Refuse a log of evaluations."""
        if self.has_evaluated and not findings.num_records:
            findings.refuse(ONLY_EVALUATION)


DIALECTS = (
    Dialect(
        name="cerebras",
        title="Cerebras Model Zoo on Wafer-Scale Clusters",
        source="Cerebras/modelzoo src/cerebras/modelzoo/trainer (progress logger); argonne-lcf/user-guides",
        example="2026-01-01 10:00:00,000 INFO:   | Train Device=CSX, Step=100, Loss=9.50000, Rate=40.00 samples/sec, "
        "GlobalRate=39.50 samples/sec, LoopTimeRemaining=0:10:00, TimeRemaining=0:10:00",
        trap="Eval lines look alike; Rate is samples of the machine, and the length of a sample is never printed",
        needles=(
            b"| Train Device=",
            b"|Train Device=",
            b"| Eval Device=",
            b"Effective batch size is ",
            b" to execute using ",
        ),
        parser=_Parser,
    ),
)
