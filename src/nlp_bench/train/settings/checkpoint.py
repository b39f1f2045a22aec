"""What is kept of the training, and from where it goes on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.train.settings.rules import one_of, positive, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings


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
