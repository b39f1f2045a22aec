"""The local backend: the job script runs here, in a session of its own, until it ends, its time limit or a wish to stop.

It ends with this process too, should that be killed: Linux tells the script (orphans.py), which writes down how it ended.
"""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.config.run import Run, read_run
from nlp_bench.config.scheduler import LOCAL, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import real
from nlp_bench.launch import ambient
from nlp_bench.launch.ambient import variables
from nlp_bench.launch.end.ending import DUE_TO_SIGNAL, OUT_OF_TIME, Ending, decide, read_ending, write_ending
from nlp_bench.launch.lock import POLL_S
from nlp_bench.launch.nodes.resources import VISIBLE
from nlp_bench.launch.submission import Submission, read_submission
from nlp_bench.orphans import ANCESTOR, STOPS, die_with_parent
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.terminal import say

GRACE_S = 30  # seconds that a stopped local run has to end by itself
OVERDUE = " DUE TO TIME LIMIT"
LAST_GRACE_S = 8  # seconds that the script of a killed `submit` has to write its last word


def train(run: Run, script: Path, *, chain: int, lock: int) -> None:
    """Run the script, as often as the chain has jobs; the outcome is written afterwards, whatever happened."""
    run_dir = script.parent
    own = get_scheduler(run.launch.launcher).allocation()  # that a person holds; on this machine alone there is none
    for left in reversed(range(chain)):
        submission = Submission(job_ids=[own.job_id] if own else [], parts_left=left)
        submission.write(run_dir)
        try:
            status = _run_here(run, script, submission, lock=lock)
        except SystemExit as stop:  # the script left it to the parts behind it
            name = signal.Signals(int(str(stop.code)) - 128).name.removeprefix("SIG")
            record_end(run, run_dir, exit_status=int(str(stop.code)), signal_name=name)
            raise
        if left == 0:
            record_end(run, run_dir, exit_status=status)
        if read_ending(run_dir) is not None:
            return


def _run_here(run: Run, script: Path, submission: Submission, *, lock: int) -> int:
    run_dir, own = script.parent, os.getpid()
    with (run_dir / "job.out").open("ab") as out, (run_dir / "job.err").open("ab") as err:
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=run_dir,
            env=_environment(run, own),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent=own),  # noqa: PLW1509  # no threads here
            pass_fds=(lock,),  # should this process be killed, the folder stays taken until the training has ended
        )
        with _forwarding(process, run_dir):
            try:
                replace(submission, script_pid=process.pid).write(run_dir)
            except NlpBenchError:  # a full disk: without the record nobody would keep the time limit
                _stop(process)
                raise
            limit_s, notice_s = run.launch.limit_s, run.limits.notice_s
            try:
                if notice_s:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return _swept(process, process.wait(timeout=max(0.0, limit_s - notice_s)))
                    process.send_signal(signal.SIGUSR1)  # to the script alone, as `sbatch --signal=B:USR1` does
                    limit_s = notice_s
                return _swept(process, process.wait(timeout=limit_s))
            except subprocess.TimeoutExpired:
                _notice(run_dir, OVERDUE)
                return _stop(process)


def _environment(run: Run, own: int) -> dict[str, str]:
    """Return the script's variables: of a scheduler's none in a local run, which is no job; in an allocation that a person holds all but those of another step.

    The script's programs end with the process `own`, but not those of a starter or in a container, whose numbers are others.
    """
    if run.launch.launcher != LOCAL:
        scheduler = get_scheduler(run.launch.launcher)
        return {**ambient.without(os.environ, scheduler.step_variables), **scheduler.in_own_allocation}
    outside = ambient.without(os.environ, ambient.of_jobs())
    return outside if run.system.container.image else {**outside, ANCESTOR: str(own)}


def gpus(run: Run) -> str | None:
    """Return a name for the GPUs of this machine that the run sees, the same for each run that sees the same ones; None for a run on CPUs."""
    if run.system.accelerator != "cuda":
        return None
    seen = variables(run.system, os.environ).get(VISIBLE) or os.environ.get(VISIBLE) or "all"
    return f"gpus-{hashlib.sha256(f'{socket.gethostname()} {seen}'.encode()).hexdigest()[:16]}"


def record_end(run: Run, run_dir: Path, *, exit_status: int | None, signal_name: str = "") -> None:
    """Write how the run ended, where its script could not."""
    if read_ending(run_dir) is None:
        ending = decide(run, run_dir, exit_status=exit_status, signal=signal_name)
        write_ending(run_dir, ending, exit_status=exit_status, job_id=None)


