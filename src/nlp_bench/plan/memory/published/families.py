"""Frameworks that share a way to hold a model, and what each one's publications count as peak memory."""

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Codes, Configurations, Flags
from nlp_bench.plan.constants import Constants

FAMILIES = ("megatron", "deepspeed", "internevo", "fsdp")
"""Megatron-LM, Megatron-Bridge, NeMo and whoever is not known; DeepSpeed with ZeRO-1 or 2; InternEvo; full sharding of whatever name."""

COUNTS = {"megatron": "allocated", "deepspeed": "device", "internevo": "device", "fsdp": "reserved"}
"""What a published peak of the family is.

allocated: tensors, `torch.cuda.max_memory_allocated` (SimuMax's tables for Megatron-LM) or a formula (Korthikanti et al., figure 1);
reserved: what PyTorch's allocator took from CUDA (torchtitan prints `reserved_bytes.all.peak`);
device: the GPU's memory in use, context and communicators included (nvidia-smi: bigscience, chronicles-prequel.md).
InternEvo's page does not say which; its figures lie far above the tensors.
"""

_WORDS = {
    "deepspeed": "deepspeed",
    "neox": "deepspeed",
    "internevo": "internevo",
    "torchtitan": "fsdp",
    "fsdp": "fsdp",
    "foundry": "fsdp",
    "composer": "fsdp",
    "maxtext": "fsdp",
    "paxml": "fsdp",
    "jax": "fsdp",
}

_FUSED_LOSS = ("foundry", "composer", "maxtext", "paxml", "jax")


def family_of(framework: str) -> str:
    """Return the family that a framework's name belongs to."""
    name = framework.lower()
    return next((family for word, family in _WORDS.items() if word in name), "megatron")


def families(c: Configurations, constants: Constants) -> Codes:
    """Return positions in FAMILIES; full sharding (FSDP, ZeRO-3) is the fsdp family whoever does it, but for InternEvo."""
    table = np.array([FAMILIES.index(family_of(name)) for name in constants.frameworks])
    own = table[c.framework]
    sharded = c.spread.sharding == SHARDING.index("parameters")
    return np.where(sharded & (own != FAMILIES.index("internevo")), FAMILIES.index("fsdp"), own)


def has_fused_loss(c: Configurations, constants: Constants) -> Flags:
    """Whether the loss works in the logits: Megatron-LM's family, llm-foundry (loss_fn: fused_crossentropy), and what XLA compiles."""
    fused = [
        family_of(name) == "megatron" or any(word in name.lower() for word in _FUSED_LOSS)
        for name in constants.frameworks
    ]
    return np.array(fused)[c.framework]
