"""The smallest number of nodes on which a model is predicted to train its tokens within a time, the global batch staying as it is."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nlp_bench.plan.answer.answer import Row, rows_of
from nlp_bench.plan.search.advice import has_layout
from nlp_bench.plan.search.problem import Fixed, Problem
from nlp_bench.plan.search.search import Search, search
from nlp_bench.plan.work.products import head_products, layer_core, layer_products

NEAR = 1.05
"""A number of nodes whose best usual setting misses the time by less is searched with every setting of the switches."""
MOST = 4
"""Without a number of nodes as limit: so many times the model's default."""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What was found for one time limit."""

    problem: Problem
    """The question; its nodes are the most that were tried."""
    limit_s: float
    """The time."""
    within: Row | None
    """The best configuration on the fewest nodes whose prediction is within the limit."""
    surely: Row | None
    """The same, with the upper end of the 90 % interval within the limit too."""
    fastest: Row | None
    """Where none is within: the fastest on any number of nodes; None where nothing fits."""
    usable: tuple[int, ...]
    """Numbers of nodes from `first` on that some layout divides with this batch."""
    fewest: int
    """Below, not even the peak of the data sheet would do."""
    first: int
    """The fewest nodes that were looked at: `fewest`, or where that is more than there are, half of what there is."""

    @property
    def margin(self) -> float | None:
        """Share of the limit that the prediction leaves."""
        return None if self.within is None else 1 - self.within.report_s / self.limit_s


def smallest(problem: Problem, limit_s: float) -> Nodes:
    """Look at each number of nodes, the fewest first, up to the problem's."""
    fewest = fewest_nodes(problem, limit_s)
    first = fewest if fewest <= problem.nodes else max(1, problem.nodes // 2)
    usable = tuple(n for n in range(first, problem.nodes + 1) if has_layout(problem, n))
    within, surely, fastest = None, None, None
    for row in _best(problem, limit_s, usable):
        if fastest is None or row.report_s < fastest.report_s:
            fastest = row
        if within is None and row.report_s <= limit_s:
            within = row
        if row.high_s <= limit_s:
            surely = row
            break
    return Nodes(
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
    """Return the nodes below which the data sheet's peak would not do the model's FLOPs in the time.

    FLOPs per token: three times the forward products, attention causal; see `nlp_bench.flops.model_flops_per_token`.
    """
    one = problem.configurations({**problem.published, "tp": 1, "pp": 1, "micro_batch_size": 1, "recompute": 0})
    sample = problem.network.num_layers * (layer_products(one) + layer_core(one) / 2) + head_products(one)
    flops = 3 * float(sample) / float(problem.network.sequence_length) * problem.tokens
    per_node = float(problem.machines.peak_flops) * problem.gpus_per_node
    return max(1, int(np.ceil(flops / (limit_s * per_node))))


def _best(problem: Problem, limit_s: float, usable: tuple[int, ...]) -> Iterator[Row]:
    """Yield the best fitting configuration of each number of nodes."""
    usual = replace(problem, fixed=_usual(problem.fixed))
    per_report = problem.tokens / problem.tokens_per_iteration
    for number in usable:
        found = search(usual, nodes=number)
        seconds = _fastest(found) * per_report
        if seconds > limit_s * NEAR:
            if np.isfinite(seconds):
                yield _row(found, problem)
            continue
        full = search(problem, nodes=number)
        if len(full.ranked):
            yield _row(full, problem)


def _usual(fixed: Fixed) -> Fixed:
    """Return what is fixed, and the switches that nearly always are part of the best."""
    usual = {name: True for name in ("sequence_parallel", "distributed_optimizer") if getattr(fixed, name) is None}
    return replace(fixed, **usual)  # type: ignore[arg-type]  # both are flags


def _fastest(found: Search) -> float:
    return float(found.figures.iteration_s[found.ranked[0]]) if len(found.ranked) else float("inf")


def _row(found: Search, problem: Problem) -> Row:
    return rows_of(found.space.legal.take(found.ranked[:1]), problem, ranks=range(1, 2))[0]
