"""Floating-point operations that one rank executes in one iteration: matrix products and attention, two per multiply-add."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import RECOMPUTE, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.work.numbers import keeps_scores
from nlp_bench.plan.work.products import head_products, layer_core, layer_products, seen
from nlp_bench.plan.work.stages import Stage

FULL = RECOMPUTE.index("full")


@dataclass(frozen=True, kw_only=True)
class Operations:
    """FLOPs of one rank and iteration; arrays of shape [N]."""

    products: Numbers
    """Of products with weights: forward, both gradients, and forward again where layers are recomputed."""
    attention: Numbers
    """Of attention."""

    @property
    def total(self) -> Numbers:
        """All."""
        return self.products + self.attention


def operations(c: Configurations, stage: Stage, constants: Constants) -> Operations:
    """Return what a rank of this stage executes.

    The gradients of a product take two products. Of attention the backward pass makes the scores again: five products in place
    of two (Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 4), four where no fused kernel applies. Selective recompute adds nothing: the fused kernel
    keeps no scores whatever is asked for. The whole rectangle of scores is counted, as a rehearsal counts it, although a causal
    kernel skips about half.
    """
    again = c.spread.recompute == FULL
    layers, micro = stage.layers, c.spread.num_microbatches
    products = layers * (3.0 + again) * layer_products(c) + stage.last * 3 * head_products(c)
    times = np.where(keeps_scores(c, constants), 3.0, 3.5) + again
    return Operations(products=micro * products, attention=micro * layers * times * layer_core(c) * seen(c))
