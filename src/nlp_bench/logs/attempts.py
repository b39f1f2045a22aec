"""Which records belong to one start of the program, which repeat another process's, and which are lost.

Lost lines may be a biased sample, since the cause may be the value: times from 1 000 ms on in a format that is not parsed, the line of a
stall that another process writes into. The lines that are left would then be the fast ones.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.quantity import RATES
from nlp_bench.logs.record import Attempt, Column, Copies, Fact, Records, Refusal

MAX_SHARE = 0.02
"""Share of a training's lines that may be lost: if those took 50 % longer than the others, the mean would be off by 1 %, about the width
of an interval."""
MIN_LINES = 3
"""Lost lines from which a log is refused: one may be cut where the writer was killed, another be mixed with the output of a crash."""
MANY_LINES = 100  # line numbers that are kept
MIN_PART = 3  # records of a part of a log that was rotated
_MIN_FALLS = 2
"""Times that the iterations fall where lines are sorted; a restart from a checkpoint may look like one of them."""
_ECHO_S = 5.0  # seconds between the clocks of two processes that print the same record; a restart takes longer
_WORD = re.compile(rb"[A-Za-z_]{3,}")
_NOT_FINITE = {b"nan", b"inf", b"infinity", b"none", b"null"}
_LOOKED_BYTES = 1024
_MIN_WORDS, _MAX_FORMS, _EVERY = 3, 64, 64
Group = tuple["NDArray[np.int64] | slice", dict[str, Copies]]
"""Indices of the records of one attempt, and how the copies of other processes differ, by quantity."""


def split_attempts(raw: Records, starts: Sequence[tuple[int, Mapping[str, Fact]]]) -> tuple[tuple[Attempt, ...], int]:
    """Return the attempts with at least one record, and how many records were echoes.

    `starts` holds the byte offset and the facts of each start of the program in the log.
    """
    bounds = [0, *(int(np.searchsorted(raw.offsets, offset)) for offset, _ in starts[1:]), len(raw.offsets)]
    attempts: list[Attempt] = []
    num_echoes = 0
    facts: dict[str, Fact] = {}
    splitting = _Splitting(raw)
    for (_, own), begin, end in zip(starts, bounds, bounds[1:], strict=False):
        # A program that starts anew prints its settings again: of starts without a record between them the last one counts.
        facts = {**facts, **own}
        if begin == end:
            continue
        groups, echoes = splitting.split(begin, end)
        num_echoes += echoes
        attempts += [Attempt(facts=facts, records=raw.chosen(where), copies=copies) for where, copies in groups]
        facts = {}  # those of a last start without a record apply to none of the attempts before it
    return tuple(attempts), num_echoes


class _Splitting:
    """Splits the records of one start after the other: one by one, where their iterations do not simply rise; the last group is the open one."""

    def __init__(self, raw: Records) -> None:
        self.raw = raw
        self._iterations, self._totals = raw.column("iteration"), raw.column("total_iterations")
        self.groups: list[dict[float, int]] = [{}]
        self.copies: list[list[int]] = [[]]  # for each group, records of other processes for known iterations
        self.num_echoes = 0

    @cached_property
    def iterations(self) -> list[float]:
        found: list[float] = self._iterations.tolist()
        return found

    @cached_property
    def totals(self) -> list[float]:
        found: list[float] = self._totals.tolist()
        return found

    @cached_property
    def labels(self) -> list[int]:
        labels: list[int] = self.raw.labels.tolist()
        # Prefixes that differ in nearly every record (a time stamp in an unknown format) name no process: there are as
        # many processes as print one iteration.
        num_labels, num_alike = len(set(labels)), max(Counter(self.iterations).values())
        return [0] * len(labels) if 2 * num_labels > len(labels) and num_labels > num_alike else labels

    def split(self, begin: int, end: int) -> tuple[list[Group], int]:
        """Return the attempts in the records of one start, and how many of them were echoes."""
        iterations, totals = self._iterations[begin:end], self._totals[begin:end]
        is_rising = bool(np.all(iterations[1:] > iterations[:-1]))
        if is_rising and (np.all(totals == totals[0]) or np.isnan(totals).all()):
            return [(slice(begin, end), {})], 0
        self.groups, self.copies, self.num_echoes = [{}], [[]], 0
        for index in range(begin, end):
            self.take(index)
        return [self.group(number) for number in range(len(self.groups))], self.num_echoes

    def take(self, index: int) -> None:
        iteration, group = self.iterations[index], self.groups[-1]
        known = group.get(iteration)
        if known is not None and self._is_echo(known, index):
            self.num_echoes += 1
            if self.labels[known] != self.labels[index]:
                self.copies[-1].append(index)
            if self.raw.whole[index] and not self.raw.whole[known]:
                if self.labels[known] != self.labels[index]:
                    self.copies[-1][-1] = known
                group[iteration] = index
            return
        last = next(reversed(group.values()), None)
        if last is None or (iteration > self.iterations[last] and _is_same(self.totals[last], self.totals[index])):
            group[iteration] = index
        else:
            self.groups.append({iteration: index})
            self.copies.append([])

    def group(self, number: int) -> Group:
        """Return the records of one attempt, those of its slowest process, and how much the processes differ.

        A step ends when its slowest process is done. All records come from one process: the slowest copy of each iteration
        would add up the jitter of all processes, and the first one to print is the fastest.
        """
        group = self.groups[number]
        processes: dict[int, dict[float, int]] = {}
        for index in (*group.values(), *self.copies[number]):
            if self.raw.whole[index]:
                processes.setdefault(self.labels[index], {}).setdefault(self.iterations[index], index)
        found, slowest = self._compared(group, list(processes.values())) if self.copies[number] else ({}, {})
        return np.array([slowest.get(iteration, index) for iteration, index in group.items()]), found

    def _compared(
        self, group: Mapping[float, int], processes: Sequence[Mapping[float, int]]
    ) -> tuple[dict[str, Copies], Mapping[float, int]]:
        """Return the differences by quantity, and the process that is slowest by the first quantity that all print."""
        found: dict[str, Copies] = {}
        slowest: Mapping[float, int] = {}
        for name in RATES:
            column = self.raw.columns.get(name)
            times = None if column is None else column if name == "elapsed_s" else 1 / column
            if times is not None and (compared := _compare(times, self.raw.numbers, group, processes)):
                slowest = slowest if found else compared[1]
                found[name] = compared[0]
        return found, slowest

    def _is_echo(self, known: int, index: int) -> bool:
        """Say whether a record repeats a known one: another rank's line, or exactly the same numbers again."""
        if not _is_same(self.totals[known], self.totals[index]):
            return False
        if self.labels[known] != self.labels[index]:
            return True
        columns = self.raw.columns
        is_later = "stamp_s" in columns and abs(columns["stamp_s"][index] - columns["stamp_s"][known]) > _ECHO_S
        if is_later and any(
            np.isfinite(column[[known, index]]).all() for name, column in columns.items() if name in RATES
        ):
            return False  # a start anew may take the same time to the last digit; a summary of the run states something else
        # A restart from a checkpoint repeats an iteration too, but hardly ever with the same numbers to the last digit.
        return all(
            name == "stamp_s" or _is_same(float(column[known]), float(column[index]))
            for name, column in columns.items()
        )


