"""Sweeps: all configurations of one workload on one machine with equal GPUs, and which of them may be the best.

A configuration is ruled out where another one is faster by a one-sided Welch test at (1 - level) / (number of configurations - 1).
The truly best one is then kept with a probability of at least `level`: it has number - 1 rivals, each of which beats it by chance
with at most that share (Bonferroni), however the best one of the data was chosen. This is subset selection (Gupta 1965,
doi:10.1080/00401706.1965.10490251) as it follows from comparisons with the best (Hsu 1984, doi:10.1214/aos/1176346725), with Welch's
degrees of freedom in place of equal variances. tests/support/winners_study.py measures the probability.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist
from typing import Any

import numpy as np

from nlp_bench.analysis.observation import cell, device_of, num_gpus_of, says_model, title, workload_key
from nlp_bench.analysis.points import Point, points_of, unplaced_json, varying_in
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.estimate import LEVEL, Estimate, Ratio, ratio_of, student_cdf, welch_degrees
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, heading


def winners(estimates: Sequence[Estimate], level: float = LEVEL) -> list[bool]:
    """Return for each configuration whether it may be the best; at least the fastest one is."""
    if len(estimates) < 2:
        return [True] * len(estimates)
    share = (1 - level) / (len(estimates) - 1)
    least = NormalDist().inv_cdf(1 - share)  # Student's t asks for at least as much as the normal distribution
    seconds = np.log([each.seconds_per_token for each in estimates])
    errors = np.array([each.standard_error / each.seconds_per_token for each in estimates])
    kept = []
    for index, slower in enumerate(estimates):
        statistics = (seconds[index] - seconds) / np.sqrt(errors[index] ** 2 + errors**2)
        ahead = np.flatnonzero(statistics > least)
        rivals = [int(rival) for rival in ahead[np.argsort(-statistics[ahead])]]  # the clearest first: one is enough
        kept.append(not any(_chance(slower, estimates[rival], statistics[rival]) < share for rival in rivals))
    return kept


def _chance(slower: Estimate, rival: Estimate, statistic: float) -> float:
    """Return how probable such a lead is if both are equally fast: one-sided, with Welch's degrees of freedom."""
    return 1 - student_cdf(float(statistic), welch_degrees(slower, rival))


MAX_NAMED = 6
"""As many winners are named in the sentence."""


