"""Robust least squares on the logarithm of the time, held by priors."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Codes, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.iteration import step_seconds
from research.planner.data import Measured

SCATTER = 0.06  # residual (log) from which a row counts less (soft L1): twice what identical configurations differ by
STEPS = 60


@immutable
class Variant:
    """A model with something left out, to see what it is worth."""

    frozen: Mapping[str, float] = field(default_factory=dict)  # constants that stay at a value
    dropped: tuple[str, ...] = ()  # parts of the time that are not counted


WHOLE = Variant()  # nothing left out


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

    count, steps = len(target), len(names) + 1
    again = measured.configurations.take(np.tile(np.arange(count), steps))
    varied = _Varied(**{one.name: getattr(start, one.name) for one in fields(Constants)}, rows={})

    def slopes(x: Numbers) -> Numbers:
        """Return the forward differences of scipy's "2-point", all constants in one prediction of `steps` times the rows."""
        moved = x + _STEP * np.where(x < 0, -1.0, 1.0) * np.maximum(1.0, np.abs(x))
        values = np.exp(np.concatenate([x[None], np.where(np.eye(len(x), dtype=bool), moved, x)]))
        told = replace(varied, rows=dict(zip(names, np.repeat(values, count, axis=0).T, strict=True)))
        logs = np.log(seconds_of(again, told, variant)).reshape(steps, count)
        return np.concatenate([weight[:, None] * ((logs[1:] - logs[0]).T / (moved - x)) / SCATTER, np.diag(1 / spread)])

    answer = least_squares(residuals, prior, jac=slopes, loss=_robust(len(target)), x_scale=spread, max_nfev=STEPS)
    return start.with_values(dict(zip(names, np.exp(answer.x), strict=True)))


_STEP = np.sqrt(np.finfo(np.float64).eps)


@immutable
class _Varied(Constants):
    """Constants of which some differ from row to row."""

    rows: Mapping[str, Numbers]  # values of shape [N]

    def __getitem__(self, name: str) -> Any:
        return self.rows[name] if name in self.rows else super().__getitem__(name)

    def chosen(self, names: Sequence[str], place: Codes) -> Numbers:
        """Return the constant `names[place]` for each place, each row's own."""
        count = len(next(iter(self.rows.values())))
        values = np.array([np.broadcast_to(self[name], (count,)) for name in names])
        return np.asarray(values[place, np.arange(count)])


def _robust(rows: int) -> Any:
    """Return the loss that scipy asks for, [3, residuals] of squares: soft L1 on the rows, squares on the priors."""

    def loss(squares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        root = np.sqrt(1.0 + squares)
        answer = np.array([2.0 * (root - 1.0), 1.0 / root, -0.5 * root**-3])
        answer[:, rows:] = np.array([squares[rows:], np.ones_like(squares[rows:]), np.zeros_like(squares[rows:])])
        return answer

    return loss