def _is_same(one: float, two: float) -> bool:
    return one == two or math.isnan(one) or math.isnan(two)


def _compare(
    times: Column, numbers: NDArray[np.int64], group: Mapping[float, int], processes: Sequence[Mapping[float, int]]
) -> tuple[Copies, Mapping[float, int]] | None:
    """Compare the times of several processes, whose lines have these numbers.

    Returns how they differ, and the slowest of the processes that print at least half of the iterations, empty where none is slower
    than the first. None where no iteration has two times.
    """
    copies: dict[float, list[int]] = {}
    for process in processes:
        for iteration, index in process.items():
            if times[index] > 0:
                copies.setdefault(iteration, []).append(index)
    shared = [sorted(indices, key=times.__getitem__) for indices in copies.values() if len(indices) > 1]
    if not shared:
        return None
    ratios: dict[int, float] = {}
    parts: list[float] = []
    whole_s = np.nansum(times[list(group.values())])
    for number, process in enumerate(processes):
        both = [i for i in process if i in group and times[process[i]] > 0 and times[group[i]] > 0]
        own = times[[process[i] for i in both]].sum()
        if 2 * len(both) >= len(group):
            ratios[number] = float(own / times[[group[i] for i in both]].sum())
        elif both and whole_s > 0:  # prints few iterations: what they would add to the whole time
            parts.append(float((own - times[[group[i] for i in both]].sum()) / whole_s))
    slowest = max(ratios, key=ratios.__getitem__, default=None)
    between = max(ratios.values()) / min(ratios.values()) - 1 if ratios else 0.0
    low, high = (np.array([indices[end] for indices in shared]) for end in (0, -1))
    apart = times[high] / times[low] - 1
    worst = int(np.argmax(apart))
    copies_of_all = Copies(
        num_iterations=len(apart),
        num_differing=int(np.sum(apart > 0)),
        between_processes=max([between, *parts]),
        line_numbers=(int(numbers[low[worst]]), int(numbers[high[worst]])) if apart[worst] else (0, 0),
    )
    return copies_of_all, processes[slowest] if slowest is not None and ratios[slowest] > 1 else {}


