"""The constants of the memory model: table [memory] of benchmark/plan.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from nlp_bench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class MemoryConstants:
    """What no formula tells; the sources stand beside the values in the file."""

    deepspeed_bf16_gradient_bytes: float
    """Bytes per parameter that DeepSpeed's BF16_Optimizer holds for gradients: bf16, the fp32 sum, and what it copies; fitted."""
    deepspeed_buffer_bytes: float
    """Buckets of DeepSpeed's ZeRO-1 and what else nvidia-smi sees beyond tensors, context and communicators; fitted."""
    internevo_state_bytes: float
    """Bytes per parameter of InternEvo: weights, gradients, optimizer state and the copies of its step; fitted."""
    context_bytes: float
    """CUDA context with the kernels that a process loads, cuBLAS workspace included; a published figure."""
    communicator_bytes: float
    """Buffers of one NCCL communicator; a published figure."""
    allocator_share: float
    """Share of the activations and buffers that PyTorch's allocator adds by rounding and fragmentation; an allowance."""
    fits_below: float
    """Share of the GPU's memory up to which this package's trainer surely fits; a rule."""
    published_fits_below: float
    """The same for other frameworks, whose tensors are not counted one by one; a rule."""
    fails_above: float
    """Share of the GPU's memory above which a configuration surely does not fit; a rule."""


FITTED = (
    "deepspeed_bf16_gradient_bytes",
    "deepspeed_buffer_bytes",
    "internevo_state_bytes",
)
"""Constants that research/planner/memory.py finds; the others are published figures or rules."""


def memory_constants(table: Mapping[str, Any], where: str = "benchmark/plan.toml") -> MemoryConstants:
    """Read table [memory]: each constant is a table with `value` and `source`.

    Raises UsageError that names the constant where one is missing, unknown, without a source, or not a number of 0 or more.
    """
    names = [field.name for field in fields(MemoryConstants)]
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise UsageError(f"{where}: [memory] has no constant {unknown[0]!r}: the constants are {', '.join(names)}")
    return MemoryConstants(**{name: _value(table, name, where) for name in names})


def _value(table: Mapping[str, Any], name: str, where: str) -> float:
    entry = table.get(name)
    if not isinstance(entry, Mapping) or not entry.get("source"):
        raise UsageError(
            f'{where}: [memory] needs {name} = {{ value = NUMBER, source = "WHERE IT COMES FROM" }}, not {entry!r}'
        )
    value = entry.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise UsageError(f"{where}: [memory] {name}: value = {value!r} is not a number of 0 or more")
    return float(value)
