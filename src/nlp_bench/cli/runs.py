"""The steps of a run as JUBE and the job script call them, and following many runs: check, submit, launch, sync, watch, measure."""

import errno
import os
import shlex
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench import schemas, seal
from nlp_bench.cli.options import form, load_in_one_thread, poll_every, refuse_to_replace
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import argument, flag, given, option, spellings, value
from nlp_bench.config.request import CheckpointOptions, LimitOptions, Request, WatchOptions, from_options
from nlp_bench.config.run import Run, read_run, summary
from nlp_bench.config.scheduler import LOCAL, NoAnswerError, get_scheduler, scheduler_names
from nlp_bench.config.system import System
from nlp_bench.config.values import OneOf
from nlp_bench.errors import NlpBenchError, UsageError, dead_link, with_file
from nlp_bench.escape import one_line
from nlp_bench.files import SEEN_WITHIN_S, await_file, read_object, real, user_name, write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.outcome import Outcome
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.launch.chain import CheckpointRequest
    from nlp_bench.launch.nodes.torchrun import Rendezvous

MAX_REPEATS = 100
MACHINE = ("environment", "machine")  # values of --print that concern the machine alone, without a model


@immutable
class Check(Command, Request):
    """Resolve one run from data files, options and JUBE's tags, check its arithmetic and limits, and write run.json."""

    EXAMPLE = "nlp-bench check --model 175 --system juwels-booster --tp 8 --pp 8 --output ."

    jube_run: Path | None = value(metavar="DIR")  # Folder of a JUBE run, whose tags are applied.
    recorded: Path | None = value("--run", metavar="FILE")
    """With --print environment or machine: take the system of this run.json."""
    tags: tuple[str, ...] = value(nargs="*", default=(), metavar="TAG")  # Tags as JUBE takes them: 175 slurm.
    repeats: str = value(default="1", metavar="N", jube="repeats")
    """Runs of each point, each a job of its own (by JUBE alone: `submit` starts one run, call it once for each); refused unless it is a number from 1 to 100."""
    offline: bool = flag()  # Ask no Slurm: check a run of another machine.
    output: Path | None = value(metavar="DIR")  # Write run.json into this folder.
    what: str = value("--print", read=OneOf("summary", *MACHINE), default="summary", metavar="WHAT")
    """What goes to stdout: summary (the resolved run); environment: the shell lines that load the system's software; machine, for the
    set-up script: cuda or cpu, whether the site's Python packages are seen, and those shell lines."""

    def run(self) -> int:
        from nlp_bench.config.catalog import find, here, load_model, root
        from nlp_bench.config.resolve import resolve, resolve_system
        from nlp_bench.launch.arguments import check_arguments
        from nlp_bench.launch.chain import check_checkpoint, check_save
        from nlp_bench.launch.folder import record_folder
        from nlp_bench.launch.nodes.torchrun import program_words
        from nlp_bench.launch.prediction import cautions, prediction
        from nlp_bench.launch.script import job_script

        if self.repeats not in map(str, range(1, MAX_REPEATS + 1)):  # 05 would be no number in JUBE's template
            raise UsageError(
                f"repeats: {self.repeats[:40]!r} is no whole number from 1 to {MAX_REPEATS}; 5 runs are usual"
            )
        request, is_rehearsal = self.request()
        if self.recorded and self.what == "summary":
            raise UsageError("--run: a run.json is resolved already; it goes with --print environment or machine")
        if self.what != "summary":  # these need the machine only: a login node may set up software for any model
            print(self._machine(read_run(self.recorded).system if self.recorded else resolve_system(request)))
            return 0
        # Without --output nothing will run here, and a named system may be checked where no Slurm answers.
        may_be_elsewhere = bool(request.system and not request.launcher and not self.output)
        is_elsewhere = may_be_elsewhere and not _scheduler_answers(str(request.system))
        resolved = resolve(request, ask_scheduler=not (self.offline or is_rehearsal or is_elsewhere))
        check_arguments(resolved)
        check_checkpoint(resolved, None)
        check_save(resolved)
        program_words(resolved)  # raises for what the other trainer cannot do
        place = self.output or next(iter(here()), root())
        job_script(resolved, root=root(), run_dir=place.absolute())  # raises for what no script can hold
        if self.output:
            resolved.write(record_folder(self.output, "run.json", schemas.RUN))
        model = request.model or resolved.model.name
        print(summary(resolved, load_model(model).defaults.global_batch_size))
        system = request.system or os.environ.get("NLP_BENCH_SYSTEM") or resolved.system.name
        print(f"files   {find('models', model)}, {find('systems', system)}")
        if resolved.system.accelerator == "cuda":
            found = prediction(resolved)
            print(f"plan    {found if isinstance(found, str) else found.line()}")
            if not isinstance(found, str):
                say(*cautions(resolved, found))
        if is_elsewhere and resolved.launch.launcher != LOCAL and not self.offline:
            title = get_scheduler(resolved.launch.launcher).title
            say(f"no {title} answers here: partition, nodes and time limit were not asked for")
        say(*(f"warning: {deviation}: not the benchmark" for deviation in resolved.deviations))
        return 0

    def request(self) -> tuple[Request, bool]:
        """Return the request of the options and, under JUBE, of the tags, and whether it is to be rehearsed only."""
        from nlp_bench.config import resolve

        if self.jube_run:
            resolve.refuse_other_parameters()
            resolve.refuse_repeated_parameters()
            resolve.refuse_unused(self.jube_run, {**_parameters(Check), **_parameters(Submit)})
        tags = resolve.read_tags(self.jube_run) if self.jube_run else list(self.tags)
        request = resolve.apply_tags(from_options(self), tags)
        return (resolve.for_rehearsal(request), True) if resolve.REHEARSE in tags else (request, False)

    def _machine(self, system: System) -> str:
        from nlp_bench.config import machine
        from nlp_bench.launch.script import software_lines

        lines = software_lines(system)
        if self.what == "machine":
            lines = [machine.settle(system)[0], "yes" if system.software.system_site_packages else "no", *lines]
        return "\n".join(lines)


