"""How long one iteration takes: what a GPU computes, what it sends, and what the pipeline's schedule makes of it."""

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import GENERATIONS, PRECISIONS, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.work import (
    layer_parameters,
    padded_vocab_size,
    recomputed_layers,
    recomputes,
    stage_layers,
    table_parameters,
    tokens,
)


class Rates:
    """Rates of one GPU in N configurations; arrays of shape [N] or []."""

    def __init__(self, c: Configurations, constants: Constants) -> None:
        machines, gpu = c.machines, c.machines.gpu
        slow, network = constants["scale_compute"], constants["scale_network"]
        fp4, fp8, mxfp8, rowwise = (
            c.precision == PRECISIONS.index(name) for name in ("fp4", "fp8", "mxfp8", "fp8-rowwise")
        )
        ultra = np.where(gpu == GENERATIONS.index("blackwell ultra"), constants["blackwell_ultra"], 1.0)
        sixteen = constants.by_generation("products", gpu)
        scaled = np.where(rowwise, 1 / constants["row_scaled"], np.where(mxfp8, constants["block_scaled"], 1.0))
        low = np.where(fp4, constants["products_4bit"] / ultra, scaled * constants.by_generation("products_8bit", gpu))
        self.low_bit = np.asarray(fp4 | fp8 | mxfp8 | rowwise)  # whether products are in 8 or 4 bit
        self.transposed = np.asarray(self.low_bit & ~fp8)
        """Whether operands are cast along both axes (all 8- and 4-bit formats but per-tensor fp8)."""
        self.products = machines.peak_flops * ultra * np.where(self.low_bit, low, sixteen) / slow
        """FLOP/s of large products of the layers' weights."""
        self.half = machines.half_flops * ultra * sixteen / slow
        """FLOP/s of large products in 16 bit: the output layer, and attention scores that a kernel stores."""
        self.attention = machines.half_flops * ultra * _attention_share(c, constants) / slow
        """FLOP/s of the fused attention kernel, causal half counted, long sequences and heads of 128."""
        self.memory = machines.memory_bytes_per_s * constants["memory_share"] / slow  # bytes per second of its memory
        self.link = machines.link_bytes_per_s * constants["link_share"] / network
        """Bytes per second that a GPU sends over NVLink."""
        self.latency = constants["collective_latency_s"] * network  # seconds until a collective begins to send
        share = constants.by_fabric("fabric_share", machines.fabric)
        self.rail = machines.fabric_bytes_per_s / machines.gpus_per_node * share / network
        """Bytes per second that a GPU sends over its share of the node's adapters."""


def _attention_share(c: Configurations, constants: Constants) -> Numbers:
    kernel, gpu = constants.trait("attention"), c.machines.gpu
    own = constants.by_generation("attention", gpu)
    ampere = gpu == GENERATIONS.index("ampere")
    second = np.where(ampere, own, own * constants["attention_flash2"])
    triton = np.where(ampere, constants["attention_triton_ampere"], constants["attention_triton_hopper"])
    own = np.where((kernel == "flash2")[c.framework], second, own)
    return np.where((kernel == "triton")[c.framework], triton, own)


class Recompute:
    """What N configurations compute again, in shares of a layer's forward work; arrays of shape [N] or [].

    full: the layer's forward pass (Chen et al. 2016, arXiv 1604.06174); torch's checkpoint and XLA stop before the layer's last product
    (torch.utils.checkpoint, early_stop). selective: the attention core (Korthikanti et al. 2022), which a fused kernel does in any
    case; with modules the feed-forward block, or the normalisations; torchtitan's: every other product and what lies between. XLA without a
    stated policy: a share. Of layers of which a part is recomputed: the share of the longest stage's.
    """

    def __init__(self, c: Configurations, constants: Constants) -> None:
        full, selective, none = (
            np.where(c.spread.recompute == RECOMPUTE.index(word), 1.0, 0.0) for word in ("full", "selective", "none")
        )
        longest = np.maximum.reduce(np.broadcast_arrays(*stage_layers(c)))
        full = full * recomputed_layers(c, longest / c.spread.virtual) * c.spread.virtual / longest
        inner, norms = (np.where(recomputes(c, module), 1.0, 0.0) for module in ("mlp", "layernorm"))
        xla = (constants.trait("family") == "xla")[c.framework] & (none > 0)
        whole = np.where(xla, constants["xla_recompute"], full)
        halved = selective * constants.trait("half_recomputed")[c.framework]
        self.products = whole + 0.5 * halved  # products of attention
        self.first_product = self.products + inner  # the first of the feed-forward block
        self.last_product = np.where(constants.trait("early_stop")[c.framework], 0.0, whole) + inner
        """The last product of the layer, whose result is not needed where recomputation stops early."""
        self.attention = whole  # a fused attention kernel
        self.scores = np.maximum(whole, selective)  # attention whose scores are stored
        self.streams = whole + halved  # the memory-bound operators between the products
        self.norm_streams, self.inner_streams = norms, inner  # of normalisations alone, of the activation alone
        self.collectives = full + 0.5 * inner  # one of two
        self.kernels = self.products + 0.5 * inner  # about half of the layer's


