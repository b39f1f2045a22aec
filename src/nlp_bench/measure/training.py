"""One training over its restarts: where every second went from its first start to its last line, and its goodput.

A second is counted once. What the lines do not separate is unknown, and never negative.
"""

import math
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.errors import UsageError
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import first_piece, stamp_s
from nlp_bench.logs.common import LOADED
from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Attempt, Event, Log
from nlp_bench.logs.source import open_log
from nlp_bench.measure.log_end import end_of_log
from nlp_bench.measure.result import why_broken
from nlp_bench.measure.series import median
from nlp_bench.measure.sizes import Overrides, iterations_per_record, sizes_of
from nlp_bench.outcome import Outcome

PARTS = ("trained", "repeated", "startup", "checkpoint", "evaluation", "stall", "down", "unknown")
"""Where a second may have gone; `unknown` is the rest."""
_SLOW = 1.2  # times the usual time of an interval from which its own time holds an event, too
_SCATTER = 10.0  # median deviations from the usual time that are no stall
_LOADED = re.compile(rb"(?i)\biteration\D{0,3}(\d{1,12})")
_EVALUATION = re.compile(rb'"key": ?"eval_start"')  # MLPerf's logging
_INITIALIZED = re.compile(rb"(?:time to initialize megatron \(seconds\)| > start-up): (\d{1,6}(?:\.\d+)?)")
"""Megatron-LM training.py and our own trainer: seconds before the date that they print next."""


@immutable(kw_only=False)
class Started:
    """One attempt of a training."""

    source: str
    first_iteration: int
    last_iteration: int
    account_s: dict[str, float]  # by PARTS; `down` is the time before it


@immutable(kw_only=False)
class Training:
    """All attempts of one training."""

    outcome: Outcome
    reason: str | None  # why it is not VALID
    attempts: tuple[Started, ...]
    new_tokens: float | None = None  # of iterations that no earlier attempt had trained
    wall_s: float | None = None
    account_s: dict[str, float] | None = None  # by PARTS, their sum is `wall_s`

    @property
    def goodput(self) -> float | None:
        """New tokens per second of wall clock; None where either is not known or the training broke."""
        is_known = self.wall_s and self.new_tokens is not None and self.outcome.has_number
        return self.new_tokens / self.wall_s if is_known else None  # type: ignore[operator]

    def to_json(self) -> dict[str, Any]:
        """Return the `training` object of nlp-bench/report/1."""
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "attempts": len(self.attempts),
            "wall_s": self.wall_s,
            "goodput_tokens_per_second": self.goodput,
            "new_tokens": self.new_tokens,
            "account_s": self.account_s or dict.fromkeys(PARTS),
        }


@immutable(kw_only=False)
class _Dated:
    """A log with the times of its lines."""

    path: str
    log: Log
    offsets: NDArray[np.float64]  # of the lines with a date and a time of day
    stamps: NDArray[np.float64]
    starts: list[int]  # offsets of the lines by which the program has started anew
    loaded: dict[int, float]  # offset of a line that loads a checkpoint to its iteration
    events: list[Event]

    def times(self, begin: float, end: float) -> NDArray[np.float64]:
        """Return the times of the lines from one offset to before another."""
        return self.stamps[slice(*np.searchsorted(self.offsets, [begin, end]))]

    def first_line(self, number: int) -> float:
        """Return the offset at which an attempt begins: behind the widest gap before its start."""
        if not number:
            return 0
        first = self.log.first_offsets[number]
        last = int(self.log.attempts[number - 1].records.offsets[-1])
        high = min([first, *(o for o in (*self.starts, *self.loaded) if last < o < first)])
        low = max([last, *(mark.offset for mark in self.log.ends if last < mark.offset < high)])
        begin = max(int(np.searchsorted(self.offsets, low, side="right")) - 1, 0)
        gaps = np.diff(self.stamps[begin : np.searchsorted(self.offsets, high) + 1])
        return self.offsets[begin + 1 + int(gaps.argmax())] if len(gaps) else first


def _read(path: str, overrides: Overrides) -> _Dated:
    log = read_log(path, pattern=overrides.pattern)
    starts, loaded, events, lines = [], {}, [*log.events], []
    loads = {event.offset for event in log.loads}
    # A training line may have its time at its end.
    records = {
        offset: stamp
        for attempt in log.attempts
        for offset, stamp in zip(attempt.records.offsets, attempt.records.column("stamp_s"), strict=True)
        if stamp > 0
    }
    init: tuple[int, float] | None = None  # a start, and the seconds from it to the next date
    with open_log(path) as source:
        for block in source.blocks() if log.attempts else ():
            offset, number = block.offset, block.number
            for raw in BytesIO(block.data[block.begin : block.end]):
                found = LOADED.search(raw) or (offset in loads and _LOADED.search(raw))
                if found or offset in loads:
                    loaded[offset] = float(found[1]) if found else math.nan
                if found := _INITIALIZED.search(raw):
                    init = offset, float(found[1])
                if number in log.starts or found:
                    starts.append(offset)
                if _EVALUATION.search(raw):
                    events.append(Event("evaluation", offset, number))
                stamp = records.get(offset) or stamp_s(first_piece(raw[:1024]))
                if stamp is not None:
                    lines += [(init[0], stamp - init[1])] if init else []
                    lines.append((offset, stamp))
                    init = None
                offset, number = offset + len(raw), number + 1
    dates = np.array(lines, np.float64).reshape(-1, 2)
    return _Dated(path, log, dates[:, 0], dates[:, 1], starts, loaded, events)


