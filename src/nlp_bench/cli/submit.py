"""Submit one run to Slurm (or run it here): writes the run's folder with run.json, job script and all that follows."""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.config.request import add_request_arguments
from nlp_bench.config.run import add_limit_arguments
from nlp_bench.config.values import UnlessDefault, size, switch

if TYPE_CHECKING:
    from nlp_bench.config.run import Run
    from nlp_bench.launch.chain import Wishes

EXAMPLE = "nlp-bench submit --model 175 --system juwels-booster --account PROJECT --print"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench submit`."""
    add_request_arguments(parser)
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FILE",
        help="a run.json of `check` or of an earlier run instead of the options above; those of the job alone (--timelimit, "
        "--queue, --account, --mem, --sbatch-arg, ...) may be given with it",
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="the run's folder (default: a new one in reports/runs)"
    )
    parser.add_argument(
        "--print", dest="show", action="store_true", help="print the job script; write and submit nothing"
    )
    parser.add_argument(
        "--rehearse", action="store_true",
        help="with --run and --run-dir: submit nothing, rehearse here and leave a row of JUBE's table (its tag rehearse)",
    )  # fmt: skip
    long = parser.add_argument_group("long trainings (a throughput run writes no checkpoints; see docs/checkpoints.md)")
    long.add_argument(
        "--chain",
        type=UnlessDefault(size),
        metavar="N",
        help="jobs in a row, each going on from the checkpoint of the one before",
    )
    long.add_argument(
        "--save", type=Path, metavar="FOLDER", help="write checkpoints there (default of a chain: RUN_DIR/checkpoints)"
    )
    long.add_argument(
        "--load", type=Path, metavar="FOLDER", help="go on from the newest checkpoint there, also with other --nodes"
    )
    long.add_argument(
        "--save-interval",
        type=UnlessDefault(size),
        metavar="N",
        help="optimizer steps between checkpoints (default: at a job's end only)",
    )
    long.add_argument(
        "--exit-interval",
        type=UnlessDefault(size),
        metavar="N",
        help="end each job after a step that N divides (default: before its time limit)",
    )
    add_limit_arguments(parser)
    parser.add_argument(
        "--snapshot-code",
        type=UnlessDefault(switch),
        nargs="?",
        const=True,
        metavar="true|false",
        help="copy the code into the run's folder: the job runs it as it is now, whatever becomes of the checkout while it waits",
    )
    parser.add_argument(
        "--no-follow", action="store_true", help="leave no background process that waits for the job's end"
    )


def run(options: argparse.Namespace) -> int:
    """Submit, or print or rehearse instead; return the exit code."""
    if options.rehearse:
        return _rehearse(options)
    return _show(options) if options.show else _submit(options)


def _show(options: argparse.Namespace) -> int:
    """Print the job script. No package is needed, so that it can be looked at before anything is set up."""
    from nlp_bench.config.catalog import has_workflow, root
    from nlp_bench.launch.arguments import check_arguments
    from nlp_bench.launch.chain import with_wishes
    from nlp_bench.launch.expected import foretell
    from nlp_bench.launch.folder import environment_folder, script_text
    from nlp_bench.launch.snapshot import folder_of

    resolved, wishes = _resolved(options)
    place = options.run_dir or root() / "reports" / "runs" / f"TIME_{resolved.model.name}_{resolved.system.name}"
    resolved = with_wishes(resolved, place.absolute(), wishes)
    check_arguments(resolved)  # printed to be submitted by hand: refused like one that is submitted
    _say(foretell(resolved, None))
    if has_workflow() and not (resolved.system.container.image or environment_folder(root()).exists()):
        remedy = f"bash benchmark/env/setup_venv.sh --system {resolved.system.name}"
        _say(
            [
                f"no virtual environment is set up here: the script calls the Python that printed it; before it is submitted: {remedy}"
            ]
        )
    code = folder_of(place.absolute()) if options.snapshot_code else None
    print(script_text(resolved, root=root(), run_dir=place.absolute(), code=code), end="")
    return 0


def _submit(options: argparse.Namespace) -> int:
    """Submit, and say where the run lies and what to type next."""
    from nlp_bench.config.catalog import root
    from nlp_bench.launch import folder, lock
    from nlp_bench.launch.chain import check_checkpoint, job_ids, with_wishes
    from nlp_bench.launch.end.ending import read_ending
    from nlp_bench.launch.expected import foretell
    from nlp_bench.launch.scheduler.local import Waiting, has_ended
    from nlp_bench.launch.submit import is_submitted, submit

    if options.run and options.run_dir and read_ending(options.run_dir):
        return _say_ended(options.run_dir, is_step=True)  # JUBE was interrupted behind the submission and asks again
    resolved, wishes = _resolved(options)
    folder.preflight(with_wishes(resolved, Path(), wishes), root())
    if wishes.load:
        check_checkpoint(with_wishes(resolved, Path(), wishes), wishes.load)
    folder.refuse_name(
        resolved, root(), options.run_dir or root() / "reports/runs", is_snapshot=bool(options.snapshot_code)
    )
    is_step = options.run is not None
    run_dir = folder.run_folder(root(), resolved, options.run_dir, recorded=options.run)
    with lock.held(run_dir, on_wait=Waiting(run_dir)) as handle:
        if has_ended(run_dir):  # another `submit` had the folder until now
            return _say_ended(run_dir, is_step=is_step)
        earlier = folder.read_submission(run_dir)
        if earlier and is_submitted(earlier):
            print(
                f"nlp-bench: {run_dir} was submitted at {earlier.get('submitted')}; nothing was submitted again",
                file=sys.stderr,
            )
            return _say_submitted(job_ids(earlier), run_dir)
        resolved = with_wishes(resolved, run_dir, wishes)
        print(f"nlp-bench: run folder {run_dir}", file=sys.stderr)
        script = folder.prepare(resolved, root=root(), run_dir=run_dir, is_snapshot=bool(options.snapshot_code))
        _say(foretell(resolved, run_dir))
        try:
            submitted = submit(resolved, script, follow=not options.no_follow, jobs=wishes.chain, lock=handle)
        except SystemExit:  # told to stop: for JUBE a run with an outcome is done, whatever the outcome
            _say_ended(run_dir, is_step=True)
            if options.run and read_ending(run_dir):
                return 0
            raise
    return _say_submitted(submitted, run_dir) if submitted else _say_ended(run_dir, is_step=is_step)


def _resolved(options: argparse.Namespace) -> "tuple[Run, Wishes]":
    """Return the run that is asked for or recorded, and what is wished of checkpoints."""
    from nlp_bench.config.request import Request, from_options
    from nlp_bench.config.resolve import for_another_job, resolve
    from nlp_bench.config.run import read_run, with_limits
    from nlp_bench.errors import UsageError
    from nlp_bench.launch.chain import Wishes, taken_up

    request, wishes = from_options(options), _wishes(options)
    if not options.run:
        run = resolve(request, ask_scheduler=not options.show)
    else:
        run = for_another_job(read_run(options.run), request)
        if wishes != Wishes() or request != Request():
            run, wishes = taken_up(run, wishes)
    run = replace(run, limits=with_limits(run.limits, options))
    if wishes.chain > 1 and run.limits.retries:
        raise UsageError("--retries: a chain goes on by itself after a lost job; give it more jobs instead (--chain)")
    return run, wishes


def _rehearse(options: argparse.Namespace) -> int:
    """Rehearse the run of JUBE's check step in the folder of its training step; options of long trainings change nothing."""
    from nlp_bench.config.run import read_run
    from nlp_bench.errors import UsageError
    from nlp_bench.launch.folder import writable_folder
    from nlp_bench.launch.rehearsal import rehearse

    if not (options.run and options.run_dir) or options.show:
        raise UsageError(
            "--rehearse: needs --run and --run-dir, and no --print; by hand it is: nlp-bench rehearse --model M --system S"
        )
    resolved = read_run(options.run)
    print(rehearse(resolved, options.run, writable_folder(options.run_dir)))
    return 0


def _say(lines: list[str]) -> None:
    for line in lines:
        print(f"nlp-bench: {line}", file=sys.stderr)


def _wishes(options: argparse.Namespace) -> "Wishes":
    from nlp_bench.launch.chain import Wishes

    return Wishes(
        chain=options.chain or 1,
        save=options.save,
        load=options.load,
        save_interval=options.save_interval,
        exit_interval=options.exit_interval,
    )


def _say_submitted(job_ids: list[str], run_dir: Path) -> int:
    word = shlex.quote(str(run_dir))
    for job_id in job_ids:
        print(f"Submitted batch job {job_id}")
    print(f"nlp-bench: next: nlp-bench watch {word}; nlp-bench measure {word}", file=sys.stderr)
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
