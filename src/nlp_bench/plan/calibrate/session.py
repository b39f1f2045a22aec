"""A few minutes of measuring on one machine, divided among the kinds of work: the whole of `plan calibrate` before anything is fitted."""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench import clock
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.immutable import immutable
from nlp_bench.machine.timing import Device, pick, timed
from nlp_bench.plan.calibrate.record import Calibration, Measurement, measured
from nlp_bench.plan.calibrate.trainer import measure_trainer
from nlp_bench.plan.calibrate.work import PRECISIONS, Call, Group, Task, groups

LEAST_SLICE_S = 0.03  # least time of one task; where there is less, fewer tasks are measured
LEAST_TASKS = 6
SMALLEST = 3  # tasks of a group that are measured however short the time is: a line needs three points
LARGEST_PART = 1 / 20  # of a group's time that one task may take
REPEATED = 5  # calls that a task takes at least: warm-up, one to plan, three repetitions
MEMORY_PART = 0.8  # of the free memory that a task may take
TRAINER_S = {"cpu": 12.0, "cuda": 70.0}
"""Time of the trainer's four short runs, subtracted from that of the rest; on a GPU they mostly start (17 s each beside an H200)."""


@immutable
class Ranks:
    """This process among those of one node, which torchrun has started; alone there is one."""

    rank: int = 0
    number: int = 1  # how many there are
    local_rank: int = 0  # its number on the node, which picks the GPU

    @classmethod
    def join(cls, wanted: str) -> "Ranks":
        """Join the others under torchrun, by NCCL where the `wanted` device is a GPU or one is found, else gloo.

        Alone nothing is joined. Raises UsageError where the ranks are of several nodes: they would measure the fabric as well.
        """
        words = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        number = int(words["WORLD_SIZE"] or 1)
        if number == 1:
            return cls()
        if int(words["LOCAL_WORLD_SIZE"] or number) != number:
            raise UsageError(
                f"calibrate: {number} ranks on several nodes; one node is measured at a time: torchrun --standalone --nproc-per-node N"
            )
        rank, local_rank = int(words["RANK"] or 0), int(words["LOCAL_RANK"] or 0)
        on_gpus = wanted != "cpu" and torch.cuda.is_available()
        if on_gpus:
            torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl" if on_gpus else "gloo", rank=rank, world_size=number)
        return cls(rank=rank, number=number, local_rank=local_rank)

    def agree(self, value: Any) -> Any:
        """Return the first rank's value on every rank; a barrier."""
        if self.number == 1:
            return value
        holder = [value]
        dist.broadcast_object_list(holder, src=0)
        return holder[0]

    def all_can(self, can: bool) -> bool:
        """Return whether every rank can; all have to ask."""
        if self.number == 1:
            return can
        answers: list[bool] = [False] * self.number
        dist.all_gather_object(answers, can)
        return all(answers)

    def number_sharing(self, device_kind: str) -> int:
        """Return how many ranks share one memory: all on a CPU, none with another on GPUs."""
        return self.number if device_kind == "cpu" else 1

    def leave(self) -> None:
        """Leave the process group."""
        if self.number > 1:
            dist.destroy_process_group()


