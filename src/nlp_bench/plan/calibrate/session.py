"""A few minutes of measuring, divided among the kinds of work."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nlp_bench.machine.timing import Device, timed
from nlp_bench.plan.calibrate.measurement import Call, Measurement, Task
from nlp_bench.plan.calibrate.ranks import Ranks

LEAST_SLICE_S = 0.03
"""Time of one task at least; where there is less, fewer tasks are taken."""
LEAST_TASKS = 6
SMALLEST = 3
"""Tasks of a group that are measured however short the time is: a line needs three points."""
LARGEST_PART = 1 / 20
"""Of a group's time that one task may take."""
REPEATED = 5
"""Calls that a task takes at least: warm-up, one to plan, three repetitions."""
MEMORY_PART = 0.8
"""Of the free memory that a task may take."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tasks of one kind and their part of the time."""

    name: str
    """For people."""
    tasks: Sequence[Task]
    """What may be measured."""
    share: float
    """Part of the time, relative to the other groups'."""


@dataclass(kw_only=True)
class Session:
    """What was measured so far."""

    device: Device
    """On what."""
    ranks: Ranks
    """With whom."""
    say: Callable[[str], None]
    """Tells people how far it is."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    measurements: list[Measurement] = field(default_factory=list)
    """What was measured."""
    skipped: list[str] = field(default_factory=list)
    """What could not be, and why."""

    def measure(self, groups: Sequence[Group], total_s: float) -> None:
        """Measure all groups within about `total_s` seconds; what one does not need is left to the next."""
        begin, left = self.clock(), sum(group.share for group in groups)
        for group in groups:
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
            self._take(task, weight * max(left, 0) / sum(weight for _, weight in chosen[number:]))

    def _affordable(self, group: Group, seconds: float) -> list[tuple[Task, float]]:
        """Return the tasks that the time allows, spread over all sizes, each with the seconds that it needs."""
        tasks = sorted(group.tasks, key=cost)
        rate, last = 1e-9, 0.0
        for task in tasks:
            if cost(task) < 8 * last:
                continue
            last = cost(task)
            once = self._once(task)
            if once is None:
                break
            rate = max(rate, last / once)
            if self.ranks.agree(once * REPEATED > seconds * LARGEST_PART):
                break
        rate = self.ranks.agree(rate)
        seconds = self.ranks.agree(seconds)
        limit = rate * seconds * LARGEST_PART / REPEATED
        within = sum(cost(task) <= limit for task in tasks)
        fitting = tasks[: max(within, SMALLEST)]
        if len(fitting) < len(tasks):
            self.skipped.append(f"{group.name}: {len(tasks) - len(fitting)} large shapes take too long for the time")
        needed = [(task, max(cost(task) / rate * REPEATED, LEAST_SLICE_S)) for task in spread_out(fitting)]
        sums = itertools.accumulate(weight for _, weight in needed)
        affordable = sum(total <= seconds for total in sums)
        return needed[: max(affordable, LEAST_TASKS)]

    def _once(self, task: Task) -> float | None:
        call = self._ready(task)
        return None if call is None else self.device.elapsed(call, 1, waits=task.together)

    def _take(self, task: Task, slice_s: float) -> None:
        begin = self.clock()
        call = self._ready(task)
        if call is None:
            return
        timing = timed(call, self.device, slice_s - (self.clock() - begin), self.ranks.agree if task.together else None)
        facts = {name: getattr(task, name) for name in ("kind", "name", "precision", "sizes", "flops", "num_bytes")}
        self.measurements.append(Measurement(**facts, **vars(timing)))

    def _ready(self, task: Task) -> Call | None:
        """Make the task ready and do it once; None, with the reason kept, where memory does not suffice."""
        self.device.release()
        free = self.device.free_bytes()
        can = task.needs_bytes <= free * MEMORY_PART / self.ranks.number_sharing(self.device.kind)
        why = f"needs {task.needs_bytes / 2**30:.1f} GiB of {free / 2**30:.1f} GiB free"
        if not self.ranks.all_can(can):
            self._skip(task, why)
            return None
        call: Call | None = None
        try:
            call = task.make(self.device)
            if not task.together:
                call()
        except (MemoryError, RuntimeError) as error:  # torch says it in words; its own class exists for GPUs only
            if not is_out_of_memory(error):
                raise
            call, why = None, "out of memory"
        if not self.ranks.all_can(call is not None):
            self._skip(task, why)
            return None
        if task.together and call is not None:
            call()
        return call

    def _skip(self, task: Task, why: str) -> None:
        line = f"{task.title}: {why}"
        if line not in self.skipped:
            self.skipped.append(line)


def cost(task: Task) -> float:
    """Return what a task's time grows with: FLOPs, else bytes."""
    return task.flops or task.num_bytes or 1.0


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether torch ran out of memory, on a GPU or on the CPU."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def spread_out(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks in an order whose every beginning covers the whole range: by the van der Corput sequence in base 2."""
    width = max(len(tasks) - 1, 1).bit_length()
    order = sorted(range(len(tasks)), key=lambda index: int(f"{index:0{width}b}"[::-1], 2))
    return [tasks[index] for index in order]
