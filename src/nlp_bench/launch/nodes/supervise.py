"""One node's torchrun under watch: it ends with this process, whatever ends either, and a training that stands still is ended.

torchrun blames the first rank that *fails*: one that leaves early with status 0 makes its peers fail, and is not named; so the order in
which the ranks end is watched. A rank that hangs outside a collective has no time-out of its own: the growth of the log is watched.
"""

import contextlib
import ctypes
import datetime as dt
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from nlp_bench.config.run import Limits, Run, value_of
from nlp_bench.last_start import ITERATION
from nlp_bench.launch.arguments import STOP_WORD, training_arguments
from nlp_bench.orphans import ANCESTOR, STOPS, die_with_parent, stat_of
from nlp_bench.terminal import say
from nlp_bench.walk import RANKS

SCAN_S = 1.0  # seconds between two searches while ranks are missing; a process table of thousands takes milliseconds


class Ranks:
    """The children of torchrun that are ranks, watched through their pidfds (Linux 5.3), which tell the order exactly."""

    def __init__(self, agent: int, expected: int) -> None:
        self.agent, self.expected = agent, expected
        self.handles: dict[int, int] = {}  # pidfd: rank
        self.pids: dict[int, int] = {}  # rank: process
        self.ended: list[tuple[int, float]] = []
        self.next_scan = 0.0
        self.poll = select.poll()

    def wait(self, timeout_s: float) -> None:
        """Sleep for at most `timeout_s`, less when a rank ends, and note the ends."""
        if len(self.pids) < self.expected and time.monotonic() >= self.next_scan:
            self._scan()
        if not self.handles:
            time.sleep(timeout_s)
            return
        ready, now = self.poll.poll(timeout_s * 1000), time.time()  # of several at once nobody knows the order
        for handle, _ in ready:
            self.poll.unregister(handle)
            self.ended.append((self.handles.pop(handle), now))
            os.close(handle)

    def alive(self) -> list[int]:
        """Return the processes of the ranks that have not ended."""
        gone = {rank for rank, _ in self.ended}
        return [pid for rank, pid in self.pids.items() if rank not in gone]

    def order(self) -> str | None:
        """Return the sentence that `launch.end.log_facts` reads: which rank ended when; None unless all were seen, for one that was not is the first."""
        if not self.ended or len(self.ended) + len(self.handles) < self.expected:
            return None
        first_s = self.ended[0][1]
        words = [f"{rank} (+{at - first_s:.2f} s)" for rank, at in self.ended]
        begin = dt.datetime.fromtimestamp(first_s, tz=dt.timezone.utc).isoformat(timespec="microseconds")
        together = [str(rank) for rank, at in self.ended if at == first_s]
        also = f"; within one look: {' '.join(together)}" if len(together) > 1 else ""
        return f"nlp-bench: ranks ended in the order {', '.join(words)}; the first at {begin}{also}"

    def _scan(self) -> None:
        self.next_scan = time.monotonic() + SCAN_S
        for pid in children(self.agent):
            if pid in self.pids.values():
                continue
            rank = _rank(pid)
            if rank is None or rank in self.pids:
                continue
            self.pids[rank] = pid
            # An older Linux, or it has ended already: the order is not known.
            with contextlib.suppress(OSError, AttributeError):
                handle = os.pidfd_open(pid)
                self.handles[handle] = rank
                self.poll.register(handle, select.POLLIN)


def children(parent: int) -> list[int]:
    """Return the child processes of `parent`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = stat_of(int(path.name))
            if len(words) > 1 and int(words[1]) == parent and words[0] != "Z":
                found.append(int(path.name))
    return found


def _rank(pid: int) -> int | None:
    """Return the rank that torchrun gave a process; None where it has none, or has not become the rank's program yet."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = dict(word.split(b"=", 1) for word in words if b"=" in word)
    text = values.get(b"RANK", b"")
    return int(text) if text.isdigit() and b"TORCHELASTIC_RUN_ID" in values else None


_OF_ALL = re.compile(rf"{ITERATION} *(\d+)".encode())
BLOCK_BYTES = 1 << 20


