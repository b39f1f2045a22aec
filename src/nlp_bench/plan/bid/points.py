"""The published measurements that a prediction rests on: those nearest to what is offered, with every difference named."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.errors import NlpBenchError

MEGATRON = ("megatron", "nemo", "internevo", "primus", "bloom", "gpt-neox")
"""Words in the names of frameworks that train as this package's trainer does: tensor, pipeline and data parallel."""
MAX_NEAR = 4


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What is offered, in the columns of the points."""

    gpu: str
    """Name of the GPU, as the points have it or as a data sheet has it."""
    precision: str
    """Number format."""
    recompute: str
    """none, selective or full."""
    numbers: dict[str, float]
    """By column: params_b, n_gpus, tp, pp, vpp, cp, mbs, gbs, seq, internode_gbps_per_node, gpus_per_node."""


@dataclass(frozen=True, kw_only=True)
class Near:
    """One published measurement."""

    identity: str
    """Its id in the file of points."""
    what: str
    """Model, GPUs and framework."""
    iteration_s: float
    """Measured seconds of one iteration, as published."""
    tokens_per_second_per_gpu: float | None
    """Measured, as published; None where it is not."""
    distance: float
    """From the offer: factors of two in which sizes differ, weighted by LABELS, and a share for each other word."""
    differences: tuple[str, ...]
    """In what it differs from the offer: "GPUs 1024 (offer 384)"."""
    source: str
    """Where it was published."""


LABELS = {
    "params_b": ("10^9 parameters", 1.0),
    "n_gpus": ("GPUs", 1.0),
    "tp": ("TP", 0.5),
    "pp": ("PP", 0.5),
    "vpp": ("VPP", 0.5),
    "cp": ("CP", 0.5),
    "mbs": ("micro batch", 0.25),
    "gbs": ("global batch", 0.25),
    "seq": ("sequence", 0.5),
    "gpus_per_node": ("GPUs per node", 0.5),
    "internode_gbps_per_node": ("Gbit/s per node", 0.25),
}
"""Name of a column for people, and what a factor of two in it counts."""
_OTHER_GPU, _OTHER_GENERATION, _OTHER_WORD = 0.5, 3.0, 0.5


def read_points(path: Path) -> list[dict[str, str]]:
    """Read the published points that count: with a measured time, not of grade C; raises NlpBenchError naming the file."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NlpBenchError(
            f"published points: {path} cannot be read: {why}; it is part of the checkout: git checkout -- {path.parent}"
        ) from error
    return [row for row in rows if row.get("grade") != "C" and number(row, "iter_time_s") is not None]


def number(row: dict[str, str], column: str) -> float | None:
    """Return a cell as a number above 0; None where it is blank, or no number."""
    try:
        value = float(row.get(column) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def generation(gpu: str) -> str:
    """Return the word of a GPU's name by which variants of one chip are called: A100 of "NVIDIA A100-SXM4-40GB"."""
    words = gpu.upper().replace("NVIDIA", " ").replace("-", " ").replace("_", " ").split()
    return words[0] if words else ""


def is_kin(row: dict[str, str]) -> bool:
    """Whether a point was measured with a framework of the same family."""
    framework = (row.get("framework") or "").lower()
    return any(word in framework for word in MEGATRON)


def of_gpu(rows: Iterable[dict[str, str]], gpu: str) -> list[dict[str, str]]:
    """Return the points of a GPU's generation."""
    return [row for row in rows if generation(row.get("gpu") or "") == generation(gpu)]


def nearest(offered: Offered, rows: Sequence[dict[str, str]], most: int = MAX_NEAR) -> tuple[Near, ...]:
    """Return the nearest points of the framework's family, not two of one configuration."""
    found: dict[tuple[str | None, ...], tuple[float, dict[str, str]]] = {}
    far = sorted(((_distance(offered, row), row) for row in rows if is_kin(row)), key=lambda pair: pair[0])
    for distance, row in far:
        found.setdefault(tuple(row.get(name) for name in ("model", "gpu", "framework", *LABELS)), (distance, row))
    return tuple(_near(offered, row, distance) for distance, row in list(found.values())[:most])


def _distance(offered: Offered, row: dict[str, str]) -> float:
    """Add up factors of two, weighted; what is not published counts half of one, and another GPU generation the most."""
    total = 0.0
    for column, (_, weight) in LABELS.items():
        value = number(row, column)
        total += weight * (0.5 if value is None else abs(math.log2(value / offered.numbers[column])))
    gpu = row.get("gpu") or ""
    total += _OTHER_GENERATION if generation(gpu) != generation(offered.gpu) else 0
    total += _OTHER_GPU if not same_gpu(gpu, offered.gpu) else 0
    total += _OTHER_WORD * (offered.recompute != (row.get("recompute") or offered.recompute))
    return total + _OTHER_WORD * (not _same_precision(row, offered))


def same_gpu(one: str, other: str) -> bool:
    """Whether two names mean one product: that of a data sheet may hold the maker's name."""
    return one.upper().replace("NVIDIA", "").strip() == other.upper().replace("NVIDIA", "").strip()


def _same_precision(row: dict[str, str], offered: Offered) -> bool:
    return offered.precision in (row.get("precision") or "")


def _near(offered: Offered, row: dict[str, str], distance: float) -> Near:
    measured = number(row, "iter_time_s")
    assert measured is not None  # noqa: S101  # `read_points` keeps no other
    return Near(
        identity=row.get("id") or "",
        what=", ".join(
            filter(None, (row.get("model"), f"{row.get('n_gpus')} x {row.get('gpu')}", row.get("framework")))
        ),
        iteration_s=measured,
        tokens_per_second_per_gpu=number(row, "tokens_per_s_per_gpu"),
        distance=distance,
        differences=tuple(_differences(offered, row)),
        source=row.get("source") or row.get("source_id") or "",
    )


def _differences(offered: Offered, row: dict[str, str]) -> Iterable[str]:
    gpu = row.get("gpu") or ""
    if not same_gpu(gpu, offered.gpu):
        yield f"GPU {gpu} (offer {offered.gpu})"
    for column, (label, _) in LABELS.items():
        value = number(row, column)
        if value is None:
            yield f"{label} not published"
        elif not math.isclose(value, offered.numbers[column], rel_tol=0.02):
            yield f"{label} {value:g} (offer {offered.numbers[column]:g})"
    if not _same_precision(row, offered):
        yield f"{row.get('precision') or 'number format not published'} (offer {offered.precision})"
    recompute = row.get("recompute") or ""
    if recompute != offered.recompute:
        yield f"recompute {recompute or 'not published'} (offer {offered.recompute})"
