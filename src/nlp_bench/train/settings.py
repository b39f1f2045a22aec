"""What one training runs with: Megatron-LM's argument names as one frozen record, checked before torch is imported."""

from dataclasses import dataclass, field
from typing import Any

from nlp_bench.errors import UsageError


def one_of(*words: str, default: str | None = None) -> Any:
    """Return a dataclass field that accepts only these words; the command line shows them as choices."""
    return field(default=default, metadata={"choices": words})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The arguments of `python -m nlp_bench.train`; names and meanings are Megatron-LM's unless a docstring says more."""

    num_layers: int
    """Transformer layers."""
    hidden_size: int
    """Width of the residual stream."""
    num_attention_heads: int
    """Query heads per layer."""
    seq_length: int
    """Tokens per sample."""
    max_position_embeddings: int
    """Longest sequence that the position embedding knows; at least the sequence length."""
    micro_batch_size: int
    """Samples per forward pass of one data-parallel replica."""
    lr: float
    """Peak learning rate."""

    ffn_hidden_size: int | None = None
    """Inner width of the feed-forward block; default 4 times the hidden size."""
    group_query_attention: bool = False
    """Share keys and values between groups of query heads."""
    num_query_groups: int | None = None
    """Key/value heads; needs --group-query-attention."""
    position_embedding_type: str = one_of("learned_absolute", "rope", default="learned_absolute")
    """How positions enter the model."""
    rotary_percent: float = 1.0
    """Share of each head's width that is rotated."""
    rotary_base: int = 10000
    """Base period of the rotary embedding."""
    untie_embeddings_and_output_weights: bool = False
    """Give the output layer its own weights."""
    init_method_std: float = 0.02
    """Standard deviation of the initial weights."""
    normalization: str = one_of("LayerNorm", "RMSNorm", default="LayerNorm")
    """Kind of normalisation."""
    norm_epsilon: float = 1e-5
    """Added to the variance inside the normalisation."""
    swiglu: bool = False
    """Gated feed-forward block with SiLU in place of GELU."""
    disable_bias_linear: bool = False
    """Linear layers without bias."""
    attention_dropout: float = 0.1
    """Dropout of the attention weights. With dropout the loss depends on the parallel layout."""
    hidden_dropout: float = 0.1
    """Dropout of the residual stream. With dropout the loss depends on the parallel layout."""
    use_flash_attn: bool = False
    """Accepted for old scripts: attention always runs through torch's fused kernels."""

    vocab_size: int | None = None
    """Tokens in the vocabulary; default: the entries of --vocab-file."""
    make_vocab_size_divisible_by: int = 128
    """The vocabulary is padded to a multiple of this times the tensor-parallel size."""
    tokenizer_type: str = one_of("GPT2BPETokenizer", "NullTokenizer", default="GPT2BPETokenizer")
    """Kind of the tokenizer; NullTokenizer needs --vocab-size and no files."""
    vocab_file: str | None = None
    """vocab.json of the byte-level BPE tokenizer."""
    merge_file: str | None = None
    """merges.txt of the byte-level BPE tokenizer; training itself does not read it."""
    data_path: str | None = None
    """Prefix of the indexed data: PREFIX.bin and PREFIX.idx."""
    data_cache_path: str | None = None
    """Folder for the sample index; default: the folder `cache` beside the data."""
    mock_data: bool = False
    """Train on random tokens instead of data."""
    split: str = "969,30,1"
    """Weights of training, validation and test documents; only the training share is read."""

    tensor_model_parallel_size: int = 1
    """Ranks that share each layer."""
    pipeline_model_parallel_size: int = 1
    """Pipeline stages."""
    sequence_parallel: bool = False
    """Split the normalisations along the sequence between tensor-parallel ranks; off when those are 1."""
    use_distributed_optimizer: bool = False
    """Split the optimizer state between data-parallel ranks."""
    overlap_grad_reduce: bool = False
    """Reduce gradients while the backward pass still runs."""
    overlap_param_gather: bool = False
    """Gather parameters during the forward pass; needs --use-distributed-optimizer and --overlap-grad-reduce."""
    distributed_backend: str | None = one_of("nccl", "gloo")
    """Communication library; default nccl on GPUs, gloo on CPUs."""
    distributed_timeout_minutes: int = 10
    """After this time without an answer a collective operation fails."""

    global_batch_size: int | None = None
    """Samples per iteration; default: one micro-batch per replica."""
    train_iters: int | None = None
    """Iterations; exactly one of --train-iters and --train-samples is given."""
    train_samples: int | None = None
    """Samples; divided by the global batch size, rounded down, these are the iterations."""
    exit_duration_in_mins: float | None = None
    """Stop after the first iteration that ends later than this after the start."""
    log_interval: int = 100
    """Iterations per log line."""
    eval_interval: int = 1000
    """Accepted for old scripts: nothing is evaluated."""
    eval_iters: int = 0
    """Must be 0: an evaluation inside a throughput run would spoil the number."""
    save: str | None = None
    """Refused: checkpoints are not written."""
    load: str | None = None
    """Refused: checkpoints are not read."""

    optimizer: str = one_of("adam", default="adam")
    """Optimizer: Adam with decoupled weight decay."""
    min_lr: float = 0.0
    """Learning rate after the decay."""
    lr_decay_style: str = one_of("constant", "linear", "cosine", "inverse-square-root", default="linear")
    """Shape of the decay."""
    lr_decay_iters: int | None = None
    """Iterations of the decay; default: all."""
    lr_decay_samples: int | None = None
    """Samples of the decay; default: all."""
    lr_warmup_iters: int = 0
    """Iterations of the linear warm-up."""
    lr_warmup_samples: int = 0
    """Samples of the linear warm-up."""
    adam_beta1: float = 0.9
    """Decay rate of the first moment."""
    adam_beta2: float = 0.999
    """Decay rate of the second moment."""
    adam_eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay; not on biases and normalisations."""
    clip_grad: float = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    seed: int = 1234
    """Seed of weights, data order and dropout."""

    bf16: bool = False
    """Train in bfloat16 with float32 master weights and gradient sums."""
    fp16: bool = False
    """Train in float16 with float32 master weights and a dynamic loss scale."""
    initial_loss_scale: float = 2.0**32
    """First loss scale of float16."""
    min_loss_scale: float = 1.0
    """Smallest loss scale of float16."""
    loss_scale_window: int = 1000
    """Iterations without overflow after which the loss scale doubles."""
    hysteresis: int = 2
    """Overflows before the loss scale is halved."""

    recompute_granularity: str | None = one_of("selective", "full")
    """What is recomputed in the backward pass; see also `recomputes_layers`."""
    recompute_activations: bool = False
    """The same as --recompute-granularity selective."""
    recompute_method: str | None = one_of("uniform", "block")
    """How full recompute divides the layers."""
    recompute_num_layers: int | None = None
    """Layers per recomputed group (uniform) or recomputed layers per stage (block)."""
    use_cpu_initialization: bool = False
    """Draw the initial weights on the CPU, the same for every parallel layout; always so on CPU ranks."""

    def __post_init__(self) -> None:
        """Refuse what cannot run; each message starts with the field and shows the arithmetic."""
        from nlp_bench.train.checks import check_settings  # noqa: PLC0415  # the checks name this class

        check_settings(self)

    @property
    def ffn_width(self) -> int:
        """The inner width of the feed-forward block."""
        return self.ffn_hidden_size or 4 * self.hidden_size

    @property
    def query_groups(self) -> int:
        """The number of key/value heads."""
        return (self.num_query_groups or 1) if self.group_query_attention else self.num_attention_heads

    @property
    def rotated_width(self) -> int:
        """The width of each head that is rotated by position; 0 without rotary embedding."""
        head = self.hidden_size // self.num_attention_heads
        return int(head * self.rotary_percent) if self.position_embedding_type == "rope" else 0

    @property
    def granularity(self) -> str | None:
        """What is recomputed: `selective`, `full` or None."""
        return self.recompute_granularity or ("selective" if self.recompute_activations else None)

    @property
    def recomputes_layers(self) -> bool:
        """Whether whole layers run twice.

        Selective recompute means attention only, and torch's fused attention recomputes its scores itself in the
        backward pass, so nothing else is recomputed for it.
        """
        return self.granularity == "full"

    @property
    def params_dtype(self) -> str:
        """Name of the torch type of the parameters."""
        return "bfloat16" if self.bf16 else "float16" if self.fp16 else "float32"

    def resolved_vocab_size(self) -> int:
        """Return the entries of the vocabulary; raises UsageError where neither an option nor a file tells."""
        from nlp_bench.train.checks import vocabulary_entries  # noqa: PLC0415  # reads a file: only when asked

        entries = vocabulary_entries(self)
        if self.vocab_size is None and entries is None:
            raise UsageError("vocab_size: not given; add --vocab-size N or --vocab-file vocab.json")
        return self.vocab_size or entries or 0
