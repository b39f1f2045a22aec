"""Many configurations side by side: a struct of arrays, so that a hundred thousand are evaluated in a second."""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nlp_bench.config.system import FABRICS
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout import rules, shape
from nlp_bench.layout.shape import Layer

T = TypeVar("T")
Numbers = npt.NDArray[np.float64]  # float64, shape [N], or [] for a number that holds for all configurations
Flags = npt.NDArray[np.bool_]  # boolean, shape [N] or []
Codes = npt.NDArray[np.int64]  # indices into a tuple of names, shape [N] or []

GENERATIONS = ("ampere", "hopper", "blackwell", "blackwell ultra", "other")
"""What `Machines.gpu` indexes: efficiencies belong to a generation, everything else to a data sheet."""
PRECISIONS = ("bf16", "fp16", "fp8", "fp4", "fp32", "mxfp8", "fp8-rowwise")  # `Configurations.precision` indexes it
SPELLINGS = {
    "fp4": {"fp4", "nvfp4", "mxfp4"},
    "mxfp8": {"mxfp8"},
    "fp8-rowwise": {"rowwise"},
    "fp8": {"fp8", "float8"},
    "bf16": {"bf16", "bfloat16"},
    "fp16": {"fp16", "float16", "half"},
    "fp32": {"fp32", "float32"},
}
"""Number format to the words that name it; where a cell names several, the first format of this table counts.

tf32 is none: its products are several times as fast as those of fp32, and no constant is for them."""


@immutable
class Network(Layer[Numbers, Flags]):
    """The shapes of decoder-only models, as `nlp_bench.layout.shape.ModelShape` has one."""

    vocab_size: Numbers  # words of the tokenizer, before padding to a multiple of `vocab_multiple` x tensor parallel
    vocab_multiple: Numbers  # Megatron-LM's --make-vocab-size-divisible-by
    dropout: Flags = field(default_factory=lambda: np.asarray(False))
    """Whether the residual stream and the attention weights have dropout, whose masks the backward pass needs."""


@immutable
class Spread(rules.Spread[Numbers, Flags]):
    """How the work is spread over ranks."""

    data: Numbers  # data-parallel size: num_gpus / (tensor x pipeline x context)
    sharding: Codes  # index into SHARDING
    shard_group: Numbers
    """Ranks that hold one share each; the data-parallel times the context-parallel size unless a framework says otherwise."""
    recompute: Codes  # index into RECOMPUTE
    recompute_method: Codes = field(default_factory=lambda: np.asarray(0))  # of full: index into METHODS
    recompute_num_layers: Numbers = field(default_factory=lambda: np.asarray(1.0))
    """Of full: layers of a group (uniform), recomputed layers of a virtual stage (block)."""
    recompute_modules: Codes = field(default_factory=lambda: np.asarray(0))  # of selective: index into MODULES

    @property
    def num_microbatches(self) -> Numbers:
        """Micro-batches of one iteration and pipeline (GAS)."""
        return self.global_batch_size / (self.data * self.micro_batch_size)


@immutable
class Machines:
    """The data sheets."""

    gpu: Codes  # index into GENERATIONS
    gpus_per_node: Numbers
    domain: Numbers  # GPUs that NVLink joins: a node's, or more (NVL72)
    peak_flops: Numbers  # data sheet's dense FLOP/s in this number format
    half_flops: Numbers
    """Data sheet's dense FLOP/s in bf16, in which attention and the output layer are done; that of fp32 in fp32 training."""
    memory_bytes_per_s: Numbers
    link_bytes_per_s: Numbers  # NVLink of one GPU, one direction
    fabric_bytes_per_s: Numbers  # network of one node, one direction, all adapters
    memory_bytes: Numbers
    fabric: Codes = field(default_factory=lambda: np.asarray(FABRICS.index("unknown")))
    """Index into FABRICS: what joins the nodes."""


@immutable
class Configurations:
    """N configurations: everything that the forecast depends on."""

    network: Network
    spread: Spread
    machines: Machines
    framework: Codes  # index into the constants' `frameworks`
    precision: Codes  # index into PRECISIONS

    def __len__(self) -> int:
        parts = (self.network, self.spread, self.machines)
        return max((int(array.shape[0]) for part in parts for array in vars(part).values() if array.ndim), default=1)

    def take(self, chosen: npt.NDArray[Any]) -> "Configurations":
        """Return the configurations at these positions, or where this mask of shape [N] is true."""
        return taken(self, chosen)


def struct(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a struct of arrays from numbers, or lists of them, by field; each array has its field's type."""
    types: dict[Any, Any] = {shape.Flag: np.bool_, rules.Flag: np.bool_, Flags: np.bool_, Codes: np.int64}
    defaults = {one.name: one.default for one in fields(kind) if one.default not in {None, MISSING}}  # type: ignore[arg-type]  # every one is a dataclass
    given = {**defaults, **values}
    known = [one for one in fields(kind) if one.name in given]  # type: ignore[arg-type]  # likewise
    return kind(**{one.name: np.asarray(given[one.name], dtype=types.get(one.type, np.float64)) for one in known})


def taken(struct: T, chosen: npt.NDArray[Any]) -> T:
    """Return a struct of arrays, or of such structs, at these positions; a number in it holds for all."""
    parts = {one.name: getattr(struct, one.name) for one in fields(struct)}  # type: ignore[arg-type]  # every one is a dataclass
    changed = {
        name: part[chosen] if isinstance(part, np.ndarray) else taken(part, chosen)
        for name, part in parts.items()
        if is_dataclass(part) or np.ndim(part)
    }
    return replace(struct, **changed)  # type: ignore[type-var]  # likewise


FAMILIES = ("megatron", "nvidia", "eager", "xla")
ATTENTION = ("flash", "flash2", "triton", "unfused")
STREAMS = ("fused", "eager", "xla")


@immutable
class Framework:
    """One table [[framework]] of benchmark/plan.toml, which explains each key."""

    name: str
    family: str
    attention: str
    streams: str
    overlap: bool
    gradient_bytes: float
    source: str
    words: tuple[str, ...] = ()
    before: float = float("inf")
    since: float = 0.0
    after_ampere: bool = False
    tensor_overlap: bool = False  # whether all tensor-parallel traffic overlaps with products (userbuffers)
    backward_overlap: bool = False  # megatron-core, layers.py, LinearWithGradAccumulationAndAsyncCommunication
    early_stop: bool = False
    host: float = 1.0  # the host's time for a layer / the constant host_layer_s; 1 with constants of one machine, measured with our trainer
    half_recomputed: bool = False  # whether selective recompute means every other product and all that lies between
    one_per_chunk: bool = False
    deepspeed: bool = False  # whether DeepSpeed's pipeline engine reduces the gradients of a sharded optimizer
    uneven_stages: bool = False  # whether the layers need not divide among the pipeline's stages
    slow_gathers: bool = False  # whether parameters are gathered at ZeRO-3's rate of 2021

    def __post_init__(self) -> None:
        for name, known in (("family", FAMILIES), ("attention", ATTENTION), ("streams", STREAMS)):
            word = getattr(self, name)
            if word not in known:
                raise UsageError(f"framework {self.name}: {name} {word!r} is not one of {', '.join(known)}")