def _parameters(kind: type) -> dict[str, str]:
    """Return JUBE's parameters of a command, by all names of their options."""
    of_jube = {one.name: one.metadata["jube"] for one in fields(kind) if one.metadata.get("jube")}
    return {word[2:].replace("-", "_"): of_jube[name] for name in of_jube for word in spellings(kind, name)}


def _scheduler_answers(system: str) -> bool:
    """Whether a scheduler answers for the checked system; False for a system without one."""
    from nlp_bench.config.catalog import load_system

    launcher = load_system(system).launcher
    try:
        return launcher != LOCAL and get_scheduler(launcher).detect() is not None
    except NoAnswerError:
        return False


@immutable
class Submit(Command, LimitOptions, CheckpointOptions, Request):
    """Submit one run to Slurm (or run it here): writes the run's folder with run.json, job script and all that follows.

    Exit code 0 once it is submitted, or has ended here as VALID; 1 when it could not be submitted or ended otherwise, 2 for a wrong word.
    """

    EXAMPLE = "nlp-bench submit --model 175 --system juwels-booster --account PROJECT --print"

    recorded: Path | None = value("--run", metavar="FILE")
    """A run.json of `check` or of an earlier run instead of the options above; those of the job alone (--timelimit, --queue, --account,
    --mem, --sbatch-arg, ...) may be given with it."""
    run_dir: Path | None = value(metavar="DIR")  # The run's folder (default: a new one in reports/runs).
    again: bool = flag()
    """With --run-dir: a finished run there is moved to DIR.1 (DIR.2, ...), and this one takes its place."""
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
        from nlp_bench.launch.folder import snapshot_folder
        from nlp_bench.launch.prediction import warnings_of
        from nlp_bench.launch.script import environment_folder, job_script

        resolved, checkpoints = self._resolved()
        place = self.run_dir or root() / "reports" / "runs" / f"TIME_{resolved.model.name}_{resolved.system.name}"
        place = place.absolute()
        resolved = with_checkpoints(resolved, place, checkpoints)
        check_arguments(resolved)  # printed to be submitted by hand: refused like one that is submitted
        say(*warnings_of(resolved, None, jobs=checkpoints.chain))
        if has_workflow() and not (resolved.system.container.image or environment_folder(root()).exists()):
            remedy = f"bash benchmark/env/setup_venv.sh --system {shlex.quote(self.system or resolved.system.name)}"
            say(
                f"no virtual environment is set up here: the script calls the Python that printed it; before it is submitted: {remedy}"
            )
        code = snapshot_folder(place) if self.snapshot_code else None
        print(job_script(resolved, root=root(), run_dir=place, code=code), end="")
        return 0

    def _submit(self) -> int:
        load_in_one_thread()
        from nlp_bench.config.catalog import root
        from nlp_bench.launch import folder, lock
        from nlp_bench.launch.chain import check_checkpoint, check_save, with_checkpoints
        from nlp_bench.launch.end.ending import read_ending
        from nlp_bench.launch.follow.sync import state_elsewhere
        from nlp_bench.launch.prediction import warnings_of
        from nlp_bench.launch.scheduler.local import has_ended, waiting
        from nlp_bench.launch.submission import read_submission
        from nlp_bench.launch.submit import submit
        from nlp_bench.marker import forget_measured

        is_step, is_snapshot = self.jube_step, bool(self.snapshot_code)
        if self.recorded and self.run_dir and not self.again and read_ending(self.run_dir):
            # JUBE was interrupted behind the submission and asks again; a person may mean another run.
            return _say_ended_before(self.run_dir, is_step=is_step)
        resolved, checkpoints = self._resolved()
        folder.preflight(with_checkpoints(resolved, Path(), checkpoints), root(), self.system)
        names_folder = checkpoints.load or checkpoints.save  # else a chain's is in the folder of the run, which is new
        wished = with_checkpoints(resolved, Path(), checkpoints) if names_folder else resolved
        if checkpoints.load or not self.recorded:
            # A recorded run was checked before, and may be submitted again behind its end.
            check_checkpoint(wished, checkpoints.load)
        if not (self.run_dir and read_submission(self.run_dir)):  # else it may be its own job that has saved
            check_save(wished)
        folder.refuse_name(resolved, root(), self.run_dir or root() / "reports/runs", is_snapshot=is_snapshot)
        run_dir = folder.run_folder(root(), resolved, self.run_dir, recorded=self.recorded, again=self.again)
        wait = waiting(run_dir)
        with lock.held(run_dir, on_wait=wait) as handle:
            if has_ended(run_dir, on_wait=wait):  # another `submit` had the folder until now
                return _say_ended_before(run_dir, is_step=is_step)
            earlier = read_submission(run_dir)
            if earlier and earlier.is_complete:
                say(f"{run_dir} was submitted at {earlier.submitted}; nothing was submitted again")
                return _say_submitted(earlier.job_ids, run_dir)
            if earlier and not earlier.is_intent and (state := state_elsewhere(run_dir, earlier)):
                raise NlpBenchError(
                    f"{run_dir} is {state} as far as can be seen from here; let it end there, or name a new folder"
                )
            if is_step and not earlier:
                forget_measured(run_dir)
            resolved = with_checkpoints(resolved, run_dir, checkpoints)
            say(f"run folder {run_dir}")
            script = folder.prepare(resolved, root=root(), run_dir=run_dir, is_snapshot=is_snapshot)
            say(*warnings_of(resolved, run_dir, jobs=checkpoints.chain))
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
        from nlp_bench.config.resolve import as_recorded, for_another_job, resolve
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


