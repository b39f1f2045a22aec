"""The fewest nodes for a time, and the largest model for a number of days."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nlp_bench.config import catalog
from nlp_bench.config.model import Architecture, Model, num_parameters
from nlp_bench.immutable import immutable
from nlp_bench.plan.problem import Problem, recompute_of
from nlp_bench.plan.ranking import Row, rows_of
from nlp_bench.plan.search import has_layout, search
from nlp_bench.plan.work import least_seconds

NEAR = 1.05  # where the usual switches come within this factor of the limit, all settings of the switches are searched
MOST = 4  # nodes that are tried without a limit on them, as a multiple of the model's default


@immutable
class TimeAnswer:
    """What was found for one time limit."""

    problem: Problem  # the problem; its nodes are the most that were tried
    limit_s: float
    within: Row | None  # the best configuration on the fewest nodes whose prediction is within the limit
    surely: Row | None  # the same, with the upper end of the 90 % interval within the limit too
    fastest: Row | None  # where none is within: the fastest on any number of nodes; None where nothing fits
    usable: tuple[int, ...]  # numbers of nodes from `first` on that some layout divides with this batch
    fewest: int  # with fewer even the data sheet's peak would miss the limit
    first: int  # the fewest nodes that were tried: `fewest`, or half of the problem's nodes where it has fewer

    @property
    def margin(self) -> float | None:
        """Share of the limit that the prediction leaves."""
        return None if self.within is None else 1 - self.within.report_s / self.limit_s


def smallest(problem: Problem, limit_s: float) -> TimeAnswer:
    """Try each number of nodes, the fewest first, up to the problem's."""
    fewest = fewest_nodes(problem, limit_s)
    first = fewest if fewest <= problem.nodes else max(1, problem.nodes // 2)
    usable = tuple(n for n in range(first, problem.nodes + 1) if has_layout(replace(problem, nodes=n)))
    within, surely, fastest = None, None, None
    for row in _best(problem, limit_s, usable):
        if fastest is None or row.report_s < fastest.report_s:
            fastest = row
        if within is None and row.report_s <= limit_s:
            within = row
        if row.high_s <= limit_s:
            surely = row
            break
    return TimeAnswer(
        problem=problem,
        limit_s=limit_s,
        within=within,
        surely=surely,
        fastest=None if within else fastest,
        usable=usable,
        fewest=fewest,
        first=first,
    )


def fewest_nodes(problem: Problem, limit_s: float) -> int:
    """Return the fewest nodes that do the model's FLOPs in the time at the data sheet's peak."""
    alone = {**problem.published, "tp": 1, "pp": 1, "micro_batch_size": 1, **recompute_of("none")}
    one = replace(problem, nodes=1).configurations(alone)
    of_one_node_s = float(least_seconds(one)) * problem.tokens / problem.tokens_per_iteration
    return max(1, int(np.ceil(of_one_node_s / limit_s)))


def _best(problem: Problem, limit_s: float, usable: tuple[int, ...]) -> Iterator[Row]:
    """Yield the best fitting configuration of each number of nodes."""
    # these switches are nearly always part of the best configuration
    free = [name for name in ("sequence_parallel", "distributed_optimizer") if getattr(problem.fixed, name) is None]
    usual = replace(problem, fixed=replace(problem.fixed, **dict.fromkeys(free, True)))  # type: ignore[arg-type]  # flags
    per_report = problem.tokens / problem.tokens_per_iteration
    for number in usable:
        found = search(replace(usual, nodes=number))
        seconds = float(found.figures.iteration_s[found.ranked[0]]) * per_report if len(found.ranked) else np.inf
        if seconds <= limit_s * NEAR:
            found = search(replace(problem, nodes=number))
        yield from rows_of(found.space.legal, problem, found.ranked[:1], is_ranked=True)


DAY_S = 86400
NEMO_FLOPS = 140e12  # FLOP/s of one GPU that NeMo assumes (`tflops_per_gpu: 140` in the guide's section 5.3.2.2.1)
SHAPES = ("gpt_126m", "gpt_1_3b", "gpt_2_7b", "gpt_5b", "gpt_20b", "gpt_40b", "175")
"""Published shapes; between two of them widths are interpolated."""
HEAD = 128  # width of a head of the shapes between (64 below a hidden size of 2048), as most published ones have


@immutable
class Size:
    """One size and its prediction."""

    model: Model
    published: bool  # whether it is a file of benchmark/models; else interpolated between two
    row: Row | None  # its best layout; None where none fits

    @property
    def days(self) -> float | None:
        """Days of the training."""
        return None if self.row is None else self.row.report_s / DAY_S


@immutable
class Recommendation:
    """The largest size within the days, and its neighbours."""

    days: float
    problem: Problem  # the problem of the size that was tried last: machine, nodes and tokens are the same for all
    chosen: Size | None  # the largest that is predicted to finish; None where not even the smallest does
    looked_at: tuple[Size, ...]  # all sizes that were predicted, smallest first

    @property
    def nemo_parameters(self) -> float:
        """Parameters that NeMo's formula allows: days = 8 P T / (GPUs x 140e12 x 86400), solved for P."""
        return self.days * DAY_S * self.problem.num_gpus * NEMO_FLOPS / (8 * self.problem.tokens)


def nemo_days(parameters: float, tokens: float, num_gpus: int) -> float:
    """Return NeMo's estimate of the days: 8 FLOPs per parameter and token (full recompute) at 140 TFLOP/s per GPU."""
    return 8 * parameters * tokens / (num_gpus * NEMO_FLOPS * DAY_S)


def recommend(days: float, make: Callable[[Model], Problem]) -> Recommendation:
    """Bisect the list of sizes for the largest that finishes in `days`; `make` returns the problem of one size."""
    sizes = candidates()
    seen: dict[int, Size] = {}
    low, high = -1, len(sizes)  # sizes[low] finishes, sizes[high] does not
    problem = make(sizes[0][0])
    while high - low > 1:
        middle = (low + high) // 2
        model, published = sizes[middle]
        problem = make(model)
        found = search(problem)
        best = next(iter(rows_of(found.space.legal, problem, found.ranked[:1])), None)
        seen[middle] = Size(model=problem.model, published=published, row=best)
        taken = seen[middle].days
        low, high = (middle, high) if taken is not None and taken <= days else (low, middle)
    return Recommendation(
        days=days, problem=problem, chosen=seen.get(low), looked_at=tuple(seen[place] for place in sorted(seen))
    )


def candidates() -> list[tuple[Model, bool]]:
    """Return the sizes, smallest first, each with whether it is published."""
    files = [catalog.load_model(name) for name in SHAPES]
    found = [(model, True) for model in files]
    for below, above in itertools.pairwise(files):
        step = 512 if above.architecture.hidden_size <= 6144 else 1024
        start = below.architecture.hidden_size // step * step + step
        widths = range(start, above.architecture.hidden_size, step)
        found += [(between(below, above, width), False) for width in widths]
    return sorted(found, key=lambda pair: parameters_of(pair[0]))


def parameters_of(model: Model) -> int:
    """Return the number of its parameters."""
    return num_parameters(model.family, model.architecture)


def between(below: Model, above: Model, hidden: int) -> Model:
    """Return a model of this width, its layers interpolated along the logarithm of the width and rounded to a multiple of 4."""
    low, high = below.architecture, above.architecture
    share = math.log(hidden / low.hidden_size) / math.log(high.hidden_size / low.hidden_size)
    layers = max(4, round((low.num_layers + share * (high.num_layers - low.num_layers)) / 4) * 4)
    shape: Architecture = replace(
        low,
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=4 * hidden,
        num_attention_heads=hidden // (HEAD if hidden >= 2048 else 64),
    )
    billion = float(f"{num_parameters(below.family, shape) / 1e9:.3g}")
    return replace(below, name=f"gpt_{billion:g}b", parameters_billion=billion, architecture=shape)


def batch_for(default: int, num_gpus: int) -> int:
    """Return the multiple of the GPUs that is nearest to a model's default batch, at least one sample per GPU."""
    return max(1, round(default / num_gpus)) * num_gpus
