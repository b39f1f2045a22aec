"""Training frameworks: what their documentation says of how they compute and send. Tables [[framework]] of benchmark/plan.toml."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.errors import UsageError

FAMILIES = ("megatron", "nvidia", "eager", "xla")
ATTENTION = ("flash", "flash2", "triton", "unfused")
STREAMS = ("fused", "eager", "xla")


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One entry; the file says what each word means."""

    name: str
    """What `Constants.frameworks` has."""
    family: str
    """Of FAMILIES."""
    attention: str
    """Of ATTENTION."""
    streams: str
    """Of STREAMS: who joins what lies between the matrix products."""
    overlap: bool
    """Whether data-parallel traffic runs beside compute, unless a configuration says otherwise."""
    gradient_bytes: float
    """Bytes of one gradient on the network."""
    source: str
    """Where this is written."""
    words: tuple[str, ...] = ()
    """Parts of a published framework's name, lower case."""
    before: float = float("inf")
    """Year, with its fraction, from which on the entry no longer holds."""
    since: float = 0.0
    """Year from which on it holds."""
    after_ampere: bool = False
    """Whether it holds on GPUs after Ampere only."""
    tensor_overlap: bool = False
    """Whether all tensor-parallel traffic runs beside products (userbuffers)."""
    backward_overlap: bool = False
    """Whether that of the input's gradient runs beside the product of the weights' gradient (megatron-core,
    tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication)."""
    early_stop: bool = False
    """Whether recomputation leaves out the last product of a layer, whose result nobody needs."""
    half_recomputed: bool = False
    """Whether selective recompute means every other product and all that lies between."""
    one_per_chunk: bool = False
    """Whether virtual stages, where they are not stated, hold one layer each."""
    deepspeed: bool = False
    """Whether DeepSpeed's pipeline engine reduces the gradients of a sharded optimizer."""
    slow_gathers: bool = False
    """Whether parameters are gathered at ZeRO-3's rate of 2021."""

    def __post_init__(self) -> None:
        for field, word, known in (
            ("family", self.family, FAMILIES),
            ("attention", self.attention, ATTENTION),
            ("streams", self.streams, STREAMS),
        ):
            if word not in known:
                raise UsageError(f"framework {self.name}: {field} {word!r} is not one of {', '.join(known)}")


def frameworks_of(tables: Sequence[dict[str, Any]], where: str) -> tuple[Framework, ...]:
    """Return the entries of the file, the trainer of this package first; raises UsageError that names the entry."""
    from nlp_bench.config.table import build  # noqa: PLC0415  # only who plans pays for it

    return tuple(build(Framework, table, f"{where}: framework") for table in tables)


def published_as(traits: Sequence[Framework], name: str, year: float | None, sharding: str, generation: str) -> int:
    """Return the position of the entry that a published framework's name means.

    A name of no entry falls to its family: full sharding to PyTorch's FSDP (or ZeRO-3, by its word), all else to Megatron-LM.
    """
    words = name.lower()
    for place, one in enumerate(traits):
        if any(word in words for word in one.words) and _holds(one, year, generation):
            return place
    names = [one.name for one in traits]
    if any(word in sharding.lower() for word in ("fsdp", "hsdp", "zero-3", "zero3", "full_shard", "hybrid_shard")):
        return names.index("DeepSpeed ZeRO-3" if "zero" in sharding.lower() else "PyTorch FSDP")
    return names.index("Megatron-LM")


def is_known(traits: Sequence[Framework], name: str) -> bool:
    """Return whether a published framework's name has a word of an entry."""
    return any(word in name.lower() for one in traits for word in one.words)


def _holds(one: Framework, year: float | None, generation: str) -> bool:
    """Whether an entry holds for software of this year (without a date: neither before nor since anything) on this generation."""
    dated = one.since > 0 or one.before < float("inf")
    timely = one.since <= year < one.before if year is not None else not dated
    return timely and (not one.after_ampere or generation not in {"ampere", "other"})
