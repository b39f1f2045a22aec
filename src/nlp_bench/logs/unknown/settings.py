"""What a log says once: sizes, devices, batch; of a program that nobody has described."""

import math
from dataclasses import dataclass, field

from nlp_bench.logs.unknown.shapes import Column

_MAX_VALUES = 8


@dataclass
class Settings:
    """Values by kind, each with the line that says it; a setting that is said twice, differently, is not known."""

    said: dict[str, dict[float, int]] = field(default_factory=dict)
    """Kind to values, and the first line that says each."""
    hinted: dict[str, dict[float, int]] = field(default_factory=dict)
    """Likewise, where only the last words of a longer name say it."""
    num_ranks: int = 1
    """The highest rank in front of a record, and one more."""

    def take(self, column: Column, value: float, number: int) -> None:
        """Take what line `number` says."""
        kinds = self.hinted if column.is_hint else self.said
        values = kinds.setdefault(column.meaning.kind, {})
        if len(values) < _MAX_VALUES and value > 0 and value == int(value):
            values.setdefault(value, number)

    def until(self, number: int) -> "Settings":
        """Return what stands in front of line `number`: what follows the last record is about something else."""
        return Settings(_until(self.said, number), _until(self.hinted, number), self.num_ranks)

    def has(self, kind: str) -> bool:
        """Say whether anything is said about it."""
        return kind in self.said or kind in self.hinted

    def _values(self, kind: str) -> dict[float, int]:
        return self.said.get(kind) or self.hinted.get(kind, {})

    def one(self, kind: str) -> float | None:
        """Return the only value that was said, None where there is none or several."""
        values = self._values(kind)
        return next(iter(values)) if len(values) == 1 else None

    def line(self, kind: str) -> int:
        """Return the line that said it first."""
        return next(iter(self._values(kind).values()), 0)

    @property
    def devices(self) -> float | None:
        """Devices of the whole run."""
        stated, nodes, share = self.one("devices"), self.one("nodes"), self.one("devices_per_node")
        product = nodes * share if nodes and share else None
        if not self.has("devices"):
            return product
        # `num_gpus` of a run on several nodes may be those of one of them.
        is_whole = not self.has("nodes") or nodes == 1 or stated == product
        return stated if is_whole else None

    @property
    def is_parallel(self) -> bool:
        """Say whether more than one device may have worked: a rate without a place may be one of each."""
        kinds = ("devices", "nodes", "devices_per_node")
        return self.num_ranks > 1 or any(
            value > 1 for said in (self.said, self.hinted) for kind in kinds for value in said.get(kind, {})
        )

    @property
    def sequence(self) -> float | None:
        """Tokens of a sample."""
        return self.one("sequence" if self.has("sequence") else "sequence_limit")

    @property
    def batch(self) -> float | None:
        """Samples of an iteration of the whole machine."""
        if self.has("global_batch"):
            return self.one("global_batch")
        parts = [self.one(kind) for kind in ("micro_batch", "accumulation", "data_parallel")]
        if parts[2] is None and not self.has("model_parallel"):
            parts[2] = self.devices
        return float(math.prod(part for part in parts if part)) if all(parts) else None

    @property
    def tokens(self) -> float | None:
        """Tokens of an iteration of the whole machine."""
        if self.has("step_tokens"):
            return self.one("step_tokens")
        return self.batch * self.sequence if self.batch and self.sequence else None


def _until(kinds: dict[str, dict[float, int]], number: int) -> dict[str, dict[float, int]]:
    kept = {kind: {v: line for v, line in values.items() if line <= number} for kind, values in kinds.items()}
    return {kind: values for kind, values in kept.items() if values}
