"""What of a layer is computed again in the backward pass."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import RECOMPUTE, Configurations, Numbers
from nlp_bench.plan.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Again:
    """Shares of a layer's forward work; arrays of shape [N] or []."""

    products: Numbers
    """Products but the last."""
    last_product: Numbers
    """The last product of the layer, whose result nobody needs where recomputation stops early."""
    attention: Numbers
    """A fused attention kernel."""
    scores: Numbers
    """Attention whose scores are stored."""
    streams: Numbers
    """What lies between the products."""
    collectives: Numbers
    """Tensor-parallel collectives."""


def again_of(c: Configurations, constants: Constants) -> Again:
    """Return what N configurations compute again.

    full: the layer's forward pass (Chen et al. 2016, arXiv 1604.06174); torch's checkpoint and XLA stop before the layer's last product
    (torch.utils.checkpoint, early_stop). selective: the attention core (Korthikanti et al. 2022), which a fused kernel does in any
    case; torchtitan's: every other product and what lies between. XLA without a stated policy: a share.
    """
    place = c.framework
    full = np.where(c.spread.recompute == RECOMPUTE.index("full"), 1.0, 0.0)
    selective = np.where(c.spread.recompute == RECOMPUTE.index("selective"), 1.0, 0.0)
    xla = (constants.trait("family") == "xla")[place] & (c.spread.recompute == RECOMPUTE.index("none"))
    whole = np.where(xla, constants["xla_recompute"], full)
    halved = selective * constants.trait("half_recomputed")[place]
    early = constants.trait("early_stop")[place]
    return Again(
        products=whole + 0.5 * halved,
        last_product=np.where(early, 0.0, whole),
        attention=whole,
        scores=np.maximum(whole, selective),
        streams=whole + halved,
        collectives=full,
    )
