"""Predictions of points that the fit has not seen (by configuration group, by source), how far they are off, and what each term is worth.

The figures are those of the protocol of the published points.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import FAMILIES, Numbers
from nlp_bench.plan.constants import Constants
from research.planner.data import Measured
from research.planner.solve import WHOLE, Variant, seconds_of, solve

SEEDS = 5
SHARE = 0.9  # of the points that the interval holds
LEAST_ROWS = 20  # rows of a sweep for which ranks are told


@immutable
class Score:
    """Errors are |predicted - measured| / measured."""

    median: float  # median over rows
    macro: float  # mean over the sources of their medians
    p90: float  # 90th percentile over rows
    by_source: dict[str, float]  # median of each source


@immutable
class Ranking:
    """How a sweep of one model on one number of GPUs is ranked."""

    name: str  # source, model, GPU, number of GPUs
    rows: int
    spearman: float  # rank correlation of predicted and measured tokens per second
    regret: float  # share of the best measured throughput that is lost by taking the predicted best


def score_of(measured: Measured, predicted: Numbers) -> Score:
    """Score one prediction of all rows."""
    errors = np.abs(predicted / measured.seconds - 1.0)
    by_source = {str(one): float(np.median(errors[measured.sources == one])) for one in np.unique(measured.sources)}
    return Score(
        median=float(np.median(errors)),
        macro=float(np.mean(list(by_source.values()))),
        p90=float(np.sort(errors)[int(0.9 * (len(errors) - 1))]),
        by_source=by_source,
    )


def rankings(measured: Measured, predicted: Numbers) -> list[Ranking]:
    """Return the sweeps of LEAST_ROWS rows or more."""
    from scipy.stats import spearmanr  # noqa: PLC0415  # fitting only

    tokens = measured.configurations.spread.global_batch_size * measured.configurations.network.sequence_length
    real, said = tokens / measured.seconds, tokens / predicted
    found = []
    for name in dict.fromkeys(measured.sweeps.tolist()):
        rows = np.flatnonzero(measured.sweeps == name)
        if len(rows) >= LEAST_ROWS:
            best = rows[np.argmax(said[rows])]
            spearman = float(spearmanr(real[rows], said[rows]).statistic)
            regret = float(1.0 - real[best] / real[rows].max())
            found.append(Ranking(name=name, rows=len(rows), spearman=spearman, regret=regret))
    return found


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
    return [held_by(measured, constants, mask, variant) for mask in splits(measured, share, seeds)]


def without_source(measured: Measured, constants: Constants) -> dict[str, Held]:
    """Return, for each source, its rows' predictions by constants that were fitted on all others."""
    return {str(one): held_by(measured, constants, measured.sources != one) for one in np.unique(measured.sources)}


def held_by(measured: Measured, constants: Constants, mask: npt.NDArray[np.bool_], variant: Variant = WHOLE) -> Held:
    """Return the predictions of the rows outside the mask by constants that were fitted on those inside."""
    told = solve(measured.take(mask), constants, variant)
    rest = measured.take(~mask)
    return Held(places=np.flatnonzero(~mask), predicted=seconds_of(rest.configurations, told, variant))


def mean_score(measured: Measured, held: Sequence[Held]) -> Score:
    """Return the mean over splits; a source's is the mean over the splits that have it."""
    scores = [score_of(measured.take(one.places), one.predicted) for one in held]
    sources = sorted({name for one in scores for name in one.by_source})
    return Score(
        median=float(np.mean([one.median for one in scores])),
        macro=float(np.mean([one.macro for one in scores])),
        p90=float(np.mean([one.p90 for one in scores])),
        by_source={n: float(np.mean([one.by_source[n] for one in scores if n in one.by_source])) for n in sources},
    )


def out_of_fit(measured: Measured, held: Sequence[Held]) -> Numbers:
    """Return one prediction of each row: the geometric mean over the splits that held it out; NaN where none did."""
    total, count = np.zeros(len(measured)), np.zeros(len(measured))
    for one in held:
        total[one.places] += np.log(one.predicted)
        count[one.places] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(total / np.where(count > 0, count, np.nan)))


