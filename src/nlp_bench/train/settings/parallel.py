"""How the work is spread over the ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.train.settings.rules import exclusive, multiple, one_of, positive, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

POSITIVE = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank", "microbatch_group_size_per_virtual_pipeline_stage",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "ddp_bucket_size", "ddp_num_buckets",
    "distributed_timeout_minutes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ParallelSettings:
    """The layout of the ranks and how their communication overlaps."""

    tensor_model_parallel_size: int = 1
    """Ranks that share each layer."""
    pipeline_model_parallel_size: int = 1
    """Pipeline stages."""
    num_layers_per_virtual_pipeline_stage: int | None = None
    """Layers of one virtual stage (interleaved schedule: each rank holds several)."""
    num_virtual_stages_per_pipeline_rank: int | None = None
    """Virtual stages of each rank, instead of the layers of one."""
    microbatch_group_size_per_virtual_pipeline_stage: int | None = None
    """Micro-batches that a virtual stage takes in a row; default: the pipeline stages. Without interleaving it changes nothing."""
    decoder_first_pipeline_num_layers: int | None = None
    """Layers of the first stage, where it has fewer or more than the others (it holds the embedding)."""
    decoder_last_pipeline_num_layers: int | None = None
    """Layers of the last stage, where it has fewer or more than the others (it holds the output layer)."""
    no_overlap_p2p_communication: bool = False
    """Let the interleaved schedule wait for its sends and receives; the other schedule always does."""
    overlap_p2p_communication_warmup_flush: bool = False
    """Let the interleaved schedule overlap its sends and receives while it fills and empties the pipeline, too."""
    context_parallel_size: int = 1
    """Ranks that share each sequence."""
    cp_comm_type: str = one_of("all_gather", "p2p", "a2a", default="all_gather")
    """How keys and values travel between context-parallel ranks; p2p and a2a need Transformer Engine."""
    sequence_parallel: bool = False
    """Split the normalisations along the sequence between tensor-parallel ranks; off when those are 1."""
    tp_comm_overlap: bool = False
    """Overlap tensor-parallel communication with matrix products; needs Transformer Engine."""
    use_distributed_optimizer: bool = False
    """Split the optimizer state between data-parallel ranks."""
    overlap_grad_reduce: bool = False
    """Reduce gradients while the backward pass still runs."""
    overlap_param_gather: bool = False
    """Gather parameters during the forward pass; needs --use-distributed-optimizer and --overlap-grad-reduce."""
    no_align_grad_reduce: bool = False
    """Let each pipeline stage start its overlapped gradient reduction as soon as it can, instead of all at the same time."""
    align_param_gather: bool = False
    """Let all pipeline stages start their overlapped parameter gathering at the same time; only the interleaved schedule can."""
    ddp_bucket_size: int | None = None
    """Parameters of one bucket of gradients; needs --overlap-grad-reduce; default: megatron-core's (at least 40 million)."""
    ddp_num_buckets: int | None = None
    """Buckets of gradients on the first pipeline stage, instead of their size; needs --overlap-grad-reduce."""
    ddp_average_in_collective: bool = False
    """Let the collective operation divide by the number of replicas."""
    distributed_backend: str | None = one_of("nccl", "gloo")
    """Communication library; default nccl on GPUs, gloo on CPUs."""
    distributed_timeout_minutes: int = 10
    """After this time without an answer a collective operation fails."""

    @property
    def model_parallel_size(self) -> int:
        """Ranks that share one replica of the model."""
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size


def virtual_stages(s: "Settings") -> int:
    """Return the virtual stages of each pipeline rank, 1 without interleaving. The settings must have passed `check_parallel`."""
    if s.num_virtual_stages_per_pipeline_rank:
        return s.num_virtual_stages_per_pipeline_rank
    if s.num_layers_per_virtual_pipeline_stage:
        return s.stack_depth // (s.pipeline_model_parallel_size * s.num_layers_per_virtual_pipeline_stage)
    return 1


