"""Where the scatter of a benchmark comes from - iterations, runs, nodes, days - and what a number of a wanted precision costs.

The model: ln(seconds per token) of a run = level + day + set of nodes + run + mean of its iterations, each a random effect of its own
variance. The variances come by the method of moments from pairs of runs: half the squared difference of two runs, less what their iterations
explain, is expected to be run + (nodes, if they ran on different ones) + (day, if on different days); least squares over all pairs. In balanced
nested designs that is the classical analysis of variance; unbalanced and crossed ones need nothing else (Rao 1971, MINQUE with the identity,
doi:10.1016/0047-259X(71)90001-7; Searle, Casella and McCulloch, Variance Components, 1992, chapters 5 and 11). Intervals are those variances
under which the estimate would be among the lowest or highest 2.5 % (test inversion by simulation, normal effects, the other variances as estimated).
"""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.analysis.repeats import grouped
from nlp_bench.analysis.row import Row, table
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import LEVEL, student_t
from nlp_bench.show.table import json_text, percentage

NUM_SIMULATED = 2000
MOST_RUNS = 200  # the latest ones are used: the pairs grow with the square
LEAST_ITERATIONS = 100  # of a run that is planned: fewer show neither where its warm-up ends nor whether it stalls
MOST_ITERATIONS = 10**6
PLANNED_RUNS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50)
Floats = NDArray[np.float64]


class Source(Enum):
    """What may differ."""

    ITERATION = "iteration"
    RUN = "run"
    NODES = "nodes"
    DAY = "day"


class Unknown(Enum):
    """Why a variance cannot be estimated."""

    ONE = "cannot be told: all runs share one"
    NOT_RECORDED = "cannot be told: not recorded for every run"
    TOO_FEW = "cannot be told: one run only"
    ENTANGLED = "cannot be told apart from the others"


@immutable
class RunMean:
    """One run, as one mean."""

    log_time: float  # natural logarithm of its seconds per token
    error: float  # standard error of its mean within the run, as a share of the mean; autocorrelation allowed for
    degrees: float
    iterations: int
    nodes: str | None = None  # which nodes it ran on, None where that was not recorded
    day: str | None = None


@immutable
class Component:
    """One source of scatter."""

    levels: tuple[Source, ...]  # what differs; several where they never differ apart
    num_members: int  # different runs, sets of nodes or days
    variance: float | None = None
    """Of one iteration (as its share of the mean of a long run), one run, one set of nodes or one day; None where it cannot be estimated."""
    low: float = 0.0  # lower end of the 95 % interval of the variance
    high: float = math.inf
    why_unknown: Unknown | None = None

    @property
    def name(self) -> str:
        """What differs, in words."""
        return " and ".join("set of nodes" if level is Source.NODES else level.value for level in self.levels)

    @property
    def is_place(self) -> bool:
        """Whether it is what nodes or days alone differ by."""
        return not {Source.RUN, Source.ITERATION} & set(self.levels)


@immutable
class Cost:
    """What a run costs besides its counted iterations."""

    start_up_s: float  # seconds of each job before its first iteration
    warm_up_iterations: float  # iterations of each run that are not counted
    seconds_per_iteration: float | None  # of a steady iteration; None where the logs have rates alone
    num_gpus: int | None  # GPUs of the job; None: hours are those of the whole machine

    def hours(self, runs: int, iterations: int) -> float | None:
        """Return GPU hours (hours of the job where the GPUs are not known); None where the time of an iteration is not known."""
        if self.seconds_per_iteration is None:
            return None
        seconds = self.start_up_s + (self.warm_up_iterations + iterations) * self.seconds_per_iteration
        return runs * seconds * (self.num_gpus or 1) / 3600


@immutable
class Purchase:
    """One line of the price list: a number of runs of some iterations each."""

    runs: int
    iterations: int  # counted iterations of each
    hours: float | None  # None where the time of an iteration is not known


