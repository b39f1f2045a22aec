"""Memory of one rank of this package's trainer, tensor by tensor, as `nlp-bench rehearse` counts it."""

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.fits import Memory, fullest, num_communicators, overhead_bytes
from nlp_bench.plan.work import (
    SINGLE,
    Stage,
    element_bytes,
    fullest_stages,
    gradient_buffers,
    group_layers,
    has_flash,
    keeps_scores,
    padded_vocab_size,
    position_parameters,
    rank_parameters,
    recomputed_layers,
    recomputes,
    round_up,
    shard_ranks,
    shares_optimizer,
    table_parameters,
    tokens,
    visible_share,
)

FLASH_ROWS, FLASH_WIDTH = 128, 32
"""To multiples of these flash attention 2 rounds queries and the width of heads (torch, flash_attn/flash_api.cpp, `mha_bwd`)."""
EFFICIENT_ROWS = 32  # the memory-efficient kernel's logarithms have a multiple of it (torch, meta_registrations.py)
INDEX = 8  # bytes of a token's number


class LayerBytes:
    """Bytes of the tensors of a layer and micro-batch on one rank; arrays of shape [N] or []."""

    def __init__(self, c: Configurations) -> None:
        """Follow the rehearsal (nlp_bench.rehearse.gpu) and megatron-core."""
        n, s, element, count = c.network, c.spread, element_bytes(c), tokens(c)
        grouped, rows = n.num_query_groups != n.num_attention_heads, n.sequence_length / s.context
        heads, chunk = s.micro_batch_size * n.num_attention_heads / s.tensor, rows / np.where(s.context > 1, 2, 1)
        flash, separate = has_flash(c), keeps_scores(c)
        width, branches = n.hidden_size * element / s.tensor, 1.0 + n.gated
        self.element, self.tokens = element, count
        """Of a number of an activation; how many tokens a micro-batch has on a rank (a count, not bytes)."""
        self.stream = count * n.hidden_size * element  # the residual stream of a micro-batch, whole
        self.split = np.asarray(s.sequence_parallel & (s.tensor > 1))  # whether the tensor-parallel ranks divide it
        self.share = self.stream / np.where(self.split, s.tensor, 1)  # a rank's part of it
        self.mask = self.share / element * n.dropout  # the mask of its dropout, one byte per number; 0 without dropout
        self.dropped = self.share * (self.mask > 0)  # a gradient behind its dropout; 0 without dropout
        self.gathered = np.where(self.split, self.stream, self.dropped)
        """The gradient that a product by rows reads, where it is a tensor of its own."""
        self.statistics = self.share / element / n.hidden_size * SINGLE * (1.0 + n.norm_biases)
        """Mean and deviation of a LayerNorm, or the deviation of an RMSNorm, in float32."""
        self.queries: Numbers = count * n.query_width / s.tensor * element
        """Queries of all local heads; the attention's output and its gradient have the same size."""
        self.keys: Numbers = count * n.key_value_width / s.tensor * element
        """Keys of all local heads; the values have the same size."""
        self.copied: Numbers = self.queries * (grouped & (n.num_query_groups > s.tensor))
        """Queries that are copied because the heads of several groups lie apart; 0 where they lie together."""
        self.rotary = np.asarray(n.num_learned_positions == 0)  # whether queries and keys are rotated into new tensors
        self.logarithms: Numbers = SINGLE * heads * np.where(flash, rows, round_up(rows, EFFICIENT_ROWS)) * ~separate
        """What the attention kernel keeps of the softmax: float32 logarithms of its sums."""
        sums = SINGLE * heads * round_up(chunk, FLASH_ROWS) * (round_up(n.width_per_head, FLASH_WIDTH) + 1)
        self.workspace: Numbers = np.where(flash, sums, 0.0)
        """What its backward pass takes and gives back: a float32 sum of the queries' gradient and a number per query."""
        self.expanded: Numbers = (
            2 * self.keys * s.context * n.num_attention_heads / n.num_query_groups * (grouped & flash)
        )
        """What it takes besides for the gradients of keys and values that several heads share: one for each of these."""
        self.parts = s.context  # context-parallel ranks (a count)
        self.repeated = np.where(self.parts > 1, self.queries * (2 * self.parts + 1) / 2, self.queries)
        """Keys for every query head, which only separate products need; the values have the same size."""
        self.late_share = np.where(self.parts > 1, 2 * self.parts / (2 * self.parts + 1), 1.0)
        """Share of the first context-parallel rank's late chunk in the scores of both its chunks."""
        self.bias: Numbers = rows * n.sequence_length * visible_share(c) * element * separate
        """The causal mask that is added to the scores of every head, where no fused kernel applies; else 0."""
        self.scores: Numbers = heads * self.bias  # the scores of all local heads there; else 0
        self.scores_kept = np.where(n.dropout, 3.0, 1.0)
        """How many tensors of their size are kept: the softmax, and with dropout its mask and product (a count)."""
        self.inner: Numbers = count * n.ffn_hidden_size / s.tensor * element  # input of the second feed-forward product
        self.joined = self.inner * branches  # output of the first: of a gated one both branches
        self.weights = (
            width * (n.query_width + 2 * n.key_value_width),
            width * n.query_width,
            width * n.ffn_hidden_size * branches,
            width * n.ffn_hidden_size,
        )
        """The gradients that autograd requires though they are added elsewhere: of queries/keys/values, projection, first, second."""


