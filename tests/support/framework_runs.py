"""Configurations of other frameworks, made by hand: what is not named is one GPU's share of a small GPT."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from nlp_bench.layout.rules import METHODS, MODULES, RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import PRECISIONS, Configurations, Machines, Network, Spread
from nlp_bench.plan.constants import Constants, MemoryConstants, read_constants

FRAMEWORKS = (
    "nlp-bench", "Megatron-LM", "Megatron-DeepSpeed", "InternEvo", "torchtitan", "NeMo", "Megatron-LM before flash attention", "somebody's own",
)  # fmt: skip
GPT = {
    "num_layers": 8, "hidden_size": 1024, "ffn_hidden_size": 4096, "num_attention_heads": 16, "num_query_groups": 16, "head_width": 64,
    "vocab_size": 51200, "vocab_multiple": 1, "sequence_length": 2048, "num_learned_positions": 0, "gated": False,
    "untied_embeddings": False, "linear_biases": True, "norm_biases": True, "dropout": False,
}  # fmt: skip
ALONE = {
    "num_gpus": 1, "tensor": 1, "pipeline": 1, "virtual": 1, "context": 1, "data": 1, "micro_batch_size": 1, "global_batch_size": 64,
    "first_layers": 0, "last_layers": 0, "recompute": "none", "recompute_method": "uniform", "recompute_num_layers": 1,
    "recompute_modules": (), "sequence_parallel": False, "sharding": "none", "shard_group": 1,
    "overlap_grad_reduce": False, "overlap_param_gather": False,
}  # fmt: skip
A100 = {
    "gpu": 0, "gpus_per_node": 8, "domain": 8, "peak_flops": 312e12, "half_flops": 312e12, "memory_bytes_per_s": 2.0e12,
    "link_bytes_per_s": 300e9, "fabric_bytes_per_s": 200e9, "memory_bytes": 80 * 2**30,
}  # fmt: skip


CODES: dict[str, tuple[Any, ...]] = {
    "recompute": RECOMPUTE, "recompute_method": METHODS, "recompute_modules": MODULES, "sharding": SHARDING, "precision": PRECISIONS,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Few:
    memory: MemoryConstants
    frameworks: tuple[str, ...] = FRAMEWORKS


def constants() -> Constants:
    """The committed memory constants, with the names above."""
    return cast("Constants", _Few(memory=read_constants().memory))


def run(framework: str = "Megatron-LM", precision: str | list[str] = "bf16", **changes: Any) -> Configurations:
    """One configuration, or one per value of a list; whatever is not named is GPT, ALONE and A100."""
    values = {**GPT, **ALONE, **A100, **changes}
    length = max((len(value) for value in values.values() if isinstance(value, list)), default=1)
    return Configurations(
        network=Network(**{name: _array(name, values[name], length) for name in GPT}),
        spread=Spread(**{name: _array(name, values[name], length) for name in ALONE}),
        machines=Machines(**{name: _array(name, values[name], length) for name in A100}),
        framework=np.full(length, FRAMEWORKS.index(framework)),
        precision=_array("precision", precision, length),
    )


def _array(name: str, value: Any, length: int) -> Any:
    values = value if isinstance(value, list) else [value] * length
    if words := CODES.get(name):
        return np.array([words.index(word) for word in values])
    kind = np.int64 if name == "gpu" else bool if isinstance(values[0], bool) else np.float64
    return np.array(values, dtype=kind)