def _say_ended_before(run_dir: Path, *, is_step: bool) -> int:
    say(f"this run ended at {one_line(read_object(run_dir / seal.OUTCOME).get('ended'))}; nothing was started")
    return _say_ended(run_dir, is_step=is_step)


def _say_ended(run_dir: Path, *, is_step: bool) -> int:
    """Print the outcome; return 1 where it is not VALID, unless this is a step of JUBE, which goes on to the table."""
    from nlp_bench.launch.end.advice import advice
    from nlp_bench.launch.end.ending import read_ending

    ending = read_ending(run_dir)
    if ending is None:
        return 1
    print(ending.text())
    print(advice(ending, run_dir).what_now(), file=sys.stderr)
    return 0 if is_step or ending.outcome is Outcome.VALID else 1


@immutable
class Launch(Command):
    """Start torchrun with this node's ranks of one run; the job script starts one such process per node."""

    EXAMPLE = "srun --ntasks-per-node=1 nlp-bench launch RUN_DIR"

    run_dir: Path = argument("RUN_DIR")  # Folder with run.json.
    addresses: bool = flag()  # Print the addresses of the job's nodes instead.
    port: bool = flag()  # Print a free port of this node for the ranks to meet at instead.
    again: int | None = value(read=int, metavar="STATUS")
    """Say by exit code 0 whether srun, which has ended with this status, is to be called once more instead."""
    elapsed: int = value(read=int, default=0, metavar="SECONDS")  # With --again: how long the job has been running.
    show: bool = flag("--print")  # Print the torchrun command instead of starting it.

    def run(self) -> int:
        """Start this node's recorder and torchrun, and supervise both to their end; return torchrun's exit status."""
        from nlp_bench.launch import starts
        from nlp_bench.launch.folder import refuse_importable
        from nlp_bench.launch.nodes import torchrun
        from nlp_bench.orphans import die_with_parent

        starts_ranks = not (self.addresses or self.port or self.show)
        if starts_ranks:
            die_with_parent()  # first of all: a script that was killed by now does not wait for the training
        run_dir = real(self.run_dir)
        in_job = any(os.environ.get(get_scheduler(name).job_id_variable) for name in scheduler_names())
        if in_job and not await_file(run_dir / "run.json"):
            raise NlpBenchError(
                f"{run_dir}/run.json is not seen on {os.uname().nodename} within {SEEN_WITHIN_S:.0f} s: its file system shows it late, or not at all, or the "
                "container was not given it (its mounts); submit it again where it is there"
            )
        resolved = read_run(run_dir)
        if self.again is not None:
            return int(not starts.once_more(resolved, run_dir, exit_status=self.again, elapsed_s=self.elapsed))
        if starts_ranks:
            starts.claim(resolved, run_dir)
        sealed = "" if self.show else seal.refuse_changed(run_dir)
        refuse_importable(run_dir)
        if (starts_ranks or self.addresses) and (run_dir / "outcome.json").exists():
            # requeued by hand, or by Slurm after the run was given up; or typed by a person, whose start would replace its records
            raise NlpBenchError(
                f"{run_dir} holds a run that has ended (outcome.json); nothing is trained in it again; "
                f"a new run of the same: nlp-bench submit --run {shlex.quote(str(run_dir / 'run.json'))}"
            )
        own = get_scheduler(resolved.launch.launcher).allocation()
        if own and (starts_ranks or self.addresses):
            _refuse_second_job(run_dir, own.job_id)
        if self.addresses:
            print(" ".join(torchrun.addresses(resolved)))
            return 0
        if self.port:
            wanted = torchrun.port_of(own.job_id if own else "0", run_dir)
            print(torchrun.free_port(wanted, (torchrun.FIRST_PORT, torchrun.NUM_PORTS)))
            return 0
        rendezvous = torchrun.rendezvous_of(resolved)
        command = torchrun.torchrun_command(resolved, rendezvous, run_dir)
        if self.show:
            print(shlex.join(command))
            return 0
        return _train(resolved, run_dir, rendezvous, command, sealed)