class Timeline:
    """Follows allocations in their order; every step is one addition and one comparison for all configurations."""

    def __init__(self) -> None:
        self.level: Numbers = np.zeros(())
        self.peak: Numbers = np.zeros(())

    def allocate(self, *sizes: Numbers | float) -> None:
        """Allocate tensors of these sizes in bytes."""
        for size in sizes:
            self.level = self.level + size
        self.peak = np.maximum(self.peak, self.level)

    def free(self, *sizes: Numbers | float) -> None:
        """Free them."""
        for size in sizes:
            self.level = self.level - size

    def briefly(self, *sizes: Numbers | float) -> None:
        """Allocate and free."""
        self.allocate(*sizes)
        self.free(*sizes)


def attention_kept(z: LayerBytes) -> Numbers:
    """Bytes that attention keeps for its backward pass: what goes in, what comes out, and the kernel's logarithms."""
    joined = z.queries + 2 * z.keys
    rotated = np.where(z.rotary, z.queries + z.keys, z.copied)
    alone = joined + rotated + z.queries
    # of context-parallel ranks: the queries, all ranks' keys and values, both chunks' answers and their copy in one
    own = np.where(z.rotary, z.queries, np.where(z.copied > 0, z.copied, joined))
    shared = own + 2 * z.keys * z.parts + 2 * z.queries
    kept = np.where(z.parts > 1, shared, alone) + z.logarithms
    return np.where(z.scores > 0, 2 * z.queries + 2 * z.repeated + z.scores_kept * z.scores, kept)


def attention_forward(t: Timeline, z: LayerBytes) -> None:
    """Allocate what the forward pass does, and leave what the backward pass needs."""
    joined, before, shared = z.queries + 2 * z.keys, t.level, z.parts > 1
    everybody = np.where(shared, 2 * z.keys * z.parts, 0.0)
    t.allocate(joined)
    t.allocate(z.copied, np.where(z.rotary, z.queries + z.keys, 0.0))
    t.briefly(np.where(shared, 2 * z.keys, 0.0), everybody)
    t.allocate(everybody, everybody, everybody)  # gathered, cut in two halves, joined in order
    t.free(everybody)
    # separate products and operators, where no kernel computes attention
    matrices = z.scores_kept + np.where(z.scores_kept > 1, 0.0, z.late_share)
    separate = 2 * z.queries + (2 + z.late_share) * z.repeated + z.late_share * z.bias + matrices * z.scores
    t.briefly(np.where(z.scores > 0, separate, 0.0))
    kept = np.where(z.scores > 0, z.queries + 2 * z.repeated + z.scores_kept * z.scores, 0.0)
    t.allocate(z.queries, z.logarithms, kept)
    t.briefly(np.where(shared, z.queries, 0.0))
    t.free(everybody)
    t.allocate(np.where(shared, z.queries, 0.0))
    t.briefly(np.where(shared, z.queries, 0.0))
    t.briefly(z.stream)  # the projection's output, before the caller's variables go
    t.level = before + attention_kept(z)


