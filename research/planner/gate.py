"""Rows that are held back until somebody has looked: what no GPU can do, and what the rows of other sources contradict."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.interval import CHIPS
from nlp_bench.plan.work import head_products, layer_core, layer_products, tokens
from research.planner.data import Measured
from research.planner.solve import seconds_of

MOST_MFU = 0.75  # of the data sheet's peak, more than any published training reaches: 0.63 is the most of the points
CONTRADICTED = 1.5
"""Factor between a row's time over its prediction and the same of its neighbours. Identical configurations differ by 1.2 at most."""
NEIGHBOURS = 3  # rows of each other source that are looked at, the nearest on this generation; sources have a vote each


def held_back(measured: Measured, constants: Constants) -> dict[str, str]:
    """Return, by the row's id, what is suspicious; rows whose cell `looked_at` says who has looked are left out.

    Predictions are those of data sheets and expectations alone (`Constants.cold`), so that a wrong row does not vouch for itself.
    """
    share = model_flops_utilisation(measured)
    ratio = measured.seconds / seconds_of(measured.configurations, constants.cold())
    chips = CHIPS[measured.configurations.machines.gpu]
    beside = _of_neighbours(measured, chips, np.log(ratio))
    reasons = {}
    for place in np.flatnonzero(~measured.looked_at):
        one, peak = measured.ids[place], measured.configurations.machines.peak_flops[place] / 1e12
        away = np.exp(np.log(ratio[place]) - beside[place])
        if share[place] > MOST_MFU:
            reasons[one] = (
                f"{share[place]:.0%} of the GPU's {peak:.4g} TFLOP/s would do the model's work; no published training reaches {MOST_MFU:.0%}"
            )
        elif max(away, 1 / away) > CONTRADICTED:  # false for NaN: a row without neighbours
            reasons[one] = (
                f"{away:.2f} times as long as the nearest rows of other sources on this generation of GPUs let expect"
            )
    return reasons


def model_flops_utilisation(measured: Measured) -> Numbers:
    """Return model FLOP/s of a GPU over its peak in the row's number format: three times the forward pass, causal half of attention."""
    c = measured.configurations
    forward = c.network.num_layers * (layer_products(c) + layer_core(c) / 2) + head_products(c)
    samples = c.spread.global_batch_size * c.network.sequence_length / tokens(c)
    return 3 * forward * c.spread.tensor * samples / (measured.seconds * c.spread.num_gpus * c.machines.peak_flops)


def _of_neighbours(measured: Measured, chips: npt.NDArray[Any], values: Numbers) -> Numbers:
    """Return the median over other sources of the median of `values` over their rows next to each row; NaN with fewer than two sources."""
    sizes, found = _sizes(measured.configurations), np.full(len(measured), np.nan)
    for place in range(len(measured)):
        others = (measured.sources != measured.sources[place]) & (chips == chips[place])
        votes = []
        for source in np.unique(measured.sources[others]):
            near = np.flatnonzero(others & (measured.sources == source))
            far = np.abs(sizes[near] - sizes[place]).sum(axis=1)
            votes.append(np.median(values[near[np.argsort(far, kind="stable")[:NEIGHBOURS]]]))
        if len(votes) > 1:
            found[place] = np.median(votes)
    return found


def _sizes(c: Configurations) -> Numbers:
    """Return log sizes by which rows are near, shape [N, 7]; another number format counts as a factor of four."""
    s, n = c.spread, c.network
    columns = (n.num_layers * n.hidden_size**2, s.num_gpus, s.tensor, s.pipeline, s.micro_batch_size, n.sequence_length)
    return np.stack([*np.log2(columns), 2.0 * c.precision], axis=1)
