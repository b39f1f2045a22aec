"""How long one iteration takes: what a GPU computes, what it sends, and what the pipeline's schedule makes of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nlp_bench.layout.rules import SHARDING
from nlp_bench.plan.configurations import RECOMPUTE, Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.work import layer_parameters, padded_vocab_size, stage_layers, table_parameters, tokens


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates of one GPU; arrays of shape [N] or []."""

    products: Numbers
    """FLOP/s of large products of the layers' weights."""
    half: Numbers
    """FLOP/s of large products in 16 bit: the output layer, and attention scores that a kernel stores."""
    attention: Numbers
    """FLOP/s of the fused attention kernel, causal half counted, long sequences and heads of 128."""
    memory: Numbers
    """Bytes per second of the GPU's memory."""
    link: Numbers
    """Bytes per second that a GPU sends over NVLink."""
    rail: Numbers
    """Bytes per second that a GPU sends over its share of the node's adapters."""
    low_bit: Flags
    """Whether products are in 8 or 4 bit."""
    transposed: Flags
    """Whether operands are cast along both axes (all 8- and 4-bit formats but per-tensor fp8)."""


def rates_of(c: Configurations, constants: Constants) -> Rates:
    """Return the rates of N configurations."""
    machines, slow = c.machines, constants["scale_compute"]
    of = {name: constants.precisions.index(name) for name in ("fp8", "mxfp8", "fp8-rowwise", "fp4")}
    fp4 = c.precision == of["fp4"]
    eight = (c.precision == of["fp8"]) | (c.precision == of["mxfp8"]) | (c.precision == of["fp8-rowwise"])
    ultra = np.where(machines.gpu == constants.gpus.index("blackwell ultra"), constants["blackwell_ultra"], 1.0)
    half = machines.half_flops * ultra * constants.by_generation("products")[machines.gpu] / slow
    scaled = np.where(c.precision == of["mxfp8"], constants["block_scaled"], 1.0)
    scaled = np.where(c.precision == of["fp8-rowwise"], 1 / constants["row_scaled"], scaled)
    low = np.where(
        fp4, constants["products_4bit"] / ultra, scaled * constants.by_generation("products_8bit")[machines.gpu]
    )
    share = np.where(fp4 | eight, low, constants.by_generation("products")[machines.gpu])
    network = constants["scale_network"]
    return Rates(
        products=machines.peak_flops * ultra * share / slow,
        half=half,
        attention=machines.half_flops * ultra * _attention_share(c, constants) / slow,
        memory=machines.memory_bytes_per_s * constants["memory_share"] / slow,
        link=machines.link_bytes_per_s * constants["link_share"] / network,
        rail=machines.fabric_bytes_per_s / machines.gpus_per_node * constants["fabric_share"] / network,
        low_bit=np.asarray(fp4 | eight),
        transposed=np.asarray((fp4 | eight) & (c.precision != of["fp8"])),
    )


def _attention_share(c: Configurations, constants: Constants) -> Numbers:
    kernel, gpu = constants.trait("attention"), c.machines.gpu
    own = constants.by_generation("attention")[gpu]
    ampere = gpu == constants.gpus.index("ampere")
    second = np.where(ampere, own, own * constants["attention_flash2"])
    triton = np.where(ampere, constants["attention_triton_ampere"], constants["attention_triton_hopper"])
    own = np.where((kernel == "flash2")[c.framework], second, own)
    return np.where((kernel == "triton")[c.framework], triton, own)


@dataclass(frozen=True, kw_only=True)
class Again:
    """Shares of a layer's forward work; arrays of shape [N] or []."""

    products: Numbers
    """Products but the last."""
    last_product: Numbers
    """The last product of the layer, whose result nobody needs where recomputation stops early."""
    attention: Numbers
    """A fused attention kernel."""
    scores: Numbers
    """Attention whose scores are stored."""
    streams: Numbers
    """What lies between the products."""
    collectives: Numbers