def _refuse_second_job(run_dir: Path, job_id: str) -> None:
    """Refuse a job that a person has submitted in the folder of a run whose own job waits or runs: two trainings would be in one log."""
    from nlp_bench.launch.once import live_beside
    from nlp_bench.launch.submission import asked_scheduler, read_submission

    try:
        submission = read_submission(run_dir)
    except NlpBenchError:  # a damaged record, of which every other command tells
        return
    live = live_beside(asked_scheduler(run_dir, submission), submission, job_id) if submission else None
    if live:
        raise NlpBenchError(
            f"job {live} waits or runs in {run_dir}; this job ({job_id}) was not submitted by nlp-bench, and trains nothing; "
            f"another run of the same: nlp-bench submit --run {shlex.quote(str(run_dir / 'run.json'))}"
        )


def _train(resolved: "Run", run_dir: Path, rendezvous: "Rendezvous", command: list[str], sealed: str) -> int:
    from nlp_bench.build.environment import build_environment, build_warning
    from nlp_bench.config.catalog import root
    from nlp_bench.launch import ambient
    from nlp_bench.launch.nodes.supervise import supervise
    from nlp_bench.launch.nodes.torchrun import check_rendezvous, rank_environment, write_launched
    from nlp_bench.machine.recorder import start_recorder
    from nlp_bench.packages import is_of_pythonpath

    if is_of_pythonpath("numpy"):  # another Python's is named here, where torchrun would end with a traceback
        import numpy  # noqa: F401, ICN001

    check_rendezvous(rendezvous)
    foreign = ambient.taken_out(os.environ, ambient.OF_RANKS, resolved.system.environment)
    for name in foreign:  # of torchrun's, and not from the system file: it would change what run.json says
        del os.environ[name]
    environment = {**rank_environment(resolved, build_environment(root())), seal.VARIABLE: sealed}
    if rendezvous.is_host:
        if foreign:
            say(ambient.message(foreign))
        if warning := build_warning(environment):
            print(warning, flush=True)
        write_launched(run_dir, command, environment, resolved.data.path, taken_out=foreign)
    os.chdir(run_dir)
    start_recorder(resolved, run_dir)
    watches = "NLP_BENCH_NODES" in os.environ and rendezvous.is_host  # by hand, the log is a terminal
    return supervise(command, {**os.environ, **environment}, resolved, run_dir, watches=watches)


