"""Peak memory under other frameworks, from papers and their documentation."""

import numpy as np

from nlp_bench.layout.rules import RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import PRECISIONS, Codes, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.fits import Memory, fullest, num_communicators, overhead_bytes
from nlp_bench.plan.work import (
    Stage,
    element_bytes,
    fullest_stages,
    group_layers,
    is_float16,
    layer_parameters,
    num_tables,
    padded_vocab_size,
    recomputed_layers,
    stage_layers,
    table_parameters,
    tokens,
)

FAMILIES = ("megatron", "deepspeed", "internevo", "fsdp")
"""Megatron-LM, Megatron-Bridge, NeMo and unknown frameworks; DeepSpeed with ZeRO-1 or 2; InternEvo; full sharding of any name."""

COUNTS = {"megatron": "allocated", "deepspeed": "device", "internevo": "device", "fsdp": "reserved"}
"""What a published peak of the family is.

allocated: tensors, `torch.cuda.max_memory_allocated` (SimuMax's tables for Megatron-LM) or a formula (Korthikanti et al., figure 1);
reserved: what PyTorch's allocator took from CUDA (torchtitan prints `reserved_bytes.all.peak`);
device: the GPU's memory in use, context and communicators included (nvidia-smi: bigscience, chronicles-prequel.md).
InternEvo's page does not say which; its figures lie far above the tensors.
"""

_WORDS = {
    "deepspeed": "deepspeed", "neox": "deepspeed", "internevo": "internevo", "torchtitan": "fsdp", "fsdp": "fsdp", "foundry": "fsdp",
    "composer": "fsdp", "maxtext": "fsdp", "paxml": "fsdp", "jax": "fsdp",
}  # fmt: skip

_FUSED_LOSS_WORDS = ("foundry", "composer", "maxtext", "paxml", "jax")


def family_of(framework: str) -> str:
    """Return the family that a framework's name belongs to."""
    name = framework.lower()
    return next((family for word, family in _WORDS.items() if word in name), "megatron")


def families(c: Configurations, constants: Constants) -> Codes:
    """Return positions in FAMILIES; full sharding (FSDP, ZeRO-3) is the fsdp family in every framework but InternEvo."""
    table = np.array([FAMILIES.index(family_of(name)) for name in constants.frameworks])
    own = table[c.framework]
    sharded = c.spread.sharding == SHARDING.index("parameters")
    return np.where(sharded & (own != FAMILIES.index("internevo")), FAMILIES.index("fsdp"), own)


def _by_family(c: Configurations, constants: Constants, options: dict[str, Numbers]) -> Numbers:
    """Return the option of each configuration's family."""
    family = families(c, constants)
    return np.select([family == FAMILIES.index(name) for name in options], list(options.values()))


def published_stages(c: Configurations) -> tuple[Stage, Stage, Stage]:
    """Return the first, the second and the last stage; where there are fewer, some are the same.

    Layers that do not divide are spread as publications describe it: where layers + 2 divide, the embedding and the output layer
    take the place of one layer each (bigscience tr11-176B-ml; Megatron-LM --account-for-embedding-in-pipeline-split); else the
    fullest stage has the next whole number.
    """
    layers, pipeline = c.network.num_layers, c.spread.pipeline
    uneven = (layers % pipeline != 0) & (c.spread.first_layers == 0) & (c.spread.last_layers == 0)
    slots, most = (layers + 2) % pipeline == 0, np.ceil(layers / pipeline)
    end, inner = (np.where(slots, (layers + 2) / pipeline - tables, most) for tables in (1, 0))
    ahead, middle, behind = stage_layers(c)
    shared = np.where(uneven, end, ahead), np.where(uneven, inner, middle), np.where(uneven, end, behind)
    return fullest_stages(c, shared)


