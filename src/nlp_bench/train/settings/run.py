"""How long the training is, how it updates the weights, what it keeps and what it tells."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nlp_bench.config.table import nonce
from nlp_bench.errors import UsageError
from nlp_bench.measure.anytime import percent
from nlp_bench.train.settings.rules import exclusive, not_negative, one_of, positive, require, share

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


def check_length(s: "Settings") -> None:
    """Raise UsageError for the first rule about the length of the run that is broken."""
    names = (
        "micro_batch_size",
        "global_batch_size",
        "train_iters",
        "train_samples",
        "exit_duration_in_mins",
        "exit_interval",
    )
    positive(vars(s), names)
    not_negative(vars(s), ("manual_gc_interval",))
    exclusive(vars(s), "train_iters", "train_samples")
    require(bool(s.train_iters or s.train_samples), "train_iters: not given; add --train-iters N or --train-samples N")
    require(
        s.eval_iters == 0, f"eval_iters: {s.eval_iters}: an evaluation would spoil the throughput; use --eval-iters 0"
    )
    if s.until is not None:
        percent("until", s.until)
        for name in ("save", "load", "profile"):
            require(not getattr(s, name), f"until: {s.until} is for a measurement in one piece; leave --{name} out")
    require(not s.manual_gc_interval or s.manual_gc, "manual_gc_interval: needs --manual-gc")


MAX_SEED = 2**31
"""megatron-core shuffles with numpy's RandomState, which takes 32 bits, and adds to the seed of each rank."""


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


def check_schedule(s: "Settings") -> None:
    """Raise UsageError for the first rule about the optimizer that is broken."""
    values = vars(s)
    positive(values, ("lr_decay_iters", "lr_decay_samples"))
    names = ("lr", "min_lr", "lr_warmup_iters", "lr_warmup_samples", "weight_decay", "clip_grad", "adam_eps", "seed")
    not_negative(values, names)
    share(values, ("adam_beta1", "adam_beta2"))
    exclusive(values, "lr_decay_iters", "lr_decay_samples")
    exclusive(values, "lr_warmup_iters", "lr_warmup_samples")
    require(
        s.seed < MAX_SEED,
        f"seed: {s.seed} is not below 2**31, the seeds of numpy's generator with room for those of ranks",
    )
    require(s.min_lr <= s.lr, f"min_lr: {s.min_lr} is greater than lr = {s.lr}")


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


def check_checkpoint(s: "Settings") -> None:
    """Raise UsageError for the first rule about checkpoints that is broken."""
    positive(vars(s), ("save_interval", "keep_checkpoints"))
    for name in ("save_interval", "keep_checkpoints", "async_save"):
        require(not getattr(s, name) or s.save is not None, f"{name}: needs --save FOLDER")
    require(not s.exit_on_missing_checkpoint or s.load is not None, "exit_on_missing_checkpoint: needs --load FOLDER")


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


def check_watching(s: "Settings") -> None:
    """Raise UsageError for the first rule about logging that is broken."""
    positive(vars(s), ("log_interval", "tensorboard_log_interval"))
    nonce("nonce", s.nonce)
    require(s.timing_log_level in {0, 1, 2}, f"timing_log_level: {s.timing_log_level} is none of 0, 1, 2")
    for name in ("wandb_exp_name", "wandb_save_dir"):
        require(getattr(s, name) is None or s.wandb_project is not None, f"{name}: needs --wandb-project")
    if s.wandb_project is not None and find_spec("wandb") is None:
        raise UsageError(
            "wandb_project: the package wandb is not installed; pip install wandb, or leave --wandb-project out"
        )
    if s.profile:
        _check_profile(s)


def _check_profile(s: "Settings") -> None:
    start, end, ranks = s.profile_step_start, s.profile_step_end, s.profile_ranks
    require(start >= 1, f"profile_step_start: {start}: iterations are counted from 1")
    require(start < end, f"profile_step_end: {end} is not after profile_step_start = {start}")
    require(
        bool(ranks) and min(ranks) >= 0, f"profile_ranks: {' '.join(map(str, ranks)) or 'none'}: give ranks from 0 on"
    )
    is_reached = s.train_iters is None or start <= s.train_iters
    require(is_reached, f"profile_step_start: {start} is after the last iteration, train_iters = {s.train_iters}")
