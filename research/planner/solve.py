"""Robust least squares on the logarithm of the time, held by priors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.iteration import step_seconds
from research.planner.data import Measured

SCATTER = 0.06
"""Residual of the logarithm from which a row counts less (soft L1): twice what identical configurations differ by."""
STEPS = 60


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model with something left out, to see what it is worth."""

    frozen: Mapping[str, float] = field(default_factory=dict)
    """Constants that stay at a value."""
    dropped: tuple[str, ...] = ()
    """Parts of the time that are not counted."""


WHOLE = Variant()
"""Nothing left out."""


def seconds_of(c: Configurations, constants: Constants, variant: Variant = WHOLE) -> Numbers:
    """Return predicted seconds of an iteration, shape [N]."""
    found = step_seconds(c, constants)
    left = [part for name, part in found.parts.items() if name not in variant.dropped]
    return found.total if not variant.dropped else np.asarray(sum(left))


def solve(measured: Measured, constants: Constants, variant: Variant = WHOLE) -> Constants:
    """Return the constants with the fitted ones moved to where they explain the points.

    Minimises the sum over rows of weight x soft L1 of log(predicted / measured) / SCATTER plus the sum over constants of
    ((log value - log prior) / spread)^2; priors keep each constant credible where points say little. It starts from the priors, never
    from what was fitted before.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415  # fitting only

    start = constants.cold().with_values(variant.frozen)
    names = [name for name in constants.fitted() if name not in variant.frozen]
    prior = np.log([start[name] for name in names])
    spread = np.array([constants.time[name].spread for name in names], dtype=np.float64)
    weight = np.sqrt(measured.weights())
    target = np.log(measured.seconds)

    def residuals(x: Numbers) -> Numbers:
        told = start.with_values(dict(zip(names, np.exp(x), strict=True)))
        predicted = seconds_of(measured.configurations, told, variant)
        return np.concatenate([weight * (np.log(predicted) - target) / SCATTER, (x - prior) / spread])

    answer = least_squares(residuals, prior, loss=_robust(len(target)), x_scale=spread, max_nfev=STEPS)
    return start.with_values(dict(zip(names, np.exp(answer.x), strict=True)))


def _robust(rows: int) -> Any:
    """Return the loss that scipy asks for, [3, residuals] of squares: soft L1 on the rows, squares on the priors."""

    def loss(squares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        root = np.sqrt(1.0 + squares)
        answer = np.array([2.0 * (root - 1.0), 1.0 / root, -0.5 * root**-3])
        answer[:, rows:] = np.array([squares[rows:], np.ones_like(squares[rows:]), np.zeros_like(squares[rows:])])
        return answer

    return loss
