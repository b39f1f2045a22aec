"""The settings of one training: Megatron-LM's argument names as one frozen record, checked before torch is imported.

rules.py has the rules, the sizes of vocabularies and the checks of files; families.py what is particular to a family of networks.
"""

from dataclasses import field
from typing import Any

from nlp_bench.immutable import immutable
from nlp_bench.train.settings.families import FAMILIES
from nlp_bench.train.settings.rules import TRANSFORMER_IMPL, check

TOKENIZERS = (
    "GPT2BPETokenizer", "HuggingFaceTokenizer", "BertWordPieceCase", "BertWordPieceLowerCase", "SentencePieceTokenizer",
    "NullTokenizer",
)  # fmt: skip
RECOMPUTABLE = ("core_attn", "mlp", "layernorm")


def one_of(*choices: str, default: object = None) -> Any:
    """Return a dataclass field that accepts only these choices, which the command line shows; of a tuple any number of them."""
    return field(default=default, metadata={"choices": choices})


@immutable
class ShapeSettings:
    """The network: family and shape."""

    model_family: str = one_of(*FAMILIES, default="gpt")
    """Kind of network: gpt (decoder), t5 (encoder and decoder; mT5 too), bert (encoder). Megatron-LM has a script of each."""
    num_layers: int  # Transformer layers; of t5 those of the encoder and as many of the decoder.
    encoder_num_layers: int | None = None  # Layers of t5's encoder; default: --num-layers.
    decoder_num_layers: int | None = None  # Layers of t5's decoder; default: --num-layers.
    hidden_size: int  # Width of the residual stream.
    num_attention_heads: int  # Query heads per layer.
    kv_channels: int | None = None  # Width of one head; default: hidden size / heads.
    seq_length: int  # Tokens per sample; of t5 those of the encoder (Megatron-LM's --encoder-seq-length).
    decoder_seq_length: int | None = None  # Tokens of t5's decoder per sample.
    max_position_embeddings: int  # Longest sequence that the position embedding knows; at least the sequence length.
    ffn_hidden_size: int | None = None  # Inner width of the feed-forward block; default 4 times the hidden size.
    group_query_attention: bool = False  # Share keys and values between groups of query heads.
    num_query_groups: int | None = None  # Key/value heads; needs --group-query-attention.
    position_embedding_type: str = one_of("learned_absolute", "rope", "relative", default="learned_absolute")
    """How positions enter the model; relative (T5's buckets) is for t5."""
    rotary_percent: float = 1.0  # Share of each head's width that is rotated.
    rotary_base: int = 10000  # Base period of the rotary embedding.
    untie_embeddings_and_output_weights: bool = False  # Give the output layer its own weights.
    init_method_std: float = 0.02  # Standard deviation of the initial weights.
    normalization: str = one_of("LayerNorm", "RMSNorm", default="LayerNorm")  # Kind of normalisation.
    norm_epsilon: float = 1e-5  # Added to the variance inside the normalisation.
    swiglu: bool = False  # Gated feed-forward block with SiLU in place of GELU.
    geglu: bool = False  # Gated feed-forward block with GELU (T5 1.1, Shazeer 2020, https://arxiv.org/abs/2002.05202).
    disable_bias_linear: bool = False  # Linear layers without bias.
    attention_dropout: float = 0.1
    """Dropout of the attention weights. With dropout the loss depends on the parallel layout."""
    hidden_dropout: float = 0.1  # Dropout of the residual stream. With dropout the loss depends on the parallel layout.
    bert_no_binary_head: bool = False  # Leave out bert's prediction of the next sentence.

    @property
    def ffn_width(self) -> int:
        """Inner width of the feed-forward block; by default 4 x hidden size, with SwiGLU 2/3 of that, rounded down to a multiple of 64."""
        gated = 4 * self.hidden_size * 2 // 3 // 64 * 64 if self.swiglu else 0
        return self.ffn_hidden_size or gated or 4 * self.hidden_size

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.kv_channels or self.hidden_size // self.num_attention_heads

    @property
    def query_groups(self) -> int:
        """Number of key/value heads."""
        return (self.num_query_groups or 1) if self.group_query_attention else self.num_attention_heads

    @property
    def rotated_width(self) -> int:
        """Part of each head's width that is rotated by position; 0 without rotary embedding."""
        return int(self.head_width * self.rotary_percent) if self.position_embedding_type == "rope" else 0

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block is gated: three matrices instead of two."""
        return self.swiglu or self.geglu

    @property
    def stack_depth(self) -> int:
        """Layers that a pipeline divides into stages: of t5 those of encoder and decoder together."""
        if not FAMILIES[self.model_family].has_decoder:
            return self.num_layers
        return (self.encoder_num_layers or self.num_layers) + (self.decoder_num_layers or self.num_layers)


@immutable
class ScheduleSettings:
    """Adam and its schedule."""

    lr: float  # Peak learning rate.
    optimizer: str = one_of("adam", default="adam")  # Optimizer: Adam with decoupled weight decay.
    min_lr: float = 0.0  # Learning rate after the decay.
    lr_decay_style: str = one_of("constant", "linear", "cosine", "inverse-square-root", default="linear")
    """Shape of the decay."""
    lr_decay_iters: int | None = None  # Iterations of the decay; default: all.
    lr_decay_samples: int | None = None  # Samples of the decay; default: all.
    lr_warmup_iters: int = 0  # Iterations of the linear warm-up.
    lr_warmup_samples: int = 0  # Samples of the linear warm-up.
    adam_beta1: float = 0.9  # Decay rate of the first moment.
    adam_beta2: float = 0.999  # Decay rate of the second moment.
    adam_eps: float = 1e-8  # Added to the root of the second moment.
    weight_decay: float = 0.01  # Decoupled weight decay; not on biases and normalisations.
    clip_grad: float = 1.0  # Largest norm of the gradient; 0 switches clipping off.
    seed: int = 1234  # Seed of weights, data order and dropout.


@immutable
class Settings(ScheduleSettings, ShapeSettings):
    """The arguments of `python -m nlp_bench.train`; names and meanings are Megatron-LM's unless a docstring says otherwise."""

    # vocabulary, tokenizer and tokens

    vocab_size: int | None = None
    """Tokens in the vocabulary; default: the entries of --vocab-file or --tokenizer-model."""
    vocab_extra_ids: int = 0
    """Tokens added to the vocabulary as t5's sentinels, one for each span that is cut out of a text (100 in T5)."""
    make_vocab_size_divisible_by: int = 128
    """The vocabulary is padded to a multiple of this times the tensor-parallel size."""
    tokenizer_type: str = one_of(*TOKENIZERS, default="GPT2BPETokenizer")
    """Kind of the tokenizer; NullTokenizer needs --vocab-size and no files."""
    tokenizer_model: str | None = None  # tokenizer.json of a Hugging Face tokenizer, or SentencePiece's .model.
    vocab_file: str | None = None  # vocab.json of the byte-level BPE tokenizer, or vocab.txt of a WordPiece tokenizer.
    merge_file: str | None = None  # merges.txt of the byte-level BPE tokenizer; training itself does not read it.
    data_path: tuple[str, ...] = ()
    """Prefix of the indexed data, PREFIX.bin and PREFIX.idx; several, or WEIGHT PREFIX WEIGHT PREFIX ..., are blended."""
    data_cache_path: str | None = None  # Folder for the sample index; default: the folder `cache` beside the data.
    mock_data: bool = False  # Train on random tokens instead of data.
    split: str = "969,30,1"  # Weights of training, validation and test documents; only the training share is read.
    mask_prob: float = 0.15  # Share of the tokens that bert and t5 have to guess; above 0.
    short_seq_prob: float = 0.0
    """Share of bert's and t5's samples that are cut short and padded (Megatron-LM's default is 0.1); mock samples never are."""

    # layout of the ranks, and how their communication overlaps

    tensor_model_parallel_size: int = 1  # Ranks that share each layer.
    pipeline_model_parallel_size: int = 1  # Pipeline stages.
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
    context_parallel_size: int = 1  # Ranks that share each sequence.
    cp_comm_type: str = one_of("all_gather", "p2p", "a2a", default="all_gather")
    """How keys and values travel between context-parallel ranks; p2p and a2a need Transformer Engine."""
    sequence_parallel: bool = False
    """Split the normalisations along the sequence between tensor-parallel ranks; off when those are 1."""
    tp_comm_overlap: bool = False
    """Overlap tensor-parallel communication with matrix products; needs Transformer Engine."""
    use_distributed_optimizer: bool = False  # Split the optimizer state between data-parallel ranks.
    overlap_grad_reduce: bool = False  # Reduce gradients while the backward pass still runs.
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
    ddp_average_in_collective: bool = False  # Let the collective operation divide by the number of replicas.
    distributed_backend: str | None = one_of("nccl", "gloo")
    """Communication library; default nccl on GPUs, gloo on CPUs."""
    distributed_timeout_minutes: int = 10  # After this time without an answer a collective operation fails.

    # batches, iterations, evaluation

    micro_batch_size: int  # Samples per forward pass of one data-parallel replica.
    global_batch_size: int | None = None  # Samples per iteration; default: one micro-batch per replica.
    train_iters: int | None = None  # Iterations; exactly one of --train-iters and --train-samples is given.
    train_samples: int | None = None
    """Samples; divided by the global batch size, rounded down, these are the iterations."""
    until: str | None = None
    """Stop when the mean time of an iteration is known to this share of itself, as in `1%` (docs/until.md), at a log line."""
    exit_duration_in_mins: float | None = None
    """Stop after the first iteration that ends later than this after the start, with a checkpoint where --save is given."""
    exit_interval: int | None = None  # Stop after an iteration that this divides.
    exit_signal_handler: bool = False
    """Stop after the iteration in which SIGTERM arrives, with a checkpoint where --save is given."""
    eval_interval: int = 1000  # Accepted for old scripts: nothing is evaluated.
    eval_iters: int = 0  # Must be 0: an evaluation inside a throughput run would spoil the number.
    manual_gc: bool = False  # Switch Python's garbage collector off, so that ranks do not stop at different times.
    manual_gc_interval: int = 0
    """With --manual-gc: iterations between collections that all ranks make together; 0 for never."""

    # kernels, precision and recompute

    kernels: str = one_of("auto", "te", "apex", "torch", default="auto")
    """Transformer Engine, Apex or torch's own; auto takes the first of these that is installed and works."""
    transformer_impl: str | None = one_of("local", "transformer_engine")
    """Megatron-LM's name: transformer_engine means --kernels te, local means torch."""
    use_flash_attn: bool = False  # Accepted for old scripts: attention always runs through a fused kernel.
    no_bias_gelu_fusion: bool = False  # Leave bias and GELU apart.
    no_bias_swiglu_fusion: bool = False  # Leave bias and the gate of SwiGLU apart.
    no_bias_dropout_fusion: bool = False  # Leave bias, dropout and addition apart.
    no_rope_fusion: bool = False  # Rotate by separate operators.
    no_gradient_accumulation_fusion: bool = False
    """Sum weight gradients by an operator of their own instead of inside the matrix product."""
    cross_entropy_loss_fusion: bool = False
    """Accepted for old scripts: the loss is always fused where a kernel for it works; see --no-cross-entropy-loss-fusion."""
    no_cross_entropy_loss_fusion: bool = False  # Compute the loss by separate operators.

    bf16: bool = False  # Train in bfloat16 with float32 master weights.
    fp16: bool = False  # Train in float16 with float32 master weights and a dynamic loss scale.
    accumulate_allreduce_grads_in_fp32: bool = False
    """Accepted for old scripts: gradients are summed and reduced in float32; see --no-accumulate-allreduce-grads-in-fp32."""
    no_accumulate_allreduce_grads_in_fp32: bool = False
    """Sum and reduce gradients in the type of the parameters, as Megatron-LM does in float16: half the volume, 2 bytes per
    parameter less."""
    fp8_format: str | None = one_of("e4m3", "hybrid")
    """Matrix products in 8-bit floats: e4m3, or hybrid (e5m2 for gradients); needs Transformer Engine and such a GPU."""
    fp8_recipe: str = one_of("delayed", "tensorwise", "mxfp8", "blockwise", default="delayed")
    """How the 8-bit floats are scaled."""
    fp8_param_gather: bool = False  # Keep and gather the parameters in 8-bit floats.
    initial_loss_scale: float = 2.0**32  # First loss scale of float16.
    min_loss_scale: float = 1.0  # Smallest loss scale of float16.
    loss_scale_window: int = 1000  # Iterations without overflow after which the loss scale doubles.
    hysteresis: int = 2  # Overflows before the loss scale is halved.

    recompute_granularity: str | None = one_of("selective", "full")  # What is recomputed in the backward pass.
    recompute_activations: bool = False  # The same as --recompute-granularity selective.
    recompute_modules: tuple[str, ...] = one_of(*RECOMPUTABLE, default=())
    """What selective recompute covers; default: core_attn, which every attention kernel here recomputes by itself."""
    recompute_method: str | None = one_of("uniform", "block")  # How full recompute divides the layers.
    recompute_num_layers: int | None = None
    """Layers per recomputed group (uniform) or recomputed layers per stage (block)."""
    use_cpu_initialization: bool = False
    """Draw the initial weights on the CPU, the same for every parallel layout; always so on CPU ranks."""

    # distributed checkpoints in megatron-core's format; a throughput run writes none

    save: str | None = None  # Folder that checkpoints are written to: at the end, and where the training stops early.
    save_interval: int | None = None  # Iterations between further checkpoints.
    async_save: bool = False  # Write checkpoints while the training goes on.
    load: str | None = None
    """Folder whose newest checkpoint the training continues from, also in another layout; without one it begins anew."""
    exit_on_missing_checkpoint: bool = False
    """Fail where --load holds no checkpoint, instead of starting from the beginning."""
    ckpt_format: str = one_of("torch_dist", default="torch_dist")  # Format of the checkpoints.
    keep_checkpoints: int | None = None  # Checkpoints that are kept, the newest ones; default: all.

    # log, TensorBoard, Weights & Biases, MLPerf events, timers, profiler

    log_interval: int = 100  # Iterations per log line.
    nonce: str | None = None
    """Text of the buyer's that the log begins with and its closing hash covers: the run is no older than the text."""
    tensorboard_dir: str | None = None  # Folder for TensorBoard's event files; without it none are written.
    tensorboard_log_interval: int = 1
    """Iterations between TensorBoard's points; only iterations with a log line are written."""
    wandb_project: str | None = None
    """Project of Weights & Biases (pip install wandb); with WANDB_MODE=offline files are written and nothing is sent."""
    wandb_exp_name: str | None = None  # Name of the run there.
    wandb_save_dir: str | None = None  # Folder for its files; default: the folder wandb where the training runs.
    mllog: bool = False  # Print MLPerf's events, `:::MLLOG {...}`, into the log.
    progress: str = one_of("auto", "on", "off", default="auto")
    """Progress and remaining time on stderr; auto: on a terminal only."""
    timing_log_level: int = 0
    """0: iterations only; 1: milliseconds of forward, backward, communication, optimizer and data per log line; 2: each timer
    of megatron-core as well. Nobody is waited for; see docs/watching.md for the cost."""
    profile: bool = False
    """Record a window of iterations by torch's profiler; log lines that hold one are marked and no part of the steady number."""
    profile_step_start: int = 10  # First iteration of the profiler's window.
    profile_step_end: int = 12  # Iteration after the window.
    profile_ranks: tuple[int, ...] = (0,)  # Ranks that are recorded.
    profile_dir: str | None = None  # Folder for the traces; default: the folder profile where the training runs.

    def __post_init__(self) -> None:
        check(self)

    @property
    def model_parallel_size(self) -> int:
        """Ranks that share one replica of the model."""
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size

    @property
    def granularity(self) -> str | None:
        """What is recomputed: `selective`, `full` or None."""
        return self.recompute_granularity or ("selective" if self.recompute_activations else None)

    @property
    def params_dtype(self) -> str:
        """Name of the torch type of the parameters."""
        return "bfloat16" if self.bf16 else "float16" if self.fp16 else "float32"

    @property
    def gradients_dtype(self) -> str:
        """Name of the torch type in which gradients are summed and reduced."""
        return self.params_dtype if self.no_accumulate_allreduce_grads_in_fp32 else "float32"

    @property
    def wanted_kernels(self) -> str:
        """`kernels`, or its value for `transformer_impl`."""
        if self.transformer_impl and self.kernels == "auto":
            return TRANSFORMER_IMPL[self.transformer_impl]
        return self.kernels