class Standing(str, Enum):
    """Where a configuration stands."""

    WINNER = "winner"
    """The only one that may be the best."""
    TIED = "tied for best"
    """May be the best, as others may."""
    SLOWER = "slower"
    """Another one is faster beyond doubt."""
    ALONE = "alone"
    """The only one with an interval, so that nothing is there to be told from."""
    UNDECIDED = "no interval"
    """Has a rate without an interval, so that nothing can be said."""
    FAILED = "no number"
    """No run of it has a number."""
    CONTRADICTED = "not ranked"
    """Its log says that something else ran than run.json asked for."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration."""

    point: Point
    rank: int | None
    """1 is the fastest measured; None without a rate."""
    standing: Standing
    fastest: Estimate | None
    """The rate of the fastest that has an interval."""

    @property
    def ratio(self) -> Ratio | None:
        """Its rate / that of the fastest with a 95 % interval, None without one and for the fastest itself."""
        best, estimate = self.fastest, self.point.estimate
        return ratio_of(best, estimate) if self.rank and best and estimate and estimate is not best else None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Configurations that may be ranked against each other."""

    title: str
    num_gpus: int
    is_cpu: bool
    is_known: bool
    """Whether it is said which model was trained."""
    rows: tuple[Row, ...]
    """The fastest first, then what has no number."""
    names: tuple[str, ...]
    """The settings in which configurations differ."""

    @property
    def heading(self) -> str:
        """What was trained where and on how much."""
        what = "CPU rank" if self.is_cpu else "GPU"
        return f"{self.title}, {self.num_gpus} {what}{'' if self.num_gpus == 1 else 's'}"

    @property
    def is_worth_a_note(self) -> bool:
        """Whether two or more configurations are known to differ, and something can be said of them."""
        all_failed = all(row.rank is None for row in self.rows)
        return len(self.rows) > 1 and bool(self.names) and self.is_known and (all_failed or bool(self.winners))

    @property
    def winners(self) -> tuple[Row, ...]:
        """Those that may be the best."""
        return tuple(row for row in self.rows if row.standing in {Standing.WINNER, Standing.TIED})

    @property
    def is_of_single_runs(self) -> bool:
        """Whether one run of each configuration counts, so that the intervals do not hold what runs differ by."""
        counted = [row.point for row in self.rows if row.point.tokens_per_second]
        return all(point.num_counted == 1 for point in counted) and any(point.estimate for point in counted)

    @property
    def caution(self) -> str:
        """What to add to a winner by single runs; empty for others."""
        is_named = self.is_of_single_runs and self.winners
        return "; one run each, so what runs differ by is not in it: repeat them" if is_named else ""

    def words(self, row: Row) -> str:
        """Return what tells the configuration from the others, or the source where nothing is known to differ."""
        said = [
            f"{heading(name)} {cell(found.value) if (found := row.point.settings.get(name)) else 'not stated'}"
            for name in self.names
        ]
        return ", ".join(said) or row.point.entries[0].source

    def sentence(self) -> str:
        """Return who won, in one sentence."""
        found = self.winners
        others = [row for row in self.rows if row.standing in {Standing.FAILED, Standing.CONTRADICTED}]
        tail = f"; {len(others)} of {len(self.rows)} configurations have no number" if others else ""
        undecided = [row for row in self.rows if row.standing is Standing.UNDECIDED]
        tail += f"; {len(undecided)} without an interval cannot be judged" if undecided else ""
        if len(others) == len(self.rows):
            return "no winner: every configuration failed"
        alone = next((row for row in self.rows if row.standing is Standing.ALONE), None)
        if alone:
            return f"no winner can be named: {self.words(alone)} alone has an interval{tail}"
        if not found:
            fastest = self.words(self.rows[0])
            return f"no winner can be named: no rate has an interval; the fastest measured is {fastest}{tail}"
        if len(found) == 1:
            return self._single(found[0]) + tail
        named = "; ".join(self.words(row) for row in found[:MAX_NAMED])
        more = f"; and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        return f"a tie: {len(found)} configurations cannot be told from the best at 95 %: {named}{more}{tail}"

    def _single(self, row: Row) -> str:
        judged = [other for other in self.rows if other.standing is Standing.SLOWER]
        if not judged:
            return f"the only configuration with a number: {self.words(row)}"
        return f"winner: {self.words(row)}, faster than each of the {len(judged)} others at 95 %"


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Everything that the writers need."""

    sweeps: Sequence[Sweep]
    """One for each workload, machine and number of GPUs."""
    unplaced: Sequence[RunResult]
    """Runs whose number of GPUs nobody states."""
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Return the record nlp-bench/sweep/1; missing is null."""
        return {
            "schema": "nlp-bench/sweep/1",
            "tokens": self.tokens,
            "sweeps": [sweep_json(sweep, self.tokens) for sweep in self.sweeps],
            "unplaced": unplaced_json(self.unplaced),
        }


def sweep_of(entries: Sequence[RunResult], tokens: int, *, allow_measured: bool = False) -> SweepReport:
    """Return the report on `entries`."""
    placed = [entry for entry in entries if num_gpus_of(entry)]
    return SweepReport(
        sweeps=sweeps_of(placed, allow_measured=allow_measured),
        unplaced=[entry for entry in entries if not num_gpus_of(entry)],
        tokens=tokens,
    )


def sweeps_of(entries: Iterable[RunResult], *, allow_measured: bool = False) -> list[Sweep]:
    """Return the sweeps of all runs whose GPUs are known, in the order of their first runs."""
    groups: dict[object, list[RunResult]] = {}
    for entry in entries:
        groups.setdefault((workload_key(entry), num_gpus_of(entry)), []).append(entry)
    return [_sweep(group, allow_measured=allow_measured) for group in groups.values()]


def winner_notes(entries: Sequence[RunResult], *, allow_measured: bool = False) -> list[str]:
    """Return a line per sweep that a report happens to hold: several configurations of one workload on equal GPUs."""
    placed = (entry for entry in entries if num_gpus_of(entry) and not entry.published)
    found = sweeps_of(placed, allow_measured=allow_measured)
    return [f"{each.heading}: {each.sentence()}{each.caution}" for each in found if each.is_worth_a_note]


def _sweep(entries: Sequence[RunResult], *, allow_measured: bool) -> Sweep:
    found = points_of(entries, allow_measured=allow_measured)
    points = sorted(found, key=lambda point: -(point.tokens_per_second or 0))
    judged = [point for point in points if point.tokens_per_second and point.estimate]
    kept = winners([point.estimate for point in judged if point.estimate])
    may_be_best = {id(point) for point, is_kept in zip(judged, kept, strict=True) if is_kept}
    best = judged[0].estimate if judged else None
    is_alone = len(judged) == 1 and sum(point.tokens_per_second is not None for point in points) > 1
    return Sweep(
        title=title(entries[0]),
        num_gpus=num_gpus_of(entries[0]) or 0,
        is_cpu=all(device_of(entry) == "cpu" for entry in entries),
        is_known=says_model(entries[0]),
        rows=tuple(
            Row(
                point=point,
                rank=rank if point.tokens_per_second else None,
                standing=_standing(point, may_be_best, is_alone=is_alone),
                fastest=best,
            )
            for rank, point in enumerate(points, start=1)
        ),
        names=varying_in(points),
    )


def _standing(point: Point, may_be_best: set[int], *, is_alone: bool) -> Standing:
    if point.contradictions:
        return Standing.CONTRADICTED
    if not point.tokens_per_second:
        return Standing.FAILED
    if not point.estimate:
        return Standing.UNDECIDED
    if id(point) not in may_be_best:
        return Standing.SLOWER
    if is_alone:
        return Standing.ALONE
    return Standing.WINNER if len(may_be_best) == 1 else Standing.TIED


def sweep_json(sweep: Sweep, tokens: int) -> dict[str, Any]:
    """Return one object of `sweeps` in nlp-bench/sweep/1; missing is null."""
    return {
        "workload": sweep.title,
        "num_gpus": sweep.num_gpus,
        "accelerator": "cpu" if sweep.is_cpu else None,
        "varies": list(sweep.names),
        "winners": [row.point.digest for row in sweep.winners],
        "sentence": sweep.sentence(),
        "configurations": [record(sweep, row, tokens) for row in sweep.rows],
    }


def record(sweep: Sweep, row: Row, tokens: int) -> dict[str, Any]:
    """Return one configuration; `settings` holds what it is, whether it varies or not."""
    point = row.point
    rate, ratio = point.tokens_per_second, row.ratio
    low, high = point.interval or (None, None)
    names = (*FREE, *(name for name in sweep.names if name not in FREE))
    return {
        "rank": row.rank,
        "standing": row.standing.value,
        "identity": point.digest,
        "settings": {name: point.settings[name].value for name in names if name in point.settings},
        "outcome": point.outcome,
        "num_runs": len(point.entries),
        "num_counted": point.num_counted,
        "tokens_per_second": rate,
        "tokens_per_second_ci95_low": low,
        "tokens_per_second_ci95_high": high,
        "of_fastest": ratio.ratio if ratio else None,
        "of_fastest_ci95_low": ratio.low if ratio else None,
        "of_fastest_ci95_high": ratio.high if ratio else None,
        "tokens_per_second_per_gpu": rate / sweep.num_gpus if rate else None,
        "time_to_train_s": time_to_report_s(tokens, rate),
        "cause": point.cause,
        "sources": [entry.source for entry in point.entries],
    }
