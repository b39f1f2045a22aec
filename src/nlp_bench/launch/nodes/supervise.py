"""One node's torchrun under watch: it ends with this process, whatever ends either, and a training that stands still is ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.launch.arguments import STOP_WORD, training_arguments
from nlp_bench.launch.nodes.ranks import Ranks, children
from nlp_bench.launch.nodes.stall import LogWatch
from nlp_bench.orphans import ANCESTOR, die_with_parent

POLL_S = 0.5
FORWARD_S = 2.0
"""Seconds after which a signal goes on to torchrun: Slurm, and a process group, tell it by themselves, and twice disturbs its end."""
GRACE_S = 10.0
"""Seconds that a torchrun whose ranks stand still has to end; it would give them 30, in which they do nothing."""
STALLED = 124
"""Exit status of a run that stood still, as timeout(1) has it."""
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PR_SET_CHILD_SUBREAPER = 36


def supervise(command: list[str], environment: dict[str, str], run: Run, run_dir: Path, *, watches: bool) -> int:
    """Run torchrun to its end and return its exit status, 128 and more for a signal; nothing it started is left.

    With `watches` the growth of job.out is watched: on one node of the job, which ends the others by its exit status (srun's
    --kill-on-bad-exit).
    """
    return _Supervisor(command, environment, run, run_dir if watches else None).wait()


class _Supervisor:
    def __init__(self, command: list[str], environment: dict[str, str], run: Run, run_dir: Path | None) -> None:
        self.told: list[tuple[int, float]] = []
        self.passed: set[int] = set()
        self.kept = set(children(os.getpid()))  # the recorder, which ends by itself
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        words = training_arguments(run)
        self.stops_gently = STOP_WORD in words
        self.log = LogWatch(run_dir / "job.out", run.limits, saves="--save" in words) if run_dir else None
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # inherited: srun hands it to every process of the step
        own = os.getpid()
        self.process = subprocess.Popen(
            command, env={**environment, ANCESTOR: str(own)}, preexec_fn=lambda: die_with_parent(parent=own)  # noqa: PLW1509  # no threads here
        )  # fmt: skip
        self.ranks = Ranks(self.process.pid, run.parallel.gpus_per_node)
        for number in (*STOPS, signal.SIGUSR1):
            signal.signal(number, lambda number, _: self.told.append((number, time.monotonic())))

    def wait(self) -> int:
        """Watch until torchrun has ended."""
        stalled = self._watch()
        status = self._end() if stalled else self.process.wait()
        if status and not self.told and not stalled:
            self.ranks.wait(0.0)
            if order := self.ranks.order():
                print(order, file=sys.stderr, flush=True)
        self._sweep()
        if stalled:
            return STALLED
        return status if status >= 0 else 128 - status

    def _watch(self) -> bool:
        before = time.monotonic()
        while self.process.poll() is None:
            self.ranks.wait(POLL_S)
            now = time.monotonic()
            awake_s, before = min(now - before, 4 * POLL_S), now  # a suspended job is not silent
            problem = self.log.look(awake_s) if self.log else None
            if problem:
                print(f"nlp-bench: error: {problem}; the run is ended", file=sys.stderr, flush=True)
                return True
            self._pass_on(now)
        return False

    def _pass_on(self, now: float) -> None:
        """Hand each signal on once: SIGUSR1 (the time limit is near) to the ranks, the others to torchrun where nobody else did."""
        for number, at in self.told:
            is_notice = number == signal.SIGUSR1
            if number in self.passed or not (is_notice or now - at > FORWARD_S):
                continue
            self.passed.add(number)
            if is_notice and self.stops_gently:
                self._ask_ranks()
            else:
                self.process.send_signal(signal.SIGTERM if is_notice else number)  # does nothing once it has ended

    def _ask_ranks(self) -> None:
        print(
            "nlp-bench: the time limit is near; the ranks are asked to stop behind their iteration",
            file=sys.stderr,
            flush=True,
        )
        for pid in self.ranks.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _end(self) -> int:
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout=GRACE_S)
        return self.process.wait()

    def _sweep(self) -> None:
        """Kill what torchrun has left behind, which Linux has made children of this process."""
        for _ in range(20):
            left = [pid for pid in children(os.getpid()) if pid not in self.kept]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
