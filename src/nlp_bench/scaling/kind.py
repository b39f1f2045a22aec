"""Strong or weak scaling, decided from the batch sizes and never from the name of a file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nlp_bench.scaling.point import Point

_CALLED = re.compile(r"(strong|weak)[\s_-]*scal", re.IGNORECASE)


class Kind(str, Enum):
    """What stays the same along a curve. Terms: Amdahl (strong), Gustafson (weak)."""

    STRONG = "strong"
    """The global batch: the same work on more GPUs."""
    WEAK = "weak"
    """The batch per GPU: the work grows with the GPUs."""
    MIXED = "mixed"
    """Neither."""
    UNKNOWN = "unknown"
    """The batch of a point is not stated."""
    NONE = "none"
    """One size only: no curve."""

    @property
    def words(self) -> str:
        """How a heading names it."""
        return {"none": "one size, no curve", "unknown": "strong or weak not known"}.get(
            self.value, f"{self.value} scaling"
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The kind of a curve and why."""

    kind: Kind
    """What stays the same."""
    why: str
    """One sentence."""


def decide(points: Sequence[Point]) -> Decision:
    """Decide from the points that have a number and whose GPUs are known."""
    sizes = sorted({point.num_gpus for point in points if point.num_gpus})
    if len(sizes) < 2:
        return Decision(
            kind=Kind.NONE, why=f"all runs with a number have {sizes[0]} GPUs" if sizes else "no run has a number"
        )
    pairs = sorted({(point.num_gpus or 1, point.batch) for point in points}, key=lambda pair: (pair[0], pair[1] or 0))
    if any(batch is None for _, batch in pairs):
        return Decision(kind=Kind.UNKNOWN, why="the batch is not stated, so nobody can say what stays the same")
    batches = {batch for _, batch in pairs}
    if len(batches) == 1:
        return Decision(kind=Kind.STRONG, why=f"the global batch is {batches.pop()} at every size")
    first_gpus, first_batch = pairs[0]
    if all((batch or 0) * first_gpus == (first_batch or 0) * gpus for gpus, batch in pairs):
        per_gpu = (first_batch or 0) / first_gpus
        return Decision(
            kind=Kind.WEAK, why=f"the batch grows with the GPUs, {per_gpu:.4g} samples per GPU at every size"
        )
    listing = ", ".join(f"{batch} on {gpus}" for gpus, batch in pairs[:8]) + (", ..." if len(pairs) > 8 else "")
    return Decision(
        kind=Kind.MIXED, why=f"neither the batch nor the batch per GPU stays the same (batch on GPUs: {listing})"
    )


def misnamed(points: Sequence[Point], kind: Kind) -> str | None:
    """Say that a source calls the curve strong where it is weak, or the other way round."""
    for point in points:
        for entry in point.entries:
            sources = (entry.published.source, entry.published.table) if entry.published else (entry.source,)
            for source in sources:
                called = _CALLED.search(source)
                if called and kind in {Kind.STRONG, Kind.WEAK} and called[1].lower() != kind.value:
                    word = called[1].lower()
                    return (
                        f"the source calls it {word} scaling ({source}), the batch sizes make it {kind.value} scaling"
                    )
    return None
