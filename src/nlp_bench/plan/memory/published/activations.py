"""Activations of other frameworks: what one layer keeps, and what the loss needs."""

import numpy as np

from nlp_bench.plan.configurations import RECOMPUTE, Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.published.families import FAMILIES, families, has_fused_loss
from nlp_bench.plan.memory.published.stages import in_flight
from nlp_bench.plan.work.products import key_width, padded_vocab_size, query_width, tokens
from nlp_bench.plan.work.stages import Stage

_FUSED_LOSS, _DEEPSPEED_LOSS, _PLAIN_LOSS = 6.0, 10.0, 14.0
"""Bytes per logit at the peak. Fused: bf16 (2) and fp32 in place (4). DeepSpeed (Megatron's older vocabulary-parallel loss): the fp32
gradient (4) too. PyTorch's own: bf16 (2), the fp32 log-softmax (4), its gradient (4) and that of the loss (4)."""
_UNFUSED = ("before flash", "nemo-megatron")


def activation_bytes(c: Configurations, constants: Constants, stage: Stage) -> Numbers:
    """Bytes kept for the backward pass by all micro-batches in flight, with the layer that is computed anew and the loss."""
    kept = stage.layers * in_flight(c, stage) * layer_bytes(c, constants)
    return kept + working_bytes(c, constants) + stage.last * logit_bytes(c, constants)


def layer_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes that one layer keeps of one micro-batch, by recomputation.

    none and selective: `full_layer_bytes`, and of it half in torchtitan's selective recomputation, which keeps every second matrix
    product (torchtitan/parallelisms/parallelize_llama.py); full: the layer's input, 2 s b h, divided by the tensor-parallel size
    under sequence parallelism (Korthikanti et al. 2022).
    """
    fsdp = families(c, constants) == FAMILIES.index("fsdp")
    kept = full_layer_bytes(c, constants)
    selective = np.where(fsdp, 0.5, 1.0) * kept
    options = {"none": kept, "selective": selective, "full": boundary_bytes(c)}
    return np.select([c.spread.recompute == RECOMPUTE.index(name) for name in options], list(options.values()))


def full_layer_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of all tensors that the backward pass of one layer needs, one micro-batch.

    s b (8 h + 4 q + 4 k + (4 or, gated, 6) f), and 2 h more for dropout masks where linear layers have biases (the GPT-3 recipe);
    q, k: width of all query and of all key heads. For a GPT with f = 4 h this is the 34 s b h of Korthikanti et al. 2022. What lies
    outside matrix products (10 h of it, 8 h without dropout) is divided by the tensor-parallel size under sequence parallelism only.
    Under fp8 and fp4 Transformer Engine keeps the inputs of the four products in 8 bits: 2 h + q + f less.
    """
    n, tensor = c.network, c.spread.tensor
    short = 1.0 * _keeps_8_bits(c, constants)
    outside = n.hidden_size * (8.0 - 2.0 * short + 2.0 * has_dropout(c))
    inside = (4 - short) * query_width(c) + 4 * key_width(c) + n.ffn_hidden_size * (4.0 - short + 2.0 * n.gated)
    return np.asarray(tokens(c) * (outside / _sequence_split(c) + (inside + core_width(c, constants)) / tensor))


def core_width(c: Configurations, constants: Constants) -> Numbers:
    """Bytes per token of scores, their softmax and its dropout where attention is not fused: 5 a s (Korthikanti et al. 2022).

    That is taken for DeepSpeed's rows and for Megatron's from before flash attention (2023), as the framework's entry is named, without
    any recomputation; selective recomputation drops it.
    """
    old = np.array([any(word in name.lower() for word in _UNFUSED) for name in constants.frameworks])[c.framework]
    unfused = old & (c.spread.recompute == RECOMPUTE.index("none"))
    unfused = unfused | (families(c, constants) == FAMILIES.index("deepspeed"))
    return np.asarray(5.0 * c.network.num_attention_heads * c.network.sequence_length / c.spread.context * unfused)


def has_dropout(c: Configurations) -> Flags:
    """Whether dropout masks are kept, as far as the shape tells: biases and no gate are the GPT-3 recipe, which drops out 10 %."""
    return np.asarray(c.network.linear_biases & ~c.network.gated)


def boundary_bytes(c: Configurations) -> Numbers:
    """Bytes of the tensor between two layers."""
    return 2 * tokens(c) * c.network.hidden_size / _sequence_split(c)


def working_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of the one layer that is computed anew under full recomputation."""
    return np.where(c.spread.recompute == RECOMPUTE.index("full"), full_layer_bytes(c, constants), 0.0)


def logit_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of the logits of one micro-batch, with what the loss and its gradient add."""
    deepspeed = families(c, constants) == FAMILIES.index("deepspeed")
    each = np.select([has_fused_loss(c, constants), deepspeed], [_FUSED_LOSS, _DEEPSPEED_LOSS], _PLAIN_LOSS)
    return np.asarray(each * tokens(c) * padded_vocab_size(c) / c.spread.tensor)


def _keeps_8_bits(c: Configurations, constants: Constants) -> Flags:
    small = np.array(["fp8" in name or "fp4" in name for name in constants.precisions])[c.precision]
    return np.asarray(small & (families(c, constants) == FAMILIES.index("megatron")))


def _sequence_split(c: Configurations) -> Numbers:
    return np.where(c.spread.sequence_parallel, c.spread.tensor, 1.0)
