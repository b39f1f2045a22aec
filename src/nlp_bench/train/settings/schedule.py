"""How the weights are updated: optimizer and learning rate."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.train.settings.rules import exclusive, not_negative, one_of, positive, require, share

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

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
