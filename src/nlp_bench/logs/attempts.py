"""Which records belong to one start of the program, and which only repeat what another process has printed."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.quantity import RATES
from nlp_bench.logs.record import Attempt, Copies, Fact, Records

Column = NDArray[np.float64]
Group = tuple["NDArray[np.int64] | slice", dict[str, Copies]]
"""Where the records of one attempt stand, and what other processes print of them."""


class Raw(NamedTuple):
    """Records as they stand in the file, echoes and restarts included."""

    columns: dict[str, Column]
    """By the names of ROW, as in `Records`."""
    offsets: NDArray[np.int64]
    """Byte at which the line begins."""
    numbers: NDArray[np.int64]
    """Line number."""
    labels: NDArray[np.int64]
    """Number of the words that name the process."""
    whole: NDArray[np.bool_]
    """Whether the line was whole."""

    def column(self, name: str) -> Column:
        """Return one column, NaN where the log does not say."""
        return self.columns[name] if name in self.columns else np.full(len(self.offsets), np.nan)


def in_file_order(parts: Sequence[Raw]) -> Raw | None:
    """Return all parts as one, in the order of their lines: the fast road and the careful one take turns in a block."""
    if not parts:
        return None
    names = {name: None for part in parts for name in part.columns}
    raw = Raw(
        {name: np.concatenate([part.column(name) for part in parts]) for name in names},
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.whole for part in parts]),
    )
    if np.all(raw.offsets[1:] >= raw.offsets[:-1]):
        return raw
    order = np.argsort(raw.offsets, kind="stable")
    columns = {name: column[order] for name, column in raw.columns.items()}
    return Raw(columns, raw.offsets[order], raw.numbers[order], raw.labels[order], raw.whole[order])


def split_attempts(
    raw: Raw | None, starts: Sequence[tuple[int, Mapping[str, Fact]]]
) -> tuple[tuple[Attempt, ...], int]:
    """Return the attempts with at least one record, and how many records were echoes.

    `starts` holds, for each start of the program that the log tells of, its byte in the file and its facts.
    """
    if raw is None:
        return (), 0
    bounds = [0, *(int(np.searchsorted(raw.offsets, offset)) for offset, _ in starts[1:]), len(raw.offsets)]
    attempts: list[Attempt] = []
    num_echoes = 0
    facts: dict[str, Fact] = {}
    for (_, own), begin, end in zip(starts, bounds, bounds[1:], strict=False):
        # A program that starts anew prints its settings again: of starts without a record between them the last word counts.
        facts = {**facts, **own}
        if begin == end:
            continue
        groups, echoes = _split(raw, begin, end)
        num_echoes += echoes
        attempts += [Attempt(facts=facts, records=_records(raw, where), copies=copies) for where, copies in groups]
        facts = {}
    if attempts and facts:
        attempts[-1] = replace(attempts[-1], facts={**facts, **attempts[-1].facts})
    return tuple(attempts), num_echoes


def _records(raw: Raw, where: NDArray[np.int64] | slice) -> Records:
    columns = {name: column[where] for name, column in raw.columns.items()}
    return Records(columns, raw.offsets[where], raw.numbers[where], raw.whole[where])


def _split(raw: Raw, begin: int, end: int) -> tuple[list[Group], int]:
    """Return where each rising run stands, and the number of echoes among them."""
    iterations, totals = raw.column("iteration")[begin:end], raw.column("total_iterations")[begin:end]
    is_rising = bool(np.all(iterations[1:] > iterations[:-1]))
    if is_rising and (np.all(totals == totals[0]) or np.isnan(totals).all()):
        return [(slice(begin, end), {})], 0
    splitting = _Splitting(raw)
    for index in range(begin, end):
        splitting.take(index)
    return [splitting.group(number) for number in range(len(splitting.groups))], splitting.num_echoes


class _Splitting:
    """The careful road, one record after the other; the group that is open is the last."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.iterations = raw.column("iteration").tolist()
        self.totals = raw.column("total_iterations").tolist()
        self.labels = raw.labels.tolist()
        # Where nearly every record has words of its own in front (a clock that nobody knows), they name no process:
        # processes are as many as print one iteration.
        num_labels, num_alike = len(set(self.labels)), max(Counter(self.iterations).values())
        if 2 * num_labels > len(self.labels) and num_labels > num_alike:
            self.labels = [0] * len(self.labels)
        self.groups: list[dict[float, int]] = [{}]
        self.copies: list[list[int]] = [[]]
        """For each group the records of other processes that print what is known."""
        self.num_echoes = 0

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
        if last is None or (iteration > self.iterations[last] and self._is_same_total(last, index)):
            group[iteration] = index
        else:
            self.groups.append({iteration: index})
            self.copies.append([])

    def group(self, number: int) -> Group:
        """Return the records of one attempt, those of its slowest process, and how far the processes are apart.

        A step has ended when its slowest process is done. One process is taken throughout: to pick the slowest copy of each
        iteration would add up the jitter of all, and who prints first is the fastest.
        """
        group = self.groups[number]
        processes: dict[int, dict[float, int]] = {}
        for index in (*group.values(), *self.copies[number]):
            known = processes.setdefault(self.labels[index], {})
            if self.raw.whole[index]:
                known.setdefault(self.iterations[index], index)
        found, slowest = (
            self._compared(group, [p for p in processes.values() if p]) if self.copies[number] else ({}, {})
        )
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
            if times is None or not (compared := _compare(times, group, processes)):
                continue
            low, high, best, between = compared
            apart = times[high] / times[low] - 1
            worst = int(np.argmax(apart))
            if not found and best is not None:
                slowest = processes[best]
            found[name] = Copies(
                num_iterations=len(apart),
                num_differing=int(np.sum(apart > 0)),
                largest=float(apart[worst]),
                between_processes=between,
                line_numbers=(int(self.raw.numbers[low[worst]]), int(self.raw.numbers[high[worst]]))
                if apart[worst]
                else (0, 0),
            )
        return found, slowest

    def _is_same_total(self, one: int, two: int) -> bool:
        first, second = self.totals[one], self.totals[two]
        return first == second or math.isnan(first) or math.isnan(second)

    def _is_echo(self, known: int, index: int) -> bool:
        """Say whether a process printed what is already known: another rank's line, or the very same numbers again."""
        if not self._is_same_total(known, index):
            return False
        if self.labels[known] != self.labels[index]:
            return True
        # A restart from a checkpoint repeats an iteration too, but never with the same numbers to the last digit.
        return all(
            first == second or math.isnan(first) or math.isnan(second)
            for name, column in self.raw.columns.items()
            for first, second in [(float(column[known]), float(column[index]))]
            if name != "stamp_s"
        )


def _compare(
    times: Column, group: Mapping[float, int], processes: Sequence[Mapping[float, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int | None, float] | None:
    """Hold the times of several processes against each other.

    Returns, for each iteration that several print, where its fastest and its slowest copy stand; which process is the slowest, of
    those that print at least half of the iterations, None where none is slower than the first; how much slower it is than the
    fastest. None where no iteration has two times.
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
        elif both and whole_s > 0:  # of one that prints few iterations: what they do to the whole
            parts.append(float((own - times[[group[i] for i in both]].sum()) / whole_s))
    slowest = max(ratios, key=ratios.__getitem__, default=None)
    between = max(ratios.values()) / min(ratios.values()) - 1 if ratios else 0.0
    between = max([between, *parts])
    if slowest is not None and ratios[slowest] <= 1:
        slowest = None
    low, high = (np.array([indices[end] for indices in shared]) for end in (0, -1))
    return low, high, slowest, between
