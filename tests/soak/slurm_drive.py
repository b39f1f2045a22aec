"""Drives the soak on Slurm: hands the jobs over, keeps the followers alive, and lets the faults come when they are due."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from nlp_bench.cli.main import main as nlp_bench
from soak.slurm_faults import Injector
from soak.slurm_plan import Event
from soak.slurm_state import Going

TICK_S = 0.15
SUBMITS_AT_ONCE = 2
SUBMIT_S = 0.6  # about how long a submit takes: one that is to be killed is killed within that
GIVEN_UP_S = 45.0  # a job that has not ended by then, mostly one that Slurm has forgotten, keeps no other one waiting
WATCH = (
    "import sys; from nlp_bench.launch.follow import sync; sync.GONE_S = 60; "
    "from nlp_bench.cli.main import main; sys.exit(main(['watch', *sys.argv[1:]]))"
)
"""`nlp-bench watch` with a shorter grace."""
BY_ITSELF = ("", "submit_killed", "fails")  # faults that need no job that trains


@dataclass(kw_only=True)
class Drive:
    top: Path  # its folder
    injector: Injector  # does the faults
    jobs: list[Going]  # all jobs
    events: list[Event]  # faults that meet all, in their order
    at_once: int  # jobs that are on their way at the same time
    submits: dict[int, Going] = field(default_factory=dict)  # the submits that go on, by process
    again: list[Going] = field(default_factory=list)  # those to be repeated
    watches: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)  # jube run, and the two watches
    said_s: float = 0.0  # when progress was last printed

    @property
    def jube_runs(self) -> Path:
        return self.top / "given/runs"

    def to_the_end(self, bound_s: float) -> None:
        """Go on until all jobs have ended, for so many seconds at most; nothing of it is left running."""
        begin = time.monotonic()
        try:
            while not self._is_over() and time.monotonic() - begin < bound_s:
                self.injector.tick()
                self._collect()
                self._hand_over()
                self._watch()
                if not self.injector.silent:
                    self._faults()
                self._say(time.monotonic() - begin)
                time.sleep(TICK_S)
        finally:
            self._wind_up()

    def _is_over(self) -> bool:
        jube = self.watches.get("watch --continue")
        is_driven = jube is None or jube.poll() is not None
        ended = [job.has_ended() for job in self.jobs]
        return all(ended) and not self.submits and not self.again and not self.injector.later and is_driven

    def _of_folders(self) -> list[Going]:
        return [job for job in self.jobs if job.plan.place != "jube"]

    def _hand_over(self) -> None:
        since = time.time() - GIVEN_UP_S
        going = sum((job.submitted_s or 0.0) > since and not job.has_ended() for job in self._of_folders())
        waiting = [job for job in self._of_folders() if job.submitted_s is None]
        while len(self.submits) < SUBMITS_AT_ONCE and (self.again or (waiting and going < self.at_once)):
            if self.again:
                job = self.again.pop(0)
            else:
                job, going = waiting.pop(0), going + 1
                job.submitted_s = time.time()
            pid = self._fork(job)
            self.submits[pid] = job
            if job.plan.fault == "submit_killed" and not job.is_done_to:
                job.is_done_to = True
                self.injector.after(job.plan.moment * SUBMIT_S, lambda pid=pid, job=job: self._kill_submit(pid, job))

    def _fork(self, job: Going) -> int:
        """Start a submit: a process of its own, as a person's, without the start of Python."""
        words = ["submit", "--run", str(self.top / "given" / job.plan.name / "run.json"), "--run-dir", str(job.run_dir)]
        pid = os.fork()
        if pid:
            return pid
        status = 99
        try:
            os.setsid()
            log = os.open(
                self.top / "oracle" / f"{job.plan.name}.submit", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
            )
            for number in (1, 2):
                os.dup2(log, number)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = nlp_bench([*words, *([] if job.plan.follows else ["--no-follow"])])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _kill_submit(self, pid: int, job: Going) -> None:
        if pid in self.submits:
            os.kill(pid, signal.SIGKILL)
            self.injector.met(job, "submit_killed")

    def _collect(self) -> None:
        """A submit that failed (full disk, no answer) or was killed is repeated, as its message says."""
        for pid in list(self.submits):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                job = self.submits.pop(pid)
                if status:
                    self.injector.after(1.0, lambda job=job: self.again.append(job))

    def _watch(self) -> None:
        """Keep them alive: they end when all that they know of has ended, or when they are killed."""
        in_jube = [job for job in self.jobs if job.plan.place == "jube"]
        if in_jube and "jube run" not in self.watches:
            self._start("jube run", ["jube", "run", "jobs.yaml", "--hide-animation"], cwd=self.top / "given")
            for job in in_jube:
                job.submitted_s = time.time()
        if in_jube and self.watches["jube run"].poll() is not None:
            is_open = not all(job.has_ended() for job in in_jube) or "watch --continue" not in self.watches
            self._keep("watch --continue", [self.jube_runs], "--continue", is_open=is_open)
        folders = [path for path in (self.top / "runs", self.injector.disk) if path is not None]
        is_open = any(job.submitted_s and not job.has_ended() for job in self._of_folders())
        self._keep("watch", folders, is_open=is_open)

    def _keep(self, name: str, folders: list[Path], *further: str, is_open: bool) -> None:
        process = self.watches.get(name)
        was_killed = process is not None and process.poll() is not None and process.returncode < 0
        if (process is None or process.poll() is not None) and (is_open or was_killed):
            words = [sys.executable, "-c", WATCH, *map(str, folders), *further, "--every", "1"]
            self._start(name, words, cwd=self.top)

    def _start(self, name: str, words: list[str], *, cwd: Path) -> None:
        with (self.top / "oracle" / f"{name.replace(' ', '_')}.log").open("ab") as log:
            self.watches[name] = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _faults(self) -> None:
        """Do what is due: to a job once its training has gone on for its share, to all once so many were submitted."""
        self.injector.let_requeued_begin()
        self.injector.undrain()
        self.injector.wake()
        num = sum(job.submitted_s is not None for job in self.jobs)
        if self.events and num > self.events[0].after:
            event = self.events.pop(0)
            if event.kind == "watch_killed":
                self._kill_watch()
            else:
                self.injector.happen(event)
            return
        for job in self.jobs:
            if job.submitted_s and not job.is_done_to and job.plan.fault not in BY_ITSELF and self._is_due(job):
                self.injector.do(job)
            if job.plan.fault == "fails" and not job.is_done_to and job.saw():
                self.injector.do(job)

    def _is_due(self, job: Going) -> bool:
        if job.plan.fault == "cancel_pending":
            return job.job_id() is not None
        saw = job.saw()
        return bool(saw) and time.time() > saw[0].time_s + job.plan.moment * job.plan.seconds

    def _kill_watch(self) -> None:
        for name in ("watch", "watch --continue"):
            process = self.watches.get(name)
            if process and process.poll() is None:
                process.kill()
                self.injector.count("watch_killed")
                return

    def _say(self, seconds: float) -> None:
        if seconds - self.said_s > 20:
            self.said_s = seconds
            submitted = sum(job.submitted_s is not None for job in self.jobs)
            ended = sum(job.has_ended() for job in self.jobs)
            print(f"  {seconds:.0f} s: {submitted} submitted, {ended} ended, {self.injector.num_done}", flush=True)

    def _wind_up(self) -> None:
        """Take back all that was done, and end what was started."""
        while self.injector.later:
            self.injector.tick()
            time.sleep(0.05)
        for process in self.watches.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.terminate()
                process.wait(20)
            process.kill()
            process.wait()

    def finish_jube(self) -> None:
        """Let JUBE print its table; a run that has not ended by itself shows there."""
        if any(job.plan.place == "jube" for job in self.jobs):
            words = ["--id", "last"]
            for verb in (
                ["continue", str(self.jube_runs), *words, "--hide-animation"],
                ["result", "-a", str(self.jube_runs), *words],
            ):
                self.injector.slurm("jube", *verb, timeout_s=300)