_WIDE = 128.0  # head width at which the rates of fused attention kernels are stated
_FUSED_PASSES = 3.5
"""Forward with backward of a fused kernel over its forward: two products forward, five backward (Dao 2023, section 3.1)."""
_SCORE_BYTES = 26.0
"""Bytes per score, forward and backward, where scores are stored in 16 bit: written, masked with softmax, dropped out, read, and
the gradients of each (Korthikanti et al. 2022, section 4.1 lists what is stored)."""
_SCORE_BYTES_FORWARD = 11.0  # those of the forward pass alone
_MAIN_GRADIENT_BYTES = 8.0
"""A weight's gradient is added to its fp32 sum: read and written (megatron-core, gradient_accumulation_fusion)."""


def _roofline(flops: Numbers, flops_per_s: Numbers, moved: Numbers, moved_per_s: Numbers) -> Numbers:
    """Seconds of a matrix product, from its FLOPs and the bytes of its operands and result: a roofline with a rounded ridge.

    The root of the sum of both squares: the longer of both far from the ridge (Williams et al. 2009, doi:10.1145/1498765.1498785),
    1.4 times as long where they are equal.
    """
    arithmetic, movement = flops / flops_per_s, moved / moved_per_s
    return np.asarray(np.sqrt(arithmetic * arithmetic + movement * movement))


def _product_seconds(c: Configurations, constants: Constants, rates: Rates, rerun: Recompute) -> Numbers:
    """Three products of each shape (output, gradient of the input, gradient of the weights) and what is computed again."""
    n, tensor = c.network, c.spread.tensor
    rows, operand = tokens(c), np.where(rates.low_bit, 1.0, 2.0)
    moved_per_s = rates.memory / constants["operand_traffic"]
    adds = np.isin(constants.trait("family"), ["megatron", "nvidia"])[c.framework]
    summed = np.where(adds, _MAIN_GRADIENT_BYTES, 0.0)
    total: Numbers = np.zeros(())
    for columns, depth, share in (  # on one rank: query-key-value, projection, up, down
        ((n.query_width + 2 * n.key_value_width) / tensor, n.hidden_size, rerun.products),
        (n.hidden_size, n.query_width / tensor, rerun.products),
        (n.ffn_hidden_size * (1.0 + n.gated) / tensor, n.hidden_size, rerun.first_product),
        (n.hidden_size, n.ffn_hidden_size / tensor, rerun.last_product),
    ):
        flops = 2.0 * rows * columns * depth
        moved = operand * (rows + columns) * depth + 2.0 * rows * columns
        one = _roofline(flops, rates.products, moved, moved_per_s)
        with_sum = _roofline(flops, rates.products, moved + summed * columns * depth, moved_per_s)
        total = total + (2.0 + share) * one + with_sum
    return total