class Unreadable(NamedTuple):
    """A line that looks like a record of which a part or all cannot be read."""

    offset: int  # byte offset in the log, after decompression
    number: int  # line number, from 1
    iteration: float  # its iteration, NaN where that cannot be read either


class Lookalikes:
    """The word patterns (lines without their numbers) that gave records in one dialect."""

    def __init__(self) -> None:
        self._forms: set[bytes] = set()
        self._num_learned = 0

    def learn(self, text: bytes) -> None:
        """Remember the words of a line that gave a record: of all of the first _EVERY lines, then of every _EVERY-th."""
        self._num_learned += 1
        if (self._num_learned <= _EVERY or self._num_learned % _EVERY == 0) and len(self._forms) < _MAX_FORMS:
            self._forms.add(_form(text))

    def has(self, text: bytes) -> bool:
        """Say whether a line without a record has the words of those with one, or the first half of them and more: it cannot be read."""
        form = _form(text) if self._forms else b""
        return form in self._forms or any(
            2 * len(form) > len(known) and known.startswith(form) for known in self._forms
        )


def _form(text: bytes) -> bytes:
    words = [word for word in _WORD.findall(text, 0, _LOOKED_BYTES) if word.lower() not in _NOT_FINITE]
    return b" ".join(words) if len(words) >= _MIN_WORDS else text


def with_losses(
    attempts: Sequence[Attempt], unreadable: Sequence[Unreadable], *, is_counted: bool
) -> tuple[Attempt, ...]:
    """Return the attempts, each with its unreadable lines and the number of its lost records.

    An iteration is lost where no line gives its time. Lines without an iteration count as lost only up to the number of
    missing iterations: the others may be copies. `is_counted` is false where the program does not number its iterations, so that
    missing ones cannot be seen.
    """
    if not unreadable or not attempts:
        return tuple(attempts)
    first_offsets = np.array([attempt.records.offsets.min() for attempt in attempts])
    owners = np.searchsorted(first_offsets, [line.offset for line in unreadable], side="right") - 1
    found = []
    for index, attempt in enumerate(attempts):
        own = [line for line, owner in zip(unreadable, owners, strict=True) if max(owner, 0) == index]
        kept = _timed(attempt.records)
        lost = [line for line in own if line.iteration not in kept and not np.isnan(line.iteration)]
        iterations = {line.iteration for line in lost}
        unknown = [line for line in own if np.isnan(line.iteration)]
        if is_counted:
            unknown = unknown[: _num_missing(np.array(sorted(kept | iterations)))]
        torn = attempt.records.numbers[~attempt.records.whole].tolist()
        lines = sorted({*torn, *(line.number for line in own if line.iteration not in kept)})
        num_lost = len(iterations) + len(unknown)
        found.append(
            replace(attempt, num_lost=num_lost, num_unreadable=len(lines), unreadable=tuple(lines[:MANY_LINES]))
        )
    return tuple(found)


def _timed(records: Records) -> set[float]:
    """Return the iterations with a value of the first of RATES, or else of the clock, that the records have."""
    name = next((name for name in (*RATES, "clock_s") if records.has(name).any()), None)
    iterations: NDArray[np.float64] = records.column("iteration")
    return set((iterations[records.has(name)] if name else iterations).tolist())


def _num_missing(iterations: NDArray[np.float64]) -> int:
    """Return how many lines are missing between the first and the last, by the usual step between neighbours."""
    steps = np.diff(iterations)
    if not len(steps):
        return 0
    usual = float(np.quantile(steps, 0.1, method="lower"))
    return int(np.sum(np.maximum(np.round(steps / usual) - 1, 0)))


def _total(attempt: Attempt) -> float:
    return float(attempt.records.column("total_iterations")[-1])


def _iterations(records: Records) -> str:
    iterations = records.column("iteration")
    return f"iterations {iterations.min():.0f} to {iterations.max():.0f}"


def _goes_on(earlier: Records, later: Records) -> bool:
    """Say whether `later`, which stands before `earlier` in the log, begins where that ends: a rotated log, its newest part first.

    By the time of day where the lines have one: a program that begins anew may stop just there too.
    """
    ends, begins = earlier.column("iteration").max(), later.column("iteration").min()
    steps = np.diff(np.sort(np.concatenate([earlier.column("iteration"), later.column("iteration")])))
    if len(earlier) < MIN_PART or len(later) < MIN_PART or not 0 < begins - ends <= np.median(steps):
        return False
    stamps = [part.column("stamp_s")[part.has("stamp_s")] for part in (earlier, later)]
    return not all(map(len, stamps)) or bool(stamps[0][-1] < stamps[1][0])


