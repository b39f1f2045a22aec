"""Settings of the parallel layout."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.layout.rules import RULES, Sizes, asked_sizes, refuse
from nlp_bench.train.settings.families import FAMILIES
from nlp_bench.train.settings.rules import one_of, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

BY_RANKS = ("GPUs", "global batch", "micro-batch groups")  # rules that need the number of ranks
LATER = (*BY_RANKS, "sequence")
"""Not checked here. "sequence": runs of the benchmark keep it; this trainer, like Megatron-LM's, needs it only with --sequence-parallel."""


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


def sizes_of(s: "Settings", *, world_size: int | None = None) -> Sizes:
    """Return the sizes for the rules of a valid layout; without a world size, of one replica."""
    num_gpus = s.model_parallel_size if world_size is None else world_size
    return Sizes(
        **asked_sizes(s, num_layers=s.stack_depth, pipeline=s.pipeline_model_parallel_size),
        num_gpus=num_gpus,
        tensor=s.tensor_model_parallel_size,
        pipeline=s.pipeline_model_parallel_size,
        context=s.context_parallel_size,
        micro_batch_size=s.micro_batch_size,
        global_batch_size=s.global_batch_size or num_gpus // s.model_parallel_size * s.micro_batch_size,
        microbatch_group=s.microbatch_group_size_per_virtual_pipeline_stage or 0,
        sequence_parallel=s.sequence_parallel,
        num_layers=s.stack_depth,
        num_attention_heads=s.num_attention_heads,
        num_query_groups=s.query_groups,
        ffn_hidden_size=s.ffn_width,
        sequence_length=s.seq_length,
        decoder_sequence_length=s.decoder_seq_length or 0,
    )


def argument_of(field: str) -> str:
    """Return the trainer's argument for a field of run.json."""
    section, _, name = field.partition(".")
    if section == "parallel" and name:
        return f"{name}_model_parallel_size".replace("context_model", "context")
    return {"batch": "global_batch_size"}.get(field, name or field)


def check_parallel(s: "Settings") -> None:
    """Raise UsageError for the first rule about the layout that is broken."""
    sizes = sizes_of(s)
    refuse(sizes, tuple(rule for rule in RULES if rule.code not in LATER), argument_of)
    uneven = sizes.first_layers or sizes.last_layers
    require(
        not uneven or not FAMILIES[s.model_family].has_decoder,
        f"decoder_first_pipeline_num_layers: {uneven} is for gpt and bert; {s.model_family} divides its layers evenly",
    )
    if sizes.virtual > 1 and s.no_overlap_p2p_communication:  # Megatron-LM refuses it too
        rule = "needs pipeline_model_parallel_size above 2, or a rank takes an activation for a gradient"
        require(sizes.pipeline > 2, f"no_overlap_p2p_communication: with interleaving it {rule}; leave it out")
    waits = s.no_overlap_p2p_communication and s.overlap_p2p_communication_warmup_flush
    remedy = "excludes --no-overlap-p2p-communication; give one of them"
    require(not waits, f"overlap_p2p_communication_warmup_flush: {remedy}")
    _check_recompute(s, sizes)
    if (parts := s.context_parallel_size) > 1:
        why = f"{s.model_family} has no causal sequence to share"
        require(FAMILIES[s.model_family].is_causal, f"context_parallel_size: {parts} is for gpt; {why}")
        theirs = s.cp_comm_type == "all_gather" or s.wanted_kernels in {"te", "auto"}
        needs = "needs --kernels te (Transformer Engine); torch's attention has all_gather"
        require(theirs, f"cp_comm_type: {s.cp_comm_type} {needs}")
    if s.tp_comm_overlap:
        many = s.sequence_parallel and s.tensor_model_parallel_size > 1
        require(many, "tp_comm_overlap: needs --sequence-parallel and --tensor-model-parallel-size above 1")


def _check_recompute(s: "Settings", sizes: Sizes) -> None:
    """Refuse groups of layers that do not divide a stage: megatron-core would access layers beyond the last one."""
    layers = s.recompute_num_layers
    if not layers or FAMILIES[s.model_family].has_decoder:
        return
    for held in sorted(set(sizes.stage_layers())):
        stage = f"the {held} layers of a (virtual) stage"
        if s.recompute_method == "uniform":
            remedy = "give a number that divides it, or --recompute-method block"
            require(held % layers == 0, f"recompute_num_layers: {layers} does not divide {stage}; {remedy}")
        elif s.recompute_method == "block":
            require(layers <= held, f"recompute_num_layers: {layers} is more than {stage}")