def _attention_seconds(c: Configurations, constants: Constants, rates: Rates, rerun: Recompute) -> Numbers:
    n, tensor = c.network, c.spread.tensor
    causal = 2.0 * tokens(c) * n.sequence_length * n.query_width / tensor  # half of the square's FLOPs
    narrow = constants["attention_narrow"]
    slower = (
        (1 + constants["attention_short"] / n.sequence_length) * (1 + narrow / n.width_per_head) / (1 + narrow / _WIDE)
    )
    fused = causal * (_FUSED_PASSES + rerun.attention) * slower / rates.attention
    unfused = (constants.trait("attention") == "unfused")[c.framework]
    if not np.any(unfused):
        return np.asarray(fused)
    scores = tokens(c) * n.sequence_length * n.num_attention_heads / tensor
    moved = constants["score_traffic"] * scores * (_SCORE_BYTES + _SCORE_BYTES_FORWARD * rerun.scores)
    return np.asarray(np.where(unfused, 2.0 * causal * (3.0 + rerun.scores) / rates.half + moved / rates.memory, fused))


_NORM_PASSES = 8.0
"""Of normalisations made again: both read and write, and each result is copied into the tensor that was emptied."""


def _stream_seconds(c: Configurations, constants: Constants, rates: Rates, rerun: Recompute) -> Numbers:
    """Bytes between products, counted in passes over 16-bit tensors: normalisation and residual, activation, rotation; casts to 8 bit.

    Forward: normalisation reads and writes, twice; dropout and residual read two, write one, twice: 10 passes over the hidden state;
    the activation reads one (gated: two), writes one; the rotation reads and writes. Backward: 14, 3 (5) and 2. A cast of a product's
    operand reads 16 bit and writes 8, along both axes where blocks are scaled.
    """
    n, tensor = c.network, c.spread.tensor
    query, key, ffn = n.query_width, n.key_value_width, n.ffn_hidden_size
    hidden = 24.0 + 10.0 * rerun.streams + _NORM_PASSES * rerun.norm_streams
    passes = hidden * n.hidden_size / np.where(c.spread.sequence_parallel, tensor, 1.0)
    passes = passes + (5.0 + 3.0 * n.gated + (2.0 + n.gated) * (rerun.streams + rerun.inner_streams)) * ffn / tensor
    passes = passes + (4.0 + 2.0 * rerun.streams) * (query + key) / tensor
    moved = _stream_factor(c, constants) * 2.0 * passes
    if np.any(rates.low_bit):
        widths = 2.0 * n.hidden_size + (query + ffn + query + 2.0 * key + ffn * (1.0 + n.gated)) / tensor
        casts = np.asarray(np.where(rates.transposed, 6.0, 3.0) * widths)
        moved = moved + np.where(rates.low_bit, constants["cast_traffic"] * casts, 0.0)
    return np.asarray(tokens(c) * moved / rates.memory)


def _stream_factor(c: Configurations, constants: Constants) -> Numbers:
    """Bytes moved / the least count, by what fuses the operators."""
    return constants.chosen([f"stream_{kind}" for kind in constants.trait("streams")], c.framework)


_LOGIT_BYTES = 24.0
"""Bytes per logit: written in 16 bit, read and written in fp32 for maximum, exponentials and their sum, and their gradient
(megatron-core, tensor_parallel/cross_entropy.py)."""


def _end_seconds(c: Configurations, constants: Constants, rates: Rates) -> tuple[Numbers, Numbers]:
    """Return seconds of the embedding (rows read and written, their gradients likewise) and of the output layer.

    The latter has three 16-bit products with the vocabulary, and the cross entropy; it is never computed again.
    """
    words, width = padded_vocab_size(c) / c.spread.tensor, c.network.hidden_size
    rows, factor = tokens(c), _stream_factor(c, constants)
    moved = 2.0 * ((rows + words) * width + rows * words)
    one = _roofline(2.0 * rows * words * width, rates.half, moved, rates.memory / constants["operand_traffic"])
    embedding = factor * rows * width * 8.0 / rates.memory
    return np.asarray(embedding), np.asarray(3.0 * one + factor * rows * words * _LOGIT_BYTES / rates.memory)