def components(runs: Sequence[RunMean]) -> tuple[Component, ...]:
    """Return the variance of each level, iterations first; a level that cannot be estimated says why."""
    runs = runs[-MOST_RUNS:]
    found = [_of_iterations(runs)]
    if len(runs) < 2:
        return (*found, Component(levels=(Source.RUN,), num_members=len(runs), why_unknown=Unknown.TOO_FEW))
    labels: dict[Source, list[str | None]] = {
        Source.RUN: list(map(str, range(len(runs)))),
        Source.NODES: [run.nodes for run in runs],
        Source.DAY: [run.day for run in runs],
    }
    first, second = np.triu_indices(len(runs), 1)
    columns: dict[tuple[Source, ...], Floats] = {}
    unknown: list[Component] = []
    for level, names in labels.items():
        codes = np.unique([name or "" for name in names], return_inverse=True)[1]
        column = (codes[first] != codes[second]).astype(float)
        alike = next((key for key, other in columns.items() if np.array_equal(other, column)), None)
        others = np.array(list(columns.values()))
        why = (
            Unknown.NOT_RECORDED if None in names
            else Unknown.ONE if not column.any()
            else Unknown.ENTANGLED if alike is None and len(others) and int(np.linalg.matrix_rank(np.vstack([others, column]))) == len(others)
            else None
        )  # fmt: skip
        if why:
            unknown.append(Component(levels=(level,), num_members=len({*names} - {None}), why_unknown=why))
        elif alike:
            both = (*alike, level)
            columns[both] = columns.pop(alike)
        else:
            columns[(level,)] = column
    return (*found, *_solved(runs, columns, {key: labels[key[-1]] for key in columns}), *unknown)


def plan(found: Sequence[Component], within: float, cost: Cost, *, of_one_day: bool) -> list[Purchase]:
    """Return by which numbers of runs, and with how many iterations each, the mean over runs is known to `within` at 95 %.

    `of_one_day`: all runs on the same nodes and day, so that the scatter between those is not in the number; else each run on its own. The interval
    over runs is Student's t with one degree of freedom fewer than runs, as `report` has it. Empty where one run is all that is known.
    """
    if not any(Source.RUN in one.levels and one.variance is not None for one in found):
        return []
    by_run = sum(one.variance or 0.0 for one in found if Source.RUN in one.levels)
    by_place = sum(one.variance or 0.0 for one in found if one.is_place)
    by_iteration = next((one.variance or 0.0 for one in found if Source.ITERATION in one.levels), 0.0)
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


