"""What one rank holds and computes: pipeline stages and their layers, parameters, matrix products, the buffers of gradients."""

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.layout import shape
from nlp_bench.layout.rules import METHODS, MODULES, RECOMPUTE
from nlp_bench.plan.configurations import PRECISIONS, Configurations, Flags, Numbers


def tokens(c: Configurations) -> Numbers:
    """Tokens of one micro-batch that one rank's linear layers see (with tensor parallelism all ranks of a group see the same)."""
    return c.spread.micro_batch_size * c.network.sequence_length / c.spread.context


def padded_vocab_size(c: Configurations) -> Numbers:
    """Rows of the embedding table."""
    return shape.padded_vocab_size(c.network.vocab_size, c.network.vocab_multiple, c.spread.tensor)


def layer_products(c: Configurations) -> Numbers:
    """FLOPs of the products with weights in one layer."""
    return np.asarray(2 * tokens(c) * c.network.layer_weights / c.spread.tensor)


def layer_core(c: Configurations) -> Numbers:
    """FLOPs of scores and their product with the values in one layer, the full square; a causal kernel does half."""
    return np.asarray(4 * tokens(c) * c.network.sequence_length * c.network.query_width / c.spread.tensor)


def visible_share(c: Configurations) -> Numbers:
    """Share of the rectangle of scores that context-parallel ranks compute, 1 without them.

    Of 2 n chunks each of n ranks has an early and a late one, which together see 2 n + 1 chunks of keys, not 4 n: a chunk of keys
    that no query of a chunk may look at is left out (train/attention.py).
    """
    ranks = c.spread.context
    return np.where(ranks > 1, (2 * ranks + 1) / (4 * ranks), 1.0)


def head_products(c: Configurations) -> Numbers:
    """FLOPs of the output layer."""
    return 2 * tokens(c) * c.network.hidden_size * padded_vocab_size(c) / c.spread.tensor


def least_seconds(c: Configurations) -> Numbers:
    """Seconds that the products of an iteration take where every GPU works at its peak, nothing is computed again and nothing waits."""
    n, peak, half = c.network, c.machines.peak_flops, c.machines.half_flops
    layers = n.num_layers * (layer_products(c) / peak + layer_core(c) / 2 / half)
    return np.asarray(3 * c.spread.num_microbatches * (layers + head_products(c) / half) / c.spread.pipeline)


@immutable
class Stage:
    """One pipeline rank of each of N configurations; arrays of shape [N] or []."""

    rank: Numbers  # its number, from 0
    first: Flags  # whether it holds the embedding
    last: Flags  # whether it holds the output layer
    layers: Numbers  # its layers, all virtual stages together


def stage_layers(c: Configurations) -> tuple[Numbers, Numbers, Numbers]:
    """Return the layers of the first, the middle and the last pipeline rank, all virtual stages together.

    Source: megatron-core's `get_num_layers_to_build`. With one stage all three are its layers; with two there is no middle one,
    and its number is 0 where the two are uneven.
    """
    s = c.spread
    own = (s.first_layers > 0).astype(np.float64) + (s.last_layers > 0)
    others = np.maximum(s.pipeline - own, 1)
    middle = (c.network.num_layers - s.first_layers - s.last_layers) / others
    return (
        np.where(s.first_layers > 0, s.first_layers, middle),
        middle,
        np.where(s.last_layers > 0, s.last_layers, middle),
    )


Layers = tuple[Numbers, Numbers, Numbers]  # of the first, the middle and the last pipeline rank


def stage_of(c: Configurations, rank: Numbers, layers: Layers | None = None) -> Stage:
    """Return the stage with pipeline rank `rank`, from 0 to below the pipeline-parallel size; `layers` replaces `stage_layers`."""
    first, last = rank == 0, rank == c.spread.pipeline - 1
    ahead, middle, behind = layers or stage_layers(c)
    held = np.where(first, ahead, np.where(last, behind, middle))
    return Stage(rank=np.asarray(rank), first=np.asarray(first), last=np.asarray(last), layers=held)


def fullest_stages(c: Configurations, layers: Layers | None = None) -> tuple[Stage, Stage, Stage]:
    """Return the first, second and last stage (of fewer some are the same): no other holds more parameters, or more micro-batches at a time."""
    last = c.spread.pipeline - 1
    first, second = np.zeros(()), np.minimum(1.0, last)
    return stage_of(c, first, layers), stage_of(c, second, layers), stage_of(c, last, layers)


def is_full(c: Configurations) -> Flags:
    """Whether whole layers are computed again."""
    return np.asarray(c.spread.recompute == RECOMPUTE.index("full"))


def recomputed_layers(c: Configurations, layers: Numbers) -> Numbers:
    """Return how many of the `layers` of a virtual stage are computed again as a whole.

    Source: megatron-core's transformer_block.py, `_checkpointed_forward`: all (uniform), or the first of each (block).
    """
    block = c.spread.recompute_method == METHODS.index("block")
    return np.where(is_full(c), np.where(block, np.minimum(c.spread.recompute_num_layers, layers), layers), 0.0)


def group_layers(c: Configurations) -> Numbers:
    """Layers of a group that is computed again together, of which the input alone is kept."""
    block = c.spread.recompute_method == METHODS.index("block")
    return np.where(block, 1.0, np.maximum(c.spread.recompute_num_layers, 1.0))


def recomputes(c: Configurations, module: str) -> Flags:
    """Whether selective recompute covers this module of every layer: mlp or layernorm."""
    covered = np.array([module in modules for modules in MODULES])[c.spread.recompute_modules]
    return np.asarray(covered & (c.spread.recompute == RECOMPUTE.index("selective")))


