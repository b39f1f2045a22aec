"""The best layouts, the published one among them, and what was searched."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Codes, Configurations
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.neighbours import Point, extrapolated, known_points, measured_by_others, offered
from nlp_bench.plan.problem import AXES, Problem, Setting, sizes_of
from nlp_bench.plan.search import Search, broken_rules, refuse, search

GIB = 2**30
PRODUCTIVE = ("matrix products", "attention")  # parts of the time that no layout saves
_SAME_PEAK = 0.1  # data sheets of one product differ by less


@immutable
class Predicted:
    """What is predicted of one configuration. Nothing in it is measured."""

    report_s: float  # seconds of a training on the question's tokens
    low_s: float
    high_s: float
    iteration_s: float
    tokens_per_second: float
    shares: dict[str, float]  # what the time is spent on, greatest first; the shares add up to 1
    memory_gib: float  # peak of the fullest GPU
    capacity_gib: float
    memory_parts_gib: dict[str, float]  # what the memory is spent on, greatest first
    fits: str  # yes, tight or no

    @property
    def limits(self) -> str:
        """What costs the most besides the work itself: the three greatest parts, from 1 % of the time on."""
        others = [
            f"{name} {100 * share:.0f} %"
            for name, share in self.shares.items()
            if name not in PRODUCTIVE and share >= 0.01
        ]
        return ", ".join(others[:3])

    @property
    def memory(self) -> str:
        """The memory, of the GPU's."""
        return f"{self.memory_gib:.1f} of {self.capacity_gib:g} GiB"


@immutable
class Row(Predicted):
    """A configuration of a problem and what is predicted of it."""

    sizes: Setting
    nodes: int
    rank: int | None = None  # rank among the layouts that fit, from 1; None: it is not one of them
    published: bool = False  # whether it is the configuration that the model file proposes


@immutable
class Answer:
    """The planner's answer to one problem."""

    problem: Problem
    search: Search
    rows: tuple[Row, ...]  # the best layouts that fit, fastest first
    published: Row | None  # the configuration of the model file; None where it is not legal here
    published_broken: tuple[tuple[str, str], ...] = ()  # the rules that it breaks here, with their arithmetic
    tight: tuple[Row, ...] = ()  # layouts that may fit and would be faster than the best that does
    smallest: Row | None = None  # where none fits: the one that needs the least memory
    notes: tuple[str, ...] = ()  # assumptions of the prediction
    measured: tuple[str, ...] = ()  # published measurements of the model file's own configuration, with its prediction
    rehearsed: tuple[str, ...] = ()  # findings of rehearsals of the best, where they were requested
    extrapolated: tuple[str, ...] = ()  # where the best one lies outside the published measurements

    @property
    def shown(self) -> list[Row]:
        """The best, and the published one where it is none of them."""
        apart = self.published is not None and not any(row.published for row in self.rows)
        return [*self.rows, *([self.published] if apart and self.published else [])]


def answer(problem: Problem, *, top: int) -> Answer:
    """Search and keep the `top` best."""
    found = search_with_published(problem)
    legal, memory = found.space.legal, found.figures.memory_bytes
    published, broken = published_row(problem, found)
    least = [int(np.argmin(memory))] if len(memory) and not len(found.ranked) else []
    return Answer(
        problem=problem,
        search=found,
        rows=tuple(rows_of(legal, problem, found.ranked[:top], is_ranked=True)),
        published=published,
        published_broken=tuple(broken),
        tight=tuple(rows_of(legal, problem, found.tight_and_faster(3))),
        smallest=next(iter(rows_of(legal, problem, least)), None),
        notes=tuple(notes(problem)),
    )


def search_with_published(problem: Problem) -> Search:
    """Search, and keep the model file's own configuration among the ranked where it fits."""
    return with_one(search(problem), configuration(problem, problem.published))


def with_one(found: Search, one: Configurations) -> Search:
    """Return the same search, in which one configuration is ranked where it fits, whatever its twins."""
    if not len(found.figures.fits):
        return found
    wanted, legal = one.spread, found.space.legal.spread
    same = [getattr(legal, name) == getattr(wanted, name)[0] for name in (axis.array for axis in AXES.values())]
    return found.with_kept(np.broadcast_to(np.all(np.broadcast_arrays(*same), axis=0), found.figures.fits.shape))


def published_row(problem: Problem, found: Search) -> tuple[Row | None, list[tuple[str, str]]]:
    """Return the model file's own configuration with its rank, or the rules that it breaks on these nodes."""
    one = configuration(problem, problem.published)
    if broken := broken_rules(one):
        return None, broken
    (row,) = rows_of(one, problem)
    rank = found.rank(row.iteration_s) if row.fits == "yes" else None
    return replace(row, rank=rank, published=True), []


def configuration(problem: Problem, columns: dict[str, Any]) -> Configurations:
    """Return one configuration (N = 1) by its sizes and switches, recompute as words."""
    numbers = {name: AXES[name].code(value) for name, value in columns.items()}
    return problem.configurations({name: np.asarray([value]) for name, value in numbers.items()})