@immutable
class Sync(Command):
    """Decide how runs ended (from Slurm, exit status and log) and leave outcome.json and JUBE's marker `ready`.

    Exit code 0, whatever the outcomes; 1 when there is no run, or one cannot be decided for a fault of its records.
    """

    EXAMPLE = "nlp-bench sync benchmark/jube/nlp_benchmark_run"

    paths: tuple[Path, ...] = argument("DIR", nargs="+", read=Path)  # Run folder, or any folder above run folders.
    exit_status: int | None = value(read=int)  # Exit status of the job (given by the job script).
    signal: str = value(default="", metavar="NAME")  # The signal that told it to stop (likewise).
    elapsed: int | None = value(read=int, metavar="SECONDS")  # How long it took, from begin to end (likewise).
    wait: bool = flag()  # Poll until every run has ended.
    every: float = poll_every(60.0, "with --wait: longest time between two looks (60)")

    def run(self) -> int:
        load_in_one_thread()  # a lost run may be submitted again
        from nlp_bench.launch.end.advice import short
        from nlp_bench.launch.follow.runs import find_runs
        from nlp_bench.launch.follow.sync import sync, sync_script, wait

        if self.exit_status is not None:  # the job script reports its own run, recorded or not
            ending, state = sync_script(
                self.paths[0], exit_status=self.exit_status, signal=self.signal, elapsed_s=self.elapsed
            )
            print(f"{self.paths[0]}: {ending.text() if ending else state}")
            return 0
        folders = find_runs(self.paths)
        if not folders:
            say(f"no run.json of a submitted run below {' '.join(map(str, self.paths))}")
            return 1
        num_faults = 0
        for folder in folders:
            try:
                ending = wait(folder, poll_s=self.every) if self.wait else None
                ending, state = (ending, "ended") if ending else sync(folder)
            except (NlpBenchError, OSError) as error:  # one damaged folder must not hide the others
                say(f"error: {with_file(error, folder)}")
                num_faults += 1
                continue
            print(f"{one_line(folder)}: {ending.text() if ending else state}")
            if ending and ending.outcome is not Outcome.VALID:
                print(f"  {short(ending, folder)}", file=sys.stderr)
        return 1 if num_faults else 0


@immutable
class Watch(Command, WatchOptions):
    """Show how far runs are (queue reason, iteration, tokens per second, time left) until all of them have ended.

    Exit code 0 when every run is VALID; 3 when --max-hours are over before, else 1.
    """

    EXAMPLE = """nlp-bench watch benchmark/jube/nlp_benchmark_run
  nlp-bench watch benchmark/jube/nlp_benchmark_run/000003 --continue --max-hours 24"""

    paths: tuple[Path, ...] = argument("DIR", nargs="+", read=Path)  # Run folder, or any folder above run folders.
    every: float = poll_every(5.0, "time between two looks (5)")
    format: str = form("lines", "json", text="lines on stderr, or one JSON record per change on stdout (default lines)")

    def run(self) -> int:
        """Print a line per run whenever it has moved; return 0 when every run is VALID, 3 when the hours are over before, else 1."""
        load_in_one_thread()  # JUBE may train here
        from nlp_bench.launch.follow.watch import watch
        from nlp_bench.measure.anytime import percent

        if self.until is not None:
            percent("--until", self.until)
        for folder in self.paths if self.while_pid is None and not self.new else ():
            if not folder.exists():
                what = dead_link(folder) or f"{folder} does not exist"
                raise UsageError(f"DIR {what}; give a run folder, or a folder above run folders")
        return watch(list(self.paths), self, every_s=self.every, as_json=self.format == "json")


