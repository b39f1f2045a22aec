"""One training over its restarts: where every second from its first start to its last line went, and its goodput.

A second is counted once. What the lines do not separate is unknown, and never negative.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.errors import UsageError
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import first_piece, stamp_s
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
_EVENTS = ("checkpoint", "evaluation")
_SLOW = 1.2  # times the usual time of an interval from which its own time holds an event, too
_SCATTER = 10.0  # median deviations from the usual time that are no stall
_LOADED = re.compile(rb"(?i)\biteration\D{0,3}(\d{1,12})")
_EVALUATION = re.compile(rb'"key": ?"eval_start"')  # MLPerf's logging
_INITIALIZED = re.compile(rb"time to initialize megatron \(seconds\): (\d{1,6}(?:\.\d+)?)")
"""Megatron-LM training.py: seconds before the date that it prints next."""


@immutable(kw_only=False)
class Started:
    """One attempt of a training."""

    source: str
    first_iteration: int
    last_iteration: int
    wall_s: float  # from its first line to its last
    account_s: dict[str, float]  # by PARTS; `down` is the time before it


@immutable(kw_only=False)
class Training:
    """All attempts of one training."""

    outcome: Outcome
    reason: str | None  # why it is not VALID
    attempts: tuple[Started, ...]
    new_tokens: float | None  # of iterations that no earlier attempt had trained; None: not known
    wall_s: float | None
    account_s: dict[str, float]  # by PARTS, their sum is `wall_s`; empty where it is not known

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
            "account_s": {part: self.account_s.get(part) for part in PARTS},
        }


@immutable(kw_only=False)
class _Part:
    """One log with the times of all its lines."""

    path: str
    log: Log
    offsets: NDArray[np.int64]  # of the lines with a date and a time of day
    stamps: NDArray[np.float64]
    numbers: NDArray[np.int64]
    loaded: dict[int, int]  # offset of a line that loads a checkpoint to its iteration
    events: tuple[Event, ...]  # in the order of the log
    init_s: dict[int, float]  # offset of the next line with a time to the seconds of the start before it


def training_of(paths: Sequence[str], overrides: Overrides) -> Training:
    """Return the training whose logs are at `paths`, in any order; those without a training line are left out.

    Raises UsageError where one cannot be opened, and for standard input, which is read twice.
    """
    if "-" in paths:
        raise UsageError("PATH - with --training: a log is read twice; give a file")
    parts = [part for path in paths if (part := _read(path, overrides)).log.attempts]
    if why := _why_refused(parts):
        rows = tuple(_row(part, each, 0.0, {}) for part in parts for each in part.log.attempts)
        return Training(Outcome.REFUSED, why, rows, None, None, {})
    parts.sort(key=lambda part: part.stamps[0])
    walk = _Walk(overrides)
    for part in parts:
        for number in range(len(part.log.attempts)):
            walk.take(part, number)
    if walk.overlap:
        return Training(Outcome.REFUSED, walk.overlap, tuple(walk.rows), None, None, {})
    last = parts[-1].log
    end = end_of_log(last, last.attempts, last.attempts[-1])
    broken = why_broken(last.attempts[-1].records)
    valid = end.outcome is Outcome.VALID
    outcome = Outcome.INVALID if broken else Outcome.VALID if valid else Outcome.MEASURED
    reason = broken.text if broken else end.reason.text if end.reason else None
    if not math.isfinite(walk.tokens):
        reason = "tokens per iteration are not in the log: --sequence-length, --global-batch-size"
    wall_s = walk.cursor - walk.begin
    account = dict(walk.account)
    account["unknown"] = 0.0
    account["unknown"] = max(wall_s - math.fsum(account.values()), 0.0)
    tokens = walk.tokens if math.isfinite(walk.tokens) else None
    account = {part: account.get(part, 0.0) for part in PARTS}
    return Training(outcome, reason, tuple(walk.rows), tokens, wall_s, account)


def _read(path: str, overrides: Overrides) -> _Part:
    log = read_log(path, pattern=overrides.pattern)
    loads = {event.offset for event in log.loads}
    offsets, stamps, numbers, loaded, init_s = [], [], [], {}, {}
    waiting_s, events = 0.0, list(log.events)
    with open_log(path) as source:
        for block in source.blocks():
            offset, number = block.offset, block.number
            for raw in BytesIO(block.data[block.begin : block.end]):
                if offset in loads and (found := _LOADED.search(raw)):
                    loaded[offset] = int(found[1])
                if found := _INITIALIZED.search(raw):
                    waiting_s = float(found[1])
                if _EVALUATION.search(raw):
                    events.append(Event("evaluation", offset, number))
                if (stamp := stamp_s(first_piece(raw[:1024]))) is not None:
                    offsets.append(offset)
                    stamps.append(stamp)
                    numbers.append(number)
                    if waiting_s:
                        init_s[offset], waiting_s = waiting_s, 0.0
                offset, number = offset + len(raw), number + 1
    known = np.array(offsets, np.int64), np.array(stamps, np.float64), np.array(numbers, np.int64)
    return _Part(path, log, *known, loaded, tuple(sorted(events, key=lambda event: event.offset)), init_s)


def _why_refused(parts: Sequence[_Part]) -> str | None:
    if not parts:
        return "no log has a training line"
    for part in parts:
        name = one_line(part.path)
        if part.log.refusal:
            return f"{name}: {part.log.refusal.reason}"
        for attempt in part.log.attempts:
            stamps = attempt.records.column("stamp_s")
            line = attempt.records[0].line_number
            if not np.isfinite(stamps).any():
                return (
                    f"{name}, line {line}: training lines have no date and time of day, so that "
                    "the time between attempts is unknown; a job logs them with: | ts '%F %T'"
                )
            falls = np.flatnonzero(np.diff(stamps[np.isfinite(stamps)]) < -1)
            if len(falls):
                return f"{name}: the clock of its lines goes back after line {line + int(falls[0])}"
    lengths = {sizes_of(a, Overrides()).sequence_length for part in parts for a in part.log.attempts}
    if len(lengths - {None}) > 1 or len({part.log.dialect for part in parts}) > 1:
        return "the logs are of several trainings (sequence length or program differ): give one"
    return None


def _row(part: _Part, attempt: Attempt, wall_s: float, account: dict[str, float]) -> Started:
    records = attempt.records
    source = one_line(part.path)
    return Started(source, records[0].iteration, records[-1].iteration, wall_s, account)


class _Walk:
    """Goes through the attempts in the order of time; `cursor` is the moment up to which all is counted."""

    def __init__(self, overrides: Overrides) -> None:
        self.overrides = overrides
        self.begin = self.cursor = math.nan
        self.reached = -1.0  # highest iteration that any attempt has trained
        self.tokens = 0.0
        self.account: defaultdict[str, float] = defaultdict(float)
        self.rows: list[Started] = []
        self.overlap: str | None = None
        self.alone: dict[str, float] = {}

    def take(self, part: _Part, number: int) -> None:
        """Count one attempt, with the time before it."""
        attempt = _Attempt(part, number, self.overrides)
        account: defaultdict[str, float] = defaultdict(float)
        if math.isnan(self.begin):
            self.begin = self.cursor = attempt.start_s
        if attempt.start_s < self.cursor - 1:
            self.overlap = f"{one_line(part.path)} begins before the attempt before it ends"
        begin_s, start_s = self.cursor, max(attempt.start_s, self.cursor)
        account["down"] = (start_s - begin_s) * attempt.has_start
        account["startup"] += max(attempt.begin_s - start_s, 0)
        for seconds, iteration, num, kind in attempt.parts(self.alone):
            if kind:
                account[kind] += seconds
                continue
            new = min(max(iteration - max(self.reached, iteration - num), 0.0) / num, 1.0)
            account["trained"] += seconds * new
            account["repeated"] += seconds * (1 - new)
        self._count(attempt)
        self.cursor = max(attempt.end_s, start_s)
        account["unknown"] = 0.0
        account["unknown"] = max(self.cursor - begin_s - math.fsum(account.values()), 0.0)
        self.rows.append(_row(part, attempt.attempt, self.cursor - start_s, dict(account)))
        for kind, seconds in account.items():
            self.account[kind] += seconds

    def _count(self, attempt: "_Attempt") -> None:
        """Add the tokens of iterations that are new."""
        iterations = attempt.iterations
        firsts = np.maximum(iterations - attempt.num_iterations, self.reached)
        if self.rows and 0 < firsts[0] - self.reached < attempt.num_iterations.max():
            firsts[0] = self.reached  # the checkpoint holds iterations that no line has
        new = np.maximum(iterations - firsts, 0)
        self.tokens += float((new * attempt.tokens)[new > 0].sum())
        self.reached = max(self.reached, float(iterations[-1]))


class _Attempt:
    """The moments of one attempt: its start, where its first interval begins, its intervals and its end."""

    def __init__(self, part: _Part, number: int, overrides: Overrides) -> None:
        log = part.log
        self.part, self.attempt = part, log.attempts[number]
        self.events = part.events
        records = self.attempt.records
        sizes = sizes_of(self.attempt, overrides)
        nothing = np.full(len(records), np.nan)
        self.tokens = sizes.tokens if sizes.has_times else nothing
        elapsed = sizes.elapsed_s if sizes.has_times else nothing
        self.iterations = records.column("iteration")
        interval = self.attempt.count("log_interval")
        self.num_iterations = np.array(iterations_per_record(records, interval, log.counts_from))
        self._place(number)
        steps = np.diff(self.iterations)
        is_next = self.num_iterations[1:] > steps  # a record that was lost leaves a wider step
        self.num_iterations[1:] = np.where(is_next, steps, self.num_iterations[1:])
        self.own = elapsed * self.num_iterations
        where = np.flatnonzero(records.has("stamp_s"))
        self.where, self.times = where, records.column("stamp_s")[where]
        own_s = float(self.own[: where[0] + 1].sum())
        before = self._lines(self.first_offset, int(records.offsets[where[0]]))
        self.begin_s = self.times[0] - own_s if math.isfinite(own_s) else max(before, default=self.times[0])
        self.has_start = bool(before) and min(before) < self.times[0]
        self.start_s = min((*before, self.begin_s)) if self.has_start else self.begin_s
        if self.has_start:
            self.start_s -= self._init_s(self.start_s)
            self.begin_s = max(self.begin_s, self.start_s)
        self.end_s = max((*self._lines(int(records.offsets[-1]), self.last_offset), self.times[-1]))

    def _place(self, number: int) -> None:
        """Set the first line and the end of the attempt, and from which iteration it goes on."""
        log, records = self.part.log, self.attempt.records
        self.first_offset = self._boundary(number) if number else 0
        more = number + 1 < len(log.attempts)
        self.last_offset = self._boundary(number + 1) if more else log.num_bytes + 1
        first = int(records.offsets[0])
        loads = [self.part.loaded[o] for o in self.part.loaded if self.first_offset <= o < first]
        if loads and 0 < (num := self.iterations[0] - loads[-1]) < 2 * self.num_iterations[0]:
            self.num_iterations[0] = num

    def _boundary(self, number: int) -> int:
        """Return the offset of the first line of an attempt: behind the widest gap before its start."""
        log, part = self.part.log, self.part
        last = int(log.attempts[number - 1].records.offsets[-1])
        first = int(log.attempts[number].records.offsets[0])
        ends = [mark.offset for mark in log.ends if last < mark.offset < first]
        loads = [load.offset for load in log.loads if last < load.offset < first]
        begin, stop = int(np.searchsorted(part.offsets, last)), int(np.searchsorted(part.offsets, first))
        starts = [part.offsets[i] for i in range(begin, stop) if self._is_start(part.numbers[i], last, first)]
        low = max((end for end in ends if end < min((*loads, *starts, first))), default=last)
        high = min((*loads, *starts, first))
        gaps = [
            (part.stamps[i + 1] - part.stamps[i], int(part.offsets[i + 1]))
            for i in range(begin, min(stop, len(part.offsets) - 1))
            if part.offsets[i + 1] > low and part.offsets[i] < high
        ]
        return max(gaps, key=lambda gap: gap[0], default=(0.0, first))[1]

    def _is_start(self, line_number: int, last: int, first: int) -> bool:
        """Say whether the program has started anew by a line."""
        records = [attempt.records for attempt in self.part.log.attempts]
        known = {
            int(o): int(n)
            for each in records
            for o, n in zip(each.offsets[[0, -1]], each.numbers[[0, -1]], strict=True)
        }
        return any(known[last] < start <= line_number and start < known[first] for start in self.part.log.starts)

    def _lines(self, begin: int, end: int) -> list[float]:
        """Return the times of the lines from offset `begin` to before `end`, which do not go back."""
        low, high = np.searchsorted(self.part.offsets, [begin, end])
        times: list[float] = []
        for stamp in self.part.stamps[low:high]:
            if not times or stamp >= times[-1]:
                times.append(float(stamp))
        return times

    def _init_s(self, start_s: float) -> float:
        place = int(np.searchsorted(self.part.offsets, self.first_offset))
        same = self.part.stamps[place] == start_s if place < len(self.part.stamps) else False
        return self.part.init_s.get(int(self.part.offsets[place]), 0.0) if same else 0.0

    def parts(self, alone: dict[str, float]) -> Iterator[tuple[float, float, float, str]]:
        """Yield seconds, the last iteration, the number of iterations, and a kind: empty for training.

        `alone` are the usual seconds of events by kind, which this attempt adds to.
        """
        offsets = self.attempt.records.offsets[self.where]
        first_s = self.times[0] - self.begin_s
        yield first_s, self.iterations[self.where[0]], float(self.num_iterations[: self.where[0] + 1].sum()), ""
        passed = np.diff(self.times)
        num = np.diff(self.iterations[self.where])
        total = np.concatenate([[0.0], np.cumsum(self.own)])
        own = np.diff(total[self.where + 1])
        kinds = [self._kinds(*pair) for pair in pairwise(offsets)]
        usual, slack = self._usual(passed, own, num, kinds)
        alone |= self._alone(passed, own, num, kinds, usual)
        for i, events in enumerate(kinds):
            iteration, extra = self.iterations[self.where[i + 1]], {}
            if events:
                seconds = _training_s(passed[i], own[i], num[i] * usual)
                extra = _split(passed[i] - seconds, events, alone)
            elif passed[i] - num[i] * usual > max(slack * num[i], usual):
                seconds = num[i] * usual
                extra = {"stall": passed[i] - seconds}
            else:
                seconds = passed[i]
            yield seconds, iteration, num[i], ""
            yield from ((value, iteration, num[i], kind) for kind, value in extra.items())
        yield from self._tail(int(offsets[-1]), alone)

    def _kinds(self, begin: int, end: int) -> tuple[str, ...]:
        return tuple(sorted({e.kind for e in self.events if begin < e.offset < end}))

    def _usual(self, passed: Any, own: Any, num: Any, kinds: Sequence[Any]) -> tuple[float, float]:
        """Return the usual seconds of an iteration, and the excess that is no stall."""
        quiet = np.array([not kind for kind in kinds], dtype=bool)
        where = quiet if quiet.any() else np.ones(len(kinds), dtype=bool)
        if not where.any():
            return math.inf, math.inf
        resolution = self.attempt.records.stamp_resolution_s or 0.0
        times = (passed / num)[where]
        stated = (own / num)[where]
        stated = stated[np.isfinite(stated)]
        usual = median(stated) if len(stated) else median(times)
        scatter = float(np.sort(np.abs(times - usual))[(len(times) - 1) // 2])  # of two the lower one
        return usual, max(_SCATTER * scatter, 2 * resolution / max(median(num), 1))

    def _alone(self, passed: Any, own: Any, num: Any, kinds: Sequence[Any], usual: float) -> dict[str, float]:
        """Return the usual seconds of each kind of event, by intervals that hold no other."""
        found: dict[str, list[float]] = {}
        for i, events in enumerate(kinds):
            if len(events) == 1:
                rest = passed[i] - _training_s(passed[i], own[i], num[i] * usual)
                found.setdefault(events[0], []).append(rest)
        return {kind: median(np.array(values)) for kind, values in found.items()}

    def _tail(self, last: int, alone: dict[str, float]) -> Iterator[tuple[float, float, float, str]]:
        """Yield the events behind the last training line; the rest of that time is unknown."""
        events = [e for e in self.events if last < e.offset < self.last_offset]
        if not events:
            return
        times = self._lines(events[-1].offset, self.last_offset)
        seconds = max(min(times, default=self.times[-1]) - self.times[-1], 0.0)
        kinds = tuple(sorted({e.kind for e in events}))
        most = sum(2 * alone.get(kind, math.inf) for kind in kinds)
        for kind, value in _split(min(seconds, most), kinds, alone).items():
            yield value, 0.0, 1.0, kind


def _training_s(passed: float, own: float, usual: float) -> float:
    """Return the seconds of training in an interval with an event, which its own time holds or not."""
    is_alone = math.isfinite(own) and own <= _SLOW * usual
    return min(passed, own if is_alone else usual)


def _split(seconds: float, kinds: Sequence[str], alone: dict[str, float]) -> dict[str, float]:
    """Return how the seconds of several events divide: by what each takes alone, else unknown."""
    known = [kind for kind in kinds if kind in _EVENTS]
    if len(known) != len(kinds):
        return {"unknown": seconds}
    if len(known) == 1:
        return {known[0]: seconds}
    stated = {kind: alone[kind] for kind in known if kind in alone}
    if len(stated) == 1:
        ((kind, usual),) = stated.items()
        other = next(each for each in known if each != kind)
        return {kind: min(usual, seconds), other: max(seconds - usual, 0.0)}
    total = sum(stated.values())
    return {kind: seconds * value / total for kind, value in stated.items()} if total else {"unknown": seconds}