def rows_of(
    c: Configurations, problem: Problem, places: Sequence[int] | Codes | None = None, *, is_ranked: bool = False
) -> list[Row]:
    """Forecast a few configurations, those at `places` or all, with all their parts; `is_ranked`: they are the best in their order."""
    if places is not None:
        if not len(places):
            return []
        c = c.take(np.asarray(places))
    rows, proposed = [], problem.published
    figures = predicted(c, problem.constants, problem.tokens, problem.tokens_per_iteration)
    for place, found in enumerate(figures):
        sizes = sizes_of(c, place)
        nodes, rank = sizes.num_gpus // problem.gpus_per_node, place + 1 if is_ranked else None
        published = all(getattr(sizes, name) == value for name, value in proposed.items())
        rows.append(Row(sizes=sizes, nodes=nodes, rank=rank, published=published, **found))
    return rows


def predicted(c: Configurations, constants: Constants, tokens: int, per_iteration: float) -> Iterator[dict[str, Any]]:
    """Yield what is predicted of each configuration for a training on `tokens`, by the fields of Predicted."""
    found, count = forecast(c, constants), len(c)
    seconds, memory, per_report = found.seconds.total, found.memory, tokens / per_iteration
    figures = {
        "report_s": seconds * per_report,
        "low_s": found.low * per_report,
        "high_s": found.high * per_report,
        "iteration_s": seconds,
        "tokens_per_second": per_iteration / seconds,
        "memory_gib": memory.total / GIB,
        "capacity_gib": memory.capacity / GIB,
        "fits": memory.words,
    }

    def row(arrays: dict[str, Any], place: int) -> dict[str, Any]:
        return {name: np.broadcast_to(values, (count,))[place].item() for name, values in arrays.items()}

    for place in range(count):
        one = row(figures, place)
        shares = {name: part / one["iteration_s"] for name, part in row(found.seconds.parts, place).items()}
        memory_parts = {name: part / GIB for name, part in row(memory.parts, place).items()}
        yield one | {"shares": _sorted(shares), "memory_parts_gib": _sorted(memory_parts)}


def _sorted(parts: dict[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def rates(problem: Problem) -> str:
    """Return the rates of one GPU that the prediction starts from, and where the system file contradicts them."""
    machine, gpu = problem.machines, problem.system.gpu
    assert gpu is not None  # noqa: S101  # a problem has one
    said = (
        f"a GPU's {float(machine.peak_flops) / 1e12:.4g} TFLOP/s, memory of {float(machine.memory_bytes_per_s) / 1e9:.4g} GB/s and "
        f"{float(machine.link_bytes_per_s) / 1e9:.4g} GB/s to its neighbours"
    )
    half = float(machine.half_flops) / 1e12
    if problem.precision == "fp32" or abs(gpu.peak_bf16_tflops / half - 1) < _SAME_PEAK:
        return said
    return f"{said} (the system file's bf16 peak of {gpu.peak_bf16_tflops:g} TFLOP/s is not used, {half:.4g} is: check [gpu] name)"


def notes(problem: Problem) -> list[str]:
    """Return the assumptions of the prediction."""
    gpu, network, shape = problem.system.gpu, problem.system.network, problem.model.architecture
    assert gpu is not None  # noqa: S101  # a problem has one
    batch = f"{problem.batch} x {shape.sequence_length} tokens at every layout and on every machine"
    machine = (
        f"{problem.precision} on {gpu.name}, {gpu.memory_gib:g} GiB; {problem.gpus_per_node} GPUs and {network.links_per_node} links of "
        f"{network.link_gbit_per_s or 0:g} Gbit/s per node; {rates(problem)}"
    )
    found = [batch, machine, "a steady state without checkpoints, stalls of the file system and slow nodes"]
    if problem.frozen_recompute and len(problem.recompute) == 1:
        own, word = problem.model.training.recompute, problem.recompute[0]
        frozen = "which the benchmark's rules freeze (--recompute any searches the others)"
        found.append(
            f"recompute {word}, {frozen if word == own else f'though the rules freeze {own}: no run of the benchmark'}"
        )
    return found


def ranking(problem: Problem, *, top: int) -> Answer:
    """Return the `top` best configurations with published measurements near them; raises UsageError, with what would work, for none."""
    found = answer(problem, top=top)
    if not len(found.search.figures.fits):
        raise refuse(problem)
    points, row = known_points(), found.published
    measured = () if row is None or points is None else measured_by_others(problem, row.sizes, row.report_s, points)
    return replace(found, measured=measured, extrapolated=beyond_published(found, points))


def beyond_published(answer: Answer, points: Sequence[Point] | None) -> tuple[str, ...]:
    """Return a sentence per thing in which the best configuration lies outside the published `points`.

    Empty where nothing fits, where the machine itself was measured (`plan calibrate`), or where there are no published points.
    """
    problem = answer.problem
    if not answer.rows or problem.constants.machine is not None:
        return ()
    other = (f"number format: {problem.other_format}",) if problem.other_format else ()
    return other if points is None else (*other, *extrapolated(offered(problem, answer.rows[0].sizes), points))
