"""What a published table says beside the rate: kept to be checked, never to be used as a result."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of a reference table. Numbers that are held against a recomputed value keep the digits that were printed."""

    table: str
    """The file, as the caller named it."""
    line: int
    """Line of the row in the file."""
    source: str
    """Where it was published."""
    iterations: int | None = None
    """Iterations of the run."""
    log_interval: int | None = None
    """Iterations per logged line."""
    perfect_linear: str | None = None
    """Tokens per second of perfect linear scaling."""
    speed_up: str | None = None
    """Speed-up over the smallest size, as the table has it."""
    stated_speed_up: str | None = None
    """Speed-up as the text around the table has it."""
    train_tokens: int | None = None
    """Tokens of the training that the days are for."""
    train_days: str | None = None
    """Days of that training, as the table has it."""
    stated_train_days: str | None = None
    """Days as the text around the table has it."""
