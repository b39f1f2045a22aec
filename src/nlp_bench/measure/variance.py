"""Where the scatter of a benchmark comes from - iterations, runs, nodes, days - and what a number of a wanted precision costs.

The model: ln(seconds per token) of a run = level + day + set of nodes + run + mean of its iterations, each a random effect of its own
variance. The variances come by the method of moments from pairs of runs: half the squared difference of two runs, less what their iterations
explain, is expected to be run + (nodes, if they ran on different ones) + (day, if on different days); least squares over all pairs. In balanced
nested designs that is the classical analysis of variance; unbalanced and crossed ones need nothing else (Rao 1971, MINQUE with the identity,
doi:10.1016/0047-259X(71)90001-7; Searle, Casella and McCulloch, Variance Components, 1992, chapters 5 and 11). Intervals are those variances
under which the estimate would be among the lowest or highest 2.5 % (test inversion by simulation, normal effects, the other variances as estimated).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.estimate import LEVEL, student_t

NUM_SIMULATED = 2000
MOST_RUNS = 200
"""The latest ones are taken: the pairs grow with the square."""
LEAST_ITERATIONS = 100
"""Of a run that is planned: fewer show neither where its warm-up ends nor whether it stalls."""
MOST_ITERATIONS = 10**6
PLANNED_RUNS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50)
Floats = NDArray[np.float64]


class Level(Enum):
    """What may differ."""

    ITERATION = "iteration"
    RUN = "run"
    NODES = "nodes"
    DAY = "day"


class Unknown(Enum):
    """Why a variance cannot be told."""

    ONE = "all runs share one"
    NOT_RECORDED = "not recorded for every run"
    TOO_FEW = "fewer runs than two"
    ENTANGLED = "it always differs as others do, and is part of them"


@dataclass(frozen=True, kw_only=True)
class RunMean:
    """One run, as one mean."""

    log_time: float
    """Natural logarithm of its seconds per token."""
    error: float
    """Standard error of its mean within the run, as a share of the mean; autocorrelation allowed for."""
    degrees: float
    """Degrees of freedom of that."""
    iterations: int
    """Iterations that the mean is over, at least 1."""
    nodes: str | None = None
    """Which nodes it ran on, None where nobody recorded it."""
    day: str | None = None
    """Which day it ran."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One source of scatter."""

    levels: tuple[Level, ...]
    """What differs; several where they never differ apart."""
    num_members: int
    """Different runs, sets of nodes or days."""
    variance: float | None = None
    """Of one iteration (as its share of the mean of a long run), one run, one set of nodes or one day; None where it cannot be told."""
    low: float = 0.0
    """Lower end of the 95 % interval of the variance."""
    high: float = math.inf
    """Upper end."""
    why_unknown: Unknown | None = None
    """Why there is no variance."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run costs beside its counted iterations."""

    start_up_s: float
    """Seconds of each job before its first iteration."""
    warm_up_iterations: float
    """Iterations of each run that are not counted."""
    seconds_per_iteration: float
    """Of a steady iteration."""
    num_gpus: int | None
    """GPUs of the job; None: hours of the whole machine are told."""

    def hours(self, runs: int, iterations: int) -> float:
        """Return GPU hours (hours of the job where the GPUs are not known)."""
        seconds = self.start_up_s + (self.warm_up_iterations + iterations) * self.seconds_per_iteration
        return runs * seconds * (self.num_gpus or 1) / 3600


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """So many runs of so many iterations."""

    runs: int
    """Runs."""
    iterations: int
    """Counted iterations of each."""
    hours: float
    """What they cost together."""


def components(runs: Sequence[RunMean]) -> tuple[Component, ...]:
    """Return the variance of each level, iterations first; a level that cannot be told says why."""
    runs = runs[-MOST_RUNS:]
    found = [_of_iterations(runs)]
    if len(runs) < 2:
        return (*found, Component(levels=(Level.RUN,), num_members=len(runs), why_unknown=Unknown.TOO_FEW))
    labels: dict[Level, list[str | None]] = {
        Level.RUN: list(map(str, range(len(runs)))),
        Level.NODES: [run.nodes for run in runs],
        Level.DAY: [run.day for run in runs],
    }
    first, second = np.triu_indices(len(runs), 1)
    columns: dict[tuple[Level, ...], Floats] = {}
    unknown: list[Component] = []
    for level, names in labels.items():
        codes = np.unique([name or "" for name in names], return_inverse=True)[1]
        column = (codes[first] != codes[second]).astype(float)
        alike = next((key for key, other in columns.items() if np.array_equal(other, column)), None)
        others = np.array(list(columns.values()))
        why = (
            Unknown.NOT_RECORDED if None in names
            else Unknown.ONE if not column.any()
            else Unknown.ENTANGLED if alike is None and len(others) and _depends(column, others)
            else None
        )  # fmt: skip
        if why:
            unknown.append(Component(levels=(level,), num_members=len({*names} - {None}), why_unknown=why))
        elif alike:
            both = (*alike, level)
            columns[both] = columns.pop(alike)
        else:
            columns[(level,)] = column
    members = {key: len(set(labels[key[-1]])) for key in columns}
    return (*found, *_solved(runs, columns, members, {key: labels[key[-1]] for key in columns}), *unknown)