@contextlib.contextmanager
def _forwarding(process: "subprocess.Popen[bytes]", run_dir: Path) -> Iterator[None]:
    """End the run's whole process group when this process is asked to end; the outcome is then CANCELLED.

    A signal that says that the time is nearly over goes to the script, as a scheduler's would: the ranks may end well, and the
    outcome is TIMEOUT. A hang-up that is ignored (nohup) stays so.
    """
    near_end: list[int] = []

    def stop(number: int, _frame: object) -> None:
        _notice(run_dir, DUE_TO_SIGNAL + signal.Signals(number).name.removeprefix("SIG"))
        _stop(process)
        raise SystemExit(128 + number)

    def pass_on(number: int, _frame: object) -> None:
        near_end.append(number)
        said = f"nlp-bench: signal {signal.Signals(number).name}: the run is told that its time is nearly over\n"
        os.write(2, said.encode())
        process.send_signal(number)

    handlers = {
        **dict.fromkeys(STOPS, stop),
        **dict.fromkeys((getattr(signal, f"SIG{name}") for name in OUT_OF_TIME), pass_on),
    }
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, action in earlier.items():
            signal.signal(number, action)
    if near_end and read_ending(run_dir) is None:  # no further part of a chain begins
        raise SystemExit(128 + near_end[0])


def _notice(run_dir: Path, cause: str) -> None:
    """Write the notice that a scheduler would write."""
    with contextlib.suppress(OSError), (run_dir / "job.err").open("a", encoding="utf-8") as err:  # a full disk, say
        err.write(f"nlp-bench: *** JOB local CANCELLED AT {now()}{cause} ***\n")


def _swept(process: "subprocess.Popen[bytes]", status: int) -> int:
    """Return the script's exit status; what a script that was killed has left (an srun, say) is ended."""
    if status < 0:
        _stop(process)
    return status


def _stop(process: "subprocess.Popen[bytes]") -> int:
    """End the process group, and return the script's exit status."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=GRACE_S)
    return process.wait()


def lives(run_dir: Path, submission: Submission | None) -> bool:
    """Whether another process of a local run goes on here, by its number: the lock may be free because its file was deleted."""
    if submission is None or submission.comment or not submission.is_from_here or submission.pid == os.getpid():
        return False
    is_script = _command(submission.script_pid).endswith(str(real(run_dir) / "submit.job"))
    return is_script or " submit" in _command(submission.pid)


def killed_submit(submission: Submission | None) -> str | None:
    """Return the sentence on a local run of this machine whose `submit` is gone, None for any other."""
    if submission is None or submission.script_pid is None:
        return None
    if submission.host != socket.gethostname() and not submission.is_from_here:
        return None
    if " submit" in _command(submission.pid):
        return None
    return f"the launcher was killed, or could not write: nlp-bench submit (process {submission.pid}) ended before its training"


def with_killed_launcher(ending: Ending, submission: Submission | None) -> Ending:
    """Return `ending`, as FAILED where nobody but the death of `submit` has ended the run."""
    text = killed_submit(submission) if ending.outcome in {Outcome.CANCELLED, Outcome.UNKNOWN} else None
    return replace(ending, outcome=Outcome.FAILED, reasons=(Reason("killed-launcher", text),)) if text else ending


def has_ended(run_dir: Path, *, on_wait: Callable[[], None]) -> bool:
    """Whether the run has an outcome: a local one whose `submit` and script were both killed gets it here, under the folder's lock.

    Where one of them goes on, because the lock's file was deleted, `on_wait` is called until it has ended.
    """
    while lives(run_dir, submission := read_submission(run_dir)):
        on_wait()
        time.sleep(POLL_S)
    if read_ending(run_dir) is None and submission and killed_submit(submission) and not submission.parts_left:
        ending = with_killed_launcher(decide(read_run(run_dir), run_dir, exit_status=None), submission)
        write_ending(run_dir, ending, exit_status=None, job_id=None)
    return read_ending(run_dir) is not None


def waiting(run_dir: Path) -> Callable[[], None]:
    """Return what a `submit` does twice a second while another process holds the folder: say so, once, and end what an earlier one has left."""
    to_say = [f"{run_dir} is in use by an earlier submit; waiting for its end"]

    def look() -> None:
        while to_say:
            say(to_say.pop())
        end_left_script(run_dir)

    return look


def end_left_script(run_dir: Path) -> None:
    """End the script of a killed `submit` that has not ended by itself: it is stopped, or hangs in a file system."""
    with contextlib.suppress(NlpBenchError, OSError):
        submission = read_submission(run_dir)
        if not submission or submission.script_pid is None or not killed_submit(submission):
            return
        script_pid = submission.script_pid
        end = time.monotonic() + LAST_GRACE_S
        while _command(script_pid).endswith(str(run_dir / "submit.job")):
            if time.monotonic() > end:
                os.killpg(script_pid, signal.SIGKILL)
            time.sleep(0.2)


def _command(pid: object) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").rstrip()
    except OSError:
        return ""
