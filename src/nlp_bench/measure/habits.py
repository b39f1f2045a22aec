"""How the program of a log counts and prints, as far as the measurement depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.logs.record import Attempt, Event, Log

FIRST_TWICE = frozenset({"megatron-lm", "megatron-bridge"})
"""Programs that print iteration 1 alone without setting their clock back: their second line holds it again (NVIDIA/Megatron-LM
megatron/training/training.py, `should_reset = not is_first_iteration`)."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What is not in the records."""

    log_interval: int | None = None
    """Iterations per line, None where nobody says it."""
    counts_from: int = 1
    """Number of the first iteration."""
    has_first_twice: bool = False
    """Whether a program that prints the first iteration alone has it in its second line again."""
    events: Sequence[Event] = ()
    """Evaluations and checkpoints, in the order of the log."""


def habits_of(log: Log, attempt: Attempt) -> Habits:
    """Return what the log tells of its program."""
    return Habits(
        log_interval=attempt.count("log_interval"),
        counts_from=_counts_from(log, attempt),
        has_first_twice=log.dialect in FIRST_TWICE,
        events=log.events,
    )


def _counts_from(log: Log, attempt: Attempt) -> int:
    """Return the number of the first iteration: behind a checkpoint, where our trainer says that it has loaded one."""
    loaded, first = log.settings.get("loaded_iterations"), attempt.records[0] if attempt.records else None
    if loaded is None or first is None or len(log.attempts) > 1 or not isinstance(loaded.value, int):
        return log.counts_from
    goes_on = loaded.line_number < first.line_number and loaded.value < first.iteration
    return loaded.value + 1 if goes_on else log.counts_from