class _Attempt:
    """One attempt: the interval before its first record, those from record to record, and its end."""

    def __init__(self, part: _Dated, number: int, overrides: Overrides) -> None:
        log = part.log
        self.part, self.attempt = part, log.attempts[number]
        records, sizes = self.attempt.records, sizes_of(self.attempt, overrides)
        begin = part.first_line(number)
        end = part.first_line(number + 1) if number + 1 < len(log.attempts) else math.inf
        covered = iterations_per_record(records, self.attempt.count("log_interval"), log.counts_from)
        self.most = float(covered.max())  # iterations of a record
        self.iterations = records.column("iteration")
        first = self.iterations[0]
        loads = [n for offset, n in part.loaded.items() if begin <= offset < records.offsets[0]]
        near = [n for n in loads[-1:] if 0 < first - n < 2 * covered[0]]
        self.num = np.diff(self.iterations, prepend=near or [first - covered[0]])
        self.tokens = sizes.tokens if sizes.has_times else np.full(len(records), np.nan)
        where = np.flatnonzero(records.has("stamp_s"))  # of several in a line the first has its time
        times, offsets = records.column("stamp_s")[where], records.offsets[where]
        lines = part.times(begin, offsets[0])
        self.has_start = bool(len(lines)) and lines[0] < times[0]
        self.ends = self.iterations[where]
        self.steps = np.diff(self.ends, prepend=first - self.num[0])
        own = (sizes.elapsed_s if sizes.has_times else self.tokens)[where] * self.steps
        first_s = times[0] - own[0]
        begin_s = first_s if math.isfinite(first_s) else max(lines, default=times[0])
        self.start_s = min(lines[0], begin_s) if self.has_start else begin_s
        self.begin_s = max(begin_s, self.start_s)
        self.end_s = max([times[-1], *part.times(offsets[-1], end)])
        passed = np.diff(times, prepend=self.begin_s)
        self._divide(passed, own, [begin, *offsets, end])

    def _divide(self, passed: Any, own: Any, offsets: Sequence[float]) -> None:
        """Divide the seconds of the intervals: `trained`, `stall`, and those of kinds of events."""
        self.kinds = [
            tuple(sorted({e.kind for e in self.part.events if begin < e.offset < end}))
            for begin, end in pairwise(offsets)
        ]
        self.kinds[0] = ()
        is_quiet = np.array([not kinds for kinds in self.kinds[:-1]])
        is_usual = is_quiet.copy()
        is_usual[0] = not is_quiet[1:].any()
        times, stated = (passed / self.steps)[is_usual], (own / self.steps)[is_usual]
        usual = float(np.nanmedian(stated if np.isfinite(stated).any() else times))
        # The lower one of two: one of them may be a stall.
        scatter = np.quantile(np.abs(times - usual), 0.5, method="lower")
        resolution = self.attempt.records.stamp_resolution_s or 0.0
        slack = max(_SCATTER * scatter, 2 * resolution / max(median(self.steps), 1))
        expected = usual * self.steps
        is_stall = is_quiet & (passed - expected > np.maximum(slack * self.steps, usual))
        is_stall[0] = False
        is_own = (own <= _SLOW * expected) & ~is_stall  # else the time holds the event, too
        alone = np.where(is_own, own, expected)
        self.trained = np.where(is_quiet & ~is_stall, passed, np.minimum(passed, alone))
        self.stall = float((passed - self.trained)[is_stall].sum())
        tail = [e.offset for e in self.part.events if offsets[-2] < e.offset < offsets[-1]]
        after = self.part.times(tail[-1], offsets[-1])[:1] - passed.sum() - self.begin_s if tail else ()
        self.extra = [*(passed - self.trained), max(0.0, *after, 0.0)]

    def account(self, reached: float, usual: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds by PARTS in the intervals.

        `reached` is the highest iteration before, `usual` the seconds of an event by its kind.
        """
        new = np.clip((self.ends - np.maximum(reached, self.ends - self.steps)) / self.steps, 0, 1)
        account = dict.fromkeys(PARTS, 0.0)
        account["trained"] = float((self.trained * new).sum())
        account["repeated"] = float((self.trained * (1 - new)).sum())
        account["stall"] = self.stall
        last = sum(2 * usual.get(kind, math.inf) for kind in self.kinds[-1])
        for kinds, seconds in zip(self.kinds, [*self.extra[:-1], min(self.extra[-1], last)], strict=True):
            parts = [usual.get(kind, math.nan) for kind in kinds] if len(kinds) > 1 else [1.0]
            for kind, part in zip(kinds, parts, strict=False):
                if kind in account and sum(parts) > 0:  # else nobody knows the part of each
                    account[kind] += seconds * part / sum(parts)
        return account

    def new_tokens(self, reached: float) -> float:
        """Return the tokens of iterations above `reached`."""
        firsts = np.maximum(self.iterations - self.num, reached)
        if reached >= 0 and 0 < firsts[0] - reached < self.most:
            firsts[0] = reached  # the checkpoint holds iterations that no line has
        new = np.maximum(self.iterations - firsts, 0)
        return float((new * self.tokens)[new > 0].sum())


def training_of(paths: Sequence[str], overrides: Overrides) -> Training:
    """Return the training whose logs are at `paths`, in any order; those without a training line are left out.

    Raises UsageError where one cannot be opened, and for standard input, which is read twice.
    """
    if "-" in paths:
        raise UsageError("PATH - with --training: a log is read twice; give a file")
    parts = [part for path in paths if (part := _read(path, overrides)).log.attempts]
    if why := _why_refused(parts):
        rows = [_row(part, attempt, {}) for part in parts for attempt in part.log.attempts]
        return Training(Outcome.REFUSED, why, tuple(rows))
    parts.sort(key=lambda part: float(part.stamps[0]))
    attempts = [_Attempt(part, n, overrides) for part in parts for n in range(len(part.log.attempts))]
    extra = [pair for each in attempts for pair in zip(each.kinds[:-1], each.extra, strict=False)]
    alone = {(kind,): [s for kinds, s in extra if kinds == (kind,)] for kind in PARTS}
    usual = {kind: median(np.array(seconds)) for (kind,), seconds in alone.items() if seconds}
    rows, tokens, reached, begin_s = [], 0.0, -1.0, attempts[0].start_s
    cursor = begin_s  # the moment up to which all is counted
    for each in attempts:
        if each.start_s < cursor - 1:
            why = f"{one_line(each.part.path)} begins before the attempt before it ends"
            return Training(Outcome.REFUSED, why, tuple(rows))
        start_s = max(each.start_s, cursor)
        end_s = max(each.end_s, start_s)
        account = each.account(reached, usual)
        account["down"] = (start_s - cursor) * each.has_start
        account["startup"] = max(each.begin_s - start_s, 0.0)
        account["unknown"] = 0.0
        account["unknown"] = max(end_s - cursor - math.fsum(account.values()), 0.0)
        rows.append(_row(each.part, each.attempt, account))
        tokens += each.new_tokens(reached)
        reached, cursor = max(reached, float(each.iterations[-1])), end_s
    last = attempts[-1]
    end = end_of_log(last.part.log, last.part.log.attempts, last.attempt)
    broken = why_broken(last.attempt.records)
    reason, known = broken or end.reason, None if math.isnan(tokens) else tokens
    text = reason.text if reason else None
    if known is None:
        text = "tokens per iteration are not in the log: --sequence-length, --global-batch-size"
    ended = Outcome.VALID if end.outcome is Outcome.VALID else Outcome.MEASURED
    account = {part: math.fsum(row.account_s[part] for row in rows) for part in PARTS}
    return Training(Outcome.INVALID if broken else ended, text, tuple(rows), known, cursor - begin_s, account)


def _why_refused(parts: Sequence[_Dated]) -> str | None:
    if not parts:
        return "no log has a training line"
    for part in parts:
        name = one_line(part.path)
        if part.log.refusal:
            return f"{name}: {part.log.refusal.reason}"
        for records in (attempt.records for attempt in part.log.attempts):
            stamps, line = records.column("stamp_s"), records[0].line_number
            stamps = stamps[np.isfinite(stamps)]
            if not len(stamps):
                return (
                    f"{name}, line {line}: training lines have no date and time of day, so that "
                    "the time between attempts is unknown; a job logs them with: | ts '%F %T'"
                )
            if (np.diff(stamps) < -1).any():
                return f"{name}: the clock of its lines goes back behind line {line}"
    lengths = {sizes_of(attempt, Overrides()).sequence_length for part in parts for attempt in part.log.attempts}
    if len(lengths - {None}) > 1 or len({part.log.dialect for part in parts}) > 1:
        return "the logs are of several trainings (sequence length or program differ): give one"
    return None


def _row(part: _Dated, attempt: Attempt, account: dict[str, float]) -> Started:
    first, last = attempt.records[0], attempt.records[-1]
    return Started(one_line(part.path), first.iteration, last.iteration, account)
