"""What each term of the time model is worth: the cross-validated error without it."""

from collections.abc import Iterator

from nlp_bench.immutable import immutable
from nlp_bench.plan.constants import Constants
from research.planner.data import Measured
from research.planner.scores import Score
from research.planner.solve import Variant
from research.planner.validate import held_out, mean_score

_NOTHING = 1e-9
SHARE = 2 / 3


@immutable
class Ablation:
    """One term left out."""

    name: str
    score: Score  # mean over the splits, the other constants fitted again


def _parts() -> Iterator[tuple[str, Variant]]:
    for part in ("attention", "memory-bound", "output layer", "pipeline bubble", "pipeline transfers", "tensor parallel",
                 "parameter gathers", "data parallel", "optimizer", "host"):  # fmt: skip
        yield f"no {part}", Variant(dropped=(part,))


_SET = {
    "products: FLOPs alone, no operand traffic": {"operand_traffic": _NOTHING},
    "unfused attention without its passes over scores": {"score_traffic": _NOTHING},
    "no casts for 8 and 4 bit": {"cast_traffic": _NOTHING},
    "no collective latency": {"collective_latency_s": _NOTHING},
    "all tensor-parallel traffic exposed": {"tensor_exposed": 1.0},
    "all data-parallel traffic exposed": {"data_exposed": 1.0},
    "overlapped data-parallel traffic free": {"data_exposed": _NOTHING},
    "all pipeline transfers exposed": {"pipeline_exposed": 1.0},
    "gathers overlapped without slow-down": {"gather_slowdown": _NOTHING},
    "one rate of attention after Ampere": {"attention_flash2": 1.0},
    "NeMo as fast as Megatron-LM": {"nvidia_tuning": 1.0},
    "GB300 as GB200 but for its data sheet": {"blackwell_ultra": 1.0},
    "mxfp8 as per-tensor fp8": {"block_scaled": 1.0},
    "row-wise fp8 as per-tensor fp8": {"row_scaled": 1.0},
    "DeepSpeed's ZeRO-1 as Megatron's": {"deepspeed_traffic": 1.0},
    "ZeRO-3 of 2021 at the network's rate": {"zero3_share": 1.0},
    "XLA computes nothing again": {"xla_recompute": _NOTHING},
}


def ablations(measured: Measured, constants: Constants) -> Iterator[Ablation]:
    """Yield the whole model, then each term left out; some seconds each."""
    yield Ablation(name="the whole model", score=mean_score(measured, held_out(measured, constants, SHARE)))
    named = {**dict(_parts()), **{name: Variant(frozen=frozen) for name, frozen in _SET.items()}}
    for name, variant in named.items():
        yield Ablation(name=name, score=mean_score(measured, held_out(measured, constants, SHARE, variant=variant)))
