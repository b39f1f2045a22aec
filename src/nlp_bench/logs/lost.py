"""Training lines that gave no time: which of them are lost, and whether what is left may stand for the whole.

A line is lost for a reason, and the reason may be its value: times from 1 000 ms on that are written in a way that nobody reads,
stalls that run into another process's words. The rest would then be a choice of the fast ones.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.quantity import RATES
from nlp_bench.logs.record import Attempt, Records, Refusal

MAX_SHARE = 0.02
"""Share of a training's lines that may be lost: lines half as slow again as the others would then move their mean by 1 %, about the
width of an interval."""
MIN_LINES = 3
"""A log that was ended while it was written has one cut line, one into which an evaluation or a crash has spoken another."""
MANY_LINES = 100
"""So many numbers of lines are kept."""
_WORD = re.compile(rb"[A-Za-z_]{3,}")
_NOT_FINITE = {b"nan", b"inf", b"infinity", b"none", b"null"}
_LOOKED_BYTES = 1024
_MIN_WORDS, _MAX_FORMS, _EVERY = 3, 64, 64


class Flagged(NamedTuple):
    """A line that looks like a record, and of which at least the time could not be read."""

    offset: int
    """Byte at which it begins."""
    number: int
    """Its line number."""
    iteration: float
    """Which iteration it is of, NaN where that cannot be read either."""


class Lookalikes:
    """Knows by their words the lines of one dialect that gave records."""

    def __init__(self) -> None:
        """Begin with no form."""
        self._forms: set[bytes] = set()
        self._num_learned = 0

    def learn(self, text: bytes) -> None:
        """Remember the words of a line that gave a record: of the first ones all, of the others some."""
        self._num_learned += 1
        if (self._num_learned <= _EVERY or self._num_learned % _EVERY == 0) and len(self._forms) < _MAX_FORMS:
            self._forms.add(_form(text))

    def has(self, text: bytes) -> bool:
        """Say whether a line that gave nothing has the words of those that did: only its numbers can be the reason."""
        return bool(self._forms) and _form(text) in self._forms


def _form(text: bytes) -> bytes:
    words = [word for word in _WORD.findall(text, 0, _LOOKED_BYTES) if word.lower() not in _NOT_FINITE]
    return b" ".join(words) if len(words) >= _MIN_WORDS else text


def with_losses(attempts: Sequence[Attempt], flagged: Sequence[Flagged], *, is_counted: bool) -> tuple[Attempt, ...]:
    """Return the attempts with what each has lost of the flagged lines.

    An iteration is lost where no line gives its time. Of flagged lines that do not say their iteration no more are lost than
    iterations are missing: the others are copies of what another line says. `is_counted` is false where the program does not
    number its iterations, so that none is seen to be missing.
    """
    if not flagged or not attempts:
        return tuple(attempts)
    begins = np.array([attempt.records.offsets.min() for attempt in attempts])
    owners = np.searchsorted(begins, [line.offset for line in flagged], side="right") - 1
    return tuple(
        _with_losses(
            attempt, [line for line, owner in zip(flagged, owners, strict=True) if max(owner, 0) == index], is_counted
        )
        for index, attempt in enumerate(attempts)
    )


def _with_losses(attempt: Attempt, flagged: Sequence[Flagged], is_counted: bool) -> Attempt:  # passed through
    kept = _timed(attempt.records)
    lost = [line for line in flagged if line.iteration not in kept and not np.isnan(line.iteration)]
    iterations = {line.iteration for line in lost}
    unknown = [line for line in flagged if np.isnan(line.iteration)]
    if is_counted:
        unknown = unknown[: _num_missing(np.array(sorted(kept | iterations)))]
    lines = sorted(line.number for line in (*lost, *unknown))[:MANY_LINES]
    return replace(attempt, num_lost=len(iterations) + len(unknown), lost_lines=tuple(lines))


def _timed(records: Records) -> set[float]:
    """Return the iterations that have a value of what most says how fast the training is."""
    name = next((name for name in (*RATES, "clock_s") if records.has(name).any()), None)
    iterations: NDArray[np.float64] = records.column("iteration")
    return set((iterations[records.has(name)] if name else iterations).tolist())


def _num_missing(iterations: NDArray[np.float64]) -> int:
    """Return how many lines are missing between the first and the last, by the step that is usual where none is."""
    steps = np.diff(iterations)
    if not len(steps):
        return 0
    usual = float(np.quantile(steps, 0.1, method="lower"))
    return int(np.sum(np.maximum(np.round(steps / usual) - 1, 0)))


def refusal_of(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return why a log whose training lines are lost in part gives no number, None where it has lost little.

    An attempt with less than half of the records of the longest speaks for none but itself.
    """
    longest = max((len(attempt.records) for attempt in attempts), default=0)
    for attempt in attempts:
        total = attempt.num_lost + len(_timed(attempt.records))
        if attempt.num_lost < MIN_LINES or attempt.num_lost <= MAX_SHARE * total or 2 * len(attempt.records) < longest:
            continue
        lines = ", ".join(map(str, attempt.lost_lines[:5]))
        return Refusal(
            f"{attempt.num_lost} of {total} training lines ({100 * attempt.num_lost / total:.1f} %) have no time that can be read: cut, "
            f"spliced, written in an unknown way, 0 or below (lines {lines}{', ...' if len(attempt.lost_lines) > 5 else ''}); those may "
            f"be the slow ones, so more than {100 * MAX_SHARE:.0f} % give no number; give the log as the program wrote it, of one process"
        )
    return None
