"""What is predicted of configurations: seconds with an interval, and memory."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.peak import Memory, peak_memory
from nlp_bench.plan.seconds.step import Seconds, step_seconds


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The forecast of N configurations; every array has shape [N]."""

    seconds: Seconds
    """Of one iteration, with its parts."""
    low: Numbers
    """Lower end of the 90 % interval of the seconds."""
    high: Numbers
    """Upper end of the 90 % interval of the seconds."""
    memory: Memory
    """Peak of the fullest rank, with its parts."""


def forecast(c: Configurations, constants: Constants, unknown: Flags | None = None) -> Forecast:
    """Predict N configurations; `unknown` are those whose framework is none that the constants know."""
    seconds = step_seconds(c, constants)
    below, above = constants.interval(c, unknown)
    memory = peak_memory(c, constants)
    return Forecast(
        seconds=seconds,
        low=np.asarray(seconds.total * below),
        high=np.asarray(seconds.total * above),
        memory=memory,
    )