def attention_backward(t: Timeline, z: LayerBytes) -> None:
    """Go from the gradient of the output to that of queries, keys and values together.

    A context-parallel rank goes through its late chunk, then its early one, and brings the gradients of all keys and values into
    the order of the ranks: four more tensors like theirs.
    """
    joined, shared, fused = z.queries + 2 * z.keys, z.parts > 1, z.scores == 0
    before, everybody, kept = t.level, 2 * z.keys * z.parts, attention_kept(z)
    t.free(np.where(shared | ~fused, z.queries, 0.0))  # a copy of the output, which only the projection has read
    gone = np.where(shared, 0.0, z.queries)  # the output's gradient, which both chunks share
    # the values' gradient with that of the scores, then (the values are freed) the softmax's with it
    matrices = np.maximum(z.repeated + z.scores, np.where(z.scores_kept > 1, 0.0, 2 * z.scores - gone))
    t.briefly(np.where(fused, 0.0, z.late_share * matrices))
    half = (z.queries + z.logarithms) / 2
    t.allocate(np.where(shared, z.queries / 2 + everybody, joined) * fused)
    t.briefly(z.workspace, z.expanded)
    t.free(np.where(shared, half, 0.0) * fused)
    t.allocate(np.where(shared, z.queries / 2 + everybody / (2 * z.parts), 0.0) * fused)
    t.briefly(np.where(shared, z.workspace + z.expanded / (2 * z.parts), 0.0))
    t.level = before - z.queries - kept + np.where(shared, z.queries + everybody, joined)
    t.briefly(np.where(shared, 2 * everybody, 0.0))  # into the order of the ranks
    t.level = t.level + np.where(shared, 2 * z.keys - everybody, 0.0)
    t.briefly(np.where(z.rotary, z.queries, 0.0))
    t.briefly(joined)


class LayerMemory:
    """Bytes of one layer and micro-batch that is not computed again as a whole; arrays of shape [N] or []."""

    def __init__(self, z: LayerBytes, again: "Again") -> None:
        """Follow one layer forward and backward."""
        first, back = Timeline(), Timeline()
        _forward(first, z, again)
        _feed_forward_backward(back, z, again)
        early, back.peak = back.peak, back.level
        _attention_block_backward(back, z, again)
        self.kept = first.level  # its output takes the place of its input
        """What it keeps for its backward pass, its input included."""
        self.forward = first.peak  # peak of the forward pass above what lived before; the input lived
        self.backward = np.maximum(early, back.peak)
        """Peak of the backward pass above what lived before; what is kept and the gradient of the output lived."""
        self.late = back.peak
        """The same from where the gradient of the output is needed no more."""


@immutable
class Again:
    """What selective recompute makes again; arrays of shape [N] or []."""

    inner: Flags  # the feed-forward block's inside
    norms: Flags  # the outputs of both normalisations


class GroupMemory:
    """Bytes of a group of layers that keeps its input alone, and whose backward pass runs it again; arrays of shape [N] or []."""

    def __init__(self, z: LayerBytes, layer: LayerMemory, layers: Numbers) -> None:
        """Follow a group of `layers`.

        Its first forward pass keeps less than that second one, whose peak is the greater.
        """
        again = layers * layer.kept  # the group's own output lives on, its input lived before
        running = again - layer.kept + layer.forward
        self.kept = z.share
        self.backward = np.maximum(running, again + layer.backward)
        self.late = again + layer.late


def _forward(t: Timeline, z: LayerBytes, again: Again) -> None:
    norm, statistics = z.share * again.norms, z.statistics * again.norms
    t.allocate(z.statistics, z.share)
    t.free(statistics)
    attention_forward(t, z)
    _reduced(t, z)
    t.free(norm)
    t.allocate(z.share, z.mask)
    t.free(z.share)
    t.allocate(z.statistics, z.share)
    t.free(statistics)
    t.allocate(z.joined, z.inner)
    t.free(z.joined * again.inner)
    _reduced(t, z)
    t.free(z.inner * again.inner, norm)
    t.allocate(z.share, z.mask)
    t.free(z.share)


