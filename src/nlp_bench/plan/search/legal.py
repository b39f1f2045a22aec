"""Which configurations the trainer takes: every rule as a mask over many configurations, and as a sentence with its arithmetic.

The rules are those of `config.layout.Parallel`, `train.settings` and `train.layout`, which a test holds them against; behind those
stand megatron-core's `TransformerConfig.__post_init__` (transformer/transformer_config.py) and
`forward_backward_pipelining_with_interleaving` (pipeline_parallel/schedules.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Configurations, Flags, Numbers
from nlp_bench.plan.problem import Sizes, sizes_of


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule."""

    name: str
    """What people call it."""
    broken: Callable[[Configurations], Flags]
    """Where it is broken; shape [N] or []."""
    text: Callable[[Sizes], str]
    """The arithmetic of one configuration that breaks it."""


def _rest(number: Numbers, divisor: Numbers) -> Flags:
    return np.asarray(number % divisor != 0)


def _world(c: Configurations) -> Flags:
    return _rest(c.spread.num_gpus, c.spread.tensor * c.spread.pipeline * c.spread.context)


def _sequence(c: Configurations) -> Flags:
    s, length = c.spread, c.network.sequence_length
    split = np.where(s.sequence_parallel, s.tensor * s.context, s.tensor)
    return _rest(length, split) | _rest(length, s.tensor)


def _context(c: Configurations) -> Flags:
    return np.asarray((c.spread.context > 1) & _rest(c.network.sequence_length, 2 * c.spread.context))


def _own(c: Configurations) -> Numbers:
    """Stages with a number of layers of their own."""
    return (c.spread.first_layers > 0).astype(np.float64) + (c.spread.last_layers > 0)


def _middle(c: Configurations) -> tuple[Numbers, Numbers]:
    """Layers of all stages without a number of their own, and how many these are."""
    s = c.spread
    return c.network.num_layers - s.first_layers - s.last_layers, s.pipeline - _own(c)


def _stages(c: Configurations) -> Flags:
    rest, others = _middle(c)
    single = (_own(c) > 0) & (c.spread.pipeline == 1)
    none_left = (others <= 0) & (rest != 0)
    few = (others > 0) & ((rest <= 0) | _rest(rest, np.maximum(others, 1)))
    return np.asarray(single | none_left | few)


def _virtual(c: Configurations) -> Flags:
    s, (rest, others) = c.spread, _middle(c)
    each = np.floor(rest / np.maximum(others, 1))
    uneven = _rest(s.first_layers, s.virtual) | _rest(s.last_layers, s.virtual) | _rest(each, s.virtual)
    return np.asarray((s.virtual > 1) & ~_stages(c) & uneven)


def _interleaved(c: Configurations) -> Flags:
    return np.asarray((c.spread.virtual > 1) & (c.spread.pipeline == 1))


def _batch(c: Configurations) -> Flags:
    return np.asarray(~_world(c) & _rest(c.spread.global_batch_size, c.spread.data * c.spread.micro_batch_size))


def _groups_of_microbatches(c: Configurations) -> Flags:
    known = (c.spread.virtual > 1) & (c.spread.pipeline > 1) & ~_world(c) & ~_batch(c)
    return np.asarray(known & _rest(c.spread.num_microbatches, c.spread.pipeline))


def _overlap(c: Configurations) -> Flags:
    s = c.spread
    return np.asarray(s.overlap_param_gather & ~((s.sharding >= SHARDING.index("optimizer")) & s.overlap_grad_reduce))


def _multiple(what: str, value: int, of: str, divisor: int) -> str:
    return f"{what} = {value} is not a multiple of {of} = {divisor} (remainder {value % divisor})"


def _say_world(n: Sizes) -> str:
    words, product = f"tp*pp*cp = {n.tp}*{n.pp}*{n.cp}", n.tp * n.pp * n.cp
    return _multiple("number of GPUs", n.num_gpus, words, product)


def _say_sequence(n: Sizes) -> str:
    if n.sequence_length % n.tp:
        return _multiple("sequence_length", n.sequence_length, "tp", n.tp)
    return _multiple("sequence_length", n.sequence_length, "tp*cp (sequence parallelism)", n.tp * n.cp)