def layers_of_stages(s: "Settings") -> list[int]:
    """Return the layers of each (virtual) stage of each pipeline rank: [first rank, ..., last rank] of equal virtual stages.

    The settings must have passed `check_parallel`. Source: megatron-core's `get_num_layers_to_build`.
    """
    stages, virtual = s.pipeline_model_parallel_size, virtual_stages(s)
    first, last = s.decoder_first_pipeline_num_layers, s.decoder_last_pipeline_num_layers
    own = [first] + [None] * (stages - 2) + [last] if stages > 1 else [None]
    others = own.count(None)
    rest = s.stack_depth - sum(layers or 0 for layers in own)
    return [(layers or rest // others) // virtual for layers in own]


def check_parallel(s: "Settings") -> None:
    """Raise UsageError for the first rule about the layout that is broken."""
    positive(vars(s), POSITIVE)
    tensor_parallel = s.tensor_model_parallel_size
    if s.sequence_parallel:
        multiple("seq_length", s.seq_length, tensor_parallel * s.context_parallel_size, "tp*cp (sequence parallelism)")
        if s.decoder_seq_length:
            multiple("decoder_seq_length", s.decoder_seq_length, tensor_parallel, "tensor_model_parallel_size")
    _check_stages(s)
    _check_recompute(s)
    _check_context(s)
    _check_overlap(s)


def _check_stages(s: "Settings") -> None:
    exclusive(vars(s), "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
    stages, layers = s.pipeline_model_parallel_size, s.num_layers_per_virtual_pipeline_stage
    first, last = s.decoder_first_pipeline_num_layers, s.decoder_last_pipeline_num_layers
    if layers:
        even = not first and not last
        remedy = "give --num-virtual-stages-per-pipeline-rank"
        require(even, f"num_layers_per_virtual_pipeline_stage: {layers} does not go with uneven stages; {remedy}")
        multiple("num_layers", s.stack_depth, stages * layers, "pp*num_layers_per_virtual_pipeline_stage")
    name = "num_layers_per_virtual_pipeline_stage" if layers else "num_virtual_stages_per_pipeline_rank"
    virtual = virtual_stages(s)
    apart = "raise --pipeline-model-parallel-size, or leave interleaving out"
    require(
        virtual == 1 or stages > 1,
        f"{name}: {virtual} virtual stages need pipeline_model_parallel_size above 1; {apart}",
    )
    if virtual > 1 and s.no_overlap_p2p_communication:  # both neighbours would be one rank; Megatron-LM refuses it too
        rule = "needs pipeline_model_parallel_size above 2, or a rank takes an activation for a gradient"
        many = stages > 2
        require(many, f"no_overlap_p2p_communication: with interleaving it {rule}; leave it out")
    _check_uneven(s, first, last, virtual)


def _check_uneven(s: "Settings", first: int | None, last: int | None, virtual: int) -> None:
    stages, rest, others = s.pipeline_model_parallel_size, s.stack_depth, s.pipeline_model_parallel_size
    for name, layers in (("decoder_first_pipeline_num_layers", first), ("decoder_last_pipeline_num_layers", last)):
        if layers is None:
            continue
        require(s.model_family != "t5", f"{name}: {layers} is for gpt and bert; t5 divides its layers evenly")
        require(stages > 1, f"{name}: {layers} needs --pipeline-model-parallel-size above 1")
        multiple(name, layers, virtual, "num_virtual_stages_per_pipeline_rank")
        rest, others = rest - layers, others - 1
    held = s.stack_depth - rest
    if not others:
        require(
            rest == 0,
            f"num_layers: first and last stage hold {held} of {s.stack_depth} layers; two stages must hold all",
        )
        return
    require(
        rest > 0,
        f"num_layers: first and last stage hold {held} of {s.stack_depth} layers and leave none for the other {others}",
    )
    name = "num_layers" if others == stages else "num_layers - first - last"
    rule = "pipeline_model_parallel_size" if others == stages else "stages without a number of their own"
    multiple(name, rest, others, rule)
    multiple(f"{name} per stage", rest // others, virtual, "num_virtual_stages_per_pipeline_rank")


def _check_recompute(s: "Settings") -> None:
    """Refuse groups of layers that do not divide a stage: megatron-core would look for layers behind the last one."""
    layers = s.recompute_num_layers
    if not layers or s.model_family == "t5":
        return
    for held in sorted(set(layers_of_stages(s))):
        if s.recompute_method == "uniform":
            remedy = "give a number that divides it, or --recompute-method block"
            fits = held % layers == 0
            require(
                fits, f"recompute_num_layers: {layers} does not divide the {held} layers of a (virtual) stage; {remedy}"
            )
        elif s.recompute_method == "block":
            require(
                layers <= held, f"recompute_num_layers: {layers} is more than the {held} layers of a (virtual) stage"
            )


def _check_context(s: "Settings") -> None:
    parts = s.context_parallel_size
    if parts == 1:
        return
    require(
        s.model_family == "gpt",
        f"context_parallel_size: {parts} is for gpt; {s.model_family} has no causal sequence to share",
    )
    multiple(
        "seq_length", s.seq_length, 2 * parts, "2*context_parallel_size (each rank takes an early and a late part)"
    )
    if s.cp_comm_type != "all_gather":
        needs = "needs --kernels te (Transformer Engine); torch's attention has all_gather"
        require(s.wanted_kernels in {"te", "auto"}, f"cp_comm_type: {s.cp_comm_type} {needs}")


def _check_overlap(s: "Settings") -> None:
    needs = s.use_distributed_optimizer and s.overlap_grad_reduce
    require(
        needs or not s.overlap_param_gather,
        "overlap_param_gather: needs --use-distributed-optimizer and --overlap-grad-reduce",
    )
    require(s.overlap_param_gather or not s.align_param_gather, "align_param_gather: needs --overlap-param-gather")
    exclusive(vars(s), "ddp_bucket_size", "ddp_num_buckets")
    for name in ("ddp_bucket_size", "ddp_num_buckets", "no_align_grad_reduce"):
        require(
            s.overlap_grad_reduce or not getattr(s, name),
            f"{name}: needs --overlap-grad-reduce, without which there is one bucket",
        )
    waits = s.no_overlap_p2p_communication and s.overlap_p2p_communication_warmup_flush
    require(
        not waits, "overlap_p2p_communication_warmup_flush: excludes --no-overlap-p2p-communication; give one of them"
    )
    if s.tp_comm_overlap:
        many = s.sequence_parallel and s.tensor_model_parallel_size > 1
        require(many, "tp_comm_overlap: needs --sequence-parallel and --tensor-model-parallel-size above 1")