def _reduced(t: Timeline, z: LayerBytes) -> None:
    """Allocate the output of a product by rows, of which a sequence-parallel rank gets its share."""
    t.allocate(z.stream, np.where(z.split, z.share, 0.0))
    t.free(np.where(z.split, z.stream, 0.0))


def _feed_forward_backward(t: Timeline, z: LayerBytes, again: Again) -> None:
    _, _, first, second = z.weights
    _undo_dropout(t, z)
    _renew_norm(t, z, again)
    # a checkpoint holds its output, and the gradient of it, to its end
    output, gradient = z.share * again.inner, z.dropped * again.inner
    t.allocate(z.joined * again.inner, z.inner * again.inner)
    t.briefly(z.stream * again.inner, z.share * (again.inner & z.split))
    t.allocate(output)
    _gather(t, z)
    t.allocate(gradient * z.split, z.inner, second)
    t.free(z.gathered, z.inner, second)
    t.allocate(gradient * ~z.split, z.joined)
    t.free(z.inner, z.joined)
    _out_of_columns(t, z, first, z.joined)
    t.free(output, gradient)
    _norm(t, z, again)


def _attention_block_backward(t: Timeline, z: LayerBytes, again: Again) -> None:
    qkv, projection, _, _ = z.weights
    _undo_dropout(t, z)
    _renew_norm(t, z, again)
    _gather(t, z)
    t.allocate(z.queries, projection)
    t.free(z.gathered, projection)
    attention_backward(t, z)
    _out_of_columns(t, z, qkv, z.queries + 2 * z.keys)
    _norm(t, z, again)


def _undo_dropout(t: Timeline, z: LayerBytes) -> None:
    t.allocate(z.dropped)
    t.free(z.mask)


def _renew_norm(t: Timeline, z: LayerBytes, again: Again) -> None:
    """Make a normalisation's output again, and a copy of it in the tensor that was emptied (megatron-core, CheckpointWithoutOutput)."""
    t.allocate(z.statistics * again.norms, 2 * z.share * again.norms)


def _gather(t: Timeline, z: LayerBytes) -> None:
    """Gather the gradient of all sequence-parallel ranks."""
    t.allocate(np.where(z.split, z.stream, 0.0))
    t.free(np.where(z.split, z.dropped, 0.0))


def _out_of_columns(t: Timeline, z: LayerBytes, weight: Numbers, output: Numbers) -> None:
    """Go back through a product by columns to the output of the normalisation before it."""
    t.allocate(z.stream, np.where(z.split, z.share, 0.0), weight)
    t.free(np.where(z.split, z.stream, 0.0), output, z.share, weight)


def _norm(t: Timeline, z: LayerBytes, again: Again) -> None:
    """Go back through a normalisation and add the gradient of the residual stream."""
    t.allocate(z.share)
    t.free(z.share, z.share, z.statistics, z.share * again.norms)
    t.allocate(z.share)
    t.free(z.share, z.share)


class EndMemory:
    """Bytes of the embedding and the output layer for one micro-batch; arrays of shape [N] or []."""

    def __init__(self, c: Configurations, z: LayerBytes) -> None:
        """Follow both ends (megatron-core, models/gpt, language_model_embedding.py; this package, train/kernels/native.py)."""
        n, s = c.network, c.spread
        table, learned = table_parameters(c) * z.element, position_parameters(c) * z.element
        logits = z.tokens * padded_vocab_size(c) / s.tensor * z.element
        # a stream and the next one made of it (without dropout, gathered, masked), then the table's gradient
        steps = np.where((z.split | (s.tensor > 1)), 2 * z.stream, z.share * np.where(z.mask > 0, 2, 1))
        self.held = table * (~n.untied_embeddings & (s.pipeline == 1))
        """What lives from the output layer's backward pass until the embedding's: the table's empty gradient where one rank has both
        ends and shares it."""
        self.embedding_kept = z.mask + np.where(s.tensor > 1, (INDEX + 1) * z.tokens, 0.0)
        """What the embedding keeps besides its output: the dropout's mask, the tokens' numbers."""
        self.embedding_forward = z.stream * (1.0 + 2 * (learned > 0) + (s.micro_batch_size > 1))
        """Peak of its forward pass: the looked-up words, learned positions and their sum, and all in the layers' order."""
        ending = np.maximum(steps, z.stream + np.maximum(table, learned)) + self.held
        # two gradients of one table are added into a third tensor
        self.embedding_backward = np.maximum(ending, 3 * self.held)
        """Peak of its backward pass, the gradient of its output included."""
        self.batch = s.micro_batch_size * INDEX * (n.sequence_length + 1) + INDEX * n.sequence_length / s.context
        """Tokens and positions of a micro-batch on the device, on the first and the last stage."""
        self.head = _head(z, logits, table, self.held)
        """Peak of the output layer's forward and backward passes above what lived before; their input lived."""


