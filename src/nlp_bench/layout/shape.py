"""The shape of a dense GPT, a T5 or a BERT: widths, weights, parameters and FLOPs.

Tokens are those of the sequence length: of T5 the encoder's, as the published tables count (a T5 that reads 512 tokens and predicts
128 has 512 per sample). Bidirectional attention has no masked half, so causal and full counts differ only in T5's decoder.
"""

from typing import Any, Generic, TypeVar

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable

Number = TypeVar("Number", bound=Any)
Flag = TypeVar("Flag", bound=Any)
_OFF: Any = False
_ON: Any = True
_NO: Any = 0
RELATIVE_BUCKETS = 32  # rows of T5's table of relative positions, Megatron-LM's `relative_attention_num_buckets`


@immutable
class Layer(Generic[Number, Flag]):
    """Widths, weights and parameters of one layer, and the number of layers; of one model, or in the planner arrays of many."""

    num_layers: Number  # Transformer layers (of T5 the encoder's)
    hidden_size: Number  # width of the residual stream
    ffn_hidden_size: Number  # inner width of the feed-forward block (of one branch, where it is gated)
    num_attention_heads: Number  # query heads per layer
    num_query_groups: Number  # key and value heads (equal to the query heads without grouped-query attention)
    sequence_length: Number  # tokens per sample
    head_width: Number | None = None  # width of one head (Megatron-LM's `kv_channels`), None for hidden size / heads
    gated: Flag = _OFF  # whether the feed-forward block is gated (SwiGLU: three matrices in place of two)
    untied_embeddings: Flag = _OFF  # whether the output layer has weights of its own: more parameters, the same FLOPs
    linear_biases: Flag = _ON  # whether the linear layers of a layer have biases (the output layer never has one)
    norm_biases: Flag = _ON  # whether a normalisation has a bias in addition to its weight (LayerNorm, not RMSNorm)
    num_learned_positions: Number = _NO  # rows of a learned position embedding; 0 for rotary positions

    @property
    def width_per_head(self) -> Any:
        """Width of one head."""
        return self.hidden_size // self.num_attention_heads if self.head_width is None else self.head_width

    @property
    def query_width(self) -> Any:
        """Width of all query heads together."""
        return self.num_attention_heads * self.width_per_head

    @property
    def key_value_width(self) -> Any:
        """Width of all key heads together, and of all value heads."""
        return self.num_query_groups * self.width_per_head

    @property
    def attention_weights(self) -> Any:
        """Entries of the query, key, value and output matrices."""
        return self.hidden_size * 2 * (self.query_width + self.key_value_width)

    @property
    def layer_weights(self) -> Any:
        """Entries of the matrices of one layer: of the attention and the feed-forward block."""
        return self.attention_weights + self.hidden_size * self.ffn_hidden_size * (2 + 1 * self.gated)

    @property
    def norm_parameters(self) -> Any:
        """Parameters of one normalisation."""
        return self.hidden_size * (1 + 1 * self.norm_biases)

    @property
    def divided_parameters(self) -> Any:
        """Parameters that are divided among the tensor-parallel ranks: matrices, and biases of column-parallel ones."""
        columns = self.query_width + 2 * self.key_value_width + self.ffn_hidden_size * (1 + 1 * self.gated)
        return self.layer_weights + columns * self.linear_biases

    @property
    def whole_parameters(self) -> Any:
        """Parameters that each tensor-parallel rank holds: normalisations, and biases of row-parallel matrices."""
        return 2 * self.norm_parameters + 2 * self.hidden_size * self.linear_biases


@immutable
class Stack:
    """FLOPs of the forward pass of a stack of equal layers, for one sample."""

    num_layers: int  # layers of the stack
    products: float  # FLOPs of products with weights, in one layer
    full_core: float  # FLOPs of the scores and their product with the values, in one layer, without a mask
    causal_core: float  # the same with a causal mask

    def core(self, *, causal: bool) -> float:
        """Return the FLOPs of the attention core of one layer."""
        return self.causal_core if causal else self.full_core

    def layer(self, *, causal: bool) -> float:
        """Return the FLOPs of one layer."""
        return self.products + self.core(causal=causal)


@immutable
class ModelShape(Layer[int, bool]):
    """The sizes that determine FLOPs and parameters of a dense GPT. Raises UsageError where they are inconsistent."""

    padded_vocab_size: int  # rows of the embedding table, padding included: the padding rows are multiplied too
    counted = "causal attention as half (newer Megatron-LM)"  # what the model's FLOPs count of the attention

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
    def output_weights(self) -> int:
        """Entries of the output layer's matrix, tied to the embedding or not."""
        return self.hidden_size * self.padded_vocab_size

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The layers, in the order in which a pipeline divides them."""
        tokens = self.sequence_length
        core = 4 * tokens**2 * self.query_width  # the scores and their product with the values: 2 s^2 q each
        products = 2 * tokens * self.layer_weights
        return (Stack(num_layers=self.num_layers, products=products, full_core=core, causal_core=core / 2),)

    @property
    def depth(self) -> int:
        """Layers of all stacks."""
        return self.num_layers

    @property
    def head_flops(self) -> float:
        """FLOPs of the output layer, forward, for one sample."""
        return 2 * self.sequence_length * self.output_weights

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention, feed-forward block and their normalisations."""
        return int(self.divided_parameters + self.whole_parameters)

    @property
    def table_parameters(self) -> int:
        """Parameters of embeddings and output layer."""
        tables = self.output_weights * (2 if self.untied_embeddings else 1)
        return tables + self.num_learned_positions * self.hidden_size

    @property
    def weights(self) -> int:
        """Entries of the matrices of layers and embeddings: no biases, no normalisations."""
        return int(self.depth * self.layer_weights) + self.table_parameters

    @property
    def parameters(self) -> int:
        """Parameters, padding rows of the vocabulary included: weights, biases, normalisations, embeddings.

        Narayanan et al. 2021, equation 2, `12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h))`, plus the final normalisation.
        """
        return int(self.num_layers * self.layer_parameters + self.norm_parameters + self.table_parameters)

    def legacy_flops(self, passes: int) -> float:
        """Return the FLOPs of one sample as the published tables count them; see `flops.legacy_flops_per_iteration`."""
        length, width, layers = self.sequence_length, self.hidden_size, self.num_layers
        corrections = 1 + length / (6 * width) + self.padded_vocab_size / (16 * layers * width)
        return 24 * passes * length * layers * width**2 * corrections


