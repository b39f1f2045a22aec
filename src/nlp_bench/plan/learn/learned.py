"""What the runs of one machine taught: factors on what the time model computes, and a narrower interval."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nlp_bench.plan.constants import Constants

KINDS = ("compute", "network", "overhead")
"""Constants `scale_KIND` of table [time]: what a GPU computes, what it sends and receives, what the host does."""
FAMILY = "megatron"
"""The framework family of the runs: this package's trainer and Megatron-LM's own."""

NORMAL_90 = 1.645
"""Standard deviations to either end of a 90 % interval of a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What was learned of one machine; seconds are multiplied by a factor."""

    system: str
    """The machine's name, as its system file has it."""
    factors: Mapping[str, float]
    """By KINDS: measured / predicted with the constants before, times the factor that these had."""
    low: float
    """Lower end of the 90 % interval of the seconds / prediction, at most 1."""
    high: float
    """Upper end, at least 1."""
    source: str
    """Which runs, when."""


def scaled(constants: Constants, factors: Mapping[str, float]) -> Constants:
    """Return the constants with their scales multiplied by `factors`, by KINDS."""
    return constants.with_values(
        {f"scale_{kind}": constants[f"scale_{kind}"] * factor for kind, factor in factors.items()}
    )


def with_lesson(constants: Constants, learned: Learned) -> Constants:
    """Return the constants with the factors and the interval of what was learned."""
    ends = {**constants.ends, FAMILY: (learned.low, learned.high)}
    return replace(
        scaled(constants, learned.factors),
        ends=ends,
        interval_source=learned.source,
        reach=None,
        origin=f"{constants.origin}, {learned.source}",
    )
