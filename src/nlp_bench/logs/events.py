"""Evaluations, checkpoints and profiled iterations that a log speaks of: an interval that holds one did something else than train.

Sources: NVIDIA/Megatron-LM megatron/training/training.py (`validation loss at iteration`) and checkpointing.py (`saving checkpoint at
iteration`, `successfully saved checkpoint`); the words are common to most trainers. `profiling iteration 10 on rank 0` is our own
trainer's (train/watching/profiler.py).
"""

import re

from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.record import Event
from nlp_bench.logs.scan import Line

MAX_EVENTS = 100_000
"""More than any training has; a log that speaks of checkpoints in every line tells nothing by it."""
_CHECKPOINT = re.compile(
    rb"(?<![/\w-])sav(?:ing|ed)\b[^|]{0,40}\bcheckpoint(?!ing)|\bcheckpoint(?!ing)[^|]{0,40}\bsaved?\b|(?<![\w-])save-checkpoint(?![\w-])",
    re.IGNORECASE,
)
_EVALUATION = re.compile(
    rb"\bvalidation loss\b|\bvalid(?:ation)?_loss\b|\beval(?:uation)?[ _]loss\b|\bevaluating\b|\b(?:running|start\w*) (?:evaluation|validation)\b",
    re.IGNORECASE,
)
_PROFILER = re.compile(rb"(?<![\w-])profiling iteration \d{1,12} on ranks? \d")
_FORMS = {"profiler": _PROFILER, "checkpoint": _CHECKPOINT, "evaluation": _EVALUATION}
"""Kind to its words; the first that fits is told."""
_DENIED = re.compile(rb"\b(?:no|not|never|nothing|without|disabled|skip(?:s|ped|ping)?)\b", re.IGNORECASE)
_BEFORE = 16
"""Bytes before the words in which they may be denied: `will not be`."""


class _Parser(Parser):
    """Counts what it has told."""

    def __init__(self) -> None:
        self.num_events = 0

    def take(self, line: Line, findings: Findings) -> None:
        """Tell whether the line speaks of a checkpoint that was written, of an evaluation or of the profiler."""
        text = line.text[:1024]
        kind = next((kind for kind, form in _FORMS.items() if _says(form, text)), None)
        if kind and self.num_events < MAX_EVENTS:
            self.num_events += 1
            findings.event(Event(kind, line.offset, line.number))


def _says(form: re.Pattern[bytes], text: bytes) -> bool:
    found = form.search(text)
    return found is not None and not _DENIED.search(text, max(0, found.start() - _BEFORE), found.end())


EVENTS = Dialect(
    name="events",
    title="any program",
    source="none",
    example="validation loss at iteration 100",
    trap="an option that names a checkpoint is none",
    needles=(b"heckpoint", b"alidation", b"alid_loss", b"val_loss", b"val loss", b"valuat", b"profiling iteration"),
    parser=_Parser,
)