def _legacy(shape: ModelShape, passes: int) -> float:
    """Return the analogue of `ModelShape.legacy_flops` for another family, for one sample."""
    layers = sum(stack.num_layers * stack.layer(causal=False) for stack in shape.stacks)
    return passes * layers + 3 * shape.head_flops


@immutable
class T5Shape(ModelShape):
    """An encoder of `num_layers` and a decoder that attends to it; `sequence_length` is the encoder's."""

    num_decoder_layers: int  # layers of the decoder
    decoder_sequence_length: int  # tokens of the decoder per sample
    relative_positions: bool = False  # whether each stack has a table of relative positions
    counted = "the decoder's causal attention counted as half, the encoder's and the cross-attention in full"

    @property
    def depth(self) -> int:
        """Layers of encoder and decoder."""
        return self.num_layers + self.num_decoder_layers

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Encoder and decoder; the cross-attention projects keys and values of every encoder token in every decoder layer."""
        source, target = self.sequence_length, self.decoder_sequence_length
        weights = self.layer_weights
        cross = self.hidden_size * 2 * (target * self.query_width + source * self.key_value_width)
        own, other = 4 * target**2 * self.query_width, 4 * target * source * self.query_width
        core = 4 * source**2 * self.query_width
        encoder = Stack(num_layers=self.num_layers, products=2 * source * weights, full_core=core, causal_core=core)
        products = 2 * (target * weights + cross)
        full, causal = own + other, own / 2 + other
        decoder = Stack(num_layers=self.num_decoder_layers, products=products, full_core=full, causal_core=causal)
        return encoder, decoder

    @property
    def head_flops(self) -> float:
        """FLOPs of the output layer, on the decoder's tokens."""
        return 2 * self.decoder_sequence_length * self.output_weights

    @property
    def weights(self) -> int:
        """Entries of the matrices of both stacks; a decoder layer has two attentions."""
        return int(super().weights + self.num_decoder_layers * self.attention_weights)

    @property
    def parameters(self) -> int:
        """Parameters of both stacks, each with a final normalisation; the embedding is shared."""
        biases = self.query_width + 2 * self.key_value_width + self.hidden_size if self.linear_biases else 0
        cross = self.attention_weights + self.norm_parameters + biases
        layers = self.depth * self.layer_parameters + self.num_decoder_layers * cross
        bias_tables = 2 * RELATIVE_BUCKETS * self.num_attention_heads if self.relative_positions else 0
        return int(layers + 2 * self.norm_parameters + self.table_parameters + bias_tables)

    legacy_flops = _legacy


@immutable
class BertShape(ModelShape):
    """An encoder with a head that predicts masked tokens (computed at every token) and one for the next sentence."""

    binary_head: bool = True  # whether there is a next-sentence prediction, with its embedding of two token types
    counted = "attention in full, the head that guesses tokens at every token"

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The encoder, without a causal mask."""
        (stack,) = super().stacks
        core = stack.full_core
        return (Stack(num_layers=stack.num_layers, products=stack.products, full_core=core, causal_core=core),)

    @property
    def head_flops(self) -> float:
        """FLOPs of a linear layer and the output layer at every token, and for the next sentence of two small ones at the first token."""
        width = self.hidden_size
        binary = 2 * (width**2 + 2 * width) if self.binary_head else 0
        return 2 * self.sequence_length * (width**2 + self.output_weights) + binary

    @property
    def parameters(self) -> int:
        """Parameters of encoder, embeddings and heads, with the output layer's bias."""
        width = self.hidden_size
        head = width**2 + width + self.norm_parameters + self.padded_vocab_size
        binary = 2 * width + width**2 + width + 2 * width + 2 if self.binary_head else 0
        return int(super().parameters + head + binary)

    legacy_flops = _legacy


_KINDS: dict[str, type[ModelShape]] = {"gpt": ModelShape, "t5": T5Shape, "bert": BertShape}
FAMILIES = tuple(_KINDS)
OWN = {name for kind in _KINDS.values() for name in kind.__dataclass_fields__} - set(ModelShape.__dataclass_fields__)
"""Fields that not all families have; a number of the same name in a model file is passed to the trainer and the count of FLOPs."""
NETWORKS = {"gpt": "gpt", "t5": "t5", "mt5": "t5", "bert": "bert"}  # family of a model file to its kind of network


def shape_of(family: str, **values: Any) -> ModelShape:
    """Return the shape of one of FAMILIES, without `values` of other families only; raises UsageError where the values are inconsistent."""
    kind = _KINDS[family]
    return kind(**{name: value for name, value in values.items() if name in kind.__dataclass_fields__})


def padded_vocab_size(vocab_size: Number, divisible_by: Any, tensor_parallel_size: Any) -> Number:
    """Round `vocab_size` up to a multiple of `divisible_by` times the tensor-parallel size, as Megatron-LM does; numbers or arrays."""
    entries: Any = vocab_size
    multiple = divisible_by * tensor_parallel_size
    rows: Number = -(-entries // multiple) * multiple
    return rows
