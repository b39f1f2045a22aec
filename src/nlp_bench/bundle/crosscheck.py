"""Whether a log agrees with itself: a line of Megatron-LM states one time several times over, in different units.

Elapsed time, samples per second, tokens per second and TFLOP/s are one measurement divided by constants, and the consumed samples
grow by the batch: a digit that was changed in one of them contradicts the others. Each printed number stands for an interval,
half a unit of its last digit to both sides. The formulas: `train/logline.py` and NVIDIA/Megatron-LM megatron/training/training.py
(`training_log`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.entry import RunEntry

ELAPSED, BATCH, CONSUMED = "elapsed time per iteration (s)", "global batch size", "consumed samples"
SAMPLES, TOKENS = "samples per second", "tokens per second"
FLOPS = ("TFLOPs", "model TFLOP/s/GPU", "throughput per GPU (TFLOP/s/GPU)")
_MILLISECONDS = "elapsed time per iteration (ms)"
_ITERATION = re.compile(rb"iteration\s{1,12}(\d{1,12})/")
_PLAIN = re.compile(rb"\d{1,12}(?:\.(\d{1,12}))?")
_SLACK = 1e-9
MIN_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """One line that says two things."""

    line: int
    """Line of the log, counted from 1."""
    why: str
    """Which fields, with what they say."""


@dataclass(frozen=True, kw_only=True)
class CrossCheck:
    """What one run's log says of itself."""

    num_lines: int = 0
    """Lines that were checked."""
    fields: tuple[str, ...] = ()
    """What was held against the elapsed time; empty where a log states its time once only."""
    contradictions: Sequence[Contradiction] = ()
    """Lines that contradict themselves, in their order."""
    remarks: tuple[str, ...] = ()
    """Fields that disagree in every line of a log of somebody: another definition, no changed digit."""


