"""What the planner expects of one resolved run: steady time and memory, in a line for `check`, a record for `submit`."""

from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.machines import doubts_of
from nlp_bench.plan.problem import configuration_of, oversized
from nlp_bench.plan.ranking import GIB, Predicted, predicted

SCHEMA = "nlp-bench/forecast/1"  # forecast.json of a run folder: written before the job starts


@immutable
class Prediction(Predicted):
    """The prediction of one run."""

    tokens: int  # tokens of the training whose time is predicted
    iterations_s: float  # predicted seconds of all iterations of the run; starting up comes on top
    doubts: tuple[str, ...] = ()
    """Where the system file contradicts its GPU's data sheet, where that is not the shipped one, and a batch beyond the whole training."""

    def line(self) -> str:
        """Return the prediction as one line of text."""
        return (
            f"predicted steady time {self.report_s:.0f} s (90 % interval {self.low_s:.0f} to {self.high_s:.0f} s), "
            f"{self.memory_line()}, fits: {self.fits}; all iterations {self.iterations_s / 60:.0f} min"
        )

    def memory_line(self) -> str:
        """Return the predicted memory and the GPU's."""
        return f"predicted memory {self.memory_gib:.1f} of {self.capacity_gib:.0f} GiB per GPU"

    def record(self) -> dict[str, Any]:
        """Return the JSON object of forecast.json."""
        names = ("tokens", "report_s", "low_s", "high_s", "iteration_s", "iterations_s", "shares", "fits", "doubts")
        sizes = {"memory_bytes": self.memory_gib * GIB, "capacity_bytes": self.capacity_gib * GIB}
        own = {name: getattr(self, name) for name in names}
        return {"schema": SCHEMA, "what": "predicted before the run, not measured", **own, **sizes}


def prediction(run: Run, tokens: int) -> Prediction:
    """Predict one run and the time of a training on `tokens`. Raises UsageError for a model, machine or number format that the planner does not know."""
    constants = read_constants()
    per_iteration = run.batch.global_batch_size * run.batch.sequence_length
    (found,) = predicted(configuration_of(run, constants), constants, tokens, per_iteration)
    iterations_s = found["iteration_s"] * run.training.iterations
    doubts = doubts_of(run.system, constants) + oversized(
        run.batch.global_batch_size, run.batch.sequence_length, tokens
    )
    return Prediction(**found, tokens=tokens, iterations_s=iterations_s, doubts=doubts)


def prediction_or_reason(run: Run, tokens: int) -> Prediction | str:
    """Return the prediction of a run, or in a sentence why there is none: no run is refused for lack of a prediction."""
    if run.system.accelerator != "cuda":
        return "no prediction: a CPU run (nlp-bench plan calibrate measures what one needs)"
    try:
        return prediction(run, tokens)
    except NlpBenchError as error:
        return f"no prediction: {error}"
    except Exception as error:  # noqa: BLE001  # a fault of the planner must not stop a job that would run
        return f"no prediction: the planner failed ({type(error).__name__}: {error}); please report it"
