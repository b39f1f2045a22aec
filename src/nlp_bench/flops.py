"""Floating-point operations (FLOPs) and parameters of a dense GPT: four counts that must never be confused.

`flops_families` has the shapes of T5 and BERT, which the same functions count. Two FLOPs per multiply-add; only matrix products are counted, as in every source named here. `docs/flops.md` sets the counts side by side.
"""

from dataclasses import dataclass

from nlp_bench.errors import UsageError

GRANULARITIES = ("none", "selective", "full")
METHODS = ("uniform", "block")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """FLOPs of the forward pass of a stack of equal layers, for one sample."""

    num_layers: int
    """Layers of the stack."""
    products: float
    """Products with weights, in one layer."""
    full_core: float
    """Scores and their products with the values in one layer, every one of them."""
    causal_core: float
    """The same without those that a causal mask removes."""

    def core(self, *, causal: bool) -> float:
        """Return the attention core of one layer."""
        return self.causal_core if causal else self.full_core

    def layer(self, *, causal: bool) -> float:
        """Return one layer."""
        return self.products + self.core(causal=causal)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers that the floating-point operations and the parameters of a dense GPT depend on.

    Raises UsageError where they contradict each other.
    """

    num_layers: int
    """Transformer layers."""
    hidden_size: int
    """Width of the residual stream."""
    ffn_hidden_size: int
    """Inner width of the feed-forward block (of one branch, where it is gated)."""
    num_attention_heads: int
    """Query heads per layer."""
    num_query_groups: int
    """Key/value heads per layer (equal to the query heads without grouped-query attention)."""
    sequence_length: int
    """Tokens per sample."""
    padded_vocab_size: int
    """Rows of the embedding table, padding included: the padding rows are multiplied too."""
    gated: bool = False
    """Whether the feed-forward block is gated (SwiGLU: three matrices in place of two)."""
    head_width: int | None = None
    """Width of one head (Megatron-LM's `kv_channels`), None for hidden size / heads."""
    untied_embeddings: bool = False
    """Whether the output layer has weights of its own: parameters more, FLOPs the same (it is multiplied either way)."""
    linear_biases: bool = True
    """Whether the linear layers of a layer have biases (the output layer never has one)."""
    norm_biases: bool = True
    """Whether a normalisation has a bias beside its weight (LayerNorm, not RMSNorm)."""
    num_learned_positions: int = 0
    """Rows of a learned position embedding; 0 for rotary positions, which have no parameters."""

    def __post_init__(self) -> None:
        if self.head_width is None and self.hidden_size % self.num_attention_heads:
            raise UsageError(
                f"hidden_size: {self.hidden_size} is not a multiple of num_attention_heads = {self.num_attention_heads}, "
                "so the width of a head is not known; name it as kv_channels"
            )
        if self.num_attention_heads % self.num_query_groups:
            raise UsageError(
                f"num_attention_heads: {self.num_attention_heads} is not a multiple of num_query_groups = {self.num_query_groups}"
            )

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * (self.head_width or self.hidden_size // self.num_attention_heads)

    @property
    def key_value_width(self) -> int:
        """Width of all key heads together; the values have the same."""
        return self.query_width // self.num_attention_heads * self.num_query_groups

    @property
    def attention_weights(self) -> int:
        """Entries of the query, key, value and output matrices of one layer."""
        return self.hidden_size * 2 * (self.query_width + self.key_value_width)

    @property
    def feed_forward_weights(self) -> int:
        """Entries of the feed-forward matrices of one layer."""
        return self.hidden_size * self.ffn_hidden_size * (3 if self.gated else 2)

    @property
    def output_weights(self) -> int:
        """Entries of the output layer's matrix, whether it shares them with the embedding or not."""
        return self.hidden_size * self.padded_vocab_size

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The layers, in the order in which a pipeline divides them."""
        tokens = self.sequence_length
        core = 4 * tokens**2 * self.query_width  # the scores and their product with the values: 2 s^2 q each
        products = 2 * tokens * (self.attention_weights + self.feed_forward_weights)
        return (Stack(num_layers=self.num_layers, products=products, full_core=core, causal_core=core / 2),)

    @property
    def depth(self) -> int:
        """Layers of all stacks."""
        return sum(stack.num_layers for stack in self.stacks)

    @property
    def head_flops(self) -> float:
        """FLOPs of what stands behind the layers, forward, for one sample: the output layer."""
        return 2 * self.sequence_length * self.output_weights

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalisation."""
        return self.hidden_size * (2 if self.norm_biases else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention, feed-forward block and their normalisations."""
        attention, ffn = self.query_width + 2 * self.key_value_width, self.ffn_hidden_size * (2 if self.gated else 1)
        biases = attention + ffn + 2 * self.hidden_size if self.linear_biases else 0
        return self.attention_weights + self.feed_forward_weights + 2 * self.norm_parameters + biases

    @property
    def table_parameters(self) -> int:
        """Parameters of embeddings and output layer."""
        tables = self.output_weights * (2 if self.untied_embeddings else 1)
        return tables + self.num_learned_positions * self.hidden_size

    @property
    def parameters(self) -> int:
        """Parameters of the model; see `num_parameters`."""
        return self.num_layers * self.layer_parameters + self.norm_parameters + self.table_parameters

    def legacy_flops(self, passes: int) -> float:
        """Legacy FLOPs of one sample; see `legacy_flops_per_iteration`."""
        length, width, layers = self.sequence_length, self.hidden_size, self.num_layers
        corrections = 1 + length / (6 * width) + self.padded_vocab_size / (16 * layers * width)
        return 24 * passes * length * layers * width**2 * corrections


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """What the accelerators compute a second time in the backward pass. Raises UsageError for words that nobody knows."""

    granularity: str = "none"
    """none, selective (the attention core: scores and their product with the values) or full (whole layers)."""
    method: str = "uniform"
    """Of full: uniform (all layers, in groups) or block (the first layers of every stage)."""
    num_layers: int | None = None
    """Of full and block: layers per stage that run twice."""
    num_stages: int = 1
    """Pipeline stages, times the virtual stages of each."""
    fused_attention: bool = True
    """Whether one kernel computes the attention core: it skips the masked half of the scores, never stores them, and computes
    them again in its backward pass by itself (flash attention)."""
    wraps_fused_attention: bool = False
    """Whether selective recompute runs even a fused kernel's forward pass again (megatron-core around Transformer Engine)."""

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise UsageError(f"recompute_granularity: {self.granularity!r} is none of {', '.join(GRANULARITIES)}")
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
        """Whether the attention core of every layer runs forward twice because selective recompute was asked for."""
        return self.granularity == "selective" and (not self.fused_attention or self.wraps_fused_attention)


def padded_vocab_size(vocab_size: int, divisible_by: int, tensor_parallel_size: int) -> int:
    """Round `vocab_size` up to a multiple of `divisible_by` times the tensor-parallel size, as Megatron-LM does."""
    multiple = divisible_by * tensor_parallel_size
    return -(-vocab_size // multiple) * multiple


def legacy_flops_per_iteration(shape: ModelShape, global_batch_size: int, *, recompute: bool) -> float:
    """Hardware FLOPs of one iteration by the formula of the published tables (`TFLOPs:` in the log).

    `24 c B s l h^2 (1 + s/(6h) + V/(16 l h))` with c = 4 when activations are recomputed in any way, else 3.
    Source: Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, equation 3 (written there for c = 4:
    forward, recomputed forward, twice that backward). It counts full attention, a feed-forward of width 4h,
    a recompute of every layer even where only attention is recomputed, and with c = 3 only 3/4 of the output layer.
    It is a GPT's; for T5 and BERT the same is counted of their own layers: c times the forward pass of all layers with full
    attention, three times that of the head.
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
    """FLOPs of one token that the accelerators really execute: the model's, and what the backward pass computes again.

    Source: Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, section 5 and appendix A (what selective and full recompute
    repeat); Dao 2023, https://arxiv.org/abs/2307.08691, section 4.1 (a flash kernel has 2 matrix products forward and 5 backward,
    one of them the scores once more). A kernel that is not fused multiplies the masked half too; a fused one skips it (up to the
    blocks on the diagonal, which are not counted here). With a fused kernel `selective` adds nothing unless it wraps the kernel.
    The appendix' own formula for selective recompute, `1 + s/(3h)`, adds the backward pass of the attention core a second time;
    here only what is executed counts: its two forward products.
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


def num_parameters(shape: ModelShape) -> int:
    """Parameters of the model, padding rows of the vocabulary included: weights, biases, normalisations, embeddings.

    Narayanan et al. 2021, equation 2, `12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h))`, without the final normalisation that it
    leaves out.
    """
    return shape.parameters
