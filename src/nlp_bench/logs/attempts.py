"""Which records belong to one start of the program, and which only repeat what another process has printed."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Attempt, Fact, Records

Column = NDArray[np.float64]


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
        attempts += [Attempt(facts=facts, records=_records(raw, where)) for where in groups]
        facts = {}
    if attempts and facts:
        attempts[-1] = Attempt(facts={**facts, **attempts[-1].facts}, records=attempts[-1].records)
    return tuple(attempts), num_echoes


def _records(raw: Raw, where: NDArray[np.int64] | slice) -> Records:
    columns = {name: column[where] for name, column in raw.columns.items()}
    return Records(columns, raw.offsets[where], raw.numbers[where], raw.whole[where])


def _split(raw: Raw, begin: int, end: int) -> tuple[list[NDArray[np.int64] | slice], int]:
    """Return where each rising run stands, and the number of echoes among them."""
    iterations, totals = raw.column("iteration")[begin:end], raw.column("total_iterations")[begin:end]
    is_rising = bool(np.all(iterations[1:] > iterations[:-1]))
    if is_rising and (np.all(totals == totals[0]) or np.isnan(totals).all()):
        return [slice(begin, end)], 0
    splitting = _Splitting(raw)
    for index in range(begin, end):
        splitting.take(index)
    groups: list[NDArray[np.int64] | slice] = [np.array(list(group.values())) for group in splitting.groups]
    return groups, splitting.num_echoes


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
        self.num_echoes = 0

    def take(self, index: int) -> None:
        iteration, group = self.iterations[index], self.groups[-1]
        known = group.get(iteration)
        if known is not None and self._is_echo(known, index):
            self.num_echoes += 1
            if self.raw.whole[index] and not self.raw.whole[known]:
                group[iteration] = index
            return
        last = next(reversed(group.values()), None)
        if last is None or (iteration > self.iterations[last] and self._is_same_total(last, index)):
            group[iteration] = index
        else:
            self.groups.append({iteration: index})

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
