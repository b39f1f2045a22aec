"""Whether somebody's log shows that its run ended well, trained and whole: what makes it VALID or MEASURED, or voids its number.

A run of ours has an outcome.json for that; of a log alone its lines have to show it.
"""

import math
from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np

from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.logs.end_marks import OUTSIDE, decisive
from nlp_bench.logs.record import Attempt, EndMark, Log, Records
from nlp_bench.measure import Json
from nlp_bench.measure.series import finite, median
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.terminal import duration_text

MIN_STAMPS = 3
SILENT, SILENT_S = 3, 60.0
"""Usual intervals and seconds after the last line in which a run that goes on may be ended: one of them, a last checkpoint, the grace of a signal."""
HALF_HOUR_S = 1800.0


class Shown(str, Enum):
    """What a log shows of the end of its run."""

    ENDED = "ended"  # all iterations, or the program's own word that it was done
    STOPS_EARLY = "stops-early"  # its last iteration is not the one that it was to end at
    END_UNKNOWN = "end-unknown"  # it does not say where the training would end
    ENDED_FROM_OUTSIDE = "ended-from-outside"  # the scheduler or a person ended it
    EXCERPT = "excerpt"  # it begins in the middle of a training
    DAMAGED = "damaged"  # it could not be read whole
    NO_LOSS = "no-loss"  # nothing shows that it trained
    CONTRADICTED = "contradicted"  # it says that it reached its end, and contradicts itself
    CRASHED = "crashed"  # an error ended it


@immutable
class LogEnd:
    """How the run of a log ended."""

    outcome: Outcome  # VALID, MEASURED, or why it has no number
    shown: Shown
    text: str | None = None  # the same in a sentence; None for VALID, and where contradictions made it MEASURED
    remark: str | None = None  # an error after the last iteration
    mark: EndMark | None = None  # the line that shows it
    silent_s: float = 0.0
    """Seconds from the last line of the measured start to its end from outside; 0 where that is no long time."""
    finished_at: int | None = None  # iteration at which the training ended well; None: it did not

    @property
    def reason(self) -> Reason | None:
        """Why it is not VALID."""
        return Reason(self.shown.value, self.text) if self.text else None

    @property
    def proves(self) -> bool:
        """Say whether the number, if there is one, may prove a limit: not after a crash, nor where the log contradicts itself."""
        return self.shown not in {Shown.CRASHED, Shown.CONTRADICTED}

    def to_json(self) -> Json:
        """Return the `ending` object of nlp-bench/report/1."""
        mark = self.mark
        return {
            "shown": self.shown.value,
            "line": mark.line_number if mark else None,
            "evidence": one_line(mark.text) if mark else None,
        }


def end_of_log(log: Log, attempts: Sequence[Attempt], measured: Attempt) -> LogEnd:
    """Return how the training ended whose `attempts` are of one configuration, the last one deciding; `measured` is the one with the number."""
    last = attempts[-1]
    # The marks from its last record on, up to the first one of the next start.
    begin = int(last.records.offsets[-1])
    end = min((first for first in log.first_offsets if first > begin), default=log.num_bytes)
    mark = decisive(tuple(mark for mark in log.ends if begin <= mark.offset < end))
    is_failure = mark is not None and mark.outcome is not Outcome.VALID
    if mark and is_failure and not _is_over(last.records, log.counts_from):
        return _broken_off(log, attempts, measured, mark)
    over = [attempt for attempt in attempts if _is_over(attempt.records, log.counts_from)]
    over = over or ([last] if mark and not is_failure else [])
    finished_at = over[-1].records[-1].iteration if over else None
    if mark and not is_failure and (said_done := _more_than_shown(last.records, mark)):
        return LogEnd(outcome=Outcome.MEASURED, shown=Shown.CONTRADICTED, text=said_done, mark=mark)
    said = f"line {mark.line_number}, after the last iteration: {one_line(mark.text)}" if mark else None
    known: Json = {"remark": said if is_failure else None, "mark": mark, "finished_at": finished_at}
    for shown, text in _lacking(log, attempts, measured, is_done=bool(over)):
        return LogEnd(outcome=Outcome.MEASURED, shown=shown, text=text, **known)
    return LogEnd(outcome=Outcome.VALID, shown=Shown.ENDED, **known)


def several_starts(number: int, finished_at: int | None, chosen: str) -> str:
    """Return that a training was started several times: how it ended as a whole, and from which attempt its number is."""
    whole = f", finished at iteration {finished_at}" if finished_at is not None else " of this training in the log"
    return f"{number} attempts{whole}; {chosen}"


def _more_than_shown(records: Records, mark: EndMark) -> str | None:
    """Return the sentence for a log that says more iterations than it shows: lines in between were lost, or taken out."""
    last = records[-1]
    done = last.total_iterations if mark.num_done == math.inf else mark.num_done
    if done is None or len(records) == 1 or done - last.iteration < _interval(records):
        return None
    return f"{_stop(records)}, and line {mark.line_number} says: {one_line(mark.text)}"