@dataclass(kw_only=True)
class Session:
    """What was measured so far."""

    device: Device
    ranks: Ranks
    say: Callable[[str], None]  # takes a line of progress
    clock: Callable[[], float] = time.monotonic
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what could not be measured, and why

    def measure(self, parts: Sequence[Group], total_s: float) -> None:
        """Measure all groups within about `total_s` seconds; what one does not need is left to the next."""
        begin, left = self.clock(), sum(group.share for group in parts)
        for group in parts:
            seconds = (total_s - (self.clock() - begin)) * group.share / left
            left -= group.share
            before, since = len(self.measurements), self.clock()
            self._group(group, max(seconds, 0.0))
            done = len(self.measurements) - before
            self.say(f"{group.name}: {done} of {len(group.tasks)} shapes, {self.clock() - since:.1f} s")

    def _group(self, group: Group, seconds: float) -> None:
        deadline = self.clock() + seconds
        chosen = self._affordable(group, seconds)
        for number, (task, weight) in enumerate(chosen):
            left = deadline - self.clock()
            if self.ranks.agree(left <= 0 and number >= LEAST_TASKS):
                return
            self._time(task, weight * max(left, 0) / sum(weight for _, weight in chosen[number:]))

    def _affordable(self, group: Group, seconds: float) -> list[tuple[Task, float]]:
        """Return the tasks that the time allows, spread over all sizes, each with the seconds that it needs."""
        tasks = sorted(group.tasks, key=cost)
        rate, last = 1e-9, 0.0
        for task in tasks:
            if cost(task) < 8 * last:
                continue
            last = cost(task)
            call = self._ready(task)
            if call is None:
                break
            once = self.device.elapsed(call, 1, waits=task.together)
            rate = max(rate, last / once)
            if self.ranks.agree(once * REPEATED > seconds * LARGEST_PART):
                break
        rate, seconds = self.ranks.agree((rate, seconds))
        within = sum(cost(task) <= rate * seconds * LARGEST_PART / REPEATED for task in tasks)
        fitting = tasks[: max(within, SMALLEST)]
        if len(fitting) < len(tasks):
            self.skipped.append(f"{group.name}: {len(tasks) - len(fitting)} large shapes take too long for the time")
        needed = [(task, max(cost(task) / rate * REPEATED, LEAST_SLICE_S)) for task in spread_out(fitting)]
        affordable = sum(total <= seconds for total in itertools.accumulate(weight for _, weight in needed))
        return needed[: max(affordable, LEAST_TASKS)]

    def _time(self, task: Task, slice_s: float) -> None:
        begin = self.clock()
        call = self._ready(task)
        if call is None:
            return
        timing = timed(call, self.device, slice_s - (self.clock() - begin), self.ranks.agree if task.together else None)
        self.measurements.append(measured(task, timing))

    def _ready(self, task: Task) -> Call | None:
        """Make the task ready and do it once; None, with the reason kept, where memory does not suffice."""
        self.device.release()
        free, _ = self.device.memory()
        can = task.needs_bytes <= free * MEMORY_PART / self.ranks.number_sharing(self.device.kind)
        why = f"needs {task.needs_bytes / 2**30:.1f} GiB of {free / 2**30:.1f} GiB free"
        call: Call | None = None
        if self.ranks.all_can(can):
            try:
                call = task.make(self.device)
                if not task.together:
                    call()
            except (MemoryError, RuntimeError) as error:  # torch says it in words; its own class exists for GPUs only
                if not is_out_of_memory(error):
                    raise
                call, why = None, "out of memory"
            if self.ranks.all_can(call is not None):
                if task.together and call is not None:
                    call()
                return call
        line = f"{task.title}: {why}"
        if line not in self.skipped:
            self.skipped.append(line)
        return None


def cost(task: Task) -> float:
    """Return what a task's time grows with: FLOPs, else bytes."""
    return task.flops or task.num_bytes or 1.0


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch ran out of memory, on a GPU or on the CPU."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def spread_out(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks in an order whose every beginning covers the whole range: by the van der Corput sequence in base 2."""
    width = max(len(tasks) - 1, 1).bit_length()
    order = sorted(range(len(tasks)), key=lambda index: int(f"{index:0{width}b}"[::-1], 2))
    return [tasks[index] for index in order]


def calibrate(
    say: Callable[[str], None], *, minutes: float, device: str, precisions: tuple[str, ...], trainer: bool
) -> Calibration | None:
    """Measure for so many minutes. Returns None on all ranks but the first.

    `device` is auto, cpu or cuda; `precisions` are the number formats, the most important first (empty: all that the device has);
    `trainer`: the trainer's own overhead is measured too. Raises UsageError where the device is not there, NlpBenchError where
    nothing could be measured.
    """
    ranks = Ranks.join(device)
    try:
        session = Session(
            device=pick(device, ranks.local_rank), ranks=ranks, say=say if ranks.rank == 0 else lambda _: None
        )
        return _measured(session, minutes, precisions, trainer=trainer)
    finally:
        ranks.leave()


def _measured(session: Session, minutes: float, precisions: tuple[str, ...], *, trainer: bool) -> Calibration | None:
    device, ranks = session.device, session.ranks
    begin, before = time.monotonic(), device.state()
    budget = minutes * 60
    session.say(f"measuring {device.name} for about {minutes:g} minutes ({before})")
    trainer_s = TRAINER_S[device.kind]
    with_trainer = trainer and budget > 2 * trainer_s
    precisions = precisions or PRECISIONS[device.kind]
    session.measure(groups(ranks.number, precisions), budget - trainer_s * with_trainer)
    if trainer and not with_trainer:
        session.skipped.append(f"the trainer's overhead: needs more than {2 * trainer_s / 60:.1f} minutes in all")
    elif trainer and ranks.rank == 0:
        since = time.monotonic()
        try:
            session.measurements += measure_trainer(device.kind, precisions[0])
        except NlpBenchError as error:
            session.skipped.append(f"the trainer's overhead: {error}")
        else:
            session.say(f"the trainer's overhead: {time.monotonic() - since:.1f} s")
    ranks.agree(0)  # wait for the first
    if not session.measurements:
        raise NlpBenchError(f"calibrate: nothing could be measured: {'; '.join(session.skipped[:3])}")
    if ranks.rank:
        return None
    return Calibration(
        device=device.name,
        kind=device.kind,
        memory_bytes=device.memory()[1] // ranks.number_sharing(device.kind),
        ranks=ranks.number,
        precision=precisions[0],
        torch=str(torch.__version__),
        date=clock.now(),
        seconds=round(time.monotonic() - begin, 1),
        state_before=before,
        state_after=device.state(),
        skipped=tuple(session.skipped),
        measurements=tuple(session.measurements),
    )
