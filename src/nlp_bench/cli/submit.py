"""Submit one run to Slurm (or run it here), print its job script, or rehearse it in the place of a job."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import load_in_one_thread, say
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import flag, option, value
from nlp_bench.config.request import CheckpointOptions, LimitOptions, Request, from_options
from nlp_bench.immutable import immutable

if TYPE_CHECKING:
    from nlp_bench.config.run import Run
    from nlp_bench.launch.chain import CheckpointRequest


@immutable
class Submit(Command, LimitOptions, CheckpointOptions, Request):
    """Submit one run to Slurm (or run it here): writes the run's folder with run.json, job script and all that follows."""

    EXAMPLE = "nlp-bench submit --model 175 --system juwels-booster --account PROJECT --print"

    recorded: Path | None = value("--run", metavar="FILE")
    """A run.json of `check` or of an earlier run instead of the options above; those of the job alone (--timelimit, --queue, --account,
    --mem, --sbatch-arg, ...) may be given with it."""
    run_dir: Path | None = value(metavar="DIR")  # The run's folder (default: a new one in reports/runs).
    show: bool = flag("--print")  # Print the job script; write and submit nothing.
    rehearse: bool = flag()
    """With --run and --run-dir: submit nothing, rehearse here and leave a row of JUBE's table (its tag rehearse)."""
    snapshot_code: bool = option(jube="snapshot_code")
    """Copy the code into the run's folder: the job runs it as it is now, whatever becomes of the checkout while it waits."""
    no_follow: bool = flag()  # Leave no background process that waits for the job's end.
    jube_step: bool = flag(hidden=True)  # JUBE's step goes on to the table, whatever the outcome: 0

    def run(self) -> int:
        if self.rehearse:
            return self._rehearse()
        return self._show() if self.show else self._submit()

    def _show(self) -> int:
        """Print the job script. No package is needed, so that it can be looked at before anything is set up."""
        from nlp_bench.config.catalog import has_workflow, root
        from nlp_bench.launch.arguments import check_arguments
        from nlp_bench.launch.chain import with_checkpoints
        from nlp_bench.launch.folder import environment_folder, script_text
        from nlp_bench.launch.prediction import warnings_of
        from nlp_bench.launch.snapshot import folder_of

        resolved, checkpoints = self._resolved()
        place = self.run_dir or root() / "reports" / "runs" / f"TIME_{resolved.model.name}_{resolved.system.name}"
        place = place.absolute()
        resolved = with_checkpoints(resolved, place, checkpoints)
        check_arguments(resolved)  # printed to be submitted by hand: refused like one that is submitted
        say(*warnings_of(resolved, None))
        if has_workflow() and not (resolved.system.container.image or environment_folder(root()).exists()):
            remedy = f"bash benchmark/env/setup_venv.sh --system {shlex.quote(self.system or resolved.system.name)}"
            say(
                f"no virtual environment is set up here: the script calls the Python that printed it; before it is submitted: {remedy}"
            )
        code = folder_of(place) if self.snapshot_code else None
        print(script_text(resolved, root=root(), run_dir=place, code=code), end="")
        return 0

    def _submit(self) -> int:
        """Submit, and report the run's folder and what to type next."""
        load_in_one_thread()
        from nlp_bench.config.catalog import root
        from nlp_bench.errors import NlpBenchError
        from nlp_bench.launch import folder, lock
        from nlp_bench.launch.chain import check_checkpoint, with_checkpoints
        from nlp_bench.launch.end.ending import read_ending
        from nlp_bench.launch.follow.sync import far_state
        from nlp_bench.launch.prediction import warnings_of
        from nlp_bench.launch.scheduler.local import has_ended, waiting
        from nlp_bench.launch.submission import read_submission
        from nlp_bench.launch.submit import submit
        from nlp_bench.marker import forget_measured

        is_step, is_snapshot = self.jube_step, bool(self.snapshot_code)
        if self.recorded and self.run_dir and read_ending(self.run_dir):
            # JUBE was interrupted behind the submission and asks again.
            return _say_ended(self.run_dir, is_step=is_step)
        resolved, checkpoints = self._resolved()
        folder.preflight(with_checkpoints(resolved, Path(), checkpoints), root(), self.system)
        if checkpoints.load or not self.recorded:
            # A recorded run was checked before, and may be submitted again behind its end.
            wished = with_checkpoints(resolved, Path(), checkpoints) if checkpoints.load else resolved
            check_checkpoint(wished, checkpoints.load)
        folder.refuse_name(resolved, root(), self.run_dir or root() / "reports/runs", is_snapshot=is_snapshot)
        run_dir = folder.run_folder(root(), resolved, self.run_dir, recorded=self.recorded)
        with lock.held(run_dir, on_wait=waiting(run_dir)) as handle:
            if has_ended(run_dir):  # another `submit` had the folder until now
                return _say_ended(run_dir, is_step=is_step)
            earlier = read_submission(run_dir)
            if earlier and earlier.is_complete:
                say(f"{run_dir} was submitted at {earlier.submitted}; nothing was submitted again")
                return _say_submitted(earlier.job_ids, run_dir)
            if earlier and not earlier.is_intent and (state := far_state(run_dir, earlier)):
                raise NlpBenchError(
                    f"{run_dir} is {state} as far as can be seen from here; let it end there, or name a new folder"
                )
            if is_step and not earlier:
                forget_measured(run_dir)
            resolved = with_checkpoints(resolved, run_dir, checkpoints)
            say(f"run folder {run_dir}")
            script = folder.prepare(resolved, root=root(), run_dir=run_dir, is_snapshot=is_snapshot)
            say(*warnings_of(resolved, run_dir))
            try:
                submitted = submit(resolved, script, follow=not self.no_follow, jobs=checkpoints.chain, lock=handle)
            except SystemExit:  # told to stop: for JUBE a run with an outcome is done, whatever the outcome
                _say_ended(run_dir, is_step=True)
                if is_step and read_ending(run_dir):
                    return 0
                raise
        return _say_submitted(submitted, run_dir) if submitted else _say_ended(run_dir, is_step=is_step)

    def _resolved(self) -> "tuple[Run, CheckpointRequest]":
        """Return the run that is asked for or recorded, and what is wished of checkpoints."""
        from nlp_bench.config.options import given
        from nlp_bench.config.resolve import as_recorded, for_another_job, resolve
        from nlp_bench.config.run import read_run
        from nlp_bench.errors import UsageError
        from nlp_bench.launch.chain import CheckpointRequest, resumed

        request = from_options(self)
        checkpoints = CheckpointRequest(**given(self, CheckpointOptions))
        if not self.recorded:
            run = resolve(request, ask_scheduler=not self.show)
        else:
            recorded = read_run(self.recorded)
            run = for_another_job(as_recorded(recorded), request)
            added = [one for one in run.deviations if one not in recorded.deviations]
            say(*(f"warning: {self.recorded}: {one}: not the benchmark, which it did not say" for one in added))
            if checkpoints != CheckpointRequest() or request != Request():
                run, checkpoints = resumed(run, checkpoints)
        run = replace(run, limits=replace(run.limits, **given(self, LimitOptions)))
        if checkpoints.chain > 1 and run.limits.retries:
            raise UsageError(
                "--retries: a chain goes on by itself after a lost job; give it more jobs instead (--chain)"
            )
        return run, checkpoints

    def _rehearse(self) -> int:
        """Rehearse the run of JUBE's check step in the folder of its training step; options of long trainings change nothing."""
        from nlp_bench.config.run import read_run
        from nlp_bench.errors import UsageError
        from nlp_bench.launch.folder import writable_folder
        from nlp_bench.launch.jube_rehearsal import rehearse

        if not (self.recorded and self.run_dir) or self.show:
            raise UsageError(
                "--rehearse: needs --run and --run-dir, and no --print; by hand it is: nlp-bench rehearse --model M --system S"
            )
        print(rehearse(read_run(self.recorded), self.recorded, writable_folder(self.run_dir)))
        return 0


def _say_submitted(job_ids: list[str], run_dir: Path) -> int:
    word = shlex.quote(str(run_dir))
    for job_id in job_ids:
        print(f"Submitted batch job {job_id}")
    say(f"next: nlp-bench watch {word}; nlp-bench measure {word}")
    return 0


def _say_ended(run_dir: Path, *, is_step: bool) -> int:
    """Print the outcome; return 1 where it is not VALID, unless this is a step of JUBE, which goes on to the table."""
    from nlp_bench.launch.end.advice import advice
    from nlp_bench.launch.end.ending import read_ending
    from nlp_bench.outcome import Outcome

    ending = read_ending(run_dir)
    if ending is None:
        return 1
    print(ending.text())
    print(advice(ending, run_dir).what_now(), file=sys.stderr)
    return 0 if is_step or ending.outcome is Outcome.VALID else 1