def ring_rate(c: Configurations, rates: Rates, size: Numbers, stride: Numbers) -> Numbers:
    """Bytes per second of a ring over `size` ranks that are `stride` apart; ranks are numbered tensor, context, data, pipeline.

    Inside an NVLink domain it is the link's rate. A ring that leaves the domain passes the domain's border once in each channel, and
    the channels are spread over the adapters of all its members inside: members x a GPU's share of the adapters (NCCL's rings on
    rail-optimised fabrics). So a tensor-parallel group over two nodes of four GPUs has all four adapters, not one; and rings that
    run at the same time share the node's adapters by their members.
    """
    domain = c.machines.domain
    inside = np.minimum(np.maximum(np.floor(domain / stride), 1.0), size)
    return np.where(size * stride <= domain, rates.link, np.minimum(rates.link, rates.rail * inside))


def _tensor_seconds(c: Configurations, constants: Constants, rates: Rates, rerun: Recompute) -> Numbers:
    """Return seconds of the all-reduces of the hidden state, or of the gathers and scatters that replace them.

    Two forward, two backward (Shoeybi et al. 2019, arXiv 1909.08053), two more with full recompute; each sends 2 (t - 1) / t of it
    (Korthikanti et al. 2022, section 4.2.2).

    Those of the input's gradient can overlap with the product of the weights' gradient: both backward ones, with sequence parallelism
    half of each, the scatter; the gather of the output's gradient stays exposed.
    """
    t, place = c.spread.tensor, c.framework
    sent = 2.0 * (t - 1.0) / t * 2.0 * tokens(c) * c.network.hidden_size
    one = sent / ring_rate(c, rates, t, np.ones(())) + 2.0 * rates.latency
    every = 4.0 + 2.0 * rerun.collectives
    backward = np.where(c.spread.sequence_parallel, 1.0, 2.0) * constants.trait("backward_overlap")[place]
    overlapped = np.where(constants.trait("tensor_overlap")[place], every, backward)
    exposed = every - (1.0 - constants["tensor_exposed"]) * overlapped
    return np.where(t > 1, exposed * one, 0.0)