def in_flight(c: Configurations, stage: Stage) -> Numbers:
    """Micro-batches whose activations a stage holds at a time, as a real number of its layers' worth.

    1F1B: min(m, p - rank) (Narayanan et al. 2021, arXiv 2104.04473, section 2.2); interleaved: the chunks of the warm-up,
    ((v + 1) p - 2 rank - 1) / v, which is p (1 + (p - 1) / (p v)) on the first stage (Korthikanti et al. 2022, arXiv 2205.05198).
    """
    pipeline, virtual = c.spread.pipeline, c.spread.virtual
    plain = pipeline - stage.rank
    interleaved = ((virtual + 1) * pipeline - 2 * stage.rank - 1) / virtual
    return np.minimum(np.maximum(c.spread.num_microbatches, 1.0), np.where(virtual > 1, interleaved, plain))


def state_parts(c: Configurations, constants: Constants, stage: Stage) -> dict[str, Numbers]:
    """Return bytes of the weights, gradients and optimizer state that a rank of this stage holds; arrays of shape [N].

    Bytes per parameter in 16 bits, S ranks share (S = 1 where nothing is sharded):
    megatron 2 + 4 + 12 / S (Megatron-LM docs, distributed optimizer);
    deepspeed 2 + 2 + (12 + 4) / S in fp16 (ZeRO-1 keeps an fp32 copy of its share of the gradients, DeepSpeed
    runtime/zero/stage_1_and_2.py), 2 + g + 12 / S in bf16 (runtime/bf16_optimizer.py), the gradients / S too under ZeRO-2;
    fsdp (4 + 4 + 8) / S (fp32 shards, under SHARD_GRAD_OP too; PyTorch FSDP2, Liang et al. 2024, arXiv 2410.06511);
    internevo 2 + 2 + (x - 4) / S, or x / S where all is sharded.
    In fp32 weights and gradients have 4 bytes, and no fp32 copy of theirs is kept beside them: 4 + 4 + 8 / S.
    """
    parameters, half, memory = _rank_parameters(c, stage), is_float16(c), constants.memory
    weight = element_bytes(c)
    copy = 2 * (4 - weight)  # the fp32 master weights
    adam = 8.0 + copy  # and both moments
    weights, gradients, optimizer = (
        np.where(c.spread.sharding >= SHARDING.index(name), np.maximum(c.spread.shard_group, 1.0), 1.0)
        for name in ("parameters", "gradients", "optimizer")
    )
    deepspeed_gradient = np.where(half, 2.0, np.where(copy > 0, memory.deepspeed_bf16_gradient_bytes, 4.0))
    each = {
        "megatron": (weight / weights, 4.0 / gradients, adam / optimizer),
        "deepspeed": (weight / weights, deepspeed_gradient / gradients, (adam + 4.0 * half) / optimizer),
        "internevo": (
            weight / weights,
            weight / gradients,
            (memory.internevo_state_bytes - 12.0 + 2 * copy) / optimizer,
        ),
        "fsdp": (4.0 / gradients, 4.0 / gradients, 8.0 / optimizer),
    }
    return {
        name: _by_family(c, constants, {family: parts[place] for family, parts in each.items()}) * parameters
        for place, name in enumerate(("weights", "gradients", "optimizer"))
    }


def _rank_parameters(c: Configurations, stage: Stage) -> Numbers:
    """Parameters of a rank of this stage, shared or not."""
    return stage.layers * layer_parameters(c) + num_tables(c, stage) * table_parameters(c)


_FUSED_LOSS, _DEEPSPEED_LOSS, _PLAIN_LOSS = 4.0, 8.0, 12.0
"""Bytes per logit at the peak besides 16-bit logits (2). Fused: fp32 in place (4). DeepSpeed (Megatron's older vocabulary-parallel
loss): the fp32 gradient (4) too. PyTorch's own: the fp32 log-softmax (4), its gradient (4) and that of the loss (4)."""
_UNFUSED = ("before flash", "nemo-megatron")


