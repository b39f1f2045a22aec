"""How long the training is, in what steps, and what interrupts it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.measure.anytime import percent
from nlp_bench.train.settings.rules import exclusive, not_negative, positive, require

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
