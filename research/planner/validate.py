"""Predictions of points that the fit has not seen: by configuration group, and by source."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Numbers
from nlp_bench.plan.constants import Constants
from research.planner.data import Measured
from research.planner.scores import Score, mean_of, score_of
from research.planner.solve import WHOLE, Variant, seconds_of, solve

SEEDS = 5
SHARE = 0.9  # of the points that the interval holds


@immutable
class Held:
    """Predictions of rows by constants that were fitted without them."""

    places: npt.NDArray[np.int64]  # rows
    predicted: Numbers  # seconds, of the same shape


def splits(measured: Measured, share: float, seeds: int = SEEDS) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield masks of the rows to fit on: each configuration group falls on one side, to the fit with probability `share`."""
    for seed in range(seeds):
        inside = np.random.default_rng(seed).random(int(measured.groups.max()) + 1) < share
        yield inside[measured.groups]


def held_out(
    measured: Measured, constants: Constants, share: float, seeds: int = SEEDS, variant: Variant = WHOLE
) -> list[Held]:
    """Return the predictions of each split's other side."""
    return [_held(measured, constants, mask, variant) for mask in splits(measured, share, seeds)]


def without_source(measured: Measured, constants: Constants) -> dict[str, Held]:
    """Return, for each source, its rows' predictions by constants that were fitted on all others."""
    return {str(one): _held(measured, constants, measured.sources != one, WHOLE) for one in np.unique(measured.sources)}


def _held(measured: Measured, constants: Constants, mask: npt.NDArray[np.bool_], variant: Variant) -> Held:
    told = solve(measured.take(mask), constants, variant)
    rest = measured.take(~mask)
    return Held(places=np.flatnonzero(~mask), predicted=seconds_of(rest.configurations, told, variant))


def mean_score(measured: Measured, held: list[Held]) -> Score:
    """Return the mean over splits."""
    return mean_of([score_of(_rows(measured, one), one.predicted) for one in held])


def out_of_fit(measured: Measured, held: list[Held]) -> Numbers:
    """Return one prediction of each row: the geometric mean over the splits that held it out; NaN where none did."""
    total, count = np.zeros(len(measured)), np.zeros(len(measured))
    for one in held:
        total[one.places] += np.log(one.predicted)
        count[one.places] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(total / np.where(count > 0, count, np.nan)))


def residuals(measured: Measured, held: list[Held]) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return rows and the logarithm of measured / predicted, split after split."""
    places = np.concatenate([one.places for one in held])
    return places, np.concatenate([np.log(measured.seconds[one.places] / one.predicted) for one in held])


def interval_ends(measured: Measured, held: list[Held], leave_group: int | None = None) -> tuple[float, float]:
    """Return factors on the predicted time that hold SHARE of the held-out rows (split conformal prediction).

    Of all framework families together: a run is of a source that no fit has seen, and a family has too few sources for ends of its own.
    `leave_group` leaves a configuration group out, to see how often the ends hold it.
    """
    places, errors = residuals(measured, held)
    kept = measured.groups[places] != (-1 if leave_group is None else leave_group)
    weight = measured.weights()[places]
    low, high = (quantile(errors[kept], weight[kept], q) for q in ((1 - SHARE) / 2, (1 + SHARE) / 2))
    return min(float(np.exp(low)), 1.0), max(float(np.exp(high)), 1.0)


def quantile(values: Numbers, weights: Numbers, share: float) -> float:
    """Return the value below which `share` of the weight lies."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share)), len(values) - 1)])


def coverage(measured: Measured, held: list[Held], ends_from: list[Held]) -> float:
    """Return the share of held-out rows inside the interval that the other groups' residuals give."""
    places, errors = residuals(measured, held)
    inside = np.zeros(len(places), dtype=bool)
    for group in np.unique(measured.groups[places]):
        low, high = np.log(interval_ends(measured, ends_from, int(group)))
        rows = measured.groups[places] == group
        inside[rows] = (errors[rows] >= low) & (errors[rows] <= high)
    return float(inside.mean())


def _rows(measured: Measured, held: Held) -> Measured:
    mask = np.zeros(len(measured), dtype=bool)
    mask[held.places] = True
    return measured.take(mask)