def activation_bytes(c: Configurations, constants: Constants, stage: Stage) -> Numbers:
    """Bytes kept for the backward pass by all micro-batches in flight, with the recomputed layer and the loss.

    A layer keeps without or with selective recompute `full_layer_bytes`, half of it in torchtitan's selective one, which keeps every
    second matrix product (torchtitan/parallelisms/parallelize_llama.py); with full its input, 2 s b h, divided by the tensor-parallel
    size under sequence parallelism (Korthikanti et al. 2022): of each layer, or of each group of layers that is computed again together.
    """
    whole = full_layer_bytes(c, constants)
    selective = np.where(families(c, constants) == FAMILIES.index("fsdp"), 0.5, 1.0) * whole
    kept = np.where(c.spread.recompute == RECOMPUTE.index("none"), whole, selective)
    again, virtual = recomputed_layers(c, stage.layers / c.spread.virtual), c.spread.virtual
    groups, stored = virtual * again / group_layers(c), stage.layers - virtual * again
    rerun = np.where((again > 0) & (stored == 0), group_layers(c) * whole, 0.0)
    kept = groups * boundary_bytes(c) + stored * kept
    return in_flight(c, stage) * kept + rerun + stage.last * logit_bytes(c, constants)


def full_layer_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of all tensors that the backward pass of one layer needs, one micro-batch; in 16 bits, in fp32 twice that but for masks.

    s b (8 h + 4 q + 4 k + (4 or, gated, 6) f), and 2 h more for dropout masks where linear layers have biases (the GPT-3 recipe);
    q, k: width of all query and of all key heads. For a GPT with f = 4 h this is the 34 s b h of Korthikanti et al. 2022. What lies
    outside matrix products (10 h of it, 8 h without dropout) is divided by the tensor-parallel size under sequence parallelism only.
    Under fp8 and fp4 Transformer Engine keeps the inputs of the four products in 8 bits: 2 h + q + f less.
    """
    n, tensor = c.network, c.spread.tensor
    small = np.array(["fp8" in name or "fp4" in name for name in PRECISIONS])[c.precision]
    short = 1.0 * (small & (families(c, constants) == FAMILIES.index("megatron")))
    # dropout masks, judged by the shape: biases and no gate are the GPT-3 recipe, which drops out 10 %
    wide = element_bytes(c) / 2
    outside = n.hidden_size * (wide * (8.0 - 2.0 * short) + 2.0 * (n.linear_biases & ~n.gated))
    inside = (4 - short) * n.query_width + 4 * n.key_value_width + n.ffn_hidden_size * (4.0 - short + 2.0 * n.gated)
    return np.asarray(tokens(c) * (outside / _sequence_split(c) + (wide * inside + _core_width(c, constants)) / tensor))


def _core_width(c: Configurations, constants: Constants) -> Numbers:
    """Bytes per token of scores, their softmax and its dropout where attention is not fused: 5 a s (Korthikanti et al. 2022), in fp32 9 a s.

    That is assumed for DeepSpeed's rows and for Megatron's from before flash attention (2023), by the name of the framework's entry, without
    any recomputation; selective recomputation drops it.
    """
    old = np.array([any(word in name.lower() for word in _UNFUSED) for name in constants.frameworks])[c.framework]
    unfused = old & (c.spread.recompute == RECOMPUTE.index("none"))
    unfused = unfused | (families(c, constants) == FAMILIES.index("deepspeed"))
    each = 2 * element_bytes(c) + 1.0  # and a mask
    return np.asarray(each * c.network.num_attention_heads * c.network.sequence_length / c.spread.context * unfused)


def boundary_bytes(c: Configurations) -> Numbers:
    """Bytes of the tensor between two layers."""
    return element_bytes(c) * tokens(c) * c.network.hidden_size / _sequence_split(c)


def logit_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of the logits of one micro-batch, with what the loss and its gradient add.

    The loss works in the logits in Megatron-LM's family, llm-foundry (loss_fn: fused_crossentropy), and what XLA compiles.
    """
    fused = [
        family_of(name) == "megatron" or any(word in name.lower() for word in _FUSED_LOSS_WORDS)
        for name in constants.frameworks
    ]
    deepspeed = families(c, constants) == FAMILIES.index("deepspeed")
    plain = ~np.array(fused)[c.framework] & ~deepspeed
    each = np.select([plain, deepspeed], [_PLAIN_LOSS, _DEEPSPEED_LOSS], _FUSED_LOSS)
    # the losses of Megatron-LM work in fp32 logits themselves
    logits = np.where(element_bytes(c) < 4, 2.0, 4.0 * plain)
    return np.asarray((logits + each) * tokens(c) * padded_vocab_size(c) / c.spread.tensor)