@dataclass(kw_only=True)
class _Column:
    """One field of all lines: value and half a unit of its last digit, NaN where a line has none."""

    values: list[float] = field(default_factory=list)
    halves: list[float] = field(default_factory=list)

    def bounds(self, scale: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        values, halves = np.array(self.values) * scale, np.array(self.halves) * scale
        return np.maximum(values - halves, 0.0) * (1 - _SLACK), (values + halves) * (1 + _SLACK)


def cross_check(log: Path, entry: RunEntry, *, is_ours: bool) -> CrossCheck:
    """Hold each whole record of `entry` against itself; `entry` has its samples, `log` is its plain file.

    A run of ours must agree everywhere. In a log of somebody else a field that disagrees in all lines is only remarked.
    """
    wanted = entry.records.numbers[entry.records.whole] if len(entry.records) else np.empty(0, dtype=np.int64)
    lines, columns = _read(log, set(wanted.tolist()))
    if not lines:
        return CrossCheck()
    said: dict[int, list[str]] = {}
    remarks, names = [], []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for name, is_wrong, means in _checks(columns, entry.sequence_length):
            names.append(name)
            if not is_ours and is_wrong.all():
                remarks.append(
                    f"{name} disagrees with the rest of its line in all {len(lines)} lines: another definition"
                )
                continue
            for index in np.flatnonzero(is_wrong):
                reasons = said.setdefault(int(index), [])
                if not (reasons and name in FLOPS):  # they have the fewest digits
                    reasons.append(means(int(index)))
    found = [
        Contradiction(line=lines[index], why=_sentence(columns, index, reasons))
        for index, reasons in sorted(said.items())
    ]
    return CrossCheck(num_lines=len(lines), fields=tuple(names), contradictions=found, remarks=tuple(remarks))


def _sentence(columns: Mapping[str, _Column], index: int, reasons: list[str]) -> str:
    elapsed = columns[ELAPSED].values[index]
    return f"{ELAPSED} is {elapsed:.12g}, but {' and '.join(reasons)}"


def _read(log: Path, wanted: set[int]) -> tuple[list[int], dict[str, _Column]]:
    """Return the line numbers and the columns of the records in `wanted`."""
    known = (ELAPSED, BATCH, CONSUMED, SAMPLES, TOKENS, *FLOPS, "iteration")
    columns = {name: _Column() for name in known}
    lines = []
    with log.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if number not in wanted:
                continue
            found = _fields(text)
            if ELAPSED not in found:
                continue
            lines.append(number)
            for name, column in columns.items():
                value, half = found.get(name, (np.nan, np.nan))
                column.values.append(value)
                column.halves.append(half)
    return lines, columns


def _fields(text: bytes) -> dict[str, tuple[float, float]]:
    """Return name to value and half a unit of the last digit; nothing for a line that holds two records."""
    if text.count(b"elapsed time per iteration") != 1:
        return {}
    found: dict[str, tuple[float, float]] = {}
    for part in text.split(b"|"):
        name, colon, digits = part.strip().rpartition(b":")
        written = _PLAIN.fullmatch(digits.strip())
        if colon and written:
            found[name.decode(errors="replace")] = float(digits), 0.5 * 10.0 ** -len(written[1] or b"")
    if _MILLISECONDS in found:
        value, half = found.pop(_MILLISECONDS)
        found[ELAPSED] = value / 1000, half / 1000
    iteration = _ITERATION.search(text)
    if iteration:
        found["iteration"] = float(iteration[1]), 0.0
    return found


class _Means:
    """Says which elapsed time a field stands for."""

    def __init__(self, name: str, column: _Column, work: NDArray[np.float64]) -> None:
        self.name, self.column, self.work = name, column, work

    def __call__(self, index: int) -> str:
        value = self.column.values[index]
        seconds = f"means {self.work[index] / value:.5g} s" if value else "means no time at all"
        return f"{self.name} {value:.12g} {seconds}"


def _checks(
    columns: Mapping[str, _Column], sequence_length: int | None
) -> Iterator[tuple[str, NDArray[np.bool_], "_Means | _Consumed"]]:
    """Yield for each field its name, where it contradicts, and what says so."""
    elapsed, batch = columns[ELAPSED], np.array(columns[BATCH].values)
    works: list[tuple[str, NDArray[np.float64] | None]] = [(SAMPLES, batch)]
    works.append((TOKENS, batch * sequence_length if sequence_length else None))
    works += [(name, None) for name in FLOPS]
    for name, work in works:
        column = columns[name]
        if np.isnan(column.values).all():
            continue
        if work is None:
            work = _common(elapsed, column, batch) * batch  # noqa: PLW2901  # a constant per sample that no field states
        low, high = elapsed.bounds()
        rate_low, rate_high = column.bounds()
        is_wrong = (work / high > rate_high) | (work / low < rate_low)
        yield name, is_wrong, _Means(name, column, work)
    if not np.isnan(columns[CONSUMED].values).all():
        consumed = _Consumed(columns)
        yield CONSUMED, consumed.is_wrong, consumed


def _common(elapsed: _Column, column: _Column, batch: NDArray[np.float64]) -> float:
    """Return the work per sample that agrees with most lines: where most of the intervals time * rate / batch overlap."""
    low, high = elapsed.bounds()
    rate_low, rate_high = column.bounds()
    begins, ends = low * rate_low / batch, high * rate_high / batch
    known = np.isfinite(begins) & np.isfinite(ends)
    if not known.any():
        return float("nan")
    begins, ends = np.sort(begins[known]), np.sort(ends[known])
    # At each beginning: how many intervals have begun, less those that have ended before.
    depth = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="left")
    best = int(np.argmax(depth))
    return float((begins[best] + ends[np.searchsorted(ends, begins[best], side="left")]) / 2)


class _Consumed:
    """Samples since the training began: with one batch size, each line has `iteration * batch` and one constant."""

    def __init__(self, columns: Mapping[str, _Column]) -> None:
        self.values = np.array(columns[CONSUMED].values)
        batch, iterations = np.array(columns[BATCH].values), np.array(columns["iteration"].values)
        offsets = self.values - iterations * batch
        known = np.isfinite(offsets)
        self.is_wrong = np.zeros(len(offsets), dtype=np.bool_)
        self.expected = iterations * batch
        if known.any() and len(set(batch[known])) == 1:
            counted, counts = np.unique(offsets[known], return_counts=True)
            usual = counted[int(np.argmax(counts))]
            # A batch that grew before this log began is in the constant; one that grows within it has no majority.
            if counts.max() > MIN_SHARE * known.sum():
                self.is_wrong = known & (offsets != usual)
                self.expected = self.expected + usual

    def __call__(self, index: int) -> str:
        return f"{CONSUMED} is {self.values[index]:.0f} where iteration and batch give {self.expected[index]:.0f}"
