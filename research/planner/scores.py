"""How far predictions are from measurements: the figures of the protocol of the published points."""

from collections import defaultdict

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Numbers
from research.planner.data import Measured

LEAST_ROWS = 20  # rows of a sweep for which ranks are told


@immutable
class Score:
    """Errors are |predicted - measured| / measured."""

    rows: int
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
        rows=len(errors),
        median=float(np.median(errors)),
        macro=float(np.mean(list(by_source.values()))),
        p90=float(np.sort(errors)[int(0.9 * (len(errors) - 1))]),
        by_source=by_source,
    )


def mean_of(scores: list[Score]) -> Score:
    """Return the mean of several splits' scores; a source's is the mean over the splits that have it."""
    sources = sorted({name for one in scores for name in one.by_source})
    return Score(
        rows=round(float(np.mean([one.rows for one in scores]))),
        median=float(np.mean([one.median for one in scores])),
        macro=float(np.mean([one.macro for one in scores])),
        p90=float(np.mean([one.p90 for one in scores])),
        by_source={n: float(np.mean([one.by_source[n] for one in scores if n in one.by_source])) for n in sources},
    )


def rankings(measured: Measured, predicted: Numbers) -> list[Ranking]:
    """Return the sweeps of LEAST_ROWS rows or more."""
    tokens = measured.configurations.spread.global_batch_size * measured.configurations.network.sequence_length
    real, said = tokens / measured.seconds, tokens / predicted
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, key in enumerate(measured.sweeps):
        places[key].append(place)
    found = []
    for key, rows in places.items():
        if len(rows) >= LEAST_ROWS:
            best = rows[int(np.argmax(said[rows]))]
            spearman = float(np.corrcoef(_ranks(real[rows]), _ranks(said[rows]))[0, 1])
            regret = float(1.0 - real[best] / real[rows].max())
            found.append(Ranking(name=" ".join(key), rows=len(rows), spearman=spearman, regret=regret))
    return found


def _ranks(values: Numbers) -> Numbers:
    """Return ranks, the mean rank where values are equal."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2.0)[place], dtype=np.float64)
