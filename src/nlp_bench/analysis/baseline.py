"""Which runs of a configuration are its baseline: the state of each, from its data, the verdicts of the gate and what a person accepted.

A baseline begins with the first valid run, and anew with a run that a person accepts. From there on runs count that are VALID, that the
levels do not set apart, and that did not fail their gate. Nothing else enters or leaves it.
"""

from collections.abc import Sequence
from enum import Enum

from nlp_bench.analysis.contrast import Word
from nlp_bench.analysis.levels import Flag, Kind, Level, parted
from nlp_bench.analysis.repeats import different_runs
from nlp_bench.analysis.row import Row
from nlp_bench.immutable import immutable
from nlp_bench.outcome import Outcome


class State(Enum):
    """Whether a run counts as baseline, and why it does not."""

    ACCEPTED = "accepted"
    REPLACED = "replaced"  # a person accepted a later run, with which the baseline begins anew
    SLOWER = "slower"  # beyond the accepted level, by itself or as one of a level
    FASTER = "faster"
    FAILED_GATE = "failed its gate"
    NOT_VALID = "not VALID"
    COPY = "copy"  # of another run, which counts


ACCEPTED = "accepted"  # the word of a person; the other words are verdicts of a gate


@immutable
class Decision:
    """What a person or a gate said about a run; of several the last one counts."""

    id: int = 0  # its number in the file, 0 before it is there
    run: int  # number of the run
    word: str  # ACCEPTED, or the verdict of the gate
    percent: float | None = None  # of the gate
    who: str
    added: str  # ISO 8601 with offset
    why: str = ""

    @property
    def sentence(self) -> str:
        """Say it in words."""
        what = self.word if self.percent is None else f"gate of {self.percent:g} %: {self.word}"
        return f"{what} ({self.who}, {self.added}){f': {self.why}' if self.why else ''}"


@immutable
class Judged:
    """A run of the history with what is known of it as baseline."""

    row: Row
    state: State
    decisions: tuple[Decision, ...]  # on it, the latest last


def begins(rows: Sequence[Row], decisions: Sequence[Decision]) -> list[tuple[int, Decision]]:
    """Return where, in the rows of one configuration, a person's word begins a baseline, the current one last.

    An earlier word on a later run is undone by a later word on an earlier one.
    """
    place = {row.id: at for at, row in enumerate(rows)}
    found: list[tuple[int, Decision]] = []
    for decision in reversed(decisions):
        at = place.get(decision.run)
        if decision.word == ACCEPTED and at is not None and (not found or at < found[-1][0]):
            found.append((at, decision))
    return found[::-1]


def states(rows: Sequence[Row], decisions: Sequence[Decision], *, measured: bool = False) -> dict[int, State]:
    """Return the state of each of the rows of one configuration, by their numbers; with `measured` MEASURED runs count as VALID ones do.

    `rows` have all columns and are in the order of time.
    """
    starts = begins(rows, decisions)
    at, since = (starts[-1][0], starts[-1][1].id) if starts else (0, 0)
    first = rows[at].id if starts else None
    sound = {Outcome.VALID.value, *([Outcome.MEASURED.value] if measured else [])}
    counted = [row for row in rows[at:] if row.tokens_per_second_steady and (row.outcome in sound or row.id == first)]
    _, copies = different_runs(row.observation() for row in counted)
    keys = {run.key for run, _ in copies}
    found = {row.id: State.REPLACED if place < at else State.NOT_VALID for place, row in enumerate(rows)}
    found |= {row.id: State.COPY for row in counted}
    found |= _by_level([row for row in counted if row.key not in keys])
    verdicts = {decision.run: decision.word for decision in decisions if decision.id > since}
    failed = {run for run, word in verdicts.items() if word == Word.FAIL.value}
    found |= {row.id: State.FAILED_GATE for row in counted if row.id in failed}
    return found if first is None else found | {first: State.ACCEPTED}


def accepted(rows: Sequence[Row], decisions: Sequence[Decision]) -> list[Row]:
    """Return the rows of one configuration that are its baseline."""
    found = states(rows, decisions)
    return [row for row in rows if found[row.id] is State.ACCEPTED]


def before_it(rows: Sequence[Row], decisions: Sequence[Decision]) -> list[Row]:
    """Return the runs that were the baseline before the current one."""
    starts = begins(rows, decisions)
    return accepted(rows[: starts[-1][0]], decisions) if starts else []


def _by_level(rows: Sequence[Row]) -> dict[int, State]:
    """Return the states of valid runs by their levels: the first one is accepted, and a later one that comes back to it."""
    levels, flags = parted(rows)
    firsts = {flag.row.id for flag in flags if flag.kind is Kind.NEW_LEVEL}
    single = {flag.row.id: flag for flag in flags if flag.kind is not Kind.NEW_LEVEL}
    of_level: list[State] = []
    for level in levels:
        of_level.append(_state(level, levels[: len(of_level)], of_level))
    found: dict[int, State] = {}
    number = 0
    for row in rows:
        number += row.id in firsts
        flag = single.get(row.id)
        found[row.id] = of_level[number] if flag is None else _alone(flag, of_level[number], levels[0])
    return found


def _state(level: Level, before: Sequence[Level], states_before: Sequence[State]) -> State:
    if not before:
        return State.ACCEPTED
    base, last = before[0], before[-1]
    is_slower = level.mean < base.mean
    comes_back = states_before[-1] is not State.ACCEPTED and (level.mean < last.mean) == (last.mean > base.mean)
    if comes_back and level.is_like(base):
        return State.ACCEPTED
    return State.SLOWER if is_slower else State.FASTER


def _alone(flag: Flag, state: State, base: Level) -> State:
    """Return the state of a run that leaves its level: one that rises within a slower level may have reached the accepted one."""
    is_slow = flag.kind is Kind.DROP or (state is State.SLOWER and (base.leaves(flag.row) or 0.0) < 0)
    return State.SLOWER if is_slow else State.FASTER
