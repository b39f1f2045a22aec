"""What is predicted of configurations: seconds of an iteration with an interval, and memory."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.iteration import Seconds, step_seconds
from nlp_bench.plan.memory.fits import Memory
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.memory.trainer import trainer_memory


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


def peak_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the memory of the fullest rank of configurations that all are of this package's trainer (tensor by tensor), or none (as published)."""
    own = c.framework == constants.frameworks.index("nlp-bench")
    return trainer_memory(c, constants) if np.all(own) else published_memory(c, constants)


def forecast(c: Configurations, constants: Constants, unknown: Flags | None = None) -> Forecast:
    """Predict N configurations; `unknown` are those whose framework is none that the constants know."""
    seconds = step_seconds(c, constants)
    below, above = constants.interval(c, unknown)
    memory = peak_memory(c, constants)
    return Forecast(
        seconds=seconds, low=np.asarray(seconds.total * below), high=np.asarray(seconds.total * above), memory=memory
    )
