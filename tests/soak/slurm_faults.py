"""The faults of the soak on Slurm: each is done to a job, a node, the controller or a disk, and taken back a while later."""

import contextlib
import heapq
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.processes import processes_with
from support.sandbox import Sandbox

from soak.slurm_plan import Event
from soak.slurm_state import Going

LEFT_ALONE_S = 8.0  # seconds after which the first start of a requeued job has ended on its node
LAUNCH_FAILED = "launch failed requeued held"
"""squeue's word for a job that a node, which had just come back, could not start; `nlp-bench watch` then names `scontrol release`."""
DRAINED = {"Duplicate jobid", "Kill task failed"}
"""Slurm's reasons: a killed controller had given a job's number away again; a task outlived its SIGKILL on a busy machine."""
DRAINED_S = 5.0  # seconds between two looks for nodes that Slurm has drained
OVERDUE_S = 60.0  # seconds after which a job that was resumed, but does not go on, is resumed again
LOST_S = 8.0  # seconds before its death whose changes a killed controller may have lost: it saves its state every 5 s


@dataclass(kw_only=True)
class Injector:
    """Does the faults; what it has to take back waits in `later`."""

    slurm: Sandbox  # the Slurm of the soak
    jobs: list[Going]  # all jobs
    disk: Path | None  # the small disk, None where mounts are not allowed
    later: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    """What is still to be done: when, a number that keeps the order, what."""
    silent: bool = False  # whether the controller is stopped or dead
    num_done: dict[str, int] = field(default_factory=dict)  # how often each fault has been done
    away: list[tuple[str, float, float]] = field(default_factory=list)
    """By what, from when and until when the controller was away."""
    looked_s: float = 0.0  # when drained nodes were last looked for
    put_back: dict[str, float] = field(default_factory=dict)
    """When each requeued job was first seen to wait for its begin time."""

    def tick(self) -> None:
        """Take back what is due; let requeued jobs begin."""
        while self.later and self.later[0][0] <= time.time():
            heapq.heappop(self.later)[2]()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self.later, (time.time() + seconds, id(act), act))

    def do(self, job: Going) -> None:
        """Do its own fault to a job that trains (or waits, where it is to be cancelled then)."""
        job.is_done_to = True
        if getattr(self, f"_{job.plan.fault}")(job):
            self.met(job, job.plan.fault)

    def met(self, job: Going, kind: str) -> None:
        job.met.add(kind)
        self.count(kind)

    def count(self, kind: str) -> None:
        self.num_done[kind] = self.num_done.get(kind, 0) + 1

    def ask(self, *words: str) -> bool:
        return self.slurm.ask(*words).returncode == 0

    def _number(self, job: Going) -> str | None:
        """Return its number, None where that is another job's by now: a killed controller gives its last numbers away again."""
        number = job.job_id()
        shown = self.slurm.ask("scontrol", "show", "job", number, "--oneliner").stdout if number else ""
        return number if f" Comment={job.comment}" in shown else None

    def _cancel_running(self, job: Going) -> bool:
        number = self._number(job)
        return number is not None and self.ask("scancel", number)

    _cancel_pending = _cancel_running

    def _requeue(self, job: Going) -> bool:
        number = self._number(job)
        return (
            number is not None
            and self.ask("scontrol", "update", f"JobId={number}", "Requeue=1")
            and self.ask("scontrol", "requeue", number)
        )

    def let_requeued_begin(self) -> None:
        """Slurm would let a job that was put back wait for two minutes; one that it holds since no node took it, for an operator."""
        for line in self.slurm.ask("squeue", "--noheader", "--states=PENDING", "--format=%i %r").stdout.splitlines():
            number, _, reason = line.partition(" ")
            if reason == "BeginTime" and time.time() - self.put_back.setdefault(number, time.time()) > LEFT_ALONE_S:
                self.put_back.pop(number)
                self.ask("scontrol", "update", f"JobId={number}", "StartTime=now")
            elif reason == LAUNCH_FAILED:
                self.ask("scontrol", "release", number)
                print(f"  job {number}: released, held by Slurm ({reason})", flush=True)

    def cancel_again(self) -> None:
        """Cancel, as an operator does, held jobs that were cancelled before: a killed controller has forgotten it."""
        cancelled = {job.comment for job in self.jobs if job.record("outcome.json").get("outcome") == "CANCELLED"}
        for line in self.slurm.ask("squeue", "--noheader", "--states=PENDING", "--format=%i|%r|%k").stdout.splitlines():
            number, reason, comment = line.split("|", 2)
            if reason == "JobHeldUser" and comment in cancelled:
                self.ask("scancel", number)
                print(f"  job {number}: cancelled again, the killed controller had forgotten it", flush=True)

    def undrain(self) -> None:
        """Give nodes back, as an operator does, that Slurm has drained."""
        if time.time() - self.looked_s < DRAINED_S:
            return
        self.looked_s = time.time()
        for line in self.slurm.ask(
            "sinfo", "--noheader", "-N", "--states=drained", "--format=%N %E"
        ).stdout.splitlines():
            node, _, reason = line.partition(" ")
            if reason.strip() in DRAINED:
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
                print(f"  {node}: given back, drained by Slurm ({reason.strip()})", flush=True)

    def free(self, nodes: set[str]) -> None:
        """Set nodes down and give them back, as an operator does, where a job that has ended is "completing" for ever."""
        for node in sorted(nodes):
            self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=completing")
            self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
            print(f"  {node}: set down and given back, Slurm went on completing a job there", flush=True)

    def _suspend(self, job: Going) -> bool:
        number = self._number(job)
        if number is None or not self.ask("scontrol", "suspend", number):
            return False
        begin = time.time()

        def resume() -> None:
            end = time.time()
            if not self.silent and (self.ask("scontrol", "resume", number) or not self._is_suspended(number)):
                job.holes.append((begin, end))
            else:
                self.after(1.0, resume)

        self.after(min(job.plan.wait_s, 4.0), resume)
        return True

    def wake(self) -> None:
        """Resume once more, as an operator does, what a controller that was killed then has forgotten, or never told the node.

        In the second case Slurm says RUNNING, the job stands still, and only a job that is suspended can be resumed.
        """
        for job in self.jobs:
            number = self._number(job) if job.holes and _is_overdue(job) else None
            if number:
                self.ask("scontrol", "suspend", number)  # refused where it is
                if self.ask("scontrol", "resume", number):
                    job.holes.append((job.holes[-1][0], time.time()))
                    print(f"  job {number}: resumed again, a killed controller had not told its node", flush=True)

    def _is_suspended(self, number: str) -> bool:
        return "JobState=SUSPENDED" in self.slurm.ask("scontrol", "show", "job", number, "--oneliner").stdout

    def _node(self, job: Going) -> str | None:
        found = re.search(
            r" NodeList=(node\d+)", self.slurm.ask("scontrol", "show", "job", job.job_id() or "", "--oneliner").stdout
        )
        return found.group(1) if found else None

    def _on(self, node: str, kind: str) -> None:
        """Note the fault of a node for all that are on it."""
        said = self.slurm.ask("squeue", "--noheader", f"--nodelist={node}", "--states=all", "--format=%T %k").stdout
        for line in said.splitlines():
            state, _, comment = line.partition(" ")
            for job in self.jobs:
                if comment.startswith(job.comment) and (
                    not job.has_ended() or state in {"RUNNING", "COMPLETING", "NODE_FAIL"}
                ):
                    job.met.add(kind)

    def _node_down(self, job: Going) -> bool:
        node = self._node(job)
        if node is None:
            return False
        self._on(node, "node_down")
        self.slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=soak")
        self._on(node, "node_down")
        self.after(job.plan.wait_s, lambda: self._resume(node))
        return True

    def _resume(self, node: str) -> None:
        if self.silent:
            self.after(1.0, lambda: self._resume(node))
        else:
            self.ask(
                "scontrol", "update", f"NodeName={node}", "State=RESUME"
            )  # refused where it has come back by itself

    def _slurmd_killed(self, job: Going) -> bool:
        node = self._node(job)
        if node is None:
            return False
        pid = self.slurm.node_daemon(node)
        if pid not in processes_with(str(self.slurm.folder)):
            return False  # it is dead already
        self._on(node, "slurmd_killed")
        os.kill(pid, signal.SIGKILL)
        self._on(node, "slurmd_killed")
        self.after(job.plan.wait_s, lambda: self.slurm.start_node(node))
        self.after(job.plan.wait_s, lambda: self._on(node, "slurmd_killed"))
        return True

    def _follower_killed(self, job: Going) -> bool:
        found = [pid for pid, words in processes_with(f"sync --wait {job.run_dir}").items() if "nlp_bench" in words]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def _disk_full(self, job: Going) -> bool:
        filler = self.disk / f"filler-{job.plan.name}"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
            while stream.write(b"x" * 4096):
                pass
        for other in self.jobs:
            if other.plan.place == "disk" and other.submitted_s and not other.has_ended():
                other.met.add("disk_full")
        self.after(job.plan.wait_s, lambda: self._free(filler))
        return True

    def _free(self, filler: Path) -> None:
        for other in self.jobs:
            if other.plan.place == "disk" and other.submitted_s and not other.has_ended():
                other.met.add("disk_full")
        filler.unlink()

    def _fails(self, _job: Going) -> bool:
        return True  # its training does

    def happen(self, event: Event) -> None:
        """Let one of the faults happen that meet all."""
        getattr(self, f"_{event.kind}")(event)
        self.count(event.kind)

    def _controller_stopped(self, event: Event) -> None:
        os.kill(self.slurm.controller(), signal.SIGSTOP)
        self.silent, begin = True, time.time()

        def go_on() -> None:
            os.kill(self.slurm.controller(), signal.SIGCONT)
            self._is_back(event, begin)

        self.after(event.wait_s, go_on)

    def _controller_restarted(self, event: Event) -> None:
        self._start_again(event, signal.SIGTERM)

    def _controller_killed(self, event: Event) -> None:
        self._start_again(event, signal.SIGKILL)

    def _start_again(self, event: Event, number: signal.Signals) -> None:
        self.silent, begin = True, time.time()
        self.slurm.stop_controller(number)

        def back() -> None:
            self.slurm.start_controller()
            self._is_back(event, begin)

        self.after(event.wait_s, back)

    def _is_back(self, event: Event, begin: float) -> None:
        """Note for how long it was away; what happened shortly before a sudden death may be lost."""
        margin_s = LOST_S if event.kind == "controller_killed" else 0.0
        self.away.append((event.kind, begin - margin_s, time.time() + margin_s))
        self.silent = False

    def note_away(self) -> None:
        """Note it for all jobs that went on meanwhile."""
        for job in self.jobs:
            begin, end = job.submitted_s or float("inf"), job.ended_s or float("inf")
            job.met |= {kind for kind, since, to in self.away if begin < to and end > since}


def _is_overdue(job: Going) -> bool:
    """Whether it should have ended long ago, were it not still asleep."""
    return not job.has_ended() and time.time() > job.holes[-1][1] + job.plan.seconds + OVERDUE_S
