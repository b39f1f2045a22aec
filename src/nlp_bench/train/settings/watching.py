"""Where the training tells how it goes, beside its log line."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nlp_bench.config.checks import nonce
from nlp_bench.errors import UsageError
from nlp_bench.train.settings.rules import one_of, positive, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings


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
