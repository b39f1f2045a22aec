"""The configurations of a plan in one picture: predicted steady time against predicted memory, with the GPU's limit."""

import numpy as np

from nlp_bench.plan.configurations import Codes, Numbers
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import Problem
from nlp_bench.plan.ranking import GIB, PRODUCTIVE, Answer, Row
from nlp_bench.plan.search import Search
from nlp_bench.show.chart import EXCLUDED, LIMIT, Band, Chart, Rule, Series, Shape

MAX_TIMES, MAX_FILL = 4.0, 1.5  # of the shortest time and the GPU's memory; above, a configuration is not drawn
MAX_CAUSES = 4  # causes with a colour of their own
GRID = 80  # cells along each axis; of the dots in one cell the first is drawn
OTHER, BEST = 5, 4  # colours


def plan_chart(answer: Answer) -> Chart:
    """Return the plot of every legal configuration (`ranking` refuses a problem without one), the best and the published one marked."""
    problem, found = answer.problem, answer.search
    figures, number = found.figures, len(found.figures.iteration_s)
    factor = problem.tokens / problem.tokens_per_iteration
    memory, times = figures.memory_bytes / GIB, figures.iteration_s * factor
    capacity = float(np.max(problem.machines.memory_bytes)) / GIB
    shortest = float(times[figures.fits].min() if found.num_fitting else times.min())
    candidates = np.flatnonzero((times <= MAX_TIMES * shortest) & (memory <= MAX_FILL * capacity))
    cells = np.stack([_cells(values[candidates]) for values in (memory, times)])
    chosen = candidates[np.sort(np.unique(cells, axis=1, return_index=True)[1])]
    limit = forecast(found.space.legal.take(np.arange(1)), problem.constants).memory
    tight = [capacity * float(np.max(share)) for share in (limit.fits_below, limit.fails_above)]
    marked = [_mark(answer.published, "published", EXCLUDED, "square")] if answer.published else []
    marked += [_mark(answer.rows[0], "best that fits", BEST, "diamond")] if answer.rows else []
    subject = f"{problem.model.name} on {problem.nodes} nodes of {problem.system.name}"
    return Chart(
        key="plan",
        title=f"Plan: {subject}",
        description=f"{number:,} legal configurations of model {subject}, {found.num_fitting:,} of which are predicted to fit "
        f"{capacity:g} GiB per GPU; the shortest predicted steady time of those is {shortest:.0f} s.",
        x_label="predicted memory of the fullest GPU, GiB",
        y_label="predicted steady time, s",
        series=[*_dots(problem, found, chosen, memory, times), *marked],
        bands=[Band(name="tight: may or may not fit", low=tight[0], high=tight[1])],
        rules=[Rule(name=f"memory of the GPU, {capacity:g} GiB", value=capacity, axis="x", colour=LIMIT)],
        note=f"All numbers are predicted, none is measured. {number:,} legal configurations; drawn within {MAX_TIMES:g} times the "
        f"shortest time and {MAX_FILL:g} times the memory, where dots coincide one of them. Bars: 90 % interval.",
    )


def _cells(values: Numbers) -> Codes:
    width = float(np.ptp(values)) or 1.0
    return np.asarray((values - values.min()) / width * GRID, dtype=np.int64)


def _dots(problem: Problem, found: Search, chosen: Codes, memory: Numbers, times: Numbers) -> list[Series]:
    """Return the dots by what costs them most, the most frequent cause first."""
    parts = forecast(found.space.legal.take(chosen), problem.constants).seconds.parts  # the search keeps none
    others = {name: np.broadcast_to(part, len(chosen)) for name, part in parts.items() if name not in PRODUCTIVE}
    reasons = np.asarray(list(others))[np.stack(list(others.values())).argmax(axis=0)]
    names, counts = np.unique(reasons, return_counts=True)
    common = [str(name) for name in names[np.argsort(-counts, kind="stable")]]
    groups: list[tuple[tuple[str, ...], str, int]] = [
        ((name,), f"costs most: {name}", colour) for colour, name in enumerate(common[:MAX_CAUSES])
    ]
    rest = tuple(common[MAX_CAUSES:])
    groups += [(rest, "costs most: something else", OTHER)] if rest else []
    return [
        Series(name=name, xs=memory[own].tolist(), ys=times[own].tolist(), style="points", colour=colour)
        for members, name, colour in groups
        for own in [chosen[np.isin(reasons, members)]]
    ]


def _mark(row: Row, name: str, colour: int, shape: Shape) -> Series:
    return Series(
        name=f"{name}: {row.report_s:.0f} s, {row.memory_gib:.1f} GiB",
        xs=[row.memory_gib],
        ys=[row.report_s],
        errors=[(row.low_s, row.high_s)],
        style="points",
        shape=shape,
        colour=colour,
    )
