"""What a training log says, whatever its dialect: intervals, attempts, and what had to be left out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One logged interval: the iterations since the line before. Missing is None, never 0."""

    iteration: int
    """The last iteration of the interval, counted from 1."""
    total_iterations: int | None = None
    """The iteration at which this training would end."""
    elapsed_s: float | None = None
    """Seconds per iteration, the mean of the interval; finite and above 0."""
    global_batch_size: int | None = None
    """Samples per iteration at the last iteration of the interval."""
    consumed_samples: int | None = None
    """Samples since the training began."""
    lm_loss: float | None = None
    """Mean training loss of the interval; may be NaN or infinite, as the log says."""
    grad_norm: float | None = None
    """Norm of the gradient at the last iteration."""
    num_skipped: int | None = None
    """Iterations of the interval whose update was skipped (loss scaling)."""
    num_nan: int | None = None
    """Iterations of the interval with a NaN gradient."""
    tflops: float | None = None
    """TFLOP/s per GPU by the legacy x4/3 count, field `TFLOPs:`."""
    model_tflops: float | None = None
    """TFLOP/s per GPU of the model alone, field `model TFLOP/s/GPU:`."""
    is_whole: bool = True
    """False where the line was cut or spliced: only fields that were finished are given."""
    rank_label: str = ""
    """What stood in front to name the process, such as `[default3]`."""
    line_number: int = 0
    """Line of the file, counted from 1 (a carriage return does not end a line here)."""

    def why_broken(self) -> str | None:
        """Say what makes the training invalid: a loss that is no finite number or a NaN iteration; else None."""
        if self.lm_loss is not None and not math.isfinite(self.lm_loss):
            return f"lm loss is {self.lm_loss} at iteration {self.iteration}"
        if self.num_nan:
            return f"{self.num_nan} NaN iteration(s) up to iteration {self.iteration}"
        return None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of the training program: its iterations only rise."""

    arguments: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers of the printed argument dump, by Megatron's names (`seq_length`, `world_size`)."""
    records: tuple[LogRecord, ...] = ()
    """The intervals in the order of the log."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """All that one file gave."""

    dialect: str | None
    """Name of the dialect, None when no record was found."""
    attempts: tuple[Attempt, ...]
    """Starts of the program with at least one record, in the order of the file."""
    num_bytes: int
    """Bytes after decompression."""
    num_torn: int = 0
    """Records that were cut or spliced, whether a part of them could be used or not."""
    num_echoes: int = 0
    """Records that another process had already printed."""
    num_impossible: int = 0
    """Elapsed times of 0, below 0 or not finite: left out."""
    damage: str | None = None
    """Why reading stopped early (a cut compressed file), None if it did not."""
