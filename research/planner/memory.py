"""Fit of the memory constants to published peaks, and its cross-validation by groups of configurations."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Numbers, taken
from nlp_bench.plan.constants import FITTED, Constants
from nlp_bench.plan.memory.published import published_memory

PRIORS = {"deepspeed_bf16_gradient_bytes": 6.0, "deepspeed_buffer_bytes": 2e9, "internevo_state_bytes": 20.0}
"""Where the fit starts, and where a constant stays that no row depends on: bf16 and fp32 gradients; two buckets of 5e8 elements
(DeepSpeed's default reduce_bucket_size and allgather_bucket_size) in 16 bits; weights, gradients, fp32 gradients and Adam's 12 bytes."""
_NUM_FOLDS = 3  # of the cross-validation
_ROUNDS = 20
_SCALE = 0.05  # errors beyond 5 % pull less and less (Huber 1964)
_STEP = 1e-3


@immutable
class Peaks:
    """Published peaks of N configurations."""

    configurations: Configurations  # what was run
    peak_bytes: Numbers  # what was published, above 0; shape [N]
    groups: npt.NDArray[np.int64]
    """Number of each one's group: configurations that differ in nothing but scale, version or date share one; shape [N]."""

    def take(self, chosen: npt.NDArray[np.bool_]) -> "Peaks":
        """Return the peaks where `chosen`, shape [N], is true."""
        return taken(self, chosen)


def relative_errors(peaks: Peaks, constants: Constants) -> Numbers:
    """Return predicted / published - 1; shape [N]."""
    predicted = published_memory(peaks.configurations, constants).published
    return np.asarray(predicted / peaks.peak_bytes - 1)


def fit_memory(peaks: Peaks, constants: Constants) -> Constants:
    """Return the constants with the fitted ones of [memory] changed: least squares of relative errors, robust (Huber), Gauss-Newton.

    It starts from PRIORS, never from the constants that were fitted before. Raises UsageError where there are no rows.
    """
    if not len(peaks.peak_bytes):
        raise UsageError("there are no published peaks to fit the memory constants to")
    constants = replace(constants, memory=replace(constants.memory, **PRIORS))
    for _ in range(_ROUNDS):
        errors = relative_errors(peaks, constants)
        weights = np.sqrt(np.minimum(1.0, _SCALE / np.maximum(np.abs(errors), 1e-12)))
        slopes = np.stack([_slope(peaks, constants, name, errors) for name in FITTED], axis=1)
        step, *_ = np.linalg.lstsq(slopes * weights[:, None], -errors * weights, rcond=1e-9)
        constants = _moved(constants, np.asarray(step, dtype=np.float64))
    return constants


def cross_validate(peaks: Peaks, constants: Constants, *, num_seeds: int = 5) -> Numbers:
    """Return the relative error of each row under constants that were fitted without its group; shape [num_seeds, N]."""
    result = np.empty((num_seeds, len(peaks.peak_bytes)))
    for seed in range(num_seeds):
        folds = np.random.default_rng(seed).permutation(int(peaks.groups.max()) + 1) % _NUM_FOLDS
        for fold in range(_NUM_FOLDS):
            held = folds[peaks.groups] == fold
            result[seed, held] = held_errors(peaks, held, constants)
    return result


def held_errors(peaks: Peaks, held: npt.NDArray[np.bool_], constants: Constants) -> Numbers:
    """Return the relative errors of the rows of the mask `held` under constants that were fitted on all others."""
    return relative_errors(peaks.take(held), fit_memory(peaks.take(~held), constants))


def _slope(peaks: Peaks, constants: Constants, name: str, errors: Numbers) -> Numbers:
    """Return how the errors change with the logarithm of a constant."""
    value = getattr(constants.memory, name) * (1 + _STEP)
    moved = replace(constants, memory=replace(constants.memory, **{name: value}))
    return np.asarray((relative_errors(peaks, moved) - errors) / np.log1p(_STEP))


def _moved(constants: Constants, step: Numbers) -> Constants:
    factors = np.exp(np.clip(step, -0.5, 0.5))
    values = {
        name: getattr(constants.memory, name) * float(factor) for name, factor in zip(FITTED, factors, strict=True)
    }
    return replace(constants, memory=replace(constants.memory, **values))
