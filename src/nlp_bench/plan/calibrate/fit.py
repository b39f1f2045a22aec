"""From measurements to constants with a physical meaning, each with its standard error.

The forms are those of the time model (plan/iteration.py): what is fitted here is what it multiplies.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.packages import lacking
from nlp_bench.plan.calibrate.record import Calibration, Measurement

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