SINGLE = 4  # bytes of a float32 number: of gradient sums, losses and norms


def round_up(number: Numbers, multiple: Numbers | float) -> Numbers:
    """Return the smallest multiple that is not less."""
    return np.asarray(np.ceil(number / multiple) * multiple)


def element_bytes(c: Configurations) -> Numbers:
    """Bytes of a parameter and of an activation: 4 in fp32, else 2 (8-bit products read 16-bit tensors)."""
    return np.where(c.precision == PRECISIONS.index("fp32"), 4.0, 2.0)


def is_float16(c: Configurations) -> Flags:
    """Whether the loss is scaled, and every step checks all ranks for an overflow."""
    return np.asarray(c.precision == PRECISIONS.index("fp16"))


def shard_ranks(c: Configurations) -> Numbers:
    """Ranks that hold the same parameters, and that share the optimizer's state under the distributed optimizer."""
    return c.spread.data * c.spread.context


def shares_optimizer(c: Configurations) -> Flags:
    """Whether the optimizer is distributed."""
    return np.asarray(c.spread.sharding > 0)


WIDEST_HEAD = 256  # width up to which flash attention applies


def keeps_scores(c: Configurations) -> Flags:
    """Whether attention runs as separate products and keeps its scores: torch's memory-efficient kernel has no grouped queries.

    It is used where flash attention does not apply: in float32, and with heads wider than 256. Source: torch's
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    grouped = c.network.num_query_groups != c.network.num_attention_heads
    return np.asarray(grouped & ~has_flash(c))


def has_flash(c: Configurations) -> Flags:
    """Whether flash attention applies."""
    return np.asarray((element_bytes(c) < SINGLE) & (c.network.width_per_head <= WIDEST_HEAD))


def layer_parameters(c: Configurations) -> Numbers:
    """Parameters of one layer on one tensor-parallel rank."""
    return np.asarray(c.network.divided_parameters / c.spread.tensor + c.network.whole_parameters)


def table_parameters(c: Configurations) -> Numbers:
    """Parameters of the embedding table, or of the output layer, on one tensor-parallel rank."""
    return c.network.hidden_size * padded_vocab_size(c) / c.spread.tensor


def position_parameters(c: Configurations) -> Numbers:
    """Parameters of the learned positions, which no rank shares with another."""
    return c.network.num_learned_positions * c.network.hidden_size


def num_tables(c: Configurations, stage: Stage) -> Numbers:
    """Tables of a rank: the embedding, and the output layer where it has weights of its own or is a copy on another stage.

    Source: megatron-core's `LanguageModule.setup_embeddings_and_output_layer`.
    """
    own_output = c.network.untied_embeddings | (c.spread.pipeline > 1)
    return stage.first.astype(float) + (stage.last & own_output)


def rank_parameters(c: Configurations, stage: Stage) -> Numbers:
    """Parameters that a rank of this stage holds, the last stage's copy of a tied embedding included."""
    tables = num_tables(c, stage) * table_parameters(c)
    ends = stage.first * position_parameters(c) + stage.last * c.network.norm_parameters
    return np.asarray(stage.layers * layer_parameters(c) + tables + ends)


def gradient_buffers(c: Configurations, stage: Stage) -> tuple[Numbers, Numbers, Numbers]:
    """Return the numbers in the gradients' buffer of an inner virtual stage and of one with an end, padding included, and how many are such.

    Source: megatron-core, distributed/param_and_grad_buffer.py, `_ParamAndGradBuffer`. Every virtual stage of a rank has one buffer.
    Under the distributed optimizer every tensor begins at a multiple of 64 numbers, a bucket ends at a multiple of 128 and of its
    ranks, and a tied embedding has a bucket of its own. Cut into more buckets a buffer has at most a few kilobytes more.
    """
    shared = shares_optimizer(c)
    aligned, ranks = np.where(shared, 64.0, 1.0), np.asarray(shard_ranks(c), dtype=np.int64)
    multiple = np.where(shared, np.lcm(ranks, 128), 1).astype(np.float64)
    layer = sum(round_up(size, aligned) for size in layer_tensors(c)) * stage.layers / c.spread.virtual
    norm = round_up(c.network.hidden_size, aligned) * (1.0 + c.network.norm_biases)
    table, positions = table_parameters(c), round_up(position_parameters(c), aligned)
    apart = shared & ~c.network.untied_embeddings & (c.spread.pipeline > 1)
    rest = layer + stage.last * norm + stage.first * positions
    own = num_tables(c, stage) * round_up(table, aligned)
    special = np.where(apart, round_up(table, multiple) + round_up(rest, multiple), round_up(rest + own, multiple))
    ends = stage.first.astype(float) + stage.last - (stage.first & stage.last)
    return round_up(layer, multiple), special, ends


def layer_tensors(c: Configurations) -> list[Numbers]:
    """Sizes of a layer's tensors on one rank in the order of the backward pass; 0 where there is none."""
    n, tensor = c.network, c.spread.tensor
    inner, queries = n.ffn_hidden_size / tensor, n.query_width / tensor
    joined, branches = queries + 2 * n.key_value_width / tensor, 1.0 + n.gated
    hidden, bias, shift = n.hidden_size, n.linear_biases, n.norm_biases
    return [
        *(hidden * bias, inner * hidden, inner * branches * bias, inner * branches * hidden),
        *(hidden * shift, hidden),
        *(joined * bias, joined * hidden, hidden * bias, queries * hidden),
        *(hidden * shift, hidden),
    ]
