"""Which records belong to one start of the program, which repeat another process's, and which are lost.

Lost lines may be a biased sample, since the cause may be the value: times from 1 000 ms on in a format that is not parsed, the line of a
stall that another process writes into. The lines that are left would then be the fast ones.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
_MIN_ORDERED = 6  # records whose order is looked at: an excerpt of fewer may be of two trainings
_WORD = re.compile(rb"(?i)\b(?!(?:nan|inf|infinity|none|null)\b)[a-z_]{3,}")
_LOOKED_BYTES, _MIN_WORDS = 1024, 3


def split_attempts(raw: Records, starts: Sequence[tuple[int, Mapping[str, Fact]]]) -> tuple[tuple[Attempt, ...], int]:
    """Return the attempts with at least one record, and how many records were echoes.

    `starts` holds the byte offset and the facts of each start of the program in the log.
    """
    bounds = [0, *(int(np.searchsorted(raw.offsets, offset)) for offset, _ in starts[1:]), len(raw.offsets)]
    attempts: list[Attempt] = []
    num_echoes = 0
    facts: dict[str, Fact] = {}
    for (_, own), begin, end in zip(starts, bounds, bounds[1:], strict=False):
        # A program that starts anew prints its settings again: of starts without a record between them the last one counts.
        facts = {**facts, **own}
        if begin < end:
            start = _Start(raw.chosen(slice(begin, end)))
            num_echoes += start.num_echoes
            attempts += [Attempt(facts=facts, records=records, copies=copies) for records, copies in start.attempts()]
            facts = {}  # those of a last start without a record apply to none of the attempts before it
    return tuple(attempts), num_echoes


class _Start:
    """The records of one start, in groups of rising iterations, each with the records of other processes for the same ones."""

    def __init__(self, raw: Records) -> None:
        self.raw, self.num_echoes = raw, 0
        self.groups: list[tuple[dict[float, int], list[int]]] = []
        iterations, totals = raw.column("iteration"), raw.column("total_iterations")
        if (np.diff(iterations) > 0).all() and (np.isnan(totals).all() or np.ptp(totals) == 0):
            return
        self.iterations, self.totals = iterations.tolist(), totals.tolist()
        # Prefixes that differ in nearly every record (a time of day alone) name no process: there are as many processes
        # as print one iteration.
        num_labels, num_alike = len(np.unique(raw.labels)), max(Counter(self.iterations).values())
        is_named = 2 * num_labels <= len(raw) or num_labels <= num_alike
        self.labels = raw.labels.tolist() if is_named else [0] * len(raw)
        for index in range(len(raw)):
            self._take(index)

    def _take(self, index: int) -> None:
        iteration = self.iterations[index]
        group, copies = self.groups[-1] if self.groups else ({}, [])
        known = group.get(iteration)
        if known is not None and self._is_echo(known, index):
            self.num_echoes += 1
            is_better = self.raw.whole[index] and not self.raw.whole[known]
            if self.labels[known] != self.labels[index]:
                copies.append(known if is_better else index)
            group[iteration] = index if is_better else known
            return
        last = next(reversed(group.values()), None)
        if last is None or iteration <= self.iterations[last] or not _is_same(self.totals[last], self.totals[index]):
            group = {}
            self.groups.append((group, []))
        group[iteration] = index

    def _is_echo(self, known: int, index: int) -> bool:
        """Say whether a record repeats a known one: another rank's line, or exactly the same numbers again."""
        if self.labels[known] != self.labels[index]:
            return _is_same(self.totals[known], self.totals[index])
        # A restart from a checkpoint repeats an iteration too, but hardly ever with the same numbers to the last digit.
        pairs = (column[[known, index]] for name, column in self.raw.columns.items() if name != "stamp_s")
        return all(_is_same(*pair.tolist()) for pair in pairs)

    def attempts(self) -> list[tuple[Records, dict[str, Copies]]]:
        """Return the records of each attempt, those of its slowest process, and how the processes differ, by quantity."""
        return [self._compared(*group) for group in self.groups] or [(self.raw, {})]

    def _compared(self, group: Mapping[float, int], copies: Sequence[int]) -> tuple[Records, dict[str, Copies]]:
        """Compare the processes of one attempt, by the first quantity that several print.

        A step ends when its slowest process is done. All records come from one process: the slowest copy of each iteration
        would add up the jitter of all processes, and the first one to print is the fastest.
        """
        first = np.array([*group.values()])
        found: dict[str, Copies] = {}
        whole = [index for index in (*group.values(), *copies) if self.raw.whole[index]] if copies else []
        known = {(self.labels[index], self.iterations[index]): index for index in reversed(whole)}
        indices, chosen = np.array([*known.values()], np.int64), first.copy()
        for name in RATES if copies else ():
            column = self.raw.columns.get(name)
            times = None if column is None else column if name == "elapsed_s" else 1 / column
            if times is not None and (compared := _compare(self.raw, times, first, indices)):
                if not found:
                    slowest = indices[np.array([label for label, _ in known]) == self.raw.labels[compared[1]]]
                    chosen[np.searchsorted([*group], self.raw.column("iteration")[slowest])] = slowest
                found[name] = compared[0]
        return self.raw.chosen(chosen), found