class LogWatch:
    """The silence of one growing log, in seconds for which this process was awake: what sleeps, or is suspended by Slurm, is silent without a fault."""

    def __init__(self, path: Path, limits: Limits, *, saves: bool) -> None:
        """Watch `path` from its present end on: what stands there is of an earlier start. `saves`: checkpoints are written."""
        self.path, self.limits, self.saves = path, limits, saves
        self.offset = self._size() or 0
        self.silent_s = 0.0
        self.since_line_s = 0.0
        self.longest_s = 0.0
        self.iteration: int | None = None
        self.num_lines = 0
        self.is_last = False

    def look(self, awake_s: float) -> str | None:
        """Read what has been added, `awake_s` after the last look; return a sentence once the silence is a stall."""
        self.silent_s += awake_s
        self.since_line_s += awake_s
        size = self._size()
        if size is None or self.limits.stall_factor == 0:
            return None
        if size != self.offset:
            self.silent_s = 0.0
            with contextlib.suppress(OSError):  # a file server that stumbles: read at the next look
                self._read(size)
        limit_s = self.limit_s()
        if self.silent_s <= limit_s:
            return None
        where = f"stalled after iteration {self.iteration}" if self.iteration else "stalled before the first iteration"
        return f"{where}, silent for {self.silent_s:.0f} s (limit {limit_s:.0f} s, longest interval {self.longest_s:.1f} s)"

    def limit_s(self) -> float:
        """Return the silence that is allowed now; the first interval holds the start and says nothing of the others."""
        return self.limits.silence_s(self.longest_s, has_pauses=self.num_lines < 2 or self.is_last or self.saves)

    def _read(self, size: int) -> None:
        begin = self.offset if self.offset <= size else 0  # truncated, or another file
        with self.path.open("rb") as stream:
            stream.seek(max(begin, size - BLOCK_BYTES))
            text = stream.read(BLOCK_BYTES)
        self.offset = size
        found = _OF_ALL.findall(text)
        if not found:
            return
        if self.iteration is not None:
            self.longest_s = max(self.longest_s, self.since_line_s / len(found))
        self.iteration, self.since_line_s = int(found[-1][0]), 0.0
        self.is_last = found[-1][0] == found[-1][1]
        self.num_lines += len(found)

    def _size(self) -> int | None:
        try:
            return self.path.stat().st_size
        except OSError:
            return None


POLL_S = 0.5
FORWARD_S = 2.0
"""Seconds after which a signal is forwarded to torchrun: Slurm or the process group may signal it too, and a second signal disturbs its end."""
GRACE_S = 10.0  # seconds that a torchrun whose ranks stand still has to end; it would give them 30, for nothing
STALLED = 124  # exit status of a run that stood still, as timeout(1) has it
PR_SET_CHILD_SUBREAPER = 36


def supervise(command: list[str], environment: dict[str, str], run: Run, run_dir: Path, *, watches: bool) -> int:
    """Run torchrun to its end and return its exit status, 128 and more for a signal; nothing it started is left.

    With `watches` the growth of job.out is watched: on one node of the job, which ends the others by its exit status (srun's
    --kill-on-bad-exit).
    """
    status = _Supervisor(command, environment, run, run_dir if watches else None).wait()
    for made in run_dir.glob(f"{RANKS}/*"):  # torchrun makes it for its user alone, whatever the umask (mkdtemp)
        with contextlib.suppress(OSError):
            made.chmod(made.parent.stat().st_mode & 0o7777)
    return status


class _Supervisor:
    def __init__(self, command: list[str], environment: dict[str, str], run: Run, run_dir: Path | None) -> None:
        self.signals: list[tuple[int, float]] = []
        self.passed: set[int] = set()
        self.kept = set(children(os.getpid()))  # the recorder, which ends by itself
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        words = training_arguments(run)
        self.stops_gently = STOP_WORD in words
        saves = value_of(words, "--save") is not None
        self.log = LogWatch(run_dir / "job.out", run.limits, saves=saves) if run_dir else None
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # inherited: srun hands it to every process of the step
        own = os.getpid()
        self.process = subprocess.Popen(
            command, env={**environment, ANCESTOR: str(own)}, preexec_fn=lambda: die_with_parent(parent=own)  # noqa: PLW1509  # no threads here
        )  # fmt: skip
        self.ranks = Ranks(self.process.pid, run.parallel.gpus_per_node)
        for number in (*STOPS, signal.SIGUSR1):
            signal.signal(number, lambda number, _: self.signals.append((number, time.monotonic())))

    def wait(self) -> int:
        """Watch until torchrun has ended."""
        stalled = self._watch()
        status = self._end() if stalled else self.process.wait()
        if status and not self.signals and not stalled:
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
                say(f"error: {problem}; the run is ended")
                return True
            self._forward(now)
        return False

    def _forward(self, now: float) -> None:
        """Forward each signal once: SIGUSR1 (the time limit is near) to the ranks, the others to torchrun where nobody else did."""
        for number, at in self.signals:
            is_notice = number == signal.SIGUSR1
            if number in self.passed or not (is_notice or now - at > FORWARD_S):
                continue
            self.passed.add(number)
            if is_notice and self.stops_gently:
                self._ask_ranks()
            else:
                if is_notice:
                    say(
                        "signal USR1 came: the time limit is near, and this run has no way to stop in between; it is ended"
                    )
                self.process.send_signal(signal.SIGTERM if is_notice else number)  # does nothing once it has ended

    def _ask_ranks(self) -> None:
        say("the time limit is near; the ranks are asked to stop after their iteration")
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
