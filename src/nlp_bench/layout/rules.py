"""The sizes of a parallel layout, their arithmetic, and the table of the rules of a valid layout.

One run (`config`), the trainer and the planner's 10^6 candidates use the same expressions, written in operators that Python numbers
and numpy arrays share (`&`, `|` and `_not` instead of and, or and not); numpy is not imported here.

Sources of the rules: megatron-core's `TransformerConfig.__post_init__` (transformer/transformer_config.py), `get_num_layers_to_build`
(transformer/transformer_block.py) and `forward_backward_pipelining_with_interleaving` (pipeline_parallel/schedules.py).
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable

Number = TypeVar("Number", bound=Any)
"""A whole number, or a numpy array of whole numbers of shape [N] or [] (int64 or float64)."""
Flag = TypeVar("Flag", bound=Any)  # true or false, or a boolean numpy array of shape [N] or []
_ZERO: Any = 0
_ONE: Any = 1
_OFF: Any = False
SHARDING = ("none", "optimizer", "gradients", "parameters")
"""What is sharded over the ranks of a group: nothing, the optimizer state (Megatron's distributed optimizer, ZeRO-1), the gradients
too (ZeRO-2), the parameters too (FSDP full shard, ZeRO-3)."""
RECOMPUTE = ("none", "selective", "full")  # what is computed again: nothing, some modules, whole layers
METHODS = ("uniform", "block")  # of full: all layers, N at a time; the first N of every (virtual) stage, each alone
MODULES = ((), ("mlp",), ("layernorm",), ("mlp", "layernorm"))
"""Of selective: what is computed again besides the scores of attention, which every kernel here does by itself."""


def _not(flag: Any) -> Any:
    return flag ^ True


def _at_least_one(number: Any) -> Any:
    return number + (number < 1) * (1 - number)


@immutable
class Spread(Generic[Number, Flag]):
    """How the work of one run, or of N, is spread over ranks: each field a number or an array."""

    num_gpus: Number  # ranks of the job
    tensor: Number  # tensor-parallel size: ranks that share each layer
    pipeline: Number  # pipeline-parallel size: stages that the layers are cut into
    context: Number = _ONE  # context-parallel size: ranks that share each sequence
    virtual: Number = _ONE  # virtual stages of each pipeline rank; 1 without interleaving
    first_layers: Number = _ZERO  # layers of the first pipeline rank where it differs; 0: all alike
    last_layers: Number = _ZERO  # layers of the last pipeline rank where it differs; 0: all alike
    micro_batch_size: Number = _ONE  # samples of one forward pass
    global_batch_size: Number  # samples of one iteration
    sequence_parallel: Flag = _OFF  # whether normalisations are split along the sequence; no effect with tensor size 1
    overlap_grad_reduce: Flag = _OFF  # whether gradients are reduced while the backward pass runs
    overlap_param_gather: Flag = _OFF  # whether parameters are gathered while the forward pass runs


@immutable
class Sizes(Spread[Any, Any]):
    """The sizes and switches of one layout and its model, or of N, which the rules check."""

    sharding: Any = 0  # place in SHARDING
    layers_per_virtual: Any = 0  # layers of one virtual stage, where these were given instead of their number; else 0
    microbatch_group: Any = 0  # micro-batches that a virtual stage takes in a row; 0: as many as pipeline stages
    recompute_method: Any = 0  # place in METHODS
    recompute_num_layers: Any = 0  # layers of a group (uniform), of a virtual stage (block); 0: not given
    num_layers: Any  # layers that the pipeline divides into stages: of T5 encoder's and decoder's
    num_attention_heads: Any  # query heads
    num_query_groups: Any  # key and value heads
    ffn_hidden_size: Any  # inner width of the feed-forward block
    sequence_length: Any  # tokens of a sample
    decoder_sequence_length: Any = 0  # tokens of T5's decoder per sample; 0 without one

    @property
    def ranks_per_replica(self) -> Any:
        """Ranks that share one replica of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> Any:
        """Data-parallel size: replicas of the model."""
        return self.num_gpus // self.ranks_per_replica

    @property
    def per_pass(self) -> Any:
        """Samples of one forward pass of all replicas."""
        return self.data * self.micro_batch_size

    @property
    def num_microbatches(self) -> Any:
        """Micro-batches of one iteration and pipeline (GAS); 0 where one pass of all replicas has more samples than the batch."""
        return self.global_batch_size // _at_least_one(self.per_pass)

    @property
    def group(self) -> Any:
        """Micro-batches that a virtual stage takes in a row."""
        return self.microbatch_group + (self.microbatch_group == 0) * self.pipeline

    @property
    def other_layers(self) -> Any:
        """Layers of all stages but those with a given number (`first_layers`, `last_layers`)."""
        return self.num_layers - self.first_layers - self.last_layers

    @property
    def num_others(self) -> Any:
        """Stages without a given number of layers."""
        return self.pipeline - (self.first_layers > 0) * 1 - (self.last_layers > 0) * 1

    @property
    def middle_layers(self) -> Any:
        """Layers of each stage without a given number, rounded down where they do not divide."""
        return self.other_layers // _at_least_one(self.num_others)

    def stage_layers(self) -> list[int]:
        """Return the layers of each virtual stage of each pipeline rank of one valid layout, first rank to last."""
        own = {0: self.first_layers, self.pipeline - 1: self.last_layers}
        return [(own.get(rank) or self.middle_layers) // self.virtual for rank in range(self.pipeline)]


def asked_sizes(asked: Any, *, num_layers: int, pipeline: int) -> dict[str, Any]:
    """Return the fields of Sizes for settings by Megatron-LM's names: a run's tuning, or the trainer's settings."""
    layers, stages = asked.num_layers_per_virtual_pipeline_stage, asked.num_virtual_stages_per_pipeline_rank
    return {
        "virtual": stages or (max(1, num_layers // (pipeline * layers)) if layers else 1),
        "layers_per_virtual": layers or 0,
        "first_layers": asked.decoder_first_pipeline_num_layers or 0,
        "last_layers": asked.decoder_last_pipeline_num_layers or 0,
        "sharding": SHARDING.index("optimizer" if asked.use_distributed_optimizer else "none"),
        "overlap_grad_reduce": asked.overlap_grad_reduce,
        "overlap_param_gather": asked.overlap_param_gather,
        "recompute_method": METHODS.index(asked.recompute_method or "uniform"),
        "recompute_num_layers": asked.recompute_num_layers or 0,
    }


@immutable
class Rule:
    """One rule of a valid layout."""

    code: str  # its name, also in the planner's record
    field: str  # the field of run.json with which an error starts
    broken: Callable[[Sizes], Any]  # from the sizes to whether the rule is broken
    text: Callable[[Sizes], str]  # from the sizes of a layout that breaks it to the arithmetic, for the error
    after: tuple[str, ...] = ()
    """Codes of rules that this one presupposes: where one of them is broken, this one counts as kept."""


def multiple(what: str, value: int, of: str, divisor: int) -> str:
    """Return the text for a number that does not divide evenly."""
    return f"{what} = {value} is not a multiple of {of} = {divisor} (remainder {value % divisor})"


def divisors(number: int) -> list[int]:
    """Return the divisors of a number above 0, in order."""
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})


def _divides(code: str, field: str, what: str, of: str) -> Rule:
    """Return the rule that a size (`what`, a field of Sizes) is a multiple of the tensor-parallel size."""
    return Rule(
        code=code,
        field=field,
        broken=lambda s: getattr(s, what) % s.tensor != 0,
        text=lambda s: multiple(what, getattr(s, what), of, s.tensor),
    )


def _split_text(s: Sizes) -> str:
    if s.sequence_length % (s.tensor * s.context):
        return multiple("sequence_length", s.sequence_length, "tp*cp (sequence parallelism)", s.tensor * s.context)
    return multiple("decoder_sequence_length", s.decoder_sequence_length, "tp", s.tensor)


def _uneven_stages(s: Sizes) -> Any:
    rest, others = s.other_layers, s.num_others
    alone = (others < s.pipeline) & (s.pipeline == 1)
    none_left = (others < 1) & (rest != 0)
    few = (others > 0) & ((rest < 1) | (rest % _at_least_one(others) != 0))
    return alone | none_left | few


def _stages_text(s: Sizes) -> str:
    if s.num_others == s.pipeline:
        return multiple("num_layers", s.num_layers, "pp", s.pipeline)
    held = f"first and last stage hold {s.first_layers}+{s.last_layers} of {s.num_layers} layers"
    if s.pipeline == 1:
        return f"{held}, which needs pp above 1"
    if s.num_others == 0:
        return f"{held}; two stages must hold all"
    if s.other_layers < 1:
        return f"{held} and leave none for the other {s.num_others}"
    return f"{held}, and the other {s.other_layers} cannot be shared by {s.num_others} stages"


def _layers_per_virtual_text(s: Sizes) -> str:
    each = s.layers_per_virtual
    if s.first_layers or s.last_layers:
        return f"{each} does not go with uneven stages; give --num-virtual-stages-per-pipeline-rank"
    of = f"pp*num_layers_per_virtual_pipeline_stage = {s.pipeline}*{each}"
    return multiple("num_layers", s.num_layers, of, s.pipeline * each)


def _virtual_text(s: Sizes) -> str:
    if s.num_others == s.pipeline:
        return multiple("num_layers", s.num_layers, f"pp*vpp = {s.pipeline}*{s.virtual}", s.pipeline * s.virtual)
    held = ", ".join(str(layers) for layers in (s.first_layers, s.middle_layers, s.last_layers) if layers)
    return f"stages of {held} layers are not all multiples of vpp = {s.virtual}"


def _uneven_groups(s: Sizes) -> Any:
    count, group, stages = s.num_microbatches, s.group, s.pipeline
    last = count % group
    return (s.virtual > 1) & ((count < group) | ((last > 0) & (last < stages)))


def _groups_text(s: Sizes) -> str:
    count, group, stages = s.num_microbatches, s.group, s.pipeline
    remedy = "raise the global batch size, lower the micro batch size, or leave interleaving out"
    if group == stages:
        text = f"interleaving takes whole groups: {multiple('number of micro-batches', count, 'pp', stages)}"
    elif count < group:
        text = f"interleaving takes groups of {group} micro-batches, and there are {count}"
    else:
        last = count % group
        text = f"{count} micro-batches in groups of {group} leave a last one of {last}, less than pp = {stages}"
    return f"{text}; {remedy}"


def _kinds_of_stages(s: Sizes) -> tuple[Any, Any, Any]:
    """Return the layers of a virtual stage of the first, a middle and the last pipeline rank."""
    middle = s.middle_layers // s.virtual
    first, last = (own // s.virtual + (own == 0) * middle for own in (s.first_layers, s.last_layers))
    return first, middle + (s.num_others < 1) * (first - middle), last


def _recomputed_parts(s: Sizes) -> Any:
    """Whether megatron-core would look for layers beyond a stage's last one; T5 divides its layers by stacks."""
    layers, found = s.recompute_num_layers, False
    for held in _kinds_of_stages(s):
        found = found | (s.recompute_method == 0) & (held % _at_least_one(layers) != 0)
        found = found | (s.recompute_method == 1) & (layers > held)
    return found & (s.decoder_sequence_length == 0)


def _recomputed_text(s: Sizes) -> str:
    layers, kinds = s.recompute_num_layers, sorted({*_kinds_of_stages(s)})
    if METHODS[s.recompute_method] == "block":
        return f"{layers} is more than the {kinds[0]} layers of a (virtual) stage"
    held = next(held for held in kinds if held % layers)
    remedy = "give a number that divides it, or --recompute-method block"
    return f"{layers} does not divide the {held} layers of a (virtual) stage; {remedy}"


VIRTUAL = "tuning.num_virtual_stages_per_pipeline_rank"
RULES = (
    Rule(
        code="GPUs",
        field="parallel",
        broken=lambda s: s.num_gpus % s.ranks_per_replica != 0,
        text=lambda s: multiple(
            "nodes*gpus_per_node", s.num_gpus, "tp*pp" if s.context == 1 else "tp*pp*cp", s.ranks_per_replica
        ),
    ),
    _divides("attention heads", "parallel.tensor", "num_attention_heads", "tp"),
    _divides("query groups", "parallel.tensor", "num_query_groups", "tp"),
    _divides("feed-forward width", "parallel.tensor", "ffn_hidden_size", "tp"),
    _divides("sequence", "parallel.tensor", "sequence_length", "tp"),
    Rule(
        code="sequence parallel",
        field="tuning.sequence_parallel",
        broken=lambda s: (
            s.sequence_parallel
            & ((s.sequence_length % (s.tensor * s.context) != 0) | (s.decoder_sequence_length % s.tensor != 0))
        ),
        text=_split_text,
        after=("sequence",),
    ),
    Rule(
        code="context parallel",
        field="parallel.context",
        broken=lambda s: (s.context > 1) & (s.sequence_length % (2 * s.context) != 0),
        text=lambda s: (
            multiple("sequence_length", s.sequence_length, "2*cp", 2 * s.context)
            + ": each rank takes an early and a late part"
        ),
    ),
    Rule(code="pipeline stages", field="parallel.pipeline", broken=_uneven_stages, text=_stages_text),
    Rule(
        code="layers of a virtual stage",
        field="tuning.num_layers_per_virtual_pipeline_stage",
        broken=lambda s: (
            (s.layers_per_virtual > 0)
            & ((s.num_others < s.pipeline) | (s.num_layers % (s.pipeline * _at_least_one(s.layers_per_virtual)) != 0))
        ),
        text=_layers_per_virtual_text,
    ),
    Rule(
        code="interleaving",
        field=VIRTUAL,
        broken=lambda s: (s.virtual > 1) & (s.pipeline == 1),
        text=lambda s: f"vpp = {s.virtual} needs pp above 1; raise pp, or leave interleaving out",
    ),
    Rule(
        code="virtual stages",
        field=VIRTUAL,
        broken=lambda s: (
            (s.first_layers % s.virtual != 0) | (s.last_layers % s.virtual != 0) | (s.middle_layers % s.virtual != 0)
        ),
        text=_virtual_text,
        after=("pipeline stages", "layers of a virtual stage"),
    ),
    Rule(
        code="recomputed layers",
        field="tuning.recompute_num_layers",
        broken=_recomputed_parts,
        text=_recomputed_text,
        after=("pipeline stages", "layers of a virtual stage", "virtual stages"),
    ),
    Rule(
        code="global batch",
        field="batch",
        broken=lambda s: s.global_batch_size % _at_least_one(s.per_pass) != 0,
        text=lambda s: multiple(
            "global_batch_size", s.global_batch_size, f"dp*micro_batch_size = {s.data}*{s.micro_batch_size}", s.per_pass
        ),
        after=("GPUs",),
    ),
    Rule(
        code="micro-batch group size",
        field="tuning.microbatch_group_size_per_virtual_pipeline_stage",
        broken=lambda s: (s.virtual > 1) & (s.group < s.pipeline),
        text=lambda s: f"{s.group} is less than pp = {s.pipeline}",
    ),
    Rule(
        code="micro-batch groups",
        field="batch",
        broken=_uneven_groups,
        text=_groups_text,
        after=("GPUs", "interleaving", "global batch", "micro-batch group size"),
    ),
    Rule(
        code="sharding",
        field="tuning.use_distributed_optimizer",
        broken=lambda s: s.sharding > SHARDING.index("optimizer"),
        text=lambda _: (
            "this trainer shards the optimizer state only (--use-distributed-optimizer), not gradients or parameters"
        ),
    ),
    Rule(
        code="overlap",
        field="tuning.overlap_param_gather",
        broken=lambda s: (
            s.overlap_param_gather & _not((s.sharding >= SHARDING.index("optimizer")) & s.overlap_grad_reduce)
        ),
        text=lambda _: "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce",
    ),
)
"""A layout is counted, and refused, under the first rule that it breaks."""


def judge(sizes: Sizes, rules: Iterable[Rule] = RULES) -> dict[str, Any]:
    """Return code of each rule to whether it is broken."""
    found: dict[str, Any] = {}
    for rule in rules:
        broken = rule.broken(sizes)
        for other in rule.after:
            if other in found:
                broken = broken & _not(found[other])
        found[rule.code] = broken
    return found


def refuse(sizes: Sizes, rules: tuple[Rule, ...] = RULES, name: Callable[[str], str] = str) -> None:
    """Raise UsageError for the first rule that one layout breaks; `name` translates a field of run.json for the caller."""
    broken = judge(sizes, rules)
    for rule in rules:
        if broken[rule.code]:
            raise UsageError(f"{name(rule.field)}: {rule.text(sizes)}")