def again_of(c: Configurations, constants: Constants) -> Again:
    """Return what N configurations compute again.

    full: the layer's forward pass (Chen et al. 2016, arXiv 1604.06174); torch's checkpoint and XLA stop before the layer's last product
    (torch.utils.checkpoint, early_stop). selective: the attention core (Korthikanti et al. 2022), which a fused kernel does in any
    case; torchtitan's: every other product and what lies between. XLA without a stated policy: a share.
    """
    place = c.framework
    full = np.where(c.spread.recompute == RECOMPUTE.index("full"), 1.0, 0.0)
    selective = np.where(c.spread.recompute == RECOMPUTE.index("selective"), 1.0, 0.0)
    xla = (constants.trait("family") == "xla")[place] & (c.spread.recompute == RECOMPUTE.index("none"))
    whole = np.where(xla, constants["xla_recompute"], full)
    halved = selective * constants.trait("half_recomputed")[place]
    early = constants.trait("early_stop")[place]
    return Again(
        products=whole + 0.5 * halved,
        last_product=np.where(early, 0.0, whole),
        attention=whole,
        scores=np.maximum(whole, selective),
        streams=whole + halved,
        collectives=full,
    )


_WIDE = 128.0
"""Head width at which the rates of fused attention kernels are stated."""
_FUSED_PASSES = 3.5
"""Forward with backward of a fused kernel over its forward: two products forward, five backward (Dao 2023, section 3.1)."""
_SCORE_BYTES = 26.0
"""Bytes per score, forward and backward, where scores are stored in 16 bit: written, masked with softmax, dropped out, read, and
the gradients of each (Korthikanti et al. 2022, section 4.1 lists what is stored)."""
_SCORE_BYTES_AGAIN = 11.0
"""Those of the forward pass alone."""
_MAIN_GRADIENT_BYTES = 8.0
"""A weight's gradient is added to its fp32 sum: read and written (megatron-core, gradient_accumulation_fusion)."""


def layer_compute(c: Configurations, constants: Constants, rates: Rates, again: Again) -> dict[str, Numbers]:
    """Return seconds of a layer by kind: matrix products, attention, memory-bound."""
    tuned = np.where((constants.trait("family") == "nvidia")[c.framework], constants["nvidia_tuning"], 1.0)
    return {
        "matrix products": tuned * _product_seconds(c, constants, rates, again),
        "attention": _attention_seconds(c, constants, rates, again),
        "memory-bound": tuned * _stream_seconds(c, constants, rates, again),
    }


def product_seconds(flops: Numbers, flops_per_s: Numbers, moved: Numbers, moved_per_s: Numbers) -> Numbers:
    """Seconds of a matrix product, from its FLOPs and the bytes of its operands and result: a roofline with a rounded ridge.

    The root of the sum of both squares: the longer of both far from the ridge (Williams et al. 2009, doi:10.1145/1498765.1498785),
    1.4 times as long where they are equal.
    """
    arithmetic, movement = flops / flops_per_s, moved / moved_per_s
    return np.asarray(np.sqrt(arithmetic * arithmetic + movement * movement))


def _shapes(c: Configurations) -> Iterator[tuple[Numbers, Numbers]]:
    """Columns and depth of a layer's products on one rank: query-key-value, projection, up, down."""
    n, tensor = c.network, c.spread.tensor
    yield (c.network.query_width + 2 * c.network.key_value_width) / tensor, n.hidden_size
    yield n.hidden_size, c.network.query_width / tensor
    yield n.ffn_hidden_size * (1.0 + n.gated) / tensor, n.hidden_size
    yield n.hidden_size, n.ffn_hidden_size / tensor