def residuals(measured: Measured, held: Sequence[Held]) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return rows and the logarithm of measured / predicted, split after split."""
    places = np.concatenate([one.places for one in held])
    return places, np.concatenate([np.log(measured.seconds[one.places] / one.predicted) for one in held])


@immutable
class Ends:
    """The 90 % interval near the fitted rows, as factors on the predicted time."""

    low: float
    high: float
    held: float  # share of the rows of each source that the ends of the other sources hold, a source counting as the root of its rows


def ends_of(errors: Numbers, weights: Numbers, sources: npt.NDArray[Any]) -> Ends:
    """Return ends that hold SHARE of the rows of a source that they were not learned from; `errors` are of fits without the source.

    A run is of a source that no fit has seen. Quantiles of few sources are too near for one more, so their level rises until the
    ends of all other sources leave at most 5 % beyond on either side (nested cross-validation).
    """
    sides, beyond = [], 0.0
    for sign in (-1.0, 1.0):
        away = sign * errors
        for level in _LEVELS:
            missed = 0.0
            for one in np.unique(sources):
                own = sources == one
                missed += float(weights[own & (away > _end(away[~own], weights[~own], level))].sum())
            if missed <= (1 - SHARE) / 2 * weights.sum():
                break
        sides.append(_end(away, weights, level))
        beyond += missed / float(weights.sum())
    return Ends(low=float(np.exp(-sides[0])), high=float(np.exp(sides[1])), held=1.0 - beyond)


_LEVELS = np.linspace((1 + SHARE) / 2, 1.0, 11)  # of quantiles, from those of the rows themselves to the farthest row


def _end(away: Numbers, weights: Numbers, level: float) -> float:
    return max(quantile(away, weights, level), 0.0) if len(away) else 0.0


def family_ends(measured: Measured, families: npt.NDArray[Any], held: Sequence[Held]) -> tuple[Ends, dict[str, Ends]]:
    """Return the ends of all framework families together and those of each; a family of a single source has the former.

    `families` has the family of each row, `held` leaves sources out.
    """
    places, errors = residuals(measured, held)
    weights, sources = measured.weights()[places], measured.sources[places]
    shared, found = ends_of(errors, weights, sources), {}
    for family in FAMILIES:
        own = families[places] == family
        several = len(np.unique(sources[own])) > 1
        found[family] = ends_of(errors[own], weights[own], sources[own]) if several else shared
    return shared, found


def quantile(values: Numbers, weights: Numbers, share: float) -> float:
    """Return the value below which `share` of the weight lies."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share)), len(values) - 1)])


_NOTHING = 1e-9
FITTED_SHARE = 2 / 3


_PARTS = (
    "attention", "memory-bound", "output layer", "pipeline bubble", "pipeline transfers", "tensor parallel", "parameter gathers",
    "data parallel", "optimizer", "host",
)  # fmt: skip
_SET = {
    "products: FLOPs alone, no operand traffic": {"operand_traffic": _NOTHING},
    "unfused attention without its passes over scores": {"score_traffic": _NOTHING},
    "no casts for 8 and 4 bit": {"cast_traffic": _NOTHING},
    "no collective latency": {"collective_latency_s": _NOTHING},
    "all tensor-parallel traffic exposed": {"tensor_exposed": 1.0},
    "all data-parallel traffic exposed": {"data_exposed": 1.0},
    "overlapped data-parallel traffic free": {"data_exposed": _NOTHING},
    "all pipeline transfers exposed": {"pipeline_exposed": 1.0},
    "gathers overlapped without slow-down": {"gather_slowdown": _NOTHING},
    "one rate of attention after Ampere": {"attention_flash2": 1.0},
    "NeMo as fast as Megatron-LM": {"nvidia_tuning": 1.0},
    "GB300 as GB200 but for its data sheet": {"blackwell_ultra": 1.0},
    "mxfp8 as per-tensor fp8": {"block_scaled": 1.0},
    "row-wise fp8 as per-tensor fp8": {"row_scaled": 1.0},
    "DeepSpeed's ZeRO-1 as Megatron's": {"deepspeed_traffic": 1.0},
    "ZeRO-3 of 2021 at the network's rate": {"zero3_share": 1.0},
    "XLA computes nothing again": {"xla_recompute": _NOTHING},
}


def ablations(measured: Measured, constants: Constants) -> Iterator[tuple[str, Score]]:
    """Yield the whole model, then each term left out and the other constants fitted again; some seconds each."""
    variants = {"the whole model": WHOLE} | {f"no {part}": Variant(dropped=(part,)) for part in _PARTS}
    variants |= {name: Variant(frozen=frozen) for name, frozen in _SET.items()}
    for name, variant in variants.items():
        yield name, mean_score(measured, held_out(measured, constants, FITTED_SHARE, variant=variant))
    alike = replace(
        constants, time={name: one for name, one in constants.time.items() if name != "fabric_share_ethernet"}
    )
    yield "Ethernet as the other fabrics", mean_score(measured, held_out(measured, alike, FITTED_SHARE))
