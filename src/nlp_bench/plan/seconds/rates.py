"""What a machine does per second of each kind of work: data sheet times the share that is reached."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants


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