def _head(z: LayerBytes, logits: Numbers, table: Numbers, held: Numbers) -> Numbers:
    t = Timeline()
    t.allocate(z.statistics, z.share, logits)
    t.allocate((INDEX + SINGLE) * z.tokens)
    t.briefly(3 * SINGLE * z.tokens)
    t.allocate(z.stream, np.where(z.split, z.share, 0.0), table)
    t.free(table - held, logits, z.share, np.where(z.split, z.stream, 0.0), (INDEX + SINGLE) * z.tokens)
    t.allocate(z.share)
    return t.peak


class Flight:
    """The passes under way on one rank; arrays of shape [N] or []."""

    def __init__(self, c: Configurations, stage: Stage) -> None:
        """Follow a rank of this stage.

        Without interleaving as many passes are ahead as there are later stages; with it twice as many, and all virtual stages but
        one of a group of micro-batches (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, section 2.2; megatron-core,
        pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
        """
        s, total = c.spread, c.spread.num_microbatches * c.spread.virtual
        behind, interleaved = s.pipeline - stage.rank - 1, s.virtual > 1
        ahead = np.where(interleaved, 2 * behind + (s.virtual - 1) * s.pipeline, behind)
        whole, pairs = s.virtual * s.pipeline, total - np.minimum(ahead, total)
        self.passes = np.minimum(ahead + 1, total)  # micro-batches at most, each virtual stage counted by itself
        left = self.passes - np.floor(self.passes / whole) * whole
        firsts = np.floor(self.passes / whole) * s.pipeline + np.minimum(left, s.pipeline)
        self.first_passes = np.where(interleaved, firsts, self.passes)
        """Those among them of the first virtual stage, which on the first rank holds the embedding."""
        self.at_embedding = np.minimum(self.passes, total - (s.virtual - 1) * np.where(interleaved, s.pipeline, 0))
        """Passes at most when the backward pass of the first virtual stage ends; all others of its micro-batch have ended."""
        self.steady = np.asarray(pairs >= 2)
        """Whether a backward pass has ended while so many are under way: tensors that it received and sent are still held."""
        self.streams = np.where(interleaved, _held_streams(c, stage, pairs), 0.0)
        """Tensors of a rank's part of the residual stream that an interleaved schedule holds besides (a count)."""


def _held_streams(c: Configurations, stage: Stage, pairs: Numbers) -> Numbers:
    """Tensors of one residual stream that the interleaved schedule holds besides; `pairs` are forward passes with a backward one.

    The output that is still being sent, the input and the gradient that are received early, and inputs with their gradients
    that the schedule's variables and megatron-core's modules still refer to. Counted in rehearsals.
    """
    s = c.spread
    many = s.num_microbatches > s.pipeline
    first = np.where(many, np.where(s.virtual > 2, 5.0, 3.0), 0.0)
    last = np.where(many, 6.0, np.minimum(s.pipeline - 1, 3.0))
    middle = np.where(many, np.where(stage.rank > 1, 6.0, 4.0), np.minimum(np.maximum(pairs - 1, pairs == 1), 4.0))
    return np.where(stage.first, first, np.where(stage.last, last, middle))


