"""One calibration: every measurement with what it was made on, and the constants that are fitted to them. No torch here.

Each constant has a physical meaning and a standard error. The forms are those of the time model (plan/iteration.py): what is fitted here is
what it multiplies.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, write_json
from nlp_bench.immutable import immutable
from nlp_bench.machine.timing import Timing
from nlp_bench.packages import lacking

SCHEMA = "nlp-bench/calibration/1"
WIDTH_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


@immutable
class Facts:
    """What a piece of work costs, whatever it runs on."""

    kind: str  # product, attention, stream, step, launch, all_reduce, trainer
    name: str  # which of its kind: forward, copy, ...
    precision: str  # bf16, fp16, fp32
    sizes: dict[str, int]  # what its cost depends on, by name (tokens, in_width, out_width, ...)
    flops: float = 0.0  # floating-point operations of one call
    num_bytes: float = 0.0  # that one call must read and write at least once each; of a collective the message's


@immutable
class Measurement(Facts):
    """A piece of work with its time."""

    seconds: float  # median of one call
    spread: float  # half the distance of the quartiles / median
    repeats: int  # timed repetitions
    calls: int  # calls in one repetition

    @property
    def bytes_per_s(self) -> float:
        """Rate of memory, or of the message."""
        return self.num_bytes / self.seconds


def measured(task: Facts, timing: Timing) -> Measurement:
    """Return what a piece of work took."""
    facts = {one.name: getattr(task, one.name) for one in fields(Facts)}
    took = {name: getattr(timing, name) for name in ("seconds", "spread", "repeats", "calls")}
    return Measurement(**facts, **took)


@immutable
class Calibration:
    """What was measured, on what, when."""

    device: str  # name of the accelerator; of a CPU with its threads
    kind: str  # cpu or cuda
    memory_bytes: int  # memory of one rank: of a CPU the node's / ranks
    ranks: int  # ranks that measured at the same time on one node
    precision: str  # number format of most measurements, for the constants that are not kept by format
    torch: str  # version of torch
    date: str  # when it ended, ISO 8601
    seconds: float  # how long it took
    state_before: str  # clock, temperature or load when it began
    state_after: str  # the same when it ended
    skipped: tuple[str, ...]  # what was not measured, and why
    measurements: tuple[Measurement, ...]

    @property
    def source(self) -> str:
        """Where a constant comes from, as constants files state it."""
        return f"measured on {self.device}, torch {self.torch}, {self.date[:10]}"

    @property
    def spread(self) -> float:
        """Median over all measurements of the spread of their repetitions."""
        spreads = sorted(m.spread for m in self.measurements)
        return spreads[len(spreads) // 2]

    def of(self, kind: str, precision: str | None = None, name: str | None = None) -> list[Measurement]:
        """Return the measurements of a kind (and a number format, and a name)."""
        of_kind = [m for m in self.measurements if m.kind == kind]
        return [m for m in of_kind if precision in {None, m.precision} and name in {None, m.name}]

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        write_json(path, {"schema": SCHEMA, **vars(self), "measurements": [dict(vars(m)) for m in self.measurements]})


def read_calibration(path: Path) -> Calibration:
    """Read a record. Raises NlpBenchError that names the field at fault."""
    record: dict[str, Any] = read_json(path, SCHEMA)
    try:
        values = {field.name: record[field.name] for field in fields(Calibration)}
        values["measurements"] = tuple(_measurement(row) for row in record["measurements"])
        values["skipped"] = tuple(record["skipped"])
    except (KeyError, TypeError, ValueError) as error:
        raise NlpBenchError(f"{path}: no calibration: {error}; make one with: nlp-bench plan calibrate") from error
    return Calibration(**values)


def _measurement(row: dict[str, Any]) -> Measurement:
    if not row["seconds"] > 0:
        raise ValueError(f"measurements: seconds = {row['seconds']} is not above 0")
    return Measurement(**row)


Values = npt.NDArray[np.float64]
OUTLIER = 0.05  # residual of the logarithm from which a measurement counts less (soft L1)
PRIOR = 1.0
"""Standard deviation of the logarithm in the prior of a constant that shapes a curve: a factor of e; keeps those finite that the
measurements do not determine."""
CAUSAL_BOTH = 3.5 / 6
"""Causal forward with backward / forward with backward of the full square (3 x): half of the scores, computed once more in the
backward pass (Dao 2023, FlashAttention-2, https://arxiv.org/abs/2307.08691, section 4.1: backward = 2.5 x forward)."""


@immutable
class Constant:
    """One fitted constant."""

    name: str
    value: float
    unit: str  # empty for a plain factor
    error: float | None  # standard error / value, from the residuals; None where it cannot be estimated
    number: int  # measurements behind it
    misfit: float | None = None  # median of |fitted / measured - 1|; None where one value was measured


def fit_all(calibration: Calibration) -> dict[str, Constant]:
    """Return all constants that the measurements support, by name. Raises NlpBenchError where scipy is not installed."""
    found = _largest(calibration.of("stream", name="copy"), "memory_bytes_per_s")  # beyond every cache
    found += _largest(calibration.of("step"), "step_bytes_per_s")
    bandwidth = next((c.value for c in found if c.name == "memory_bytes_per_s"), None)
    for precision in ("bf16", "fp16", "fp32"):
        if bandwidth:
            found += _products(calibration.of("product", precision), bandwidth, precision)
        found += _attention(calibration.of("attention", precision, "both"), precision)
        if bandwidth:
            found += _between(calibration.of("stream", precision), bandwidth, precision)
    for row in calibration.of("launch"):
        found.append(_alone(f"launch_s.{row.name}", row.seconds / row.sizes["kernels"], "s", row))
    found += _overhead(calibration.of("trainer"))
    found += _all_reduce(calibration.of("all_reduce"))
    return {constant.name: constant for constant in found}


def _largest(rows: Sequence[Measurement], name: str) -> list[Constant]:
    if not rows:
        return []
    largest = max(rows, key=lambda row: row.num_bytes)
    return [_alone(name, largest.bytes_per_s, "B/s", largest)]


def _alone(name: str, value: float, unit: str, row: Measurement) -> Constant:
    return Constant(name=name, value=float(value), unit=unit, error=row.spread, number=1)


def _products(rows: Sequence[Measurement], bandwidth: float, precision: str) -> list[Constant]:
    """Fit seconds = root of (FLOPs / ceiling)^2 + (traffic x bytes / bandwidth)^2."""
    if len(rows) < 3:
        return []
    flops, num_bytes, seconds = (_column(rows, name) for name in ("flops", "num_bytes", "seconds"))

    def predict(x: Values) -> Values:
        return np.asarray(np.hypot(flops / np.exp(x[0]), np.exp(x[1]) * num_bytes / bandwidth))

    start = np.log([np.max(flops / seconds), 1.0])
    names = ((f"product_flops_per_s.{precision}", "FLOP/s"), (f"product_traffic.{precision}", ""))
    return _fitted(names, predict, start, seconds, with_prior=(1,))


def _attention(rows: Sequence[Measurement], precision: str) -> list[Constant]:
    """Fit seconds = causal FLOPs / rate x (1 + length / sequence length) x (1 + width / head width)."""
    if len(rows) < 4:
        return []
    flops, seconds = _column(rows, "flops") * CAUSAL_BOTH, _column(rows, "seconds")
    lengths = np.array([row.sizes["sequence_length"] for row in rows], dtype=np.float64)
    widths = np.array([row.sizes["head_width"] for row in rows], dtype=np.float64)

    def predict(x: Values) -> Values:
        rate, length, width = np.exp(x)
        return np.asarray(flops / rate * (1 + length / lengths) * (1 + width / widths))

    start = np.log([np.max(flops / seconds), 100.0, 10.0])
    units = {"attention_flops_per_s": "FLOP/s", "attention_short": "tokens", "attention_narrow": "entries"}
    names = [(f"{name}.{precision}", unit) for name, unit in units.items()]
    return _fitted(names, predict, start, seconds, with_prior=(1, 2))


def _all_reduce(rows: Sequence[Measurement]) -> list[Constant]:
    """Fit seconds = latency + 2 (n - 1) / n x bytes / bandwidth, the cost of a ring (Thakur et al. 2005, doi:10.1177/1094342005051521)."""
    if len(rows) < 3:
        return []
    ranks = rows[0].sizes["ranks"]
    moved, seconds = _column(rows, "num_bytes") * 2 * (ranks - 1) / ranks, _column(rows, "seconds")

    def predict(x: Values) -> Values:
        return np.asarray(np.exp(x[0]) + moved / np.exp(x[1]))

    start = np.log([np.min(seconds), np.max(moved / seconds)])
    return _fitted((("link_latency_s", "s"), ("link_bytes_per_s", "B/s")), predict, start, seconds)


def _between(streams: Sequence[Measurement], bandwidth: float, precision: str) -> list[Constant]:
    """Return how much longer work between products takes than its bytes would at the bandwidth of a copy."""
    rows = [row for row in streams if row.name != "copy"]
    if not rows:
        return []
    ratios = np.log([bandwidth / row.bytes_per_s for row in rows])
    middle, scatter = float(np.median(ratios)), float(np.std(ratios))
    misfit = float(np.median(np.abs(np.exp(middle - ratios) - 1)))
    error = scatter / len(rows) ** 0.5 if len(rows) > 1 else None
    value, name = float(np.exp(middle)), f"between_products.{precision}"
    return [Constant(name=name, value=value, unit="", error=error, number=len(rows), misfit=misfit)]


def _overhead(rows: Sequence[Measurement]) -> list[Constant]:
    """Fit seconds of an iteration = step + micro-batches x (batch + layer x layers): least relative squares, none below 0."""
    if len(rows) < 4:
        return []
    sizes = [(row.sizes["layers"], row.sizes["microbatches"]) for row in rows]
    design = np.array([[1.0, batches, layers * batches] for layers, batches in sizes])
    seconds = _column(rows, "seconds")
    found = _scipy_optimize().nnls(design / seconds[:, None], np.ones(len(seconds)))[0]
    spread = float(np.median([row.spread for row in rows]))
    misfit = float(np.median(np.abs(design @ found / seconds - 1)))
    return [
        Constant(name=f"host_s.{name}", value=float(value), unit="s", error=spread, number=len(rows), misfit=misfit)
        for name, value in zip(("step", "batch", "layer"), found, strict=True)
    ]


def _fitted(
    names: Sequence[tuple[str, str]],
    predict: Callable[[Values], Values],
    start: Values,
    seconds: Values,
    with_prior: Sequence[int] = (),
) -> list[Constant]:
    """Return a constant for each name and unit; robust, on logarithms.

    The starts of those `with_prior` are the medians of their priors, with the width PRIOR.
    """
    places = list(with_prior)

    def residuals(x: Values) -> Values:
        prior = OUTLIER * (x - start)[places] / PRIOR
        return np.concatenate([np.log(predict(x) / seconds), prior])

    bounds = (start - 12, start + 12)
    answer = _scipy_optimize().least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=OUTLIER)
    left = residuals(answer.x)[: len(seconds)]
    free = max(len(seconds) - len(start), 1)
    variance = float(np.median(left**2) / 0.455 * len(seconds) / free)  # 0.455: median of chi-square with one degree
    inverse = np.linalg.pinv(answer.jac.T @ answer.jac)
    errors = [float(np.sqrt(max(value, 0.0) * variance)) for value in np.diag(inverse)]
    misfit = float(np.median(np.abs(np.expm1(left))))
    return [
        Constant(name=name, value=float(value), unit=unit, error=error, number=len(seconds), misfit=misfit)
        for (name, unit), value, error in zip(names, np.exp(answer.x), errors, strict=True)
    ]


def _scipy_optimize() -> Any:
    try:
        from scipy import optimize  # noqa: PLC0415  # fitting only
    except ModuleNotFoundError as error:
        raise lacking(error, "calibrate (what was measured can be fitted elsewhere, --from)") or error from error
    return optimize


def _column(rows: Sequence[Measurement], name: str) -> Values:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)
