"""Long trainings as chains of jobs: one run folder, one log, one folder of checkpoints, one job after the other.

All jobs run the same script, and the scheduler starts them one by one. Each stops before its time limit with a checkpoint, from which
the next one resumes; the run has ended when its iterations are done or its last job has ended.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.options import Checked
from nlp_bench.config.request import CheckpointOptions
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import ACTIVE, LOCAL, Job, Scheduler, State, get_scheduler
from nlp_bench.errors import UsageError
from nlp_bench.files import real
from nlp_bench.immutable import immutable
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.launch.once import ours
from nlp_bench.launch.submission import Submission
from nlp_bench.outcome import Outcome

MAX_JOBS = 1000
CHECKPOINT_OPTIONS = ("--save", "--load", "--save-interval", "--exit-interval", "--exit-duration-in-mins")
MUST_BE_THERE = "--exit-on-missing-checkpoint"
FINAL = (Outcome.VALID, Outcome.INVALID, Outcome.OUT_OF_MEMORY)
"""Ends after which another job of the chain would do nothing, or the same again."""
KEPT = 2  # checkpoints of a chain that are kept: the next job needs the newest, an older one serves if that is damaged
MARGIN, LEAST_MARGIN_S, MOST_MARGIN_S = 0.1, 120, 900
"""Share of the time limit, and its bounds in seconds, that is kept for start-up and for the checkpoint at the end."""


@immutable
class CheckpointRequest(CheckpointOptions, Checked, where="submit"):
    """The options of checkpoints and chains; None where one is not given."""

    def _check(self) -> None:
        if not 1 <= self.chain <= MAX_JOBS:
            raise UsageError(f"--chain: {self.chain} is no number of jobs from 1 to {MAX_JOBS}")
        if self.chain > 1 and self.save and self.load and real(self.save) != real(self.load):
            raise UsageError(
                f"--load: {self.load} is not --save {self.save}, and each job of a chain goes on where the one before has saved; give one of the two"
            )
        if self.save_interval is not None and not self.is_kept:
            raise UsageError("--save-interval: nothing is saved; add --save FOLDER or --chain N")

    @property
    def is_kept(self) -> bool:
        """Whether checkpoints are written."""
        return self.save is not None or self.chain > 1


def resumed(run: Run, checkpoints: CheckpointRequest) -> tuple[Run, CheckpointRequest]:
    """Return a recorded run without its checkpoint options, and `checkpoints` completed with those that it does not set itself.

    So a run.json whose job was given --save resumes with --load, and a longer time limit moves its last checkpoint.
    """
    earlier, kept, words = {}, [], iter(run.tuning.train_args)
    for word in words:
        option, equals, value = word.partition("=")
        if option in CHECKPOINT_OPTIONS:
            earlier[option] = value if equals else next(words, "")
        elif word != MUST_BE_THERE:
            kept.append(word)
    if not earlier:
        return run, checkpoints
    readers: dict[str, Any] = {"save": Path, "load": Path, "save_interval": int, "exit_interval": int}
    texts = {name: earlier.get(f"--{name.replace('_', '-')}") for name in readers}
    missing = {name: readers[name](text) for name, text in texts.items() if text and not getattr(checkpoints, name)}
    return replace(run, tuning=replace(run.tuning, train_args=tuple(kept))), replace(checkpoints, **missing)


def with_checkpoints(run: Run, run_dir: Path, checkpoints: CheckpointRequest) -> Run:
    """Return `run` with the trainer's options of checkpoints, and a chain's common name and dependency; raises UsageError for the same in --train-args."""
    if checkpoints == CheckpointRequest():
        return run
    given = [word for word in run.tuning.train_args if word.split("=")[0] in CHECKPOINT_OPTIONS]
    if given:
        raise UsageError(
            f"--train-args: {given[0]} is an option of `nlp-bench submit` where checkpoints are kept; give it there"
        )
    words = _words(run, run_dir, checkpoints)
    run = replace(run, tuning=replace(run.tuning, train_args=(*run.tuning.train_args, *words)))
    if checkpoints.chain == 1 or run.launch.launcher == LOCAL:
        return run
    own_name = f"{run.launch.job_name}-{hashlib.sha256(str(run_dir).encode()).hexdigest()[:6]}"
    return get_scheduler(run.launch.launcher).one_by_one(replace(run, launch=replace(run.launch, job_name=own_name)))


def _words(run: Run, run_dir: Path, checkpoints: CheckpointRequest) -> list[str]:
    common = checkpoints.save or checkpoints.load or run_dir / "checkpoints"
    save = (checkpoints.save or common) if checkpoints.is_kept else None
    load = (checkpoints.load or common) if checkpoints.chain > 1 else checkpoints.load
    pairs = {
        "--save": save and save.absolute(),
        "--load": load and load.absolute(),
        "--save-interval": checkpoints.save_interval,
        "--exit-interval": checkpoints.exit_interval,
        "--exit-duration-in-mins": _minutes(run.launch.limit_s) if checkpoints.is_kept else None,
    }
    keeps = {word.split("=")[0] for word in run.tuning.train_args} & {"--keep-checkpoints"}
    if checkpoints.chain > 1 and run.tuning.trainer == "nlp-bench" and not keeps:
        pairs["--keep-checkpoints"] = KEPT
    missing = [MUST_BE_THERE] if checkpoints.load and checkpoints.chain == 1 else []
    return [word for name, value in pairs.items() if value is not None for word in (name, str(value))] + missing


def _minutes(limit_s: float) -> float:
    """Return the minutes after which a job stops by itself: the time limit less a margin."""
    margin_s = min(max(MARGIN * limit_s, LEAST_MARGIN_S), MOST_MARGIN_S, limit_s / 2)
    minutes = (limit_s - margin_s) / 60
    return int(minutes) if minutes >= 10 else round(minutes, 2)


def check_checkpoint(run: Run, folder: Path | None) -> None:
    """Refuse at the terminal what the trainer would refuse in the job: no checkpoint in `folder`, one of another model, or of a training that is done.

    Without `folder` the one of --load in `train_args` is checked, which may be empty.
    """
    from nlp_bench.train.arguments import parse  # noqa: PLC0415  # 100 options: only where a checkpoint is named
    from nlp_bench.train.checkpoint import folder as saved  # noqa: PLC0415
    from nlp_bench.train.layout import Layout  # noqa: PLC0415

    if run.tuning.trainer != "nlp-bench":
        return  # Megatron-LM's own checkpoints have no record of ours
    settings = parse(training_arguments(run))
    if folder and saved.newest(folder) is None:
        raise UsageError(
            f"--load: {folder} holds no whole checkpoint ({saved.WHOLE}); name the folder that a run has saved to"
        )
    all_done = (saved.check_start if folder else saved.check_load)(settings, Layout.of(settings, run.parallel.num_gpus))
    if all_done is not None:
        raise UsageError(f"--load:{all_done.replace('--train-iters', '--iterations')}")


def check_save(run: Run) -> None:
    """Refuse at the terminal a folder of --save in which the trainer would refuse to begin."""
    from nlp_bench.train.arguments import parse  # noqa: PLC0415  # as above
    from nlp_bench.train.checkpoint import folder as saved  # noqa: PLC0415

    if run.tuning.trainer != "nlp-bench":
        return
    settings = parse(training_arguments(run))
    if settings.save and Path(settings.save).is_absolute():  # a relative one is below the run's folder, which is new
        saved.check_save(settings)


def query(scheduler: Scheduler, submission: Submission) -> Job | None:
    """Ask for the job that the run depends on now: one that runs, else one that waits, else the last one; None for no answer, or no job."""
    waiting = last = None
    for job_id in submission.job_ids:
        last = ours(scheduler.query(job_id), submission)
        if last is None or last.state in {State.RUNNING, State.ENDING}:  # those behind it wait for it
            return last
        if waiting is None and last.state is State.WAITING:
            waiting = last
    return waiting or last


def rest(scheduler: Scheduler, submission: Submission | None, own_id: str | None) -> list[str] | None:
    """Return the chain's other jobs that run or wait; None if the scheduler does not answer. `own_id` is the job that asks, None outside a job.

    For the last job of the chain there is none, without asking: all others have ended before it began.
    """
    known = submission.job_ids if submission else []
    if len(known) < 2 or known[-1] == own_id:
        return []
    others = [(job_id, ours(scheduler.query(job_id), submission)) for job_id in known if job_id != own_id]
    if any(job is None for _, job in others):
        return None
    return [job_id for job_id, job in others if job is not None and job.state in ACTIVE]
