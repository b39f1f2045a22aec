"""How a published row spreads its work over ranks, with a rule for each cell that may be blank."""

import re
from collections.abc import Mapping
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.plan.configurations import RECOMPUTE, SHARDING
from nlp_bench.plan.frameworks import Framework
from nlp_bench.plan.points.cells import cell, yes

_STATE_BYTES = 18.0
"""Of a parameter in mixed precision with Adam: weights 2, gradients 4, fp32 state 12."""


def spread_of(
    row: Mapping[str, str], trait: Framework, model: Mapping[str, Any], machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every field of a Spread; blank cells follow the rules of the framework's documentation."""
    gpus, tensor, pipeline = cell(row, "n_gpus"), cell(row, "tp"), cell(row, "pp")
    context = cell(row, "cp", 1.0)
    data = gpus / (tensor * pipeline * context)
    batch = cell(row, "gbs")
    micro = min(cell(row, "mbs", 1.0), max(batch / data, 1e-9))
    virtual = _virtual(row, trait, model, pipeline, batch / (data * micro))
    sharding, group = _sharding(row, trait, {**model, **machine}, data * context, pipeline)
    ends = _uneven(model["num_layers"], pipeline, virtual)
    return {
        "num_gpus": gpus,
        "tensor": tensor,
        "pipeline": pipeline,
        "virtual": virtual,
        "context": context,
        "data": data,
        "micro_batch_size": micro,
        "global_batch_size": batch,
        "first_layers": ends[0],
        "last_layers": ends[1],
        "recompute": _recompute(row["recompute"]),
        "sequence_parallel": tensor > 1 and yes(row, "sequence_parallel", otherwise=trait.tensor_overlap),
        "sharding": SHARDING.index(sharding),
        "shard_group": group,
        "overlap_grad_reduce": trait.overlap,
        "overlap_param_gather": trait.overlap,
    }


def _recompute(words: str) -> int:
    """Return the position in RECOMPUTE that a column's words begin with or hold; other words and a blank are none."""
    plain = words.lower()
    return next((place for place, word in reversed(list(enumerate(RECOMPUTE))) if word in plain), 0)


def _virtual(
    row: Mapping[str, str], trait: Framework, model: Mapping[str, Any], pipeline: float, micro: float
) -> float:
    """Return the virtual stages; where blank, one unless the framework's documentation gives each layer a chunk."""
    if row["vpp"] or pipeline == 1 or not trait.one_per_chunk or micro % pipeline:
        return cell(row, "vpp", 1.0) if pipeline > 1 else 1.0
    layers = model["num_layers"]
    return float(next((n // pipeline for n in (layers, layers + 2) if n % pipeline == 0), 1.0))


def _uneven(layers: float, pipeline: float, virtual: float) -> tuple[float, float]:
    """Return the layers of the first and the last stage where embedding and output layer count as a layer each, else zeros.

    Llama 3.1's 126 layers and BLOOM's 70 are two fewer than their chunks (arXiv 2407.21783, section 3.3.2; arXiv 2211.05100).
    """
    chunks = pipeline * virtual
    if pipeline > 1 and layers % chunks and (layers + 2) % chunks == 0:
        fewer = (layers + 2) / pipeline - 1
        return fewer, fewer
    return 0.0, 0.0


def _sharding(
    row: Mapping[str, str],
    trait: Framework,
    sizes: Mapping[str, Any],
    ranks: float,
    pipeline: float,
) -> tuple[str, float]:
    """Return what is sharded and over how many ranks, from the words of the column, else from the framework's defaults."""
    words, told = _sharding_words(row["sharding"])
    group = min(float(told or ranks), ranks)
    if told is None and "hsdp" in words:
        group = min(sizes["gpus_per_node"], ranks)  # torch's HYBRID_SHARD: shards within a node, copies between nodes
    elif told is None and {"fsdp", "dp"} <= words:
        group = _enough(sizes, ranks)
    kinds = {_KINDS[word] for word in words}
    if "parameters" in kinds:
        # with a pipeline parameters stay gathered from the first forward to the last backward
        return ("gradients" if "gradients" in kinds or pipeline > 1 else "parameters"), group
    if "gradients" in kinds:
        return "gradients", group
    if trait.family in {"eager", "xla"} and not words:
        return "parameters", group
    optimizer = yes(row, "distributed_optimizer", otherwise="optimizer" in kinds or trait.family == "nvidia")
    return ("optimizer", group) if optimizer else ("none", 1.0)


_KINDS = {
    "none": "none", "ddp": "none", "dp": "none",
    "zero-1": "optimizer", "zero1": "optimizer", "zero-2": "gradients", "zero2": "gradients", "shard_grad_op": "gradients",
    "zero-3": "parameters", "zero3": "parameters", "fsdp": "parameters", "fsdp2": "parameters", "hsdp": "parameters",
    "full_shard": "parameters", "hybrid_shard": "parameters",
}  # fmt: skip
"""Words of the column `sharding`, and what they share out; a number after = or "over" is the ranks that hold one share each."""


def _sharding_words(text: str) -> tuple[set[str], str | None]:
    """Return the known words of a cell and the ranks of a group that it tells; raises UsageError for any other word."""
    plain = re.sub(r"over all[- ]?dp\b", "", text.lower())
    told = re.search(r"(?:=|\bover) ?(\d+)\b", plain)
    words = set(re.findall(r"[^\s+,/]+", plain.replace(told[0], " ") if told else plain))
    if unknown := sorted(words - set(_KINDS)):
        raise UsageError(
            f'sharding = {text[:40]!r}: unknown word {unknown[0]!r}; known are {", ".join(_KINDS)}, each with =N or "over N" '
            "for groups of N ranks"
        )
    return ({"hsdp"} if "hybrid_shard" in words else set()) | words, told[1] if told else None


def _enough(sizes: Mapping[str, Any], ranks: float) -> float:
    """Return the smallest power of two of nodes whose half memory holds the state, in ranks."""
    h, kv = sizes["hidden_size"], sizes["num_query_groups"] / sizes["num_attention_heads"]
    layer = 2 * h * h * (1 + kv) + h * sizes["ffn_hidden_size"] * (2 + sizes["gated"])
    state = _STATE_BYTES * (sizes["num_layers"] * layer + h * sizes["vocab_size"])
    group = sizes["gpus_per_node"]
    while group < ranks and state / group > 0.5 * sizes["memory_bytes"]:
        group *= 2
    return float(min(group, ranks))