def plan(found: Sequence[Component], within: float, cost: Cost, *, of_one_day: bool) -> list[Purchase]:
    """Return by which numbers of runs, and with how many iterations each, the mean over runs is known to `within` at 95 %.

    `of_one_day`: all runs on the same nodes and day, so that what those differ by is not in the number; else each run on its own. The interval
    over runs is Student's t with one degree of freedom fewer than runs, as `report` has it. None where one run is all that is known.
    """
    if not any(Level.RUN in one.levels and one.variance is not None for one in found):
        return []
    by_run = sum(one.variance or 0.0 for one in found if Level.RUN in one.levels)
    by_place = sum(one.variance or 0.0 for one in found if not {Level.RUN, Level.ITERATION} & set(one.levels))
    by_iteration = next((one.variance or 0.0 for one in found if Level.ITERATION in one.levels), 0.0)
    between = by_run if of_one_day else by_run + by_place
    purchases = []
    for runs in PLANNED_RUNS:
        # half width = t sqrt((between + by_iteration / iterations) / runs)
        left = runs * (within / student_t(0.5 + LEVEL / 2, runs - 1)) ** 2 - between
        iterations = by_iteration / left if left > 0 else math.inf
        if iterations <= MOST_ITERATIONS:
            number = max(math.ceil(iterations), LEAST_ITERATIONS)
            purchases.append(Purchase(runs=runs, iterations=number, hours=cost.hours(runs, number)))
    return purchases


def _depends(column: Floats, others: Floats) -> bool:
    return int(np.linalg.matrix_rank(np.vstack([others, column]))) == len(others)


def _of_iterations(runs: Sequence[RunMean]) -> Component:
    """Return the variance of one iteration, pooled over the runs by their degrees of freedom, with its chi-square interval."""
    weights = np.array([run.degrees for run in runs])
    variances = np.array([run.iterations * run.error**2 for run in runs])
    if not len(runs) or weights.sum() <= 0:
        return Component(levels=(Level.ITERATION,), num_members=0, why_unknown=Unknown.NOT_RECORDED)
    degrees, variance = float(weights.sum()), float(weights @ variances / weights.sum())
    # Wilson and Hilferty (1931): the cube root of a chi-square over its degrees is nearly normal.
    low, high = ((1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3 for z in (1.96, -1.96))
    return Component(
        levels=(Level.ITERATION,),
        num_members=sum(run.iterations for run in runs),
        variance=variance,
        low=variance / low,
        high=variance / high if high > 0 else math.inf,
    )


def _solved(
    runs: Sequence[RunMean],
    columns: dict[tuple[Level, ...], Floats],
    members: dict[tuple[Level, ...], int],
    labels: dict[tuple[Level, ...], list[str | None]],
) -> Iterator[Component]:
    """Solve for all levels that can be told; each estimate is a quadratic form of the runs' values."""
    number = len(runs)
    first, second = np.triu_indices(number, 1)
    weights = np.linalg.pinv(np.column_stack(list(columns.values())))
    values, errors = np.array([run.log_time for run in runs]), np.array([run.error for run in runs])
    forms, explained = [], []
    for row in weights:
        form = np.zeros((number, number))
        form[first, second] = form[second, first] = -row / 2
        form[np.diag_indices(number)] = -form.sum(axis=1)
        forms.append(form)
        explained.append(float(row @ (errors[first] ** 2 + errors[second] ** 2) / 2))
    centred = values - values.mean()
    estimates = [float(centred @ form @ centred) - less for form, less in zip(forms, explained, strict=True)]
    dice = np.random.default_rng(1)
    effects = [_effects(labels[key], dice) for key in columns]
    noise = errors * dice.standard_normal((NUM_SIMULATED, number))
    for place, (key, form) in enumerate(zip(columns, forms, strict=True)):
        scaled = (math.sqrt(max(value, 0.0)) * effect for value, effect in zip(estimates, effects, strict=True))
        rest = noise + sum(part for other, part in enumerate(scaled) if other != place)
        own = effects[place]
        squares = tuple(_form(one, form, two) for one, two in ((own, own), (own, rest), (rest, rest)))
        low, _ = _interval(estimates[place] + explained[place], squares)
        # Runs that differ by less than their own errors allow would have no upper end: they are taken to differ by just that.
        _, high = _interval(max(estimates[place], 0.0) + explained[place], squares)
        yield Component(levels=key, num_members=members[key], variance=max(estimates[place], 0.0), low=low, high=high)


def _effects(labels: Sequence[str | None], dice: np.random.Generator) -> Floats:
    """Return standard normal effects of a level, equal for runs with equal labels: [NUM_SIMULATED, runs]."""
    names, codes = np.unique([str(label) for label in labels], return_inverse=True)
    return np.asarray(dice.standard_normal((NUM_SIMULATED, len(names)))[:, codes])


def _form(one: Floats, form: Floats, two: Floats) -> Floats:
    return np.asarray(np.einsum("bi,ij,bj->b", one, form, two, optimize=True))


def _interval(observed: float, squares: tuple[Floats, ...]) -> tuple[float, float]:
    """Return the variances under which 2.5 % of the simulated estimates are at least, and at most, what was observed."""
    own, mixed, rest = squares

    def share(scale: float, *, above: bool) -> float:
        simulated = scale**2 * own + 2 * scale * mixed + rest
        return float(np.mean(simulated >= observed if above else simulated <= observed))

    tail, most = (
        (1 - LEVEL) / 2,
        math.sqrt(max(abs(observed), float(np.abs(rest).max())) / max(float(np.median(own)), 1e-300)),
    )
    ends = []
    for above in (True, False):
        low, high = 0.0, 1000 * most
        if above == (share(0.0, above=above) >= tail):  # no variance at all would do, or none is small enough
            ends.append(0.0)
            continue
        if not above and share(high, above=False) >= tail:  # too few members for any bound
            ends.append(math.inf)
            continue
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (share(middle, above=above) < tail) == above else (low, middle)
        ends.append(high**2)
    return ends[0], ends[1]
