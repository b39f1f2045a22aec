"""The published measurements near a configuration: the nearest with every difference, the same one, and what is outside of all."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nlp_bench.config import catalog
from nlp_bench.config.accelerators import family_of, product_of
from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.plan.problem import Problem, Setting

POINTS = "reports/reference/published_points/points.csv"  # the published measurements, by their place in a checkout
MEGATRON = ("megatron", "nemo", "internevo", "primus", "bloom", "gpt-neox")
"""Parts of the names of frameworks that train as this package's trainer does: tensor, pipeline and data parallel."""
_NUM_NEAR = 4  # published measurements that a bid shows
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
"""Column to its label and the weight of a factor of two in it."""
RANGES = {
    "n_gpus": "number of GPUs",
    "params_b": "model size in 10^9 parameters",
    "seq": "sequence length",
    "tp": "tensor-parallel size",
    "pp": "pipeline-parallel size",
    "vpp": "virtual stages",
    "cp": "context-parallel size",
    "mbs": "micro batch size",
    "gpus_per_node": "GPUs per node",
    "internode_gbps_per_node": "network of a node in Gbit/s",
}
"""Columns whose published range is checked."""
_OTHER_GPU, _OTHER_GENERATION, _OTHER_SETTING = 0.5, 3.0, 0.5
_SAME_SIZE = 0.02
_HALF = ("bf16", "fp16")
Point = dict[str, str]  # one row of the file of points


@immutable
class Offered:
    """A planned configuration in the columns of the points."""

    gpu: str
    precision: str
    recompute: str  # none, selective or full
    numbers: dict[str, float]  # by the columns of LABELS
    fabric: str = "unknown"  # of FABRICS; nvlink-domain where no traffic leaves the NVLink domain


@immutable
class Near:
    """One published measurement."""

    identity: str  # its id in the file of points
    what: str  # model, GPUs and framework
    iteration_s: float  # measured seconds of one iteration, as published
    tokens_per_second_per_gpu: float | None  # measured, as published; None where it is not
    distance: float  # factors of two in which sizes differ, weighted by LABELS, and a share for each other setting
    differences: tuple[str, ...]  # differences from the offer: "GPUs 1024 (offer 384)"
    source: str  # where it was published


def offered(problem: Problem, sizes: Setting) -> Offered:
    """Return a configuration as the columns of published points name it."""
    gpu, network = problem.system.gpu, problem.system.network
    assert gpu is not None  # noqa: S101  # a problem has one
    numbers = {
        "params_b": problem.model.parameters_billion,
        "n_gpus": sizes.num_gpus,
        "tp": sizes.tp,
        "pp": sizes.pp,
        "vpp": sizes.vpp,
        "cp": sizes.cp,
        "mbs": sizes.micro_batch_size,
        "gbs": sizes.global_batch_size,
        "seq": sizes.sequence_length,
        "gpus_per_node": problem.gpus_per_node,
        "internode_gbps_per_node": (network.links_per_node or 1) * (network.link_gbit_per_s or 1),
    }
    alone = sizes.num_gpus <= float(problem.machines.domain)
    return Offered(
        gpu=gpu.name,
        precision=problem.precision,
        recompute=sizes.recompute,
        numbers=numbers,
        fabric="nvlink-domain" if alone else network.fabric,
    )


def read_points(path: Path | None = None) -> list[Point]:
    """Read the published points that count: with a measured time, not of grade C. Raises NlpBenchError naming the file."""
    path = path or catalog.part(POINTS)
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NlpBenchError(
            f"published points: {path} cannot be read: {why}; it is part of the checkout: git checkout -- {path.parent}"
        ) from error
    return [row for row in rows if row.get("grade") != "C" and number(row, "iter_time_s") is not None]


def known_points() -> list[Point] | None:
    """Return the published points of this checkout or package; None where they cannot be read."""
    try:
        return read_points()
    except NlpBenchError:
        return None