def _context_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Keys and values of the other ranks, forward, and with their gradients backward: three times two 16-bit tensors."""
    s = c.spread
    if not np.any(s.context > 1):
        return np.zeros(())
    sent = 3.0 * 2.0 * 2.0 * tokens(c) * c.network.key_value_width / s.tensor * (s.context - 1.0)
    latency = 3.0 * (s.context - 1.0) * rates.latency
    seconds = sent / ring_rate(c, rates, s.context, s.tensor) + latency
    return np.where(s.context > 1, constants["context_exposed"] * seconds, 0.0)


def _gather_seconds(c: Configurations, constants: Constants, rates: Rates, compute: Numbers) -> Numbers:
    """Seconds that gathers of fully sharded parameters add to the compute of a layer.

    Gathered forward and backward, gradients scattered, all in 16 bit (Zhao et al. 2023, arXiv 2304.11277). Together with the compute
    they take max(a, b) + slow-down x min(a, b) (Echo, arXiv 2412.12487, has the form).
    """
    s = c.spread
    full = s.sharding == SHARDING.index("parameters")
    if not np.any(full):
        return np.zeros(())
    group = np.maximum(s.shard_group, 1.0)
    slow = np.where(constants.trait("slow_gathers")[c.framework], constants["zero3_share"], 1.0)
    latency = rates.latency * np.log2(np.maximum(group, 2.0))
    sent = (group - 1.0) / group * layer_parameters(c) * 6.0
    gathers = np.where(full & (group > 1), sent / (slow * ring_rate(c, rates, group, s.tensor)) + 3.0 * latency, 0.0)
    both = np.maximum(compute, gathers) + constants["gather_slowdown"] * np.minimum(compute, gathers)
    return np.where(gathers > 0, both - compute, 0.0)


class Pace:
    """The slowest stage of a pipeline, for each micro-batch; arrays of shape [N] or []."""

    def __init__(self, c: Configurations, layer: Numbers, embedding: Numbers, output: Numbers) -> None:
        p = c.spread.pipeline
        alone = p == 1
        ahead, between, behind = stage_layers(c)
        first = ahead * layer + embedding + np.where(alone, output, 0.0)
        last = behind * layer + output
        middle = np.where(p > 2, between * layer, 0.0)
        is_last = ~alone & (last >= first) & (last >= middle)
        is_first = alone | (~is_last & (first >= middle))
        total = np.where(alone, first, first + last + (p - 2.0) * middle)
        self.layers = np.where(is_first, ahead, np.where(is_last, behind, between))
        self.embedding = np.asarray(is_first)  # whether it holds the embedding
        self.output = np.asarray(is_last | alone)  # whether it holds the output layer
        self.seconds = np.where(is_first, first, np.where(is_last, last, middle))
        self.others = np.maximum(total - self.seconds, 0.0)  # time of all other stages together


def _transfer_seconds(c: Configurations, constants: Constants, rates: Rates, virtual: Numbers) -> Numbers:
    """Activations and gradients between stages: each micro-batch forward and backward for each virtual stage, and the way through.

    Ranks of a tensor-parallel group send a share each (scatter-gather, Narayanan et al. 2021, section 4.1). Pipeline is the outermost
    dimension: each GPU sends over its own share of the adapters.
    """
    s = c.spread
    sent = 2.0 * tokens(c) * c.network.hidden_size / s.tensor
    rate = np.where(s.num_gpus <= c.machines.domain, rates.link, np.minimum(rates.link, rates.rail))
    one = sent / rate + rates.latency
    exposed = np.where(virtual > 1, constants["pipeline_exposed"], 1.0)
    return np.where(s.pipeline > 1, 2.0 * one * (s.num_microbatches * virtual * exposed + s.pipeline - 1.0), 0.0)


_UPDATE_BYTES = 32.0
"""Traffic of the update of a parameter, Adam on fp32: reads the parameter, both moments and the gradient, writes the first three and the 16-bit copy."""
_GRADIENT_BYTES = 8.0  # the gradient's norm is computed and the sum set to zero, on all ranks


def _stage_parameters(c: Configurations) -> Numbers:
    """Parameters of a rank of the stage that holds the most, without biases' and norms' ends: those that are reduced and updated."""
    first, middle, last = stage_layers(c)
    ends = np.maximum(first, last) * layer_parameters(c) + table_parameters(c)
    return np.where(c.spread.pipeline > 2, np.maximum(ends, middle * layer_parameters(c)), ends)


def _reduce_seconds(
    c: Configurations, constants: Constants, rates: Rates, parameters: Numbers, window: Numbers
) -> Numbers:
    """Return seconds of scattering gradients and gathering parameters over the data- and context-parallel ranks.

    Without a sharded optimizer gradients are reduced to all: scattered, and gathered themselves. What overlaps with
    compute is left out: `parameters` are those of a rank, `window` are the seconds of compute that it can overlap with.
    """
    s, place = c.spread, c.framework
    ranks = s.data * s.context
    gradient = constants.trait("gradient_bytes")[place]
    parameter = np.where(rates.low_bit & (constants.trait("family") == "nvidia")[place], 1.0, 2.0)
    whole = s.sharding == SHARDING.index("none")
    share = (ranks - 1.0) / ranks * parameters / ring_rate(c, rates, ranks, s.tensor)
    deepspeed = constants.trait("deepspeed")[place] & (s.sharding == SHARDING.index("optimizer"))
    extra = np.where(deepspeed, constants["deepspeed_traffic"], 1.0)
    latency = 2.0 * rates.latency * np.log2(np.maximum(ranks, 2.0))
    done = (ranks > 1) & (s.sharding != SHARDING.index("parameters"))
    left = np.zeros(())
    for size, hidden in (
        (gradient, s.overlap_grad_reduce),
        (np.where(whole, gradient, parameter), np.where(whole, s.overlap_grad_reduce, s.overlap_param_gather)),
    ):
        seconds = np.where(done, extra * share * size + latency, 0.0)
        overlapped = np.minimum(seconds, 0.5 * window)
        left = left + np.where(hidden, seconds - (1.0 - constants["data_exposed"]) * overlapped, seconds)
    return left


@immutable
class Seconds:
    """Seconds of one iteration of N configurations, and what they are spent on; arrays of shape [N]."""

    total: Numbers  # of one iteration
    parts: dict[str, Numbers]
    """By what it is spent on (matrix products, pipeline bubble, tensor parallel, ...); the parts add up to the total."""


def step_seconds(c: Configurations, constants: Constants) -> Seconds:
    """Predict the time of one iteration of N configurations; every part an array of shape [N], or [] where all fields are [].

    m micro-batches at the pace of the slowest stage, the bubble, and the update. FLOPs are counted by shape, bytes by pass; what a
    constant scales is explained where it is used. docs/accuracy.md has the errors.
    """
    s, rates, rerun = c.spread, Rates(c, constants), Recompute(c, constants)
    tuned = np.where((constants.trait("family") == "nvidia")[c.framework], constants["nvidia_tuning"], 1.0)
    of_layer = {
        "matrix products": tuned * _product_seconds(c, constants, rates, rerun),
        "attention": _attention_seconds(c, constants, rates, rerun),
        "memory-bound": tuned * _stream_seconds(c, constants, rates, rerun),
    }
    compute = sum(of_layer.values(), np.zeros(()))
    of_layer |= {
        "tensor parallel": _tensor_seconds(c, constants, rates, rerun),
        "context parallel": _context_seconds(c, constants, rates),
        "parameter gathers": _gather_seconds(c, constants, rates, compute),
    }
    layer = sum(of_layer.values(), np.zeros(()))
    of_layer["host"] = _host(c, constants, layer, rerun.kernels)
    embedding, output = _end_seconds(c, constants, rates)
    pace, m = Pace(c, layer + of_layer["host"], embedding, output), s.num_microbatches
    parts = {name: m * pace.layers * seconds for name, seconds in of_layer.items()}
    parts["memory-bound"] = parts["memory-bound"] + m * np.where(pace.embedding, embedding, 0.0)
    parts["output layer"] = m * np.where(pace.output, output, 0.0)
    # megatron-core does not interleave micro-batches that are no multiple of the stages
    virtual = np.where(m % s.pipeline == 0, s.virtual, 1.0)
    # 1F1B: m x slowest + the sum of the others, which is (p - 1) / m of the ideal time for equal stages; interleaved / v
    # (Narayanan et al. 2021, section 2.2)
    parts["pipeline bubble"] = pace.others / virtual
    parts["pipeline transfers"] = _transfer_seconds(c, constants, rates, virtual)
    # traffic overlaps with the last micro-batch, and with interleaving with the virtual stages that other stages still work on
    window = pace.seconds * (1.0 + np.minimum(m, s.pipeline) * (virtual - 1.0) / virtual)
    parameters = _stage_parameters(c)
    parts["data parallel"] = _reduce_seconds(c, constants, rates, parameters, window)
    # this rank's share of the state, and what every rank does with all its gradients; bound by memory
    shares = np.where(s.sharding >= SHARDING.index("optimizer"), np.maximum(s.shard_group, 1.0), 1.0)
    parts["optimizer"] = parameters * (_UPDATE_BYTES / shares + _GRADIENT_BYTES) / rates.memory
    fixed = constants["host_step_s"] + m * constants["host_batch_s"]
    parts["host"] = parts["host"] + fixed * constants["scale_overhead"]
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts.values()))
    full = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    return Seconds(total=sum(full.values(), np.zeros(shape)), parts=full)


_STARTED_TOGETHER = 0.3  # share of the host's work where CUDA graphs or XLA start many kernels at once; set, not fitted
_ROUNDED_OFF = 0.1  # share of a layer's time within which the slower of host and GPU changes; set, not fitted


def _host(c: Configurations, constants: Constants, layer: Numbers, rerun: Numbers) -> Numbers:
    """Seconds by which the host is slower than the GPU in starting a layer's kernels; rounded off so that it can be fitted."""
    joins = np.isin(constants.trait("family"), ["nvidia", "xla"])[c.framework]
    # the forward pass, which recompute runs again, has a third of a layer's kernels
    kernels = np.where(joins, _STARTED_TOGETHER, 1.0) * (1.0 + rerun / 3.0)
    if constants.machine is None:
        kernels = kernels * constants.trait("host")[c.framework]
    host = constants["host_layer_s"] * constants["scale_overhead"] * kernels
    if constants.machine is not None and constants.machine.kind == "cpu":
        return host + 0.0 * layer  # one thread launches and computes
    over = host - layer
    return 0.5 * (over + np.sqrt(over * over + (_ROUNDED_OFF * layer) ** 2))
