"""From measurements to constants with a physical meaning, each with its standard error.

The forms are those of the time model (plan/seconds): what is fitted here is what it multiplies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.packages import lacking
from nlp_bench.plan.calibrate.measurement import Measurement
from nlp_bench.plan.calibrate.record import Calibration
from nlp_bench.plan.calibrate.trainer import Overhead

Values = npt.NDArray[np.float64]
OUTLIER = 0.05
"""Residual of the logarithm from which a measurement counts less (soft L1)."""
BELIEF = 1.0
"""Standard deviation of the logarithm of what is expected of a constant that shapes a curve: a factor of e; keeps those finite on
which the measurements say nothing."""
CAUSAL_BOTH = 3.5 / 6
"""Causal forward with backward / forward with backward of the full square (3 x): half of the scores, computed once more in the
backward pass (Dao 2023, FlashAttention-2, https://arxiv.org/abs/2307.08691, section 4.1: backward = 2.5 x forward)."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One fitted constant."""

    name: str
    """What it is."""
    value: float
    """Its value."""
    unit: str
    """Its unit; empty for a plain factor."""
    error: float | None
    """Standard error / value, from the residuals; None where it cannot be told."""
    number: int
    """Measurements behind it."""
    misfit: float | None = None
    """Median of |fitted / measured - 1|; None where one value was measured."""


def fit_all(calibration: Calibration) -> dict[str, Constant]:
    """Return all constants that the measurements support, by name."""
    found: list[Constant] = []
    found += _streams(calibration)
    bandwidth = next((c.value for c in found if c.name == "memory_bytes_per_s"), None)
    for precision in ("bf16", "fp16", "fp32"):
        if bandwidth:
            found += fit_products(calibration.of("product", precision), bandwidth, precision)
        found += fit_attention(calibration.of("attention", precision, "both"), precision)
        found += _between(calibration, precision, bandwidth)
    found += _overheads(calibration)
    found += fit_all_reduce(calibration.of("all_reduce"))
    return {constant.name: constant for constant in found}


def fit_products(rows: Sequence[Measurement], bandwidth: float, precision: str) -> list[Constant]:
    """Fit seconds = root of (FLOPs / ceiling)^2 + (traffic x bytes / bandwidth)^2, as plan/iteration.py has it."""
    if len(rows) < 3:
        return []
    flops, num_bytes, seconds = (_column(rows, name) for name in ("flops", "num_bytes", "seconds"))

    def predict(x: Values) -> Values:
        return np.asarray(np.hypot(flops / np.exp(x[0]), np.exp(x[1]) * num_bytes / bandwidth))

    start = np.log([np.max(flops / seconds), 1.0])
    (ceiling, traffic), errors, misfit = _fitted(predict, start, seconds, believed=(1,))
    return [
        _constant(f"product_flops_per_s.{precision}", "FLOP/s", ceiling, errors[0], (len(rows), misfit)),
        _constant(f"product_traffic.{precision}", "", traffic, errors[1], (len(rows), misfit)),
    ]


def fit_attention(rows: Sequence[Measurement], precision: str) -> list[Constant]:
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
    (rate, length, width), errors, misfit = _fitted(predict, start, seconds, believed=(1, 2))
    return [
        _constant(f"attention_flops_per_s.{precision}", "FLOP/s", rate, errors[0], (len(rows), misfit)),
        _constant(f"attention_short.{precision}", "tokens", length, errors[1], (len(rows), misfit)),
        _constant(f"attention_narrow.{precision}", "entries", width, errors[2], (len(rows), misfit)),
    ]


def fit_all_reduce(rows: Sequence[Measurement]) -> list[Constant]:
    """Fit seconds = latency + 2 (n - 1) / n x bytes / bandwidth, the cost of a ring (Thakur et al. 2005, doi:10.1177/1094342005051521)."""
    if len(rows) < 3:
        return []
    ranks = rows[0].sizes["ranks"]
    moved, seconds = _column(rows, "num_bytes") * 2 * (ranks - 1) / ranks, _column(rows, "seconds")

    def predict(x: Values) -> Values:
        return np.asarray(np.exp(x[0]) + moved / np.exp(x[1]))

    start = np.log([np.min(seconds), np.max(moved / seconds)])
    (latency, bandwidth), errors, misfit = _fitted(predict, start, seconds)
    return [
        _constant("link_latency_s", "s", latency, errors[0], (len(rows), misfit)),
        _constant("link_bytes_per_s", "B/s", bandwidth, errors[1], (len(rows), misfit)),
    ]


def _streams(calibration: Calibration) -> list[Constant]:
    copies = calibration.of("stream", name="copy")
    steps = calibration.of("step")
    found = []
    if copies:  # the largest, beyond every cache
        largest = max(copies, key=lambda row: row.num_bytes)
        found.append(_alone("memory_bytes_per_s", largest.bytes_per_s, "B/s", largest))
    if steps:
        largest = max(steps, key=lambda row: row.num_bytes)
        found.append(_alone("step_bytes_per_s", largest.bytes_per_s, "B/s", largest))
    return found


def _between(calibration: Calibration, precision: str, bandwidth: float | None) -> list[Constant]:
    """Return how much longer work between products takes than its bytes would at the bandwidth of a copy."""
    rows = [row for row in calibration.of("stream", precision) if row.name != "copy"]
    if not rows or not bandwidth:
        return []
    ratios = np.log([bandwidth / row.bytes_per_s for row in rows])
    middle, scatter = float(np.median(ratios)), float(np.std(ratios))
    misfit = float(np.median(np.abs(np.exp(middle - ratios) - 1)))
    error = scatter / len(rows) ** 0.5 if len(rows) > 1 else None
    return [_constant(f"between_products.{precision}", "", float(np.exp(middle)), error, (len(rows), misfit))]


def _overheads(calibration: Calibration) -> list[Constant]:
    launches = calibration.of("launch")
    found = [_alone(f"launch_s.{row.name}", row.seconds / row.sizes["kernels"], "s", row) for row in launches]
    rows = calibration.of("trainer")
    if len(rows) >= 4:
        overhead = Overhead(rows)
        for name in ("step", "batch", "layer"):
            value = getattr(overhead, name)
            found.append(_constant(f"host_s.{name}", "s", value, overhead.spread, (len(rows), overhead.misfit)))
    return found


def _fitted(
    predict: Callable[[Values], Values], start: Values, seconds: Values, believed: Sequence[int] = ()
) -> tuple[Values, list[float], float]:
    """Return the values, their standard errors (of the logarithm), and the median misfit; robust, on logarithms.

    Where the `believed` ones start is what is expected of them, within BELIEF.
    """
    least_squares = scipy_optimize().least_squares
    places = list(believed)

    def residuals(x: Values) -> Values:
        belief = OUTLIER * (x - start)[places] / BELIEF
        return np.concatenate([np.log(predict(x) / seconds), belief])

    answer = least_squares(residuals, start, bounds=(start - 12, start + 12), loss="soft_l1", f_scale=OUTLIER)
    left = residuals(answer.x)[: len(seconds)]
    free = max(len(seconds) - len(start), 1)
    variance = float(np.median(left**2) / 0.455 * len(seconds) / free)  # 0.455: median of chi-square with one degree
    inverse = np.linalg.pinv(answer.jac.T @ answer.jac)
    errors = [float(np.sqrt(max(value, 0.0) * variance)) for value in np.diag(inverse)]
    return np.exp(answer.x), errors, float(np.median(np.abs(np.expm1(left))))


def scipy_optimize() -> Any:
    """Return scipy.optimize. Raises NlpBenchError where scipy is not installed."""
    try:
        from scipy import optimize  # noqa: PLC0415  # fitting only
    except ModuleNotFoundError as error:
        raise lacking(error, "calibrate (what was measured can be fitted elsewhere, --from)") or error from error
    return optimize


def _column(rows: Sequence[Measurement], name: str) -> Values:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _alone(name: str, value: float, unit: str, row: Measurement) -> Constant:
    return Constant(name=name, value=float(value), unit=unit, error=row.spread, number=1)


def _constant(name: str, unit: str, value: float, error: float | None, behind: tuple[int, float | None]) -> Constant:
    """Make a constant; `behind` is how many measurements and their misfit."""
    return Constant(name=name, value=float(value), unit=unit, error=error, number=behind[0], misfit=behind[1])