def number(row: Point, column: str) -> float | None:
    """Return a cell as a number above 0; None where it is blank, or no number."""
    try:
        value = float(row.get(column) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def is_of_family(row: Point) -> bool:
    """Whether a point was measured with a framework of the trainer's family."""
    framework = (row.get("framework") or "").lower()
    return any(word in framework for word in MEGATRON)


def nearest(offer: Offered, rows: Sequence[Point]) -> tuple[Near, ...]:
    """Return the nearest points of the framework's family, not two of one configuration."""
    found: dict[tuple[str | None, ...], tuple[float, Point]] = {}
    far = sorted(((_distance(offer, row), row) for row in rows if is_of_family(row)), key=lambda pair: pair[0])
    for distance, row in far:
        found.setdefault(tuple(row.get(name) for name in ("model", "gpu", "framework", *LABELS)), (distance, row))
    return tuple(
        Near(
            identity=row.get("id") or "",
            what=", ".join(
                filter(None, (row.get("model"), f"{row.get('n_gpus')} x {row.get('gpu')}", row.get("framework")))
            ),
            iteration_s=number(row, "iter_time_s") or math.nan,
            tokens_per_second_per_gpu=number(row, "tokens_per_s_per_gpu"),
            distance=distance,
            differences=tuple(_differences(offer, row)),
            source=row.get("source") or row.get("source_id") or "",
        )
        for distance, row in list(found.values())[:_NUM_NEAR]
    )


def _distance(offer: Offered, row: Point) -> float:
    """Add up factors of two, weighted; what is not published counts half of one, and another GPU generation the most."""
    total = 0.0
    for column, (_, weight) in LABELS.items():
        value = number(row, column)
        total += weight * (0.5 if value is None else abs(math.log2(value / offer.numbers[column])))
    gpu = row.get("gpu") or ""
    total += _OTHER_GENERATION if family_of(gpu) != family_of(offer.gpu) else 0
    total += _OTHER_GPU if product_of(gpu) != product_of(offer.gpu) else 0
    total += _OTHER_SETTING * (offer.recompute != (row.get("recompute") or offer.recompute))
    return total + _OTHER_SETTING * (offer.precision not in (row.get("precision") or ""))


def _differences(offer: Offered, row: Point) -> Iterable[str]:
    gpu = row.get("gpu") or ""
    if product_of(gpu) != product_of(offer.gpu):
        yield f"GPU {gpu} (offer {offer.gpu})"
    for column, (label, _) in LABELS.items():
        value = number(row, column)
        if value is None:
            yield f"{label} not published"
        elif not math.isclose(value, offer.numbers[column], rel_tol=_SAME_SIZE):
            yield f"{label} {value:g} (offer {offer.numbers[column]:g})"
    if offer.precision not in (row.get("precision") or ""):
        yield f"{row.get('precision') or 'number format not published'} (offer {offer.precision})"
    recompute = row.get("recompute") or ""
    if recompute != offer.recompute:
        yield f"recompute {recompute or 'not published'} (offer {offer.recompute})"


def measured_by_others(problem: Problem, sizes: Setting, report_s: float, rows: Sequence[Point]) -> tuple[str, ...]:
    """Return a sentence for each of `rows` that has this configuration on these GPUs and this fabric, with its prediction."""
    wanted = offered(problem, sizes)
    per_report = problem.tokens / problem.tokens_per_iteration
    found = []
    for point in (row for row in rows if is_of_family(row) and _is_same(row, wanted)):
        measured_s = (number(point, "iter_time_s") or math.nan) * per_report
        share = 100 * (report_s / measured_s - 1)
        found.append(
            f"{measured_s:.4g} s ({point['id']}: {point['model']}, {point['framework']}, {point['precision']}); the prediction for "
            f"this package's trainer is {abs(share):.0f} % {'above' if share >= 0 else 'below'} it"
        )
    return tuple(found)


def _is_same(point: Point, wanted: Offered) -> bool:
    """Whether a point has every size of `wanted` and its number format, of 16 bit either one."""
    formats = _HALF if wanted.precision in _HALF else (wanted.precision,)
    if not any(word in (point.get("precision") or "") for word in formats):
        return False
    values = [(number(point, column), wanted.numbers[column]) for column in LABELS]
    sizes = all(value is not None and math.isclose(value, own, rel_tol=_SAME_SIZE) for value, own in values)
    return (
        sizes
        and product_of(point.get("gpu") or "") == product_of(wanted.gpu)
        and point.get("recompute") == wanted.recompute
    )


def extrapolated(offer: Offered, rows: Sequence[Point]) -> Iterator[str]:
    """Yield a sentence per thing in which the offer lies outside the points of its GPU and framework family."""
    family = [row for row in rows if is_of_family(row)]
    frameworks = sorted({row["framework"] for row in family if row.get("framework")})
    yield (  # no point is of this trainer; software alone moved identical configurations
        "software: the measurements are of other trainers on the same libraries "
        f"({', '.join(frameworks) or 'none of this family'}); identical published configurations differ by 3 % in the "
        "median and 19 % at most between software versions, dates and sites"
    )
    own = [row for row in family if family_of(row.get("gpu") or "") == family_of(offer.gpu)]
    where = f"on {family_of(offer.gpu)}"
    if not own:
        yield (
            f"GPU type: no published measurement {where}; its constants follow from the data sheet and other GPUs, and the "
            "90 % interval is wider where no chip of its generation was fitted (docs/accuracy.md)"
        )
        own, where = family, "on any GPU"
    for column, name in RANGES.items():
        if column in {"vpp", "cp"} and offer.numbers[column] == 1:
            continue  # not used, which publications do not always say
        known = [value for row in own if (value := number(row, column)) is not None]
        if not known:
            yield f"{name}: not published {where}"
        elif not min(known) <= offer.numbers[column] <= max(known):
            yield f"{name}: {offer.numbers[column]:g}, measured {where} are {min(known):g} to {max(known):g}"
    yield from _other_fabric(offer, own, family, where)
    # a network slows such a group: one has to have been measured
    if offer.numbers["tp"] > offer.numbers["gpus_per_node"]:
        pairs = [(number(row, "tp") or 0, number(row, "gpus_per_node") or 0) for row in own]
        count = sum(tensor > gpus > 0 for tensor, gpus in pairs)
        if count < 3:
            yield f"tensor-parallel group over several nodes: {count} measurements {where} have one"
    if not any(offer.precision in (row.get("precision") or "") for row in own):
        yield f"number format: {offer.precision}, which no measurement {where} has"


def _other_fabric(offer: Offered, own: Sequence[Point], family: Sequence[Point], where: str) -> Iterator[str]:
    """Yield a sentence for a fabric that no point of this GPU has, and for a system file that does not say which it is."""
    measured, anywhere = ({row.get("fabric") for row in rows} for rows in (own, family))
    if offer.fabric == "unknown":
        yield "fabric: the system file does not say which ([network] fabric); predicted as InfiniBand"
    elif offer.fabric not in {"nvlink-domain", *measured}:
        alike = "" if offer.fabric in anywhere else "; predicted as InfiniBand"
        yield f"fabric: {offer.fabric}, which no measurement {where} names{alike}"
