"""Settings of length, optimizer and schedule, kernels, checkpoints and logging."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nlp_bench.config.table import nonce
from nlp_bench.measure.anytime import percent
from nlp_bench.train.settings.rules import any_of, one_of, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class LengthSettings:
    """Batches, iterations, evaluation."""

    micro_batch_size: int
    """Samples per forward pass of one data-parallel replica."""
    global_batch_size: int | None = None
    """Samples per iteration; default: one micro-batch per replica."""
    train_iters: int | None = None
    """Iterations; exactly one of --train-iters and --train-samples is given."""
    train_samples: int | None = None
    """Samples; divided by the global batch size, rounded down, these are the iterations."""
    until: str | None = None
    """Stop when the mean time of an iteration is known to this share of itself, as in `1%` (docs/until.md), at a log line."""
    exit_duration_in_mins: float | None = None
    """Stop after the first iteration that ends later than this after the start, with a checkpoint where --save is given."""
    exit_interval: int | None = None
    """Stop after an iteration that this divides."""
    exit_signal_handler: bool = False
    """Stop after the iteration in which SIGTERM arrives, with a checkpoint where --save is given."""
    eval_interval: int = 1000
    """Accepted for old scripts: nothing is evaluated."""
    eval_iters: int = 0
    """Must be 0: an evaluation inside a throughput run would spoil the number."""
    manual_gc: bool = False
    """Switch Python's garbage collector off, so that ranks do not stop at different times."""
    manual_gc_interval: int = 0
    """With --manual-gc: iterations between collections that all ranks make together; 0 for never."""


MAX_SEED = 2**31  # megatron-core shuffles with numpy's RandomState, of 32 bits, and adds to the seed on some ranks


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Adam and its schedule."""

    lr: float
    """Peak learning rate."""
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


RECOMPUTABLE = ("core_attn", "mlp", "layernorm")
TRANSFORMER_IMPL = {"transformer_engine": "te", "local": "torch"}  # Megatron-LM's values to those of --kernels


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """Kernels, precision and recompute."""

    kernels: str = one_of("auto", "te", "apex", "torch", default="auto")
    """Transformer Engine, Apex or torch's own; auto takes the first of these that is installed and works."""
    transformer_impl: str | None = one_of("local", "transformer_engine")
    """Megatron-LM's name: transformer_engine means --kernels te, local means torch."""
    use_flash_attn: bool = False
    """Accepted for old scripts: attention always runs through a fused kernel."""
    no_bias_gelu_fusion: bool = False
    """Leave bias and GELU apart."""
    no_bias_swiglu_fusion: bool = False
    """Leave bias and the gate of SwiGLU apart."""
    no_bias_dropout_fusion: bool = False
    """Leave bias, dropout and addition apart."""
    no_rope_fusion: bool = False
    """Rotate by separate operators."""
    no_gradient_accumulation_fusion: bool = False
    """Sum weight gradients by an operator of their own instead of inside the matrix product."""
    cross_entropy_loss_fusion: bool = False
    """Accepted for old scripts: the loss is always fused where a kernel for it works; see --no-cross-entropy-loss-fusion."""
    no_cross_entropy_loss_fusion: bool = False
    """Compute the loss by separate operators."""

    bf16: bool = False
    """Train in bfloat16 with float32 master weights."""
    fp16: bool = False
    """Train in float16 with float32 master weights and a dynamic loss scale."""
    accumulate_allreduce_grads_in_fp32: bool = False
    """Accepted for old scripts: gradients are summed and reduced in float32; see --no-accumulate-allreduce-grads-in-fp32."""
    no_accumulate_allreduce_grads_in_fp32: bool = False
    """Sum and reduce gradients in the type of the parameters, as Megatron-LM does in float16: half the volume, 2 bytes per
    parameter less."""
    fp8_format: str | None = one_of("e4m3", "hybrid")
    """Matrix products in 8-bit floats: e4m3, or hybrid (e5m2 for gradients); needs Transformer Engine and such a GPU."""
    fp8_recipe: str = one_of("delayed", "tensorwise", "mxfp8", "blockwise", default="delayed")
    """How the 8-bit floats are scaled."""
    fp8_param_gather: bool = False
    """Keep and gather the parameters in 8-bit floats."""
    initial_loss_scale: float = 2.0**32
    """First loss scale of float16."""
    min_loss_scale: float = 1.0
    """Smallest loss scale of float16."""
    loss_scale_window: int = 1000
    """Iterations without overflow after which the loss scale doubles."""
    hysteresis: int = 2
    """Overflows before the loss scale is halved."""

    recompute_granularity: str | None = one_of("selective", "full")
    """What is recomputed in the backward pass."""
    recompute_activations: bool = False
    """The same as --recompute-granularity selective."""
    recompute_modules: tuple[str, ...] = any_of(*RECOMPUTABLE)
    """What selective recompute covers; default: core_attn, which every attention kernel here recomputes by itself."""
    recompute_method: str | None = one_of("uniform", "block")
    """How full recompute divides the layers."""
    recompute_num_layers: int | None = None
    """Layers per recomputed group (uniform) or recomputed layers per stage (block)."""
    use_cpu_initialization: bool = False
    """Draw the initial weights on the CPU, the same for every parallel layout; always so on CPU ranks."""

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


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Distributed checkpoints in megatron-core's format; a throughput run writes none."""

    save: str | None = None
    """Folder that checkpoints are written to: at the end, and where the training stops early."""
    save_interval: int | None = None
    """Iterations between further checkpoints."""
    async_save: bool = False
    """Write checkpoints while the training goes on."""
    load: str | None = None
    """Folder whose newest checkpoint the training continues from, also in another layout; without one it begins anew."""
    exit_on_missing_checkpoint: bool = False
    """Fail where --load holds no checkpoint, instead of starting from the beginning."""
    ckpt_format: str = one_of("torch_dist", default="torch_dist")
    """Format of the checkpoints."""
    keep_checkpoints: int | None = None
    """Checkpoints that are kept, the newest ones; default: all."""


