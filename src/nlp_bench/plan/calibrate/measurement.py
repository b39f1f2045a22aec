"""One thing that is timed, and what came out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Call = Callable[[], object]
"""Does the work once."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work, made ready when its turn comes."""

    kind: str
    """product, attention, stream, step, launch, all_reduce, trainer."""
    name: str
    """Which of its kind: forward, copy, ..."""
    precision: str
    """bf16, fp16, fp32."""
    sizes: dict[str, int]
    """What its cost depends on, by the field's words (tokens, in_width, out_width, ...)."""
    flops: float = 0.0
    """Floating-point operations of one call."""
    num_bytes: float = 0.0
    """Bytes that one call must read and write at least once each; of a collective the bytes of the message."""
    needs_bytes: float = 0.0
    """Memory that has to be free."""
    together: bool = False
    """Whether all ranks have to take part."""
    make: Callable[[Any], Call] = field(repr=False)
    """Takes the device, returns the work."""

    @property
    def title(self) -> str:
        """A short name for people."""
        return (
            f"{self.kind} {self.name} {self.precision} {'x'.join(str(size) for size in self.sizes.values())}".rstrip()
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one task took."""

    kind: str
    """As the task's."""
    name: str
    """As the task's."""
    precision: str
    """As the task's."""
    sizes: dict[str, int]
    """As the task's."""
    flops: float
    """As the task's."""
    num_bytes: float
    """As the task's."""
    seconds: float
    """Median of one call."""
    spread: float
    """Half the distance of the quartiles / median."""
    repeats: int
    """Timed repetitions."""
    calls: int
    """Calls in one repetition."""

    @property
    def flops_per_s(self) -> float:
        """Rate of arithmetic."""
        return self.flops / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Rate of memory, or of the message."""
        return self.num_bytes / self.seconds

    def to_table(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        return dict(vars(self))
