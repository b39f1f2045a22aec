"""What is predicted of configurations: seconds of an iteration with an interval, and memory."""

import numpy as np

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.iteration import Seconds, step_seconds
from nlp_bench.plan.memory.fits import Memory
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.memory.trainer import trainer_memory
from nlp_bench.plan.work import least_seconds


@immutable
class Forecast:
    """The forecast of N configurations; every array has shape [N]."""

    seconds: Seconds  # of one iteration, with its parts
    low: Numbers  # lower end of the 90 % interval of the seconds
    high: Numbers  # upper end of the 90 % interval of the seconds
    memory: Memory  # peak of the fullest rank, with its parts


def peak_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the memory of the fullest rank of configurations that all are of this package's trainer (tensor by tensor), or none (as published)."""
    own = c.framework == constants.frameworks.index("nlp-bench")
    return trainer_memory(c, constants) if np.all(own) else published_memory(c, constants)


def forecast(c: Configurations, constants: Constants, unknown: Flags | None = None) -> Forecast:
    """Predict N configurations, some of an `unknown` framework; raises UsageError for constants by which GPUs are faster than their peak."""
    seconds = step_seconds(c, constants)
    _refuse_faster_than_peak(c, constants, seconds.total)
    below, above = constants.interval(c, unknown)
    memory = peak_memory(c, constants)
    return Forecast(
        seconds=seconds, low=np.asarray(seconds.total * below), high=np.asarray(seconds.total * above), memory=memory
    )


def _refuse_faster_than_peak(c: Configurations, constants: Constants, seconds: Numbers) -> None:
    if constants.machine is not None and constants.machine.kind == "cpu":
        return  # its clock moves: there is no peak by a data sheet
    least = np.broadcast_to(least_seconds(c), np.shape(seconds))
    if np.any(faster := seconds < least):
        place = int(np.argmax(faster))
        predicted, needed = (float(np.reshape(values, -1)[place]) for values in (seconds, least))
        raise UsageError(
            f"constants: {predicted:.4g} s are predicted for an iteration whose matrix products alone take {needed:.4g} s on these GPUs at "
            f"their peak; no machine is faster than that. [time] scale_compute is {constants['scale_compute']:g}: correct it, or the shares "
            "of the peak, in the file of constants (--constants, benchmark/plan.toml), or leave --learn out"
        )
