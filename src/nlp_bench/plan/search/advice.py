"""What would work, where nothing does: batches and numbers of nodes near those asked for."""

from dataclasses import replace

import numpy as np

from nlp_bench.errors import UsageError
from nlp_bench.plan.search.legal import RULES
from nlp_bench.plan.search.problem import Problem
from nlp_bench.plan.search.space import layouts_of, plain

REACH = 64
"""Numbers of nodes on each side that are tried."""
OF_BATCH = ("global batch", "micro-batch groups")


def refuse(problem: Problem) -> UsageError:
    """Return the refusal of a problem that no configuration solves: what is in the way, and what would work instead."""
    model, nodes = problem.model.name, problem.nodes
    where = f"{nodes} nodes x {problem.gpus_per_node} = {problem.num_gpus} GPUs"
    said = f"plan: no legal configuration of {model} on {where} with global batch {problem.global_batch_size}"
    given = problem.fixed.given
    if given:
        said += " and " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())
    return UsageError(f"{said}: {'; '.join([*_reasons(problem), *_remedies(problem)])}")


def _reasons(problem: Problem) -> list[str]:
    fixed = problem.fixed
    product = (fixed.tp or 1) * (fixed.pp or 1) * (fixed.cp or 1)
    if problem.num_gpus % product:
        words = "*".join(name for name in ("tp", "pp", "cp") if getattr(fixed, name))
        return [f"the number of GPUs = {problem.num_gpus} is not a multiple of {words} = {product}"]
    if fixed.micro_batch_size and problem.global_batch_size % fixed.micro_batch_size:
        return [f"the batch is not a multiple of the micro batch size {fixed.micro_batch_size}"]
    layouts = layouts_of(problem, problem.nodes)
    if not len(layouts["tp"]):
        gas = problem.fixed.gas
        return [f"no layout makes it as dp*micro_batch_size*{gas}" if gas else "no layout has these sizes together"]
    c = plain(problem, layouts, problem.nodes)
    broken = {rule.name: np.broadcast_to(rule.broken(c), (len(c),)) for rule in RULES}
    always = [name for name, where in broken.items() if where.all()]
    if always:
        return [f"every layout breaks the rule: {', '.join(always)}"]
    counts = {name: int(where.sum()) for name, where in broken.items() if where.any()}
    most = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return [
        f"each of {len(c)} layouts breaks a rule, most often " + ", ".join(f"{name} ({count})" for name, count in most)
    ]


def _remedies(problem: Problem) -> list[str]:
    found = []
    if batches := batches_nearby(problem):
        found.append(f"global batches that work on these nodes: {', '.join(map(str, batches))}")
    if nodes := nodes_nearby(problem):
        found.append(f"nodes that work with this batch: {', '.join(map(str, nodes))}")
    if problem.fixed.given:
        found.append("or leave a fixed size free")
    return found


def batches_nearby(problem: Problem) -> list[int]:
    """Return the nearest smaller and greater global batch that some layout divides on the problem's nodes."""
    free = replace(problem, global_batch_size=1, fixed=replace(problem.fixed, micro_batch_size=1, gas=None))
    layouts = layouts_of(free, problem.nodes)
    if not len(layouts["tp"]):
        return []
    c = plain(free, layouts, problem.nodes)
    legal = ~np.any([np.broadcast_to(r.broken(c), (len(c),)) for r in RULES if r.name not in OF_BATCH], axis=0)
    interleaved = np.where(c.spread.virtual > 1, c.spread.pipeline, 1)
    each = (c.spread.data * interleaved)[legal] * (problem.fixed.micro_batch_size or 1)
    if problem.fixed.gas is not None or not len(each):
        return sorted({int(value) * (problem.fixed.gas or 1) for value in each})[:2]
    below, above = np.floor(problem.global_batch_size / each) * each, np.ceil(problem.global_batch_size / each) * each
    return sorted({int(value) for value in (below.max(), above.min()) if value > 0})


def nodes_nearby(problem: Problem) -> list[int]:
    """Return the nearest smaller and greater number of nodes that has a legal layout, as far as REACH."""
    ranges = (
        range(problem.nodes - 1, max(0, problem.nodes - REACH), -1),
        range(problem.nodes + 1, problem.nodes + REACH),
    )
    found = [next((n for n in near if has_layout(problem, n)), None) for near in ranges]
    return [n for n in found if n is not None]


def has_layout(problem: Problem, nodes: int) -> bool:
    """Whether any layout is legal on this number of nodes; what interleaving or a larger micro batch divides, none and 1 do too."""
    fixed = problem.fixed
    micro = fixed.micro_batch_size or (1 if fixed.gas is None else None)
    problem = replace(problem, fixed=replace(fixed, vpp=fixed.vpp or 1, micro_batch_size=micro))
    layouts = layouts_of(problem, nodes)
    if not len(layouts["tp"]):
        return False
    c = plain(problem, layouts, nodes)
    return not np.any([np.broadcast_to(rule.broken(c), (len(c),)) for rule in RULES], axis=0).all()