@dataclass(frozen=True, kw_only=True)
class WatchingSettings:
    """Log, TensorBoard, Weights & Biases, MLPerf events, timers, profiler."""

    log_interval: int = 100
    """Iterations per log line."""
    nonce: str | None = None
    """Text of the buyer's that the log begins with and its closing hash covers: the run is no older than the text."""
    tensorboard_dir: str | None = None
    """Folder for TensorBoard's event files; without it none are written."""
    tensorboard_log_interval: int = 1
    """Iterations between TensorBoard's points; only iterations with a log line are written."""
    wandb_project: str | None = None
    """Project of Weights & Biases (pip install wandb); with WANDB_MODE=offline files are written and nothing is sent."""
    wandb_exp_name: str | None = None
    """Name of the run there."""
    wandb_save_dir: str | None = None
    """Folder for its files; default: the folder wandb where the training runs."""
    mllog: bool = False
    """Print MLPerf's events, `:::MLLOG {...}`, into the log."""
    progress: str = one_of("auto", "on", "off", default="auto")
    """Progress and remaining time on stderr; auto: on a terminal only."""
    timing_log_level: int = 0
    """0: iterations only; 1: milliseconds of forward, backward, communication, optimizer and data per log line; 2: each timer
    of megatron-core as well. Nobody is waited for; see docs/watching.md for the cost."""
    profile: bool = False
    """Record a window of iterations by torch's profiler; log lines that hold one are marked and no part of the steady number."""
    profile_step_start: int = 10
    """First iteration of the profiler's window."""
    profile_step_end: int = 12
    """Iteration after the window."""
    profile_ranks: tuple[int, ...] = (0,)
    """Ranks that are recorded."""
    profile_dir: str | None = None
    """Folder for the traces; default: the folder profile where the training runs."""


def check_run(s: "Settings") -> None:
    """Raise UsageError for the first broken rule of the groups in this file."""
    require(bool(s.train_iters or s.train_samples), "train_iters: not given; add --train-iters N or --train-samples N")
    spoilt = f"eval_iters: {s.eval_iters}: an evaluation would spoil the throughput; use --eval-iters 0"
    require(s.eval_iters == 0, spoilt)
    if s.until is not None:
        percent("until", s.until)
        for name in ("save", "load", "profile"):
            require(not getattr(s, name), f"until: {s.until} is for a measurement in one piece; leave --{name} out")
    room = "the seeds of numpy's generator with room for those of ranks"
    require(s.seed < MAX_SEED, f"seed: {s.seed} is not below 2**31, {room}")
    require(s.min_lr <= s.lr, f"min_lr: {s.min_lr} is greater than lr = {s.lr}")
    nonce("nonce", s.nonce)
    require(s.timing_log_level in {0, 1, 2}, f"timing_log_level: {s.timing_log_level} is none of 0, 1, 2")
    there = s.wandb_project is None or find_spec("wandb") is not None
    remedy = "pip install wandb, or leave --wandb-project out"
    require(there, f"wandb_project: the package wandb is not installed; {remedy}")
    if s.profile:
        start, end, ranks = s.profile_step_start, s.profile_step_end, s.profile_ranks
        require(start >= 1, f"profile_step_start: {start}: iterations are counted from 1")
        require(start < end, f"profile_step_end: {end} is not after profile_step_start = {start}")
        words = " ".join(map(str, ranks)) or "none"
        require(bool(ranks) and min(ranks) >= 0, f"profile_ranks: {words}: give ranks from 0 on")
    require(not (s.bf16 and s.fp16), "bf16: excludes --fp16; give one of them")
    both = s.accumulate_allreduce_grads_in_fp32 and s.no_accumulate_allreduce_grads_in_fp32
    require(not both, "accumulate_allreduce_grads_in_fp32: is asked for and forbidden; give one of the two")
    if s.transformer_impl and s.kernels != "auto":
        means = TRANSFORMER_IMPL[s.transformer_impl]
        text = f"transformer_impl: {s.transformer_impl} means --kernels {means}, and --kernels {s.kernels} is given"
        require(means == s.kernels, f"{text}; give one of them")
    if s.fp8_format:
        usable = s.wanted_kernels in {"te", "auto"} and s.bf16
        require(usable, f"fp8_format: {s.fp8_format} needs --bf16 and --kernels te (Transformer Engine)")
    if s.tp_comm_overlap:
        require(s.wanted_kernels in {"te", "auto"}, "tp_comm_overlap: needs --kernels te (Transformer Engine)")
    if s.recompute_modules:
        require(s.granularity == "selective", "recompute_modules: needs --recompute-granularity selective")
    if s.recompute_method or s.recompute_num_layers:
        asked = f"recompute_method: {s.recompute_method}, {s.recompute_num_layers} layers"
        require(s.granularity == "full", f"{asked}: needs --recompute-granularity full")
    if s.granularity == "full":
        known = s.recompute_method is not None and s.recompute_num_layers is not None
        require(known, "recompute_granularity: full needs --recompute-method and --recompute-num-layers")