def _broken_off(log: Log, attempts: Sequence[Attempt], measured: Attempt, mark: EndMark) -> LogEnd:
    last = attempts[-1]
    where = f"{_stop(last.records)}, and line {mark.line_number} says: {one_line(mark.text)}"
    if mark.outcome in OUTSIDE:
        text = f"the run was ended from outside ({mark.outcome.value}): {where}"
        silent_s = _silent(last.records, mark)
        if silent_s:
            text += f"; by the two times of day {duration_text(silent_s)} passed after its last line"
        silent_s = silent_s if measured is last else 0.0
        shown = Shown.ENDED_FROM_OUTSIDE
        return LogEnd(outcome=Outcome.MEASURED, shown=shown, text=text, mark=mark, silent_s=silent_s)
    if _is_excerpt(log, attempts[0]):  # a few lines cut out of a run
        text = f"an excerpt of a run that failed: {where}"
        return LogEnd(outcome=Outcome.MEASURED, shown=Shown.CRASHED, text=text, mark=mark)
    return LogEnd(outcome=mark.outcome, shown=Shown.CRASHED, text=where, mark=mark)


def _silent(records: Records, mark: EndMark) -> float:
    """Return the seconds from the last line to the end where that is many intervals, else 0.

    A scheduler's clock is that of its node; a program's may be that of its container, whole half hours away: these tell nothing.
    """
    known = finite(records.column("stamp_s"))
    if mark.stamp_s is None or len(known) < MIN_STAMPS:
        return 0.0
    passed_s, usual_s = mark.stamp_s - float(known[-1]), SILENT * median(np.diff(known)) + SILENT_S
    passed_s = (
        passed_s if passed_s >= 0 else passed_s % HALF_HOUR_S
    )  # of different zones: at least so much is no difference of them
    return passed_s if passed_s % HALF_HOUR_S > usual_s else 0.0


def _lacking(log: Log, attempts: Sequence[Attempt], measured: Attempt, *, is_done: bool) -> Iterator[tuple[Shown, str]]:
    """Yield what a log does not show that a run which ended well, trained and whole does."""
    first, last = attempts[0], attempts[-1].records
    if log.damage:
        yield Shown.DAMAGED, "the log could not be read whole"
    if not is_done:
        is_known = last[-1].total_iterations is not None
        more = "" if is_known else ", and does not say where the training ends"
        yield Shown.STOPS_EARLY if is_known else Shown.END_UNKNOWN, _stop(last) + more
    is_excerpt, began = _is_excerpt(log, first), f"the log begins at iteration {first.records[0].iteration}"
    if is_excerpt and not _tells_of_start(log, first):
        yield Shown.EXCERPT, f"{began}, without a start of the program"
    if not measured.records.has("lm_loss").any():
        yield Shown.NO_LOSS, "the log shows no loss of a training"
    if is_excerpt:
        yield Shown.EXCERPT, f"{began}, without those before it or a checkpoint that was loaded"
    if hole := _hole(log, attempts):
        yield Shown.EXCERPT, hole


def _hole(log: Log, attempts: Sequence[Attempt]) -> str | None:
    """Return which iterations lie between two attempts, as where the log of one of several jobs is missing; None where none do."""
    reached = max(log.counts_from - 1, 0)
    for attempt in attempts:
        begin = attempt.records[0].iteration
        if attempt is not attempts[0] and begin > reached + _interval(attempt.records) and _is_excerpt(log, attempt):
            return f"iterations {reached + 1} to {begin - 1} are in none of the {len(attempts)} attempts"
        reached = max(reached, attempt.records[-1].iteration)
    return None


def _is_excerpt(log: Log, attempt: Attempt) -> bool:
    """Say whether the attempt begins in the middle, and nothing before it tells of a start that loaded a checkpoint."""
    first = attempt.records[0]
    if first.iteration <= log.counts_from - 1 + _interval(attempt.records):
        return False
    is_loaded = "loaded_iterations" in log.settings or any(event.line_number < first.line_number for event in log.loads)
    is_summary = len(attempt.records) == 1  # of all iterations, under the number of the last
    return not ((is_loaded or is_summary) and _tells_of_start(log, attempt))


def _tells_of_start(log: Log, attempt: Attempt) -> bool:
    facts = (*attempt.facts.values(), *log.settings.values())
    return any(0 < fact.line_number < attempt.records[0].line_number for fact in facts)


def _interval(records: Records) -> float:
    """Return the usual number of iterations from one record to the next, at least 1."""
    steps = np.diff(records.column("iteration"))
    return max(median(steps), 1.0) if len(steps) else 1.0


def _stop(records: Records) -> str:
    last = records[-1]
    of = f" of {last.total_iterations}" if last.total_iterations is not None else ""
    return f"the log stops at iteration {last.iteration}{of}"


def _is_over(records: Records, counts_from: int) -> bool:
    """Say whether the last record is of the last iteration."""
    last = records[-1]
    return last.total_iterations is not None and last.iteration >= last.total_iterations + counts_from - 1
