"""Floating-point operations (FLOPs) of a model shape: legacy, model (causal or full attention) and hardware counts.

Two FLOPs per multiply-add; only matrix products are counted, as in every source named here. `docs/flops.md` compares the counts.
"""

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import METHODS, RECOMPUTE
from nlp_bench.layout.shape import ModelShape, Stack


@immutable
class Recompute:
    """Activation recomputation in the backward pass. Raises UsageError for unknown values."""

    granularity: str = "none"  # none, selective (the attention core: scores, and their product with the values) or full
    method: str = "uniform"  # of full: uniform (all layers, in groups) or block (the first layers of every stage)
    num_layers: int | None = None  # of full and block: layers per stage that run twice
    num_stages: int = 1  # pipeline stages, times the virtual stages of each
    fused_attention: bool = True
    """Whether one kernel computes the attention core (flash attention): it skips the masked half of the scores, does not store
    them, and recomputes them in its backward pass."""
    wraps_fused_attention: bool = False
    """Whether selective recompute repeats the forward pass of a fused kernel, too (megatron-core around Transformer Engine)."""

    def __post_init__(self) -> None:
        if self.granularity not in RECOMPUTE:
            raise UsageError(f"recompute_granularity: {self.granularity!r} is none of {', '.join(RECOMPUTE)}")
        if self.method not in METHODS:
            raise UsageError(f"recompute_method: {self.method!r} is none of {', '.join(METHODS)}")
        if self.granularity == "full" and self.method == "block" and not self.num_layers:
            raise UsageError("recompute_num_layers: not known, and the method block needs it")

    def layers_twice(self, num_layers: int) -> int:
        """Return how many of the model's layers run forward twice.

        Source: megatron-core megatron/core/transformer/transformer_block.py, `_checkpointed_forward`: uniform covers every layer
        whatever the group's size, block the first `recompute_num_layers` of each (virtual) stage.
        """
        if self.granularity != "full":
            return 0
        if self.method == "uniform":
            return num_layers
        return min(num_layers, (self.num_layers or 0) * self.num_stages)

    def repeated(self, stacks: tuple[Stack, ...]) -> list[int]:
        """Return how many layers of each stack run forward twice; a stage may hold layers of two stacks."""
        depth = sum(stack.num_layers for stack in stacks)
        twice = self.layers_twice(depth)
        if twice in {0, depth} or len(stacks) == 1:
            return [min(twice, stack.num_layers) for stack in stacks]
        per_stage = max(1, depth // self.num_stages)
        counts, first = [], 0
        for stack in stacks:
            layers = range(first, first + stack.num_layers)
            counts.append(sum(layer % per_stage < (self.num_layers or 0) for layer in layers))
            first += stack.num_layers
        return counts

    @property
    def repeats_core(self) -> bool:
        """Whether selective recompute runs the attention core of every layer forward twice."""
        return self.granularity == "selective" and (not self.fused_attention or self.wraps_fused_attention)


def legacy_flops_per_iteration(shape: ModelShape, global_batch_size: int, *, recompute: bool) -> float:
    """Hardware FLOPs of one iteration by the formula of the published tables (`TFLOPs:` in the log).

    `24 c B s l h^2 (1 + s/(6h) + V/(16 l h))` with c = 4 when activations are recomputed in any way, else 3.
    Source: Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, equation 3 (written there for c = 4:
    forward, recomputed forward, twice that backward). It counts full attention, a feed-forward of width 4h,
    a recompute of every layer even where only attention is recomputed, and with c = 3 only 3/4 of the output layer.
    The formula is for a GPT; for T5 and BERT it is c times the forward pass of all layers with full attention, plus three times that
    of the head.
    """
    return global_batch_size * shape.legacy_flops(4 if recompute else 3)


def model_flops_per_token(shape: ModelShape, *, causal: bool = True) -> float:
    """Model FLOPs of one token: three times the forward matrix products, whatever the hardware recomputes.

    Backward is twice forward. `causal` counts only the lower triangle of the attention scores (half), as NVIDIA/Megatron-LM
    megatron/training/training.py `num_floating_point_operations` does now; else the full square, as its older versions, Narayanan et al. 2021
    and the utilisation of Chowdhery et al. 2022 (PaLM, https://arxiv.org/abs/2204.02311, appendix B: 6 N + 12 L H Q T) do.
    """
    layers = sum(stack.num_layers * stack.layer(causal=causal) for stack in shape.stacks)
    return 3 * (layers + shape.head_flops) / shape.sequence_length


def hardware_flops_per_token(shape: ModelShape, recompute: Recompute) -> float:
    """FLOPs of one token that the accelerators execute: the model's, and those that the backward pass recomputes.

    Source: Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, section 5 and appendix A (what selective and full recompute
    repeat); Dao 2023, https://arxiv.org/abs/2307.08691, section 4.1 (a flash kernel has 2 matrix products forward and 5 backward,
    one of which recomputes the scores). A kernel that is not fused multiplies the masked half too; a fused one skips it (up to the
    blocks on the diagonal, which are not counted here). With a fused kernel `selective` adds nothing unless it wraps the kernel.
    The appendix' formula for selective recompute, `1 + s/(3h)`, counts the backward pass of the attention core twice; here only the
    executed operations count: its two forward products.
    """
    causal, stacks = recompute.fused_attention, shape.stacks
    twice = recompute.repeated(stacks)
    again = sum(count * stack.layer(causal=causal) for count, stack in zip(twice, stacks, strict=True))
    core = sum(stack.num_layers * stack.core(causal=causal) for stack in stacks)
    if recompute.repeats_core:
        again += core
    if recompute.fused_attention:
        again += core / 2  # the scores are one of the core's two products
    return model_flops_per_token(shape, causal=causal) + again / shape.sequence_length
