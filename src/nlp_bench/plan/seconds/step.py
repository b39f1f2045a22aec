"""Seconds of one iteration: the parts put together."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.again import again_of
from nlp_bench.plan.seconds.collectives import context_seconds, gather_seconds, gathers_left, tensor_seconds
from nlp_bench.plan.seconds.ends import embedding_seconds, output_seconds
from nlp_bench.plan.seconds.layer import layer_compute
from nlp_bench.plan.seconds.pipeline import bubble_seconds, interleaved, pace_of, transfer_seconds
from nlp_bench.plan.seconds.rates import rates_of
from nlp_bench.plan.seconds.update import optimizer_seconds, reduce_seconds, window_seconds


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
