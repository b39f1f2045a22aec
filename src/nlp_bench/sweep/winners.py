"""Which configurations may be the best: those that no other one beats beyond doubt.

A configuration is ruled out where another one is faster by a one-sided Welch test at (1 - level) / (number of configurations - 1).
The truly best one is then kept with a probability of at least `level`: it has number - 1 rivals, each of which beats it by chance
with at most that share (Bonferroni), however the best one of the data was chosen. This is subset selection (Gupta 1965,
doi:10.1080/00401706.1965.10490251) as it follows from comparisons with the best (Hsu 1984, doi:10.1214/aos/1176346725), with Welch's
degrees of freedom in place of equal variances. tests/support/winners_study.py measures the probability.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from nlp_bench.measure.estimate import LEVEL, Estimate, student_cdf, welch_degrees


def winners(estimates: Sequence[Estimate], level: float = LEVEL) -> list[bool]:
    """Return for each configuration whether it may be the best; at least the fastest one is."""
    if len(estimates) < 2:
        return [True] * len(estimates)
    share = (1 - level) / (len(estimates) - 1)
    least = NormalDist().inv_cdf(1 - share)  # Student's t asks for at least as much as the normal distribution
    seconds = np.log([each.seconds_per_token for each in estimates])
    errors = np.array([each.standard_error / each.seconds_per_token for each in estimates])
    kept = []
    for index, slower in enumerate(estimates):
        statistics = (seconds[index] - seconds) / np.sqrt(errors[index] ** 2 + errors**2)
        ahead = np.flatnonzero(statistics > least)
        rivals = [int(rival) for rival in ahead[np.argsort(-statistics[ahead])]]  # the clearest first: one is enough
        kept.append(not any(_chance(slower, estimates[rival], statistics[rival]) < share for rival in rivals))
    return kept


def _chance(slower: Estimate, rival: Estimate, statistic: float) -> float:
    """Return how probable such a lead is if both are equally fast: one-sided, with Welch's degrees of freedom."""
    return 1 - student_cdf(float(statistic), welch_degrees(slower, rival))