def _say_stages(n: Sizes) -> str:
    if not n.first_layers and not n.last_layers:
        return _multiple("num_layers", n.num_layers, "pp", n.pp)
    held = f"first and last stage hold {n.first_layers}+{n.last_layers} of {n.num_layers} layers"
    own = bool(n.first_layers) + bool(n.last_layers)
    if n.pp == 1:
        return f"{held}, which needs pp above 1"
    return (
        f"{held}, and the other {n.num_layers - n.first_layers - n.last_layers} cannot be shared by {n.pp - own} stages"
    )


def _say_virtual(n: Sizes) -> str:
    if not n.first_layers and not n.last_layers:
        return _multiple("num_layers", n.num_layers, f"pp*vpp = {n.pp}*{n.vpp}", n.pp * n.vpp)
    each = (n.num_layers - n.first_layers - n.last_layers) // max(1, n.pp - bool(n.first_layers) - bool(n.last_layers))
    held = ", ".join(str(layers) for layers in (n.first_layers, each, n.last_layers) if layers)
    return f"stages of {held} layers are not all multiples of vpp = {n.vpp}"


def _say_batch(n: Sizes) -> str:
    return _multiple(
        "global_batch_size",
        n.global_batch_size,
        f"dp*micro_batch_size = {n.dp}*{n.micro_batch_size}",
        n.dp * n.micro_batch_size,
    )


def _say_groups(n: Sizes) -> str:
    return f"interleaving takes whole groups: {_multiple('number of micro-batches', n.gas, 'pp', n.pp)}"


RULES = (
    Rule(name="GPUs", broken=_world, text=_say_world),
    Rule(
        name="attention heads",
        broken=lambda c: _rest(c.network.num_attention_heads, c.spread.tensor),
        text=lambda n: _multiple("num_attention_heads", n.num_heads, "tp", n.tp),
    ),
    Rule(
        name="query groups",
        broken=lambda c: _rest(c.network.num_query_groups, c.spread.tensor),
        text=lambda n: _multiple("num_query_groups", n.num_groups, "tp", n.tp),
    ),
    Rule(
        name="feed-forward width",
        broken=lambda c: _rest(c.network.ffn_hidden_size, c.spread.tensor),
        text=lambda n: _multiple("ffn_hidden_size", n.ffn_hidden_size, "tp", n.tp),
    ),
    Rule(name="sequence", broken=_sequence, text=_say_sequence),
    Rule(
        name="context parallel",
        broken=_context,
        text=lambda n: _multiple("sequence_length", n.sequence_length, "2*cp", 2 * n.cp),
    ),
    Rule(name="pipeline stages", broken=_stages, text=_say_stages),
    Rule(
        name="interleaving",
        broken=_interleaved,
        text=lambda n: f"vpp = {n.vpp} needs pp above 1",
    ),
    Rule(name="virtual stages", broken=_virtual, text=_say_virtual),
    Rule(name="global batch", broken=_batch, text=_say_batch),
    Rule(name="micro-batch groups", broken=_groups_of_microbatches, text=_say_groups),
    Rule(
        name="sharding",
        broken=lambda c: np.asarray(c.spread.sharding > SHARDING.index("optimizer")),
        text=lambda _: (
            "this trainer shards the optimizer state only (--use-distributed-optimizer), not gradients or parameters"
        ),
    ),
    Rule(
        name="overlap",
        broken=_overlap,
        text=lambda _: "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce",
    ),
)
"""In the order in which a configuration is counted under the first rule that it breaks."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Which of N configurations are legal."""

    legal: Flags
    """Shape [N]."""
    counts: dict[str, int]
    """Illegal ones by the first rule that each breaks; rules that none breaks first are left out."""


def judge(c: Configurations) -> Verdicts:
    """Hold N configurations against every rule."""
    legal, counts = np.ones(len(c), dtype=np.bool_), {}
    for rule in RULES:
        broken = rule.broken(c)
        if count := int(np.count_nonzero(legal & broken)):
            counts[rule.name] = count
        legal &= ~broken
    return Verdicts(legal=legal, counts=counts)


def broken_rules(c: Configurations) -> list[tuple[str, str]]:
    """Return the name and the arithmetic of each rule that one configuration (N = 1) breaks; empty: it is legal."""
    numbers = sizes_of(c, 0)
    return [(rule.name, rule.text(numbers)) for rule in RULES if bool(np.any(rule.broken(c)))]