@immutable
class Measure(Command):
    """Turn one run's log into result.json and metrics.txt. Exit code 0 once both are written, however the run ended."""

    EXAMPLE = "nlp-bench measure nlp_benchmark_run/000000/000003_train/work"

    run_dir: Path = argument("RUN_DIR")  # Folder with run.json, outcome.json and job.out.
    metrics: Path | None = value(metavar="FILE")  # Where the lines for JUBE go (default RUN_DIR/metrics.txt).

    def run(self) -> int:
        load_in_one_thread()  # a run that has not ended is followed, as in sync
        from nlp_bench.launch.end.advice import advice
        from nlp_bench.launch.end.ending import Ending
        from nlp_bench.launch.end.log_facts import read_record
        from nlp_bench.measure import REPORT_TOKENS
        from nlp_bench.measure.folder import metrics_text, result_record
        from nlp_bench.report.answer import answer_lines, answer_of
        from nlp_bench.rules.apply import measured_folder, wanted
        from nlp_bench.seal import LOG, log_missing

        folder = self.run_dir
        if not folder.is_dir():
            raise UsageError(f"RUN_DIR {folder} is no folder; give the folder that holds run.json")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise NlpBenchError(
                f"cannot read {folder}: {os.strerror(errno.EACCES)}; it belongs to {user_name(folder.stat().st_uid)}, who may "
                "measure it or open it to you"
            )
        if not os.access(folder, os.W_OK):  # no option names another place for it
            why = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
            raise NlpBenchError(
                f"cannot write {folder / 'result.json'}: {os.strerror(why)}; the same numbers without that file: nlp-bench report "
                + shlex.quote(str(folder))
            )
        if self.metrics == Path("-"):
            raise UsageError(
                "--metrics -: the lines go to standard output anyway; name a file, or leave the option out"
            )
        refuse_to_replace("--metrics", self.metrics, mark=b"outcome: ")
        not_ended = _not_ended(folder)
        if not_ended is not None:
            again = ["nlp-bench", "measure", str(folder), *(["--metrics", str(self.metrics)] if self.metrics else [])]
            not_ended["reasons"] += [f"when it has ended: {shlex.join(again)} and then jube result -a"]
            say(f"{folder}: {'; '.join(not_ended['reasons'])}")
        else:
            _await_log(folder)
        measured = measured_folder(folder, source="job.out", ended=not_ended, rules=wanted(None))
        result = folder / "result.json"
        if not_ended is None and result.exists() and (log_missing(folder) or not (folder / LOG).exists()):
            say(f"{result} stays: {LOG}, from which it was measured, is not there or not whole")
        elif not_ended is None:
            write_json(result, result_record(measured))
        script = read_record(folder, measured.ended.get("job_id"))
        text = metrics_text(measured, job_elapsed_s=script.elapsed_s if script else None)
        write_text(self.metrics or folder / "metrics.txt", text)
        print(text, end="")
        entry = measured.entry
        if not_ended is None:
            answer = answer_of(replace(entry, source=str(folder)), REPORT_TOKENS)
            print("", *answer_lines(answer), sep="\n")
        if not_ended is None and entry.outcome is not Outcome.VALID:
            ending = Ending(outcome=entry.outcome, reasons=entry.reasons, evidence=measured.ended.get("evidence"))
            print(advice(ending, folder).text(), file=sys.stderr)
        return 0


LOG_WAIT_S = 60.0
"""Seconds for which `measure` waits for the end of a log that another machine has written: a network file system shows it late."""


def _await_log(folder: Path) -> None:
    end, said = time.monotonic() + LOG_WAIT_S, False
    while (missing := seal.log_missing(folder)) and time.monotonic() < end:
        if not said:
            say(f"{folder}: {missing}; waiting up to {LOG_WAIT_S:.0f} s for the rest to be seen from here")
        said = True
        time.sleep(1.0)


def _not_ended(folder: Path) -> dict[str, Any] | None:
    """Return a substitute for outcome.json where a marker that nlp-bench did not write led JUBE here before the run's end.

    None where the run has ended (its end is decided here if need be), and where there is no such marker. Such a run is a row without
    a number until it is measured again.
    """
    from nlp_bench.launch.follow.sync import sync
    from nlp_bench.marker import is_bare

    if not is_bare(folder):
        return None
    ending, state = sync(folder)
    if ending is not None:
        return None
    reason = f"the run has not ended ({state}); its marker `ready` was not written by nlp-bench and is removed"
    return {"schema": schemas.OUTCOME, "outcome": "UNKNOWN", "reasons": [reason], "evidence": None, "exit_status": None}