def _sequence_split(c: Configurations) -> Numbers:
    return np.where(c.spread.sequence_parallel, c.spread.tensor, 1.0)


def buffer_bytes(c: Configurations, constants: Constants, stage: Stage) -> Numbers:
    """Bytes besides state and activations, by family.

    megatron: placeholders of the weight gradients that are summed in place, of the weights' format, one per shape of weight: a layer and a table
    (Transformer Engine `get_dummy_wgrad`; megatron-core tensor_parallel/layers.py);
    deepspeed: outputs of the stage, one per micro-batch in flight (DeepSpeed runtime/pipe/engine.py), and under
    ZeRO a fitted constant;
    fsdp: see `_sharded`; internevo: the same where all is sharded.
    """
    zero = constants.memory.deepspeed_buffer_bytes * (c.spread.sharding > 0)
    sharded = _sharded(c, stage)
    options = {
        "megatron": element_bytes(c) * (layer_parameters(c) + table_parameters(c)),
        "deepspeed": boundary_bytes(c) * in_flight(c, stage) + zero,
        "internevo": np.where(c.spread.sharding == SHARDING.index("parameters"), sharded, 0.0),
        "fsdp": sharded,
    }
    return _by_family(c, constants, options)


def _sharded(c: Configurations, stage: Stage) -> Numbers:
    """Return the bytes that full sharding gathers temporarily.

    Without a pipeline two layers in bf16 (one computes, the next is fetched), a table in bf16, and one layer's gradients in bf16 and,
    on their way, in fp32 (FSDP2, arXiv 2410.06511). With a pipeline, or where the parameters stay, all of the stage's parameters in
    bf16; with a pipeline its gradients too, in fp32, because torchtitan neither reshards nor reduces between micro-batches
    (parallelize_llama.py: reshard_after_forward = False), a receive buffer for each micro-batch and direction, and the outputs of
    those in flight (torch.distributed.pipelining.stage).
    """
    layer, table, all_of_it = layer_parameters(c), table_parameters(c), _rank_parameters(c, stage)
    piped = c.spread.pipeline > 1
    stays = piped | (c.spread.sharding < SHARDING.index("parameters"))
    alone = c.spread.shard_group <= 1
    passed = (2 * np.maximum(c.spread.num_microbatches, 1.0) + in_flight(c, stage)) * boundary_bytes(c)
    element = element_bytes(c)
    weights = element * np.where(stays, all_of_it, 2 * layer + table)
    gradients = np.where(piped & ~alone, 4 * all_of_it, 0.0) + (element + 4) * layer
    return weights + gradients + np.where(piped, passed, 0.0)


def published_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the fullest rank of N configurations of any framework but this package's trainer; arrays of shape [N].

    The fullest is the first, the second or the last stage of the pipeline. `Memory.reported` is what the family's publications
    count (see COUNTS).
    """
    stages = []
    for stage in published_stages(c):
        parts = state_parts(c, constants, stage)
        parts["activations"] = activation_bytes(c, constants, stage)
        parts["buffers"] = buffer_bytes(c, constants, stage)
        dynamic = parts["activations"] + parts["buffers"]
        stages.append(parts | {"overhead": overhead_bytes(constants, num_communicators(c), dynamic)})
    parts = fullest(stages)
    total = np.asarray(sum(parts.values()))
    # a published figure leaves out all overhead where tensors are counted, all but the allocator's where it reserves
    rounding = constants.memory.allocator_share * (parts["activations"] + parts["buffers"])
    left_out = {"allocated": parts["overhead"], "reserved": parts["overhead"] - rounding, "device": np.zeros(())}
    return Memory(
        total=total,
        parts=parts,
        capacity=c.machines.memory_bytes,
        fits_below=constants.memory.published_fits_below,
        fails_above=constants.memory.fails_above,
        reported=total - _by_family(c, constants, {name: left_out[word] for name, word in COUNTS.items()}),
    )
