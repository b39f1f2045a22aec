"""Answers as JSON objects and as rows of a CSV file."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from nlp_bench.plan.capacity import Recommendation, Size, TimeAnswer, nemo_days, parameters_of
from nlp_bench.plan.problem import AXES, Problem, Setting
from nlp_bench.plan.ranking import Answer, Row
from nlp_bench.plan.systems import Side
from nlp_bench.plan.why import Why

SCHEMA = "nlp-bench/plan-answer/1"
SIZES = tuple(one.name for one in fields(Setting) if one.name in {*AXES, "dp", "gas", "global_batch_size"})
PARTIAL_RECOMPUTE = ("recompute_method", "recompute_num_layers", "recompute_modules")
FIGURES = (
    "report_s", "low_s", "high_s", "iteration_s", "tokens_per_second", "memory_gib", "capacity_gib", "fits",
)  # fmt: skip
COLUMNS = ("rank", "published", "nodes", "num_gpus", *SIZES, *FIGURES, "limits")


def sizes_record(sizes: Setting) -> dict[str, Any]:
    """Return sizes and switches; null: a stage like the others, recompute of each layer alone and of no module besides."""
    found = {name: getattr(sizes, name) for name in SIZES}
    partial = {name: sizes.partial_recompute.get(name) for name in PARTIAL_RECOMPUTE}
    return found | {name: found[name] or None for name in ("first_layers", "last_layers")} | partial


def flat(row: Row) -> dict[str, Any]:
    """Return a row of the CSV file."""
    figures = {name: getattr(row, name) for name in FIGURES}
    place = {"rank": row.rank, "published": row.published, "nodes": row.nodes, "num_gpus": row.sizes.num_gpus}
    return {**place, **sizes_record(row.sizes), **figures, "limits": row.limits}


def row_record(row: Row | None) -> dict[str, Any] | None:
    """Return a row with the parts of its time (shares of 1) and memory (GiB)."""
    if row is None:
        return None
    found = flat(row)
    del found["limits"]
    return {**found, "time_shares": row.shares, "memory_parts_gib": row.memory_parts_gib}


def _problem_record(problem: Problem, kind: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": kind,
        "what": "predicted, not measured",
        "model": problem.model.name,
        "system": problem.system.name,
        "gpu": problem.system.gpu.name if problem.system.gpu else None,
        "nodes": problem.nodes,
        "gpus_per_node": problem.gpus_per_node,
        "num_gpus": problem.num_gpus,
        "global_batch_size": problem.global_batch_size,
        "sequence_length": problem.model.architecture.sequence_length,
        "precision": problem.precision,
        "tokens": problem.tokens,
        "fixed": problem.fixed.given,
        "deviations": list(problem.deviations),
        "doubts": list(problem.doubts),
    }


def plan_record(answer: Answer) -> dict[str, Any]:
    """Return the answer to: what is the best configuration."""
    found = answer.search
    return {
        **_problem_record(answer.problem, "plan"),
        "searched": {
            "layouts": found.space.num_layouts,
            "legal_layouts": found.space.num_legal_layouts,
            "illegal_layouts_by_rule": found.space.illegal,
            "legal_configurations": len(found.figures.fits),
            "fitting": found.num_fitting,
            "tight": found.num_tight,
            "ranked_layouts": len(found.ranked),
        },
        "configurations": [row_record(row) for row in answer.rows],
        "published": row_record(answer.published),
        "published_broken_rules": dict(answer.published_broken),
        "tight_and_faster": [row_record(row) for row in answer.tight],
        "least_memory": row_record(answer.smallest),
        "assumptions": list(answer.notes),
        "measured_by_others": list(answer.measured),
        "rehearsed": list(answer.rehearsed),
        "extrapolated": list(answer.extrapolated),
    }


SYSTEM_COLUMNS = ("system", "gpu", *COLUMNS, "reason")
EQUAL = ("schema", "kind", "what", "model", "global_batch_size", "sequence_length", "precision", "tokens", "fixed")
"""What several systems have in common; null where none of them can be planned."""


def system_row(side: Side) -> dict[str, Any]:
    """Return a row of the CSV file of several systems; without a configuration it has the reason."""
    problem, gpu = side.problem, side.system.gpu
    size = {"nodes": problem.nodes, "num_gpus": problem.num_gpus} if problem else {}
    best = flat(side.best) if side.best else {}
    return {"system": side.system.name, "gpu": gpu.name if gpu else None, **size, **best, "reason": side.reason}


def systems_record(sides: Sequence[Side]) -> dict[str, Any]:
    """Return the answer to: what is the best configuration on each of several systems, for equal work."""
    records = [_problem_record(side.problem, "systems") if side.problem else {} for side in sides]
    equal = next(filter(None, records), {"schema": SCHEMA, "kind": "systems", "what": "predicted, not measured"})
    return {
        **{name: equal.get(name) for name in EQUAL},
        "systems": [
            {
                **{name: system_row(side).get(name) for name in ("system", "gpu", "nodes", "num_gpus")},
                "gpus_per_node": side.problem.gpus_per_node if side.problem else None,
                "configuration": row_record(side.best),
                "limits": side.best.limits if side.best else None,
                "reason": side.reason,
                **{name: record.get(name, []) for name in ("deviations", "doubts")},
                "extrapolated": list(side.answer.extrapolated) if side.answer else [],
            }
            for side, record in zip(sides, records, strict=True)
        ],
    }


def why_record(why: Why) -> dict[str, Any]:
    """Return the explanation of one configuration."""
    return {
        **_problem_record(why.problem, "why"),
        "sizes": sizes_record(why.sizes),
        "legal": not why.broken,
        "broken_rules": dict(why.broken),
        "rank": why.rank,
        "ranked_layouts": why.num_ranked,
        "configuration": row_record(why.row),
        "best": row_record(why.best),
        "costs_s": why.costs,
        "changes": [{"change": change.text, "configuration": row_record(change.row)} for change in why.changes],
    }


def nodes_record(found: TimeAnswer) -> dict[str, Any]:
    """Return the answer to: how many nodes within this time."""
    return {
        **_problem_record(found.problem, "time"),
        "limit_s": found.limit_s,
        "within": row_record(found.within),
        "margin": found.margin,
        "upper_end_within": row_record(found.surely),
        "fastest": row_record(found.fastest),
        "usable_nodes": list(found.usable),
    }


def size_record(found: Recommendation) -> dict[str, Any]:
    """Return the answer to: how large a model in these days."""
    return {
        **_problem_record(found.problem, "size"),
        "model": None,
        "global_batch_size": None,
        "deviations": [],
        "days": found.days,
        "recommended": _size(found.chosen, found.problem) if found.chosen else None,
        "looked_at": [_size(size, found.problem) for size in found.looked_at],
        "nemo_parameters": found.nemo_parameters,
    }


def _size(size: Size, problem: Problem) -> dict[str, Any]:
    shape = size.model.architecture
    return {
        "name": size.model.name,
        "published_shape": size.published,
        "parameters": parameters_of(size.model),
        "num_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "num_attention_heads": shape.num_attention_heads,
        "days": size.days,
        "nemo_days": nemo_days(parameters_of(size.model), problem.tokens, problem.num_gpus),
        "configuration": row_record(size.row),
    }