def _column(attempts: Sequence[Attempt], name: str) -> Column:
    return np.concatenate([attempt.records.column(name) for attempt in attempts])


def _first_fall(attempts: Sequence[Attempt]) -> str:
    iterations, numbers = _column(attempts, "iteration"), np.concatenate([a.records.numbers for a in attempts])
    at = int(np.argmax(iterations[1:] < iterations[:-1]))
    return " and ".join(f"iteration {iterations[i]:.0f} in line {numbers[i]}" for i in (at, at + 1))


def _sorted_lines(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return that the lines are in the order of the alphabet, `sort`'s, in which iteration 100 stands before 20; None where they are not."""
    if len(attempts) <= _MIN_FALLS:
        return None
    iterations = _column(attempts, "iteration")
    falls = np.flatnonzero(iterations[1:] < iterations[:-1])
    # 10 before or behind 100, by the sign that follows them
    orders = (itertools.pairwise(f"{number:.0f}{sign}" for number in iterations) for sign in ("", ":"))
    if len(falls) < _MIN_FALLS or not any(all(one <= two for one, two in order) for order in orders):
        return None
    return Refusal(
        f"the lines of this log are in the order of the alphabet ({_first_fall(attempts)}): give the log as the program wrote it, or in the "
        "order of its numbers: `sort -V LOG | nlp-bench report -`"
    )


def _swapped_lines(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return that the lines are not in the order of time, in which each iteration follows the one before; None where that is not so.

    A program that begins anew prints its lower iterations later. Nor is it said where most lines fall: they stand newest first.
    """
    iterations, stamps = _column(attempts, "iteration"), _column(attempts, "stamp_s")
    falls, order = np.diff(iterations) < 0, np.argsort(iterations)
    if not 0 < 2 * np.count_nonzero(falls) <= len(falls) or np.ptp(stamps) == 0:
        return None
    if not (np.diff(iterations[order]) > 0).all() or not (np.diff(stamps[order]) >= 0).all():
        return None
    return Refusal(
        f"the lines of this log are not in the order of time ({_first_fall(attempts)}): put parts together oldest first, as in "
        "`cat $(ls -v job.out.*) > whole.log`, and lines that a collector mixed in the order of their times: "
        "`sort -V LOG | nlp-bench report -`"
    )


def refusal_of(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return why a log gives no number: its parts are in the wrong order, or too many training lines are lost; None where it does.

    Attempts with less than half of the records of the longest are not counted.
    """
    if sorted_lines := _sorted_lines(attempts):
        return sorted_lines
    for (one, later), (two, earlier) in itertools.pairwise((attempt, attempt.records) for attempt in attempts):
        if _goes_on(earlier, later) and _is_same(_total(one), _total(two)):
            where = f"{_iterations(earlier)} (from line {earlier.numbers.min()}) stand after {_iterations(later)}"
            return Refusal(
                f"the parts of this log are in the wrong order: {where}; put them together oldest first, as in "
                "`cat job.out.2 job.out.1 job.out > whole.log`, and give that"
            )
    if len(attempts) > 1 and (swapped_lines := _swapped_lines(attempts)):
        return swapped_lines
    longest = max((len(attempt.records) for attempt in attempts), default=0)
    for attempt in attempts:
        if len(attempt.records) >= MIN_LINES and not attempt.records.whole.any():
            return Refusal(
                f"none of the {len(attempt.records)} training lines can be read whole (lines "
                f"{', '.join(map(str, attempt.unreadable[:5]))}): what cannot be read may be what the number needs; give the log as "
                "the program wrote it"
            )
        if attempt.num_lost < MIN_LINES or 2 * len(attempt.records) < longest:
            continue
        total = attempt.num_lost + len(_timed(attempt.records))
        if attempt.num_lost <= MAX_SHARE * total:
            continue
        lines = ", ".join(map(str, attempt.unreadable[:5]))
        return Refusal(
            f"{attempt.num_lost} of {total} training lines ({100 * attempt.num_lost / total:.1f} %) have no time that can be read: cut, "
            f"spliced, written in an unknown way, 0 or below (lines {lines}{', ...' if len(attempt.unreadable) > 5 else ''}); those may "
            f"be the slow ones, so more than {100 * MAX_SHARE:.0f} % give no number; give the log as the program wrote it, of one process"
        )
    return None