def state_bytes(c: Configurations, stage: Stage, z: LayerBytes) -> dict[str, Numbers]:
    """Return the bytes of each kind.

    Buffers are cosine and sine of all positions, and the input that sequence-parallel ranks have gathered.
    Gradients are float32 sums. Adam has two float32 moments, and for 16-bit parameters a float32 copy; the distributed optimizer
    keeps them for one share of the parameters, which then lie in a padded buffer (megatron-core, optimizer/distrib_optimizer.py).
    """
    plain, special, ends = gradient_buffers(c, stage)
    numbers, held = (c.spread.virtual - ends) * plain + ends * special, rank_parameters(c, stage)
    element, shared = element_bytes(c), shares_optimizer(c)
    copy = np.where(element < SINGLE, SINGLE, 0)
    waves = c.network.sequence_length * c.network.width_per_head * element
    waves = waves + np.where(c.spread.context > 1, waves / c.spread.context, 0.0)  # context-parallel ranks' own too
    return {
        "weights": element * np.where(shared, numbers, held),
        "gradients": SINGLE * numbers,
        "optimizer": (2 * SINGLE + copy) * held / np.where(shared, shard_ranks(c), 1),
        "buffers": np.where(z.rotary, waves, 0.0) + np.where(z.split, z.stream, 0.0),
    }


class Blocks:
    """What all stages have in common."""

    def __init__(self, c: Configurations) -> None:
        """Count a layer as it is trained, a group that is computed again, and both ends."""
        self.sizes = LayerBytes(c)
        again = Again(inner=recomputes(c, "mlp"), norms=recomputes(c, "layernorm"))
        self.layer = LayerMemory(self.sizes, again)
        self.group = GroupMemory(self.sizes, self.layer, group_layers(c))
        self.ends = EndMemory(c, self.sizes)


def rank_memory(c: Configurations, stage: Stage, blocks: Blocks | None = None) -> dict[str, Numbers]:
    """Return the peak bytes of a rank's tensors at this stage: weights, gradients, optimizer, buffers, activations, temporary.

    The peak is the greatest of some moments, one of which it must be: a forward pass while all others are under way, the output
    layer, the backward pass of the last layer, that of the last layers which are computed again, that of the embedding. The
    optimizer's step needs nothing of its own: torch's fused Adam works in place.
    """
    blocks, flight = blocks or Blocks(c), Flight(c, stage)
    z, layer, group, ends = blocks.sizes, blocks.layer, blocks.group, blocks.ends
    layers = stage.layers / c.spread.virtual
    again = recomputed_layers(c, layers)
    stored, last_kept = (layers - again) * layer.kept, np.where(again < layers, layer.kept, group.kept)
    of_pass = stored + again / group_layers(c) * group.kept
    kept = flight.passes * of_pass  # by all passes under way, without the output layer
    kept = kept + flight.first_passes * (ends.embedding_kept * stage.first)
    received = z.share * ~stage.last
    sent = z.share * (~stage.first & flight.steady)
    batch = ends.batch * (stage.first | stage.last)
    base = kept + batch + flight.streams * z.share
    at_head = kept + batch + np.minimum(flight.streams, 3) * z.share
    one = of_pass + ends.embedding_kept * stage.first
    held = ends.held * stage.last
    forward = base - last_kept + z.share + layer.forward + np.where(flight.steady, received, 0.0) + sent
    head = stage.last * (at_head + z.share + ends.head + sent)
    # a group holds the gradient of its output to its end, the schedule that of the stage's
    grown = np.where(again < layers, np.maximum(layer.backward, layer.late + received), 0.0)
    rerun = np.maximum(group.backward, group.late + z.share) + np.where(again < layers, received, 0.0) - stored
    grown = np.maximum(grown, np.where(again > 0, rerun, 0.0))
    backward = base + z.share + grown + sent + held
    embedding = stage.first * (flight.at_embedding * one - one + batch + received + ends.embedding_backward)
    looked_up = stage.first * (base - one + ends.embedding_forward)
    peak = np.asarray(np.max(np.broadcast_arrays(forward, head, backward, embedding, looked_up), axis=0))
    return {**state_bytes(c, stage, z), "activations": kept, "temporary": peak - kept}


def trainer_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the memory of the fullest rank of this package's trainer: of the first, the second or the last pipeline stage."""
    blocks = Blocks(c)
    found = fullest([rank_memory(c, stage, blocks) for stage in fullest_stages(c)])
    found["overhead"] = overhead_bytes(constants, num_communicators(c), found["activations"] + found["temporary"])
    return Memory(
        total=np.asarray(sum(found.values())),
        parts=found,
        capacity=c.machines.memory_bytes,
        fits_below=constants.memory.fits_below,
        fails_above=constants.memory.fails_above,
    )