def _is_same(one: float, two: float) -> bool:
    return one == two or math.isnan(one) or math.isnan(two)


def _compare(
    raw: Records, times: Column, first: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[Copies, int] | None:
    """Compare the times of several processes in the records `indices`, of which those of `first` were printed first.

    Returns how they differ, and a record of the process that is slowest of those that print at least half of the iterations.
    None where no iteration has two times.
    """
    iterations = raw.column("iteration")
    indices = indices[times[indices] > 0]
    places = np.searchsorted(iterations[first], iterations[indices])
    order = np.lexsort((times[indices], places))  # by iteration, the fastest first
    ends = np.flatnonzero(np.diff(places[order], append=-1))
    begins = np.append(0, ends[:-1] + 1)[: len(ends)]
    low, high = (indices[order[ends_of[ends > begins]]] for ends_of in (begins, ends))
    if not len(low):
        return None
    own = times[first][places]
    both = own > 0
    labels, firsts, processes = np.unique(raw.labels[indices], return_index=True, return_inverse=True)
    counted = (times[indices][both], own[both], np.ones(np.count_nonzero(both)))
    taken, usual, count = (np.bincount(processes[both], each, len(labels)) for each in counted)
    many = 2 * count >= len(first)
    ratios = np.divide(taken, usual, out=np.zeros(len(labels)), where=many & (usual > 0))
    # Of a process that prints few iterations: what they would add to the whole time.
    parts = np.where(many, 0.0, taken - usual).max() / max(np.nansum(times[first]), 1e-9)
    apart = times[high] / times[low] - 1
    worst = int(np.argmax(apart))
    copies = Copies(
        num_iterations=len(apart),
        num_differing=int(np.sum(apart > 0)),
        between_processes=max(float(parts), float(ratios.max() / ratios[many].min()) - 1 if ratios.any() else 0.0),
        line_numbers=(int(raw.numbers[low[worst]]), int(raw.numbers[high[worst]])) if apart[worst] else (0, 0),
    )
    return copies, int(indices[firsts[np.argmax(ratios)]] if ratios.max() > 1 else first[0])


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
        """Remember the words of a line that gave a record: of the 1st, 2nd, 4th, 8th and so on, since it takes time."""
        self._num_learned += 1
        if not self._num_learned & (self._num_learned - 1):
            self._forms.add(_form(text))

    def has(self, text: bytes) -> bool:
        """Say whether a line without a record has the words of those with one, or the first half of them and more: it cannot be read."""
        form = _form(text) if self._forms else b""
        return any(2 * len(form) > len(known) and known.startswith(form) for known in self._forms)


def _form(text: bytes) -> bytes:
    words = _WORD.findall(text, 0, _LOOKED_BYTES)
    return b" ".join(words) if len(words) >= _MIN_WORDS else text


def with_losses(
    attempts: Sequence[Attempt], unreadable: Sequence[Unreadable], *, is_counted: bool
) -> tuple[Attempt, ...]:
    """Return the attempts, each with its unreadable lines and the number of its lost records.

    An iteration is lost where no line gives its time. Lines without an iteration count as lost only up to the number of
    missing iterations: the others may be copies. `is_counted` is false where the program does not number its iterations, so that
    missing ones cannot be seen.
    """
    first_offsets = [attempt.records.offsets.min() for attempt in attempts]
    owners = np.searchsorted(first_offsets, [line.offset for line in unreadable], side="right") - 1
    found = []
    for index, attempt in enumerate(attempts if unreadable else ()):
        kept = _timed(attempt.records)
        own = [line for line, owner in zip(unreadable, owners, strict=True) if max(owner, 0) == index]
        own = [line for line in own if line.iteration not in kept]
        lost = {line.iteration for line in own if not np.isnan(line.iteration)}
        num_unknown = sum(np.isnan(line.iteration) for line in own)
        if is_counted:
            num_unknown = min(num_unknown, _num_missing(np.array(sorted(kept | lost))))
        torn = attempt.records.numbers[~attempt.records.whole].tolist()
        lines = sorted({*torn, *(line.number for line in own)})
        sizes = {"num_lost": len(lost) + num_unknown, "num_unreadable": len(lines)}
        found.append(replace(attempt, **sizes, unreadable=tuple(lines[:MANY_LINES])))
    return tuple(found or attempts)


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


def _out_of_order(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return that the lines are not in the order in which they were written: rotated parts, sorted or mixed lines; else None.

    Then each iteration is there once, what goes together lies apart, and the times of day rise with the iterations. A program
    that begins anew prints its lower iterations later. Nor is it said where most lines fall: they are newest first.
    """
    iterations, stamps, totals = (
        np.concatenate([attempt.records.column(name) for attempt in attempts])
        for name in ("iteration", "stamp_s", "total_iterations")
    )
    falls, order = np.flatnonzero(np.diff(iterations) < 0), np.argsort(iterations)
    if not 0 < 2 * len(falls) <= len(iterations) or len(iterations) < _MIN_ORDERED or np.ptp(totals) > 0:
        return None
    steps, moments = np.diff(iterations[order]), stamps[order][np.isfinite(stamps[order])]
    joints = steps[np.diff(order) != 1]
    is_timed = len(moments) > 1 and (np.ptp(moments) == 0 or np.any(np.diff(moments) < 0))
    if is_timed or not np.all(steps > 0) or np.any(joints != np.median(steps)):
        return None
    numbers = np.concatenate([attempt.records.numbers for attempt in attempts])
    where = " and ".join(f"iteration {iterations[i]:.0f} in line {numbers[i]}" for i in (falls[0], falls[0] + 1))
    return Refusal(
        f"the lines of this log are not in the order in which they were written ({where}): put its parts together oldest first, as in "
        "`cat $(ls -v job.out.*) > whole.log`, or sorted and mixed lines in the order of their numbers: `sort -V LOG | nlp-bench report -`"
    )


def refusal_of(attempts: Sequence[Attempt]) -> Refusal | None:
    """Return why a log gives no number: its lines are in the wrong order, or too many of them are lost; None where it does.

    Attempts with less than half of the records of the longest are not counted.
    """
    if len(attempts) > 1 and (refusal := _out_of_order(attempts)):
        return refusal
    longest = max((len(attempt.records) for attempt in attempts), default=0)
    for attempt in attempts:
        lines = f"lines {', '.join(map(str, attempt.unreadable[:5]))}{', ...' if len(attempt.unreadable) > 5 else ''}"
        if len(attempt.records) >= MIN_LINES and not attempt.records.whole.any():
            return Refusal(
                f"none of the {len(attempt.records)} training lines can be read whole ({lines}): what cannot be read may be what the "
                "number needs; give the log as the program wrote it"
            )
        total = attempt.num_lost + len(_timed(attempt.records))
        is_counted = attempt.num_lost >= MIN_LINES and 2 * len(attempt.records) >= longest
        if is_counted and attempt.num_lost > MAX_SHARE * total:
            return Refusal(
                f"{attempt.num_lost} of {total} training lines ({100 * attempt.num_lost / total:.1f} %) have no time that can be read: cut, "
                f"spliced, written in an unknown way, 0 or below ({lines}); those may be the slow ones, so more than "
                f"{100 * MAX_SHARE:.0f} % give no number; give the log as the program wrote it, of one process"
            )
    return None
