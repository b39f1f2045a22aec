"""What is predicted of a run before it is submitted: warnings and a record, never a refusal."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.config.run import Run
from nlp_bench.files import read_object, write_json
from nlp_bench.launch.script import no_image
from nlp_bench.measure import REPORT_TOKENS

if TYPE_CHECKING:
    from nlp_bench.plan.prediction import Prediction

RECORD = "forecast.json"  # in the run's folder: the prediction, to compare with the measurement
REHEARSAL = "rehearsal.json"  # what `nlp-bench rehearse --output` leaves


def prediction(run: Run) -> "Prediction | str":
    """Return the prediction of a run, or in a sentence why there is none."""
    try:
        from nlp_bench.plan.prediction import prediction_or_reason  # noqa: PLC0415  # a login node may have no numpy
    except ImportError as error:
        return f"no prediction: Python's package {error.name} is not installed here"
    return prediction_or_reason(run, REPORT_TOKENS)


def warnings_of(run: Run, run_dir: Path | None, *, jobs: int = 1) -> list[str]:
    """Return the warnings of a run on GPUs before it is submitted, and record the prediction in `run_dir`; a rehearsal of this very run there overrides it."""
    said = [f"warning: {why}"] if (why := no_image(run.system.container)) else []
    if run.system.accelerator != "cuda":
        return said
    found = prediction(run)
    if not isinstance(found, str):
        said += cautions(run, found, jobs=jobs)
        if run_dir:
            write_json(run_dir / RECORD, found.record())
    rehearsed, why_not = _rehearsed(run, run_dir) if run_dir else (None, [])
    said += why_not
    if rehearsed == "yes":
        return said
    if rehearsed is not None:
        return [*said, f"warning: the rehearsal in {run_dir} says: {MEANING[rehearsed]}"]
    named = f"--run {shlex.quote(str(run_dir / 'run.json'))}" if run_dir else "with the same options"
    proof = f"nlp-bench rehearse{' ' if run_dir else ', '}{named}"
    if isinstance(found, str):
        return [*said, f"{found}; whether it fits: {proof}"]
    if found.fits != "yes":
        anyway = "; it is submitted all the same" if run_dir else ""
        said.append(f"warning: {found.memory_line()}: {MEANING[found.fits]}{anyway}. The proof: {proof}")
    return said


def _rehearsed(run: Run, run_dir: Path) -> tuple[str | None, list[str]]:
    """Return the word of the rehearsal in a run's folder, and why it does not count where it is of another run or of too few ranks."""
    record = read_object(run_dir / REHEARSAL)
    word = record.get("fits")
    if not isinstance(word, str) or word not in {"yes", *MEANING}:
        return None, []
    if record.get("run") != run.footprint():
        return None, [
            f"warning: {run_dir / REHEARSAL} is of another run than this one, or of an older version: it does not count"
        ]
    ranks, last = record.get("ranks"), run.parallel.pipeline - 1
    places = [one.get("place") for one in ranks if isinstance(one, dict)] if isinstance(ranks, list) else []
    stages = {place.get("pipeline") for place in places if isinstance(place, dict)}
    if word == "yes" and not {0, min(1, last), last} <= stages:
        missing = "lacks a rank of the first, the second or the last pipeline stage, which may be the fullest"
        return None, [f"warning: {run_dir / REHEARSAL} {missing}: that the others fit does not count"]
    return word, []


START_UP_S = 300.0  # what is left of the time limit for modules, torchrun, the model's set-up and the first compilation


def cautions(run: Run, found: "Prediction", *, jobs: int = 1) -> list[str]:
    """Return the warnings that a prediction of a run makes: what speaks against it, and a time limit that is too short for a chain of `jobs`."""
    return [*(f"warning: {doubt}" for doubt in found.doubts), *_late(run, found.iterations_s, jobs)]


def _late(run: Run, iterations_s: float, jobs: int) -> list[str]:
    """Return a warning where the time limit of `jobs` that continue each other would end the run before its last iteration, which leaves it without a number."""
    of_job_s = run.launch.limit_s - START_UP_S
    if run.tuning.until or iterations_s <= jobs * of_job_s:
        return []
    interval = run.training.log_interval
    iterations = int(jobs * of_job_s / iterations_s * run.training.iterations) // interval * interval
    fewer = f", or fewer --iterations (at most {iterations})" if iterations > 0 else ""
    limit, more = f"the time limit of {run.launch.timelimit}", ""
    if jobs > 1:
        limit = f"{limit} of each of the {jobs} jobs"
        more = f", more jobs (--chain {math.ceil(iterations_s / of_job_s)})" if of_job_s > 0 else ""
    text = (
        f"warning: {run.training.iterations} iterations are predicted to take {iterations_s / 60:.0f} min, start-up not counted: {limit} "
        f"would end the run without a number. Give it a longer --timelimit{more}{fewer}"
    )
    return [text]


MEANING = {"tight": "it may run out of GPU memory", "no": "it does not fit the GPU and will run out of memory"}
"""Of the answers that deserve a warning."""