def _of_iterations(runs: Sequence[RunMean]) -> Component:
    """Return the variance of one iteration, pooled over the runs by their degrees of freedom, with its chi-square interval."""
    weights = np.array([run.degrees for run in runs])
    variances = np.array([run.iterations * run.error**2 for run in runs])
    degrees, variance = float(weights.sum()), float(weights @ variances / weights.sum())
    # Wilson and Hilferty (1931): the cube root of a chi-square over its degrees is nearly normal.
    low, high = ((1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3 for z in (1.96, -1.96))
    return Component(
        levels=(Source.ITERATION,),
        num_members=sum(run.iterations for run in runs),
        variance=variance,
        low=variance / low,
        high=variance / high if high > 0 else math.inf,
    )


def _solved(
    runs: Sequence[RunMean],
    columns: dict[tuple[Source, ...], Floats],
    labels: dict[tuple[Source, ...], list[str | None]],
) -> Iterator[Component]:
    """Solve for all levels that can be estimated; each estimate is a quadratic form of the runs' values."""
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
        pairs = ((own, own), (own, rest), (rest, rest))
        squares = tuple(np.asarray(np.einsum("bi,ij,bj->b", a, form, b, optimize=True)) for a, b in pairs)
        low, _ = _interval(estimates[place] + explained[place], squares)
        # Runs that differ by less than their own errors explain would have no upper end: they are assumed to differ by just that.
        _, high = _interval(max(estimates[place], 0.0) + explained[place], squares)
        yield Component(
            levels=key, num_members=len(set(labels[key])), variance=max(estimates[place], 0.0), low=low, high=high
        )


def _effects(labels: Sequence[str | None], dice: np.random.Generator) -> Floats:
    """Return standard normal effects of a level, equal for runs with equal labels: [NUM_SIMULATED, runs]."""
    names, codes = np.unique([str(label) for label in labels], return_inverse=True)
    return np.asarray(dice.standard_normal((NUM_SIMULATED, len(names)))[:, codes])


def _interval(observed: float, squares: tuple[Floats, ...]) -> tuple[float, float]:
    """Return the variances under which 2.5 % of the simulated estimates are at least, and at most, what was observed."""
    own, mixed, rest = squares

    def share(scale: float, *, above: bool) -> float:
        simulated = scale**2 * own + 2 * scale * mixed + rest
        return float(np.mean(simulated >= observed if above else simulated <= observed))

    most = math.sqrt(max(abs(observed), float(np.abs(rest).max())) / max(float(np.median(own)), 1e-300))
    tail, ends = (1 - LEVEL) / 2, []
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


START_UP_S = 120.0  # seconds of a job before its first iteration, where none are given


@immutable
class Prices:
    """The price list of one plan."""

    of_one_day: bool  # whether all runs are of one day and on the same nodes; else each has its own
    heading: str  # of its columns
    meaning: str
    purchases: tuple[Purchase, ...]


@immutable
class Analysis:
    """One configuration."""

    rows: tuple[Row, ...]  # its runs that have a number with a standard error, in the order of time
    found: tuple[Component, ...]
    cost: Cost
    within: float  # the requested half width, as a share
    prices: tuple[Prices, ...]  # one list; two where the scatter between nodes or days could be estimated


def analyse(rows: Iterable[Row], *, within: float, start_up_s: float) -> list[Analysis]:
    """Return an analysis per configuration that has a number with a standard error; `rows` need all columns, in the order of time."""
    known = [row for row in rows if row.tokens_per_second_steady and row.standard_error and row.degrees]
    return [_analysis(group, within, start_up_s) for group in grouped(known, lambda row: row.identity)]


def _analysis(rows: Sequence[Row], within: float, start_up_s: float) -> Analysis:
    runs, warm_ups, seconds = [], [], []
    for row in rows:
        entry, rate = json.loads(row.entry), row.tokens_per_second_steady or 1.0
        nodes, window = (entry.get("machine") or {}).get("nodes"), entry.get("window") or {}
        first, last = window.get("first_iteration"), window.get("last_iteration")
        first, last = (first, last) if first is not None and last is not None and first <= last else (1, 1)
        # A log that goes on from a checkpoint begins later than with iteration 1.
        warm_ups.append(first - min([first, *(one["iterations"][0] for one in window.get("excluded", ()))]))
        seconds.append((entry.get("seconds_per_iteration") or {}).get("mean"))
        mean = RunMean(
            log_time=-math.log(rate),
            error=(row.standard_error or 0.0) * rate,
            degrees=row.degrees or 0.0,
            iterations=last - first + 1,
            nodes=" ".join(sorted(map(str, nodes))) if nodes else None,
            day=row.ended[:10],
        )
        runs.append(mean)
    known = [value for value in seconds if value]
    cost = Cost(
        start_up_s=start_up_s,
        warm_up_iterations=statistics.median(warm_ups),
        seconds_per_iteration=statistics.median(known) if known else None,
        num_gpus=rows[0].num_gpus,
    )
    found = components(runs)
    words = " and ".join(one.name for one in found if one.variance is not None and one.is_place)
    lists = [(True, "each", "runs like these")]
    if words:
        together = f"all runs of one {words}, of which alone the number then speaks"
        lists = [(True, f"same {words}", together), (False, f"own {words}", f"each run of its own {words}")]
    prices = (
        Prices(
            of_one_day=is_same,
            heading=heading,
            meaning=meaning,
            purchases=tuple(plan(found, within, cost, of_one_day=is_same)),
        )
        for is_same, heading, meaning in lists
    )
    return Analysis(rows=tuple(rows), found=found, cost=cost, within=within, prices=tuple(prices))


def as_text(analyses: Sequence[Analysis]) -> str:
    """Return the sources of scatter and the price list of each configuration."""
    return "\n".join(map(_text, analyses))


def _text(one: Analysis) -> str:
    first, last, cost = one.rows[0], one.rows[-1], one.cost
    head = f"{first.identity}: {last.what}; {len(one.rows)} runs, {first.ended[:10]} to {last.ended[:10]}\n\n"
    start = f"each run takes {cost.start_up_s:g} s before its first iteration (--start-up), {cost.warm_up_iterations:g} uncounted iterations"
    seconds = cost.seconds_per_iteration
    time = f"{seconds:.4g} s per iteration" if seconds else "per iteration a time that its log does not state"
    within = f"\n+-{100 * one.within:g} % at 95 %; {start} and {time}\n\n"
    lines = [within, *_prices(one)]
    if not any(part.purchases for part in one.prices):
        known = any(Source.RUN in component.levels and component.variance is not None for component in one.found)
        why = "runs differ by too much" if known else "what runs differ by is not known; add a second one"
        lines[1:] = [f"no number of runs up to {PLANNED_RUNS[-1]} is known to be enough: {why}\n"]
    return head + table([_line(component) for component in one.found]) + "".join(lines)


def _line(component: Component) -> dict[str, str]:
    def percent(variance: float) -> str:
        return "any" if math.isinf(variance) else percentage(math.sqrt(variance))

    known = component.variance is not None
    return {
        "differs by": component.name,
        "of": str(component.num_members),
        "standard deviation": percent(component.variance or 0.0) if known else "",
        "95 %": f"{percent(component.low)} to {percent(component.high)}" if known else "",
        "": component.why_unknown.value if component.why_unknown else "",
    }


def _prices(one: Analysis) -> Iterator[str]:
    unit, units = ("GPU h", "GPU hours") if one.cost.num_gpus else ("hours", "hours")
    lines = []
    for runs in sorted({purchase.runs for part in one.prices for purchase in part.purchases}):
        cells = {"runs": str(runs)}
        for part in one.prices:
            price = next((purchase for purchase in part.purchases if purchase.runs == runs), None)
            cells[f"iterations, {part.heading}"] = str(price.iterations) if price else "-"
            if one.cost.seconds_per_iteration:
                cells[f"{unit}, {part.heading}"] = f"{price.hours:.3g}" if price else "-"
        lines.append(cells)
    yield table(lines) + "\n"
    for part in one.prices:
        best = min(part.purchases, key=lambda purchase: purchase.hours or 0.0, default=None)
        answer = f"no number of runs up to {PLANNED_RUNS[-1]} is enough"
        if best and not one.cost.seconds_per_iteration:
            answer = "which of them is cheapest is not known, as no log states the time of an iteration"
        elif best:
            answer = f"{best.runs} runs of {best.iterations} iterations are cheapest, {best.hours:.3g} {units}"
        yield f"{part.meaning}: {answer}\n"


def as_json(analyses: Sequence[Analysis]) -> str:
    """Return the record of nlp-bench/variance/1; variances are squared shares of the mean time per token, null where not known."""
    return json_text({"schema": "nlp-bench/variance/1", "configurations": list(map(_object, analyses))})


def _object(one: Analysis) -> dict[str, Any]:
    return {
        "identity": one.rows[0].identity,
        "runs": [row.id for row in one.rows],
        "components": [
            {
                "levels": [level.value for level in component.levels],
                "num_members": component.num_members,
                "variance": component.variance,
                "low": component.low if component.variance is not None else None,
                "high": None if component.variance is None or math.isinf(component.high) else component.high,
                "why_unknown": component.why_unknown.name if component.why_unknown else None,
            }
            for component in one.found
        ],
        "within": one.within,
        "cost": vars(one.cost),
        "plans": [
            {"of_one_day": part.of_one_day, **vars(purchase)} for part in one.prices for purchase in part.purchases
        ],
    }