def _product_seconds(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Three products of each shape (output, gradient of the input, gradient of the weights) and what is computed again."""
    rows, operand = tokens(c), np.where(rates.low_bit, 1.0, 2.0)
    moved_per_s = rates.memory / constants["operand_traffic"]
    family = np.array(
        [_MAIN_GRADIENT_BYTES if one.family in {"megatron", "nvidia"} else 0.0 for one in constants.traits]
    )
    summed = family[c.framework]
    shares = (again.products, again.products, again.products, again.last_product)
    total: Numbers = np.zeros(())
    for (columns, depth), share in zip(_shapes(c), shares, strict=True):
        flops = 2.0 * rows * columns * depth
        moved = operand * (rows + columns) * depth + 2.0 * rows * columns
        one = product_seconds(flops, rates.products, moved, moved_per_s)
        with_sum = product_seconds(flops, rates.products, moved + summed * columns * depth, moved_per_s)
        total = total + (2.0 + share) * one + with_sum
    return total


def _attention_seconds(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    n, tensor = c.network, c.spread.tensor
    causal = 2.0 * tokens(c) * n.sequence_length * c.network.query_width / tensor  # half of the square's FLOPs
    narrow = constants["attention_narrow"]
    slower = (1 + constants["attention_short"] / n.sequence_length) * (1 + narrow / n.head_width) / (1 + narrow / _WIDE)
    fused = causal * (_FUSED_PASSES + again.attention) * slower / rates.attention
    unfused = (constants.trait("attention") == "unfused")[c.framework]
    if not np.any(unfused):
        return np.asarray(fused)
    scores = tokens(c) * n.sequence_length * n.num_attention_heads / tensor
    moved = constants["score_traffic"] * scores * (_SCORE_BYTES + _SCORE_BYTES_AGAIN * again.scores)
    return np.asarray(np.where(unfused, 2.0 * causal * (3.0 + again.scores) / rates.half + moved / rates.memory, fused))


def _stream_seconds(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Bytes between products, counted in passes over 16-bit tensors: normalisation and residual, activation, rotation; casts to 8 bit.

    Forward: normalisation reads and writes, twice; dropout and residual read two, write one, twice: 10 passes over the hidden state;
    the activation reads one (gated: two), writes one; the rotation reads and writes. Backward: 14, 3 (5) and 2.
    """
    n, s = c.network, c.spread
    split = np.where(s.sequence_parallel, s.tensor, 1.0)
    heads = c.network.query_width + c.network.key_value_width
    passes = (24.0 + 10.0 * again.streams) * n.hidden_size / split
    passes = passes + (5.0 + 3.0 * n.gated + (2.0 + n.gated) * again.streams) * n.ffn_hidden_size / s.tensor
    passes = passes + (4.0 + 2.0 * again.streams) * heads / s.tensor
    moved = stream_factor(c, constants) * 2.0 * passes
    if np.any(rates.low_bit):
        moved = moved + np.where(rates.low_bit, constants["cast_traffic"] * _casts(c, rates), 0.0)
    return np.asarray(tokens(c) * moved / rates.memory)


def stream_factor(c: Configurations, constants: Constants) -> Numbers:
    """Bytes moved over the least count, by who joins the operators."""
    kinds = {"fused": constants["stream_fused"], "eager": constants["stream_eager"], "xla": constants["stream_xla"]}
    return np.asarray(np.array([kinds[kind] for kind in constants.trait("streams")])[c.framework])


def _casts(c: Configurations, rates: Rates) -> Numbers:
    """Bytes per token of casting each product's operand: 16 bit read, 8 bit written; along both axes where blocks are scaled."""
    n, tensor = c.network, c.spread.tensor
    ffn, query, key = n.ffn_hidden_size, c.network.query_width, c.network.key_value_width
    widths = 2.0 * n.hidden_size + (query + ffn + query + 2.0 * key + ffn * (1.0 + n.gated)) / tensor
    return np.asarray(np.where(rates.transposed, 6.0, 3.0) * widths)


_LOGIT_BYTES = 24.0
"""Bytes per logit: written in 16 bit, read and written in fp32 for maximum, exponentials and their sum, and their gradient
(megatron-core, tensor_parallel/cross_entropy.py)."""


def output_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Three 16-bit products with the vocabulary, and the cross entropy; never computed again."""
    words = padded_vocab_size(c) / c.spread.tensor
    moved_per_s = rates.memory / constants["operand_traffic"]
    rows, width = tokens(c), c.network.hidden_size
    moved = 2.0 * ((rows + words) * width + rows * words)
    one = product_seconds(2.0 * rows * words * width, rates.half, moved, moved_per_s)
    return np.asarray(3.0 * one + stream_factor(c, constants) * rows * words * _LOGIT_BYTES / rates.memory)


def embedding_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Rows read and written, their gradients likewise."""
    return np.asarray(stream_factor(c, constants) * tokens(c) * c.network.hidden_size * 8.0 / rates.memory)


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


def neighbour_rate(c: Configurations, rates: Rates) -> Numbers:
    """Bytes per second from one pipeline stage to the next: the outermost dimension, each GPU over its own share of the adapters."""
    return np.where(c.spread.num_gpus <= c.machines.domain, rates.link, np.minimum(rates.link, rates.rail))


def tensor_seconds(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Return seconds of the all-reduces of the hidden state, or of the gathers and scatters that replace them.

    Two forward, two backward (Shoeybi et al. 2019, arXiv 1909.08053), two more with full recompute; each sends 2 (t - 1) / t of it
    (Korthikanti et al. 2022, section 4.2.2).

    Those of the input's gradient can overlap with the product of the weights' gradient: both backward ones, with sequence parallelism
    half of each, the scatter; the gather of the output's gradient stays in the way.
    """
    t, place = c.spread.tensor, c.framework
    sent = 2.0 * (t - 1.0) / t * 2.0 * tokens(c) * c.network.hidden_size
    latency = 2.0 * constants["collective_latency_s"] * constants["scale_network"]
    one = sent / ring_rate(c, rates, t, np.ones(())) + latency
    every = 4.0 + 2.0 * again.collectives
    backward = np.where(c.spread.sequence_parallel, 1.0, 2.0) * constants.trait("backward_overlap")[place]
    overlapped = np.where(constants.trait("tensor_overlap")[place], every, backward)
    exposed = every - (1.0 - constants["tensor_exposed"]) * overlapped
    return np.where(t > 1, exposed * one, 0.0)


def context_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Keys and values of the other ranks, forward, and with their gradients backward: three times two 16-bit tensors."""
    s = c.spread
    if not np.any(s.context > 1):
        return np.zeros(())
    sent = 3.0 * 2.0 * 2.0 * tokens(c) * c.network.key_value_width / s.tensor * (s.context - 1.0)
    latency = 3.0 * (s.context - 1.0) * constants["collective_latency_s"] * constants["scale_network"]
    seconds = sent / ring_rate(c, rates, s.context, s.tensor) + latency
    return np.where(s.context > 1, constants["context_exposed"] * seconds, 0.0)


def gather_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Fully sharded parameters: gathered forward and backward, gradients scattered, all in 16 bit (Zhao et al. 2023, arXiv 2304.11277)."""
    s = c.spread
    full = s.sharding == SHARDING.index("parameters")
    if not np.any(full):
        return np.zeros(())
    group = np.maximum(s.shard_group, 1.0)
    slow = np.where(constants.trait("slow_gathers")[c.framework], constants["zero3_share"], 1.0)
    rate = slow * ring_rate(c, rates, group, s.tensor)
    latency = constants["collective_latency_s"] * constants["scale_network"] * np.log2(np.maximum(group, 2.0))
    sent = (group - 1.0) / group * layer_parameters(c) * 6.0
    return np.where(full & (group > 1), sent / rate + 3.0 * latency, 0.0)


def gathers_left(gathers: Numbers, compute: Numbers, constants: Constants) -> Numbers:
    """Seconds that gathers add to the compute that they overlap with: max(a, b) + slow-down x min(a, b), less the compute (Echo, arXiv 2412.12487, has the form)."""
    if not np.any(gathers):
        return np.zeros(())
    both = np.maximum(compute, gathers) + constants["gather_slowdown"] * np.minimum(compute, gathers)
    return np.where(gathers > 0, both - compute, 0.0)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The slowest stage of a pipeline, for each micro-batch; arrays of shape [N] or []."""

    layers: Numbers
    embedding: Flags
    output: Flags
    seconds: Numbers
    others: Numbers
    """Time of all other stages together."""


def pace_of(c: Configurations, layer: Numbers, embedding: Numbers, output: Numbers) -> Pace:
    """Return the slowest stage, from the seconds of a layer, of the embedding and of the output layer."""
    p = c.spread.pipeline
    alone = p == 1
    ahead, between, behind = stage_layers(c)
    first = ahead * layer + embedding + np.where(alone, output, 0.0)
    last = behind * layer + output
    middle = np.where(p > 2, between * layer, 0.0)
    is_last = ~alone & (last >= first) & (last >= middle)
    is_first = alone | (~is_last & (first >= middle))
    seconds = np.where(is_first, first, np.where(is_last, last, middle))
    total = np.where(alone, first, first + last + (p - 2.0) * middle)
    return Pace(
        layers=np.where(is_first, ahead, np.where(is_last, behind, between)),
        embedding=np.asarray(is_first),
        output=np.asarray(is_last | alone),
        seconds=seconds,
        others=np.maximum(total - seconds, 0.0),
    )


def interleaved(c: Configurations) -> Numbers:
    """Virtual stages that take effect: one where the micro-batches are no multiple of the stages (megatron-core refuses those)."""
    return np.where(c.spread.num_microbatches % c.spread.pipeline == 0, c.spread.virtual, 1.0)


def bubble_seconds(pace: Pace, virtual: Numbers) -> Numbers:
    """Seconds in which the slowest stage waits: one pass through the other stages, divided by the virtual stages.

    1F1B: m x slowest + the sum of the others, which is (p - 1) / m of the ideal time for equal stages; interleaved / v
    (Narayanan et al. 2021, section 2.2).
    """
    return pace.others / virtual


def transfer_seconds(c: Configurations, constants: Constants, rates: Rates, virtual: Numbers) -> Numbers:
    """Activations and gradients between stages: each micro-batch forward and backward for each virtual stage, and the way through.

    Ranks of a tensor-parallel group send a share each (scatter-gather, Narayanan et al. 2021, section 4.1).
    """
    s, v = c.spread, virtual
    sent = 2.0 * tokens(c) * c.network.hidden_size / s.tensor
    one = sent / neighbour_rate(c, rates) + constants["collective_latency_s"] * constants["scale_network"]
    exposed = np.where(v > 1, constants["pipeline_exposed"], 1.0)
    return np.where(s.pipeline > 1, 2.0 * one * (s.num_microbatches * v * exposed + s.pipeline - 1.0), 0.0)


_STATE_BYTES = 32.0
"""Adam on fp32: reads the parameter, both moments and the gradient, writes the first three and the 16-bit copy."""
_GRADIENT_BYTES = 8.0
"""The gradient's norm is taken and the sum set to zero, on all ranks."""


def stage_parameters(c: Configurations) -> Numbers:
    """Parameters of a rank of the stage that holds the most, without biases' and norms' ends: those that are reduced and updated."""
    ahead, between, behind = stage_layers(c)
    ends = np.maximum(ahead, behind) * layer_parameters(c) + table_parameters(c)
    return np.where(c.spread.pipeline > 2, np.maximum(ends, between * layer_parameters(c)), ends)


def reduce_seconds(c: Configurations, constants: Constants, rates: Rates, window: Numbers) -> Numbers:
    """Return seconds of scattering gradients and gathering parameters over the data- and context-parallel ranks.

    Without a sharded optimizer gradients are reduced to all: scattered, and gathered themselves. What overlaps with
    compute is left out: `window` are the seconds of compute that it can overlap with.
    """
    s, place = c.spread, c.framework
    ranks = s.data * s.context
    gradient = constants.trait("gradient_bytes")[place]
    parameter = np.where(rates.low_bit & (constants.trait("family") == "nvidia")[place], 1.0, 2.0)
    whole = s.sharding == SHARDING.index("none")
    gathered = np.where(whole, gradient, parameter)
    gather_overlaps = np.where(whole, s.overlap_grad_reduce, s.overlap_param_gather)
    rate = ring_rate(c, rates, ranks, s.tensor)
    share = (ranks - 1.0) / ranks * stage_parameters(c) / rate
    extra = np.where(
        constants.trait("deepspeed")[place] & (s.sharding == SHARDING.index("optimizer")),
        constants["deepspeed_traffic"],
        1.0,
    )
    latency = 2.0 * constants["collective_latency_s"] * constants["scale_network"] * np.log2(np.maximum(ranks, 2.0))
    done = (ranks > 1) & (s.sharding != SHARDING.index("parameters"))
    left = np.zeros(())
    for size, hidden in ((gradient, s.overlap_grad_reduce), (gathered, gather_overlaps)):
        seconds = np.where(done, extra * share * size + latency, 0.0)
        overlapped = np.minimum(seconds, 0.5 * window)
        left = left + np.where(hidden, seconds - (1.0 - constants["data_exposed"]) * overlapped, seconds)
    return left


def window_seconds(c: Configurations, pace: Numbers, virtual: Numbers) -> Numbers:
    """Return seconds of compute that an iteration's traffic can overlap with.

    It is the last micro-batch, and with interleaving the virtual stages that other stages still work on.
    """
    in_flight = np.minimum(c.spread.num_microbatches, c.spread.pipeline)
    return pace * (1.0 + in_flight * (virtual - 1.0) / virtual)


def optimizer_seconds(c: Configurations, rates: Rates) -> Numbers:
    """Return seconds of updating this rank's share of the state, and of what every rank does with all its gradients; bound by memory."""
    s = c.spread
    shares = np.where(s.sharding >= SHARDING.index("optimizer"), np.maximum(s.shard_group, 1.0), 1.0)
    return stage_parameters(c) * (_STATE_BYTES / shares + _GRADIENT_BYTES) / rates.memory


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Seconds of one iteration of N configurations, and what they are spent on; arrays of shape [N]."""

    total: Numbers
    """Of one iteration."""
    parts: dict[str, Numbers]
    """By what it is spent on (matrix products, pipeline bubble, tensor parallel, ...); the parts add up to the total."""


def step_seconds(c: Configurations, constants: Constants) -> Seconds:
    """Predict the time of one iteration of N configurations; every part an array of shape [N], or [] where all fields are [].

    m micro-batches at the pace of the slowest stage, the bubble, and the update. FLOPs are counted by shape, bytes by pass; what a
    constant scales is said where it is used. docs/accuracy.md has the errors.
    """
    rates, again = rates_of(c, constants), again_of(c, constants)
    of_layer = layer_compute(c, constants, rates, again)
    compute = of_layer["matrix products"] + of_layer["attention"] + of_layer["memory-bound"]
    of_layer |= {
        "tensor parallel": tensor_seconds(c, constants, rates, again),
        "context parallel": context_seconds(c, constants, rates),
        "parameter gathers": gathers_left(gather_seconds(c, constants, rates), compute, constants),
    }
    layer = compute + of_layer["tensor parallel"] + of_layer["context parallel"] + of_layer["parameter gathers"]
    of_layer["host"] = _host(c, constants, layer, again.products)
    layer = layer + of_layer["host"]
    embedding, output = embedding_seconds(c, constants, rates), output_seconds(c, constants, rates)
    pace = pace_of(c, layer, embedding, output)
    m = c.spread.num_microbatches
    parts = {name: m * pace.layers * seconds for name, seconds in of_layer.items()}
    parts["memory-bound"] = parts["memory-bound"] + m * np.where(pace.embedding, embedding, 0.0)
    parts["output layer"] = m * np.where(pace.output, output, 0.0)
    virtual = interleaved(c)
    parts["pipeline bubble"] = bubble_seconds(pace, virtual)
    parts["pipeline transfers"] = transfer_seconds(c, constants, rates, virtual)
    window = window_seconds(c, pace.seconds, virtual)
    parts["data parallel"] = reduce_seconds(c, constants, rates, window)
    parts["optimizer"] = optimizer_seconds(c, rates)
    fixed = constants["host_step_s"] + m * constants["host_batch_s"]
    parts["host"] = parts["host"] + fixed * constants["scale_overhead"]
    return _summed(parts)


def _host(c: Configurations, constants: Constants, layer: Numbers, again: Numbers) -> Numbers:
    """Seconds by which the host is slower than the GPU in starting a layer's kernels; rounded off so that it can be fitted."""
    graphs = np.array([0.3 if one.family in {"nvidia", "xla"} else 1.0 for one in constants.traits])[c.framework]
    host = constants["host_layer_s"] * constants["scale_overhead"] * graphs * (1.0 + again / 3.0)
    if constants.machine is not None and constants.machine.kind == "cpu":
        return host + 0.0 * layer  # one thread launches and computes
    over = host - layer
    return 0.5 * (over + np.sqrt(over * over + (0.1 * layer) ** 2))


def _summed(parts: dict[str, Numbers]) -> Seconds:
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts.values()))
    full = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    total = np.zeros(shape)
    for part in full.values():
        total = total + part
    return Seconds(total=total, parts=full)
