"""What the planner and a rehearsal say of one rank of a job."""

import hashlib
import math
import os
import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.counted import operations, traffic
from support.framework_runs import run
from support.jobs import Case

import nlp_bench
from nlp_bench.layout.rules import MODULES
from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.memory.trainer import rank_memory
from nlp_bench.plan.work import rank_parameters, stage_of
from nlp_bench.rehearse.ranks import Work, rehearse_ranks
from nlp_bench.rehearse.report import RankReport


def side_by_side(cases: list[Case]) -> Configurations:
    """Return the cases as the planner sees them: N configurations."""
    rows = [numbers_of(case) for case in cases]
    return run("nlp-bench", **{name: [row[name] for row in rows] for name in rows[0]})


def numbers_of(case: Case) -> dict[str, Any]:
    s, layout = case.settings, case.layout
    same = ("num_layers", "hidden_size", "num_attention_heads", "head_width", "micro_batch_size", "overlap_grad_reduce", "overlap_param_gather")  # fmt: skip
    return dict(
        precision="bf16" if s.bf16 else "fp16" if s.fp16 else "fp32",
        **{name: getattr(s, name) for name in same},
        ffn_hidden_size=s.ffn_width,
        num_query_groups=s.query_groups,
        vocab_size=layout.vocab_size,
        vocab_multiple=s.make_vocab_size_divisible_by,
        sequence_length=s.seq_length,
        num_learned_positions=0 if s.rotated_width else s.max_position_embeddings,
        gated=s.gated,
        untied_embeddings=s.untie_embeddings_and_output_weights,
        linear_biases=not s.disable_bias_linear,
        norm_biases=s.normalization == "LayerNorm",
        dropout=s.hidden_dropout > 0,
        num_gpus=case.world_size,
        tensor=s.tensor_model_parallel_size,
        pipeline=s.pipeline_model_parallel_size,
        virtual=layout.virtual_stages,
        context=s.context_parallel_size,
        data=layout.data_parallel_size,
        global_batch_size=layout.global_batch_size,
        first_layers=s.decoder_first_pipeline_num_layers or 0,
        last_layers=s.decoder_last_pipeline_num_layers or 0,
        shard_group=layout.data_parallel_size * s.context_parallel_size if s.use_distributed_optimizer else 1,
        sequence_parallel=layout.sequence_parallel,
        recompute=s.granularity or "none",
        recompute_method=s.recompute_method or "uniform",
        recompute_num_layers=s.recompute_num_layers or 1,
        recompute_modules=tuple(name for name in MODULES[-1] if name in s.recompute_modules),
        sharding="optimizer" if s.use_distributed_optimizer else "none",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    parameters: int
    flops: int
    collectives: dict[str, tuple[int, int]]
    """Bytes and calls of one iteration by kind and group, of groups of more than one rank."""
    peak_bytes: float
    split: dict[str, float]


def planned(case: Case) -> Counts:
    c = side_by_side([case])
    stage = stage_of(c, np.asarray([float(case.stage)]))
    sent = traffic(c, stage)
    memory = rank_memory(c, stage)
    return Counts(
        parameters=whole(rank_parameters(c, stage)),
        flops=whole(operations(c, stage)),
        collectives={
            f"{kind} {group}": (whole(num_bytes), whole(calls))
            for (kind, group), (num_bytes, calls) in sent.items()
            if whole(calls)
        },
        peak_bytes=float(np.ravel(sum(memory.values()))[0]),
        split={name: float(np.ravel(part)[0]) for name, part in memory.items()},
    )


def whole(number: Any) -> int:
    """Return the only entry, which must be a whole number."""
    value = float(np.ravel(number)[0])
    assert value == int(value)
    return int(value)


def rehearsed(report: RankReport) -> Counts:
    calls: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in report.collectives:
        if one.group_size > 1:
            both = calls[f"{one.kind} {one.group}"]
            both[0] += one.num_bytes * one.count
            both[1] += one.count
    return Counts(
        parameters=report.parameters,
        flops=sum(report.flops.values()),
        collectives={name: (both[0], both[1]) for name, both in calls.items()},
        peak_bytes=report.peak_bytes,
        split=dict(report.peak_split),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    case: Case
    planned: Counts
    rehearsed: Counts

    @property
    def memory_error(self) -> float:
        return self.planned.peak_bytes / self.rehearsed.peak_bytes - 1

    def _is_cut(self, name: str, mine: tuple[int, int], theirs: tuple[int, int]) -> bool:
        """Whether more buckets are sent than there are buffers: megatron-core cuts at 4e7 numbers, and each has a padding."""
        may_be = name.endswith(" data") and self.case.settings.overlap_grad_reduce and theirs[1] > mine[1]
        return may_be and math.isclose(mine[0], theirs[0], rel_tol=1e-4)

    @property
    def differences(self) -> tuple[str, ...]:
        """What is not equal, in words; memory is not asked."""
        here, there = self.planned, self.rehearsed
        pairs = {"parameters": (here.parameters, there.parameters), "FLOPs": (here.flops, there.flops)}
        for name in sorted({*here.collectives, *there.collectives}):
            mine, theirs = here.collectives.get(name), there.collectives.get(name)
            if not (mine and theirs and self._is_cut(name, mine, theirs)):
                pairs[f"{name} (bytes, calls)"] = (mine, theirs)
        return tuple(
            f"{name}: planned {one}, rehearsed {other}" for name, (one, other) in pairs.items() if one != other
        )


def compare(cases: list[Case]) -> Iterator[Pair]:
    """Rehearse every case, and plan it; in order."""
    for case, counts in zip(cases, _rehearsed(cases), strict=True):
        yield Pair(case=case, planned=planned(case), rehearsed=counts)


def _rehearsed(cases: list[Case]) -> list[Counts]:
    """Rehearse, or take what was rehearsed by the same sources but the planner's: `tests/mutation.py` names a folder for it."""
    source, folder = Path(nlp_bench.__file__).parent, os.environ.get("REHEARSED")
    works = [Work(settings=case.settings, layout=case.layout, rank=case.rank, accelerator="cuda") for case in cases]
    if not folder:
        return [rehearsed(report) for report in rehearse_ranks(works)]
    digest = hashlib.sha256(repr(cases).encode())
    for path in sorted(path for path in source.rglob("*.py") if source / "plan" not in path.parents):
        digest.update(path.read_bytes())
    kept = Path(folder) / digest.hexdigest()
    if not kept.exists():
        kept.write_bytes(pickle.dumps([rehearsed(report) for report in rehearse_ranks(works)]))
    found: list[Counts] = pickle.loads(kept.read_bytes())  # noqa: S301  # written above
    return found
