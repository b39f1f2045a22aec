"""Timers of the phases of an iteration: forward, backward, communication, optimizer, data, over all ranks.

megatron-core 0.16.1 starts and stops the timers (`config.timers`) by the names in PHASES: pipeline_parallel/schedules.py and
p2p_communication.py, distributed/finalize_model_grads.py, optimizer/optimizer.py and distrib_optimizer.py. megatron-core's own
(megatron/core/timers.py) synchronise the GPU and may wait for all ranks at each start and stop, which slows the training that they
measure. These record CUDA events in the stream instead and read them after they have passed. The time between two events includes
what the stream waited for: a receive, a late batch. Of communication that overlaps with computation (reductions, gathers and sends)
only the exposed part, which is waited for, is in a timer. Tensor- and context-parallel communication is part of forward and backward.
"""

import functools
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from nlp_bench.train.logline import Interval
from nlp_bench.train.watching.watchers import Say, Scalars, TrainingEnd, Watcher, gather

if TYPE_CHECKING:
    from nlp_bench.train.trainer import Trainer

T = TypeVar("T")


class _HostEvent:
    """A moment by the host's clock, for the CPU, with the methods of torch.cuda.Event that are used here."""

    def record(self) -> None:
        self._s = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "_HostEvent") -> float:
        return 1000 * (end._s - self._s)  # noqa: SLF001  # of the same class


class _Timer:
    """Seconds that the GPU's current stream, or on a CPU the host, took between start and stop."""

    def __init__(self, make_event: Callable[[], Any]) -> None:
        self.seconds = 0.0
        self._make_event, self._started = make_event, None
        self._open: deque[tuple[Any, Any]] = deque()
        self._free: list[Any] = []

    def start(self, barrier: bool = False) -> None:  # noqa: ARG002  # megatron-core's signature; without a barrier
        self._started = self._event()

    def stop(self, barrier: bool = False) -> None:  # noqa: ARG002
        self._open.append((self._started, self._event()))

    def settle(self) -> None:
        """Add the spans whose end the GPU has passed; the others are left for the next call."""
        while self._open and self._open[0][1].query():
            begin, end = self._open.popleft()
            self.seconds += begin.elapsed_time(end) / 1000  # milliseconds
            self._free += [begin, end]

    def _event(self) -> Any:
        event = self._free.pop() if self._free else self._make_event()
        event.record()
        return event


class Timers:
    """The timers of one rank by name; megatron-core calls `config.timers(name, log_level=2).start()`."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        make: Any = functools.partial(torch.cuda.Event, enable_timing=True) if on_gpu else _HostEvent
        self._timers: defaultdict[str, _Timer] = defaultdict(lambda: _Timer(make))

    def __call__(self, name: str, log_level: int | None = None) -> _Timer:  # noqa: ARG002  # all are kept
        """Return the timer of this name."""
        return self._timers[name]

    def settle(self) -> None:
        """Settle each timer."""
        for timer in self._timers.values():
            timer.settle()

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call by name; on a GPU the caller has synchronised."""
        self.settle()
        seconds = {name: timer.seconds for name, timer in self._timers.items()}
        for timer in self._timers.values():
            timer.seconds = 0.0
        return seconds

    def timed(self, name: str, items: Iterator[T]) -> Iterator[T]:
        """Yield from endless `items`, timing the wait for each."""
        timer = self(name)
        while True:
            timer.start()
            item = next(items)
            timer.stop()
            yield item


DATA = "batch-generator"
PHASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "forward": ("forward-compute", ("forward-compute",)),
    "backward": ("backward-compute", ("backward-compute",)),
    "pipeline waits": ("pipeline-communication", (
        "forward-recv", "forward-send", "backward-recv", "backward-send", "forward-send-backward-recv", "backward-send-forward-recv",
        "forward-send-forward-recv", "backward-send-backward-recv", "forward-backward-send-forward-backward-recv",
    )),
    "gradient reduction": ("grads-reduction", (
        "all-grads-sync", "conditional-embedder-grads-all-reduce", "non-tensor-parallel-grads-all-reduce",
        "embedding-grads-all-reduce",
    )),
    "optimizer": ("optimizer", (
        "optimizer-copy-to-main-grad", "optimizer-unscale-and-check-inf", "optimizer-clip-main-grad",
        "optimizer-count-zeros", "optimizer-inner-step", "optimizer-copy-main-to-model-params",
    )),
    "parameter gathering": ("params-all-gather", ("params-all-gather",)),
    "data": (DATA, (DATA,)),
}  # fmt: skip
"""Phase to its name in the log and the timers that add up to it; the data's time is subtracted from the forward pass."""
TIMERS = tuple(dict.fromkeys(timer for _, timers in PHASES.values() for timer in timers))
NOTABLE = 0.05  # share by which a rank's computation must exceed its pipeline stage's median to be reported

Row = Sequence[float]  # seconds of one rank, in the order of TIMERS or of PHASES


def phases_of(row: Row) -> dict[str, float]:
    """Return phase to its seconds, from the seconds of each of TIMERS."""
    seconds = dict(zip(TIMERS, row, strict=True))
    phases = {phase: sum(seconds[name] for name in names) for phase, (_, names) in PHASES.items()}
    return phases | {"forward": max(0.0, phases["forward"] - phases["data"])}


def table_lines(table: Sequence[tuple[str, Sequence[float]]]) -> list[str]:
    """Return timers and their seconds per iteration on the ranks that have them in Megatron-LM's format (core/timers.py, _get_global_min_max_time_string)."""
    lines = [" (min, max) time across ranks (ms):"]
    for name, seconds in table:
        known = [1000 * one for one in seconds if one > 0]
        if known:
            lines.append(f"    {(name + ' ').ljust(48, '.')}: ({min(known):.2f}, {max(known):.2f})")
    return lines


class PhaseSum:
    """Sums over all intervals but the first, which has the first iteration, and the spoilt ones; over those if there are no others."""

    def __init__(self, num_stages: int) -> None:
        self._num_stages, self._num_intervals = num_stages, 0
        self._sums: dict[bool, tuple[Any, float, int]] = {}
        """For good intervals and for others: seconds [rank, phase], their length in seconds, iterations."""

    def add(self, rows: Sequence[Row], seconds: float, num_iterations: int, *, spoilt: bool = False) -> None:
        """Add an interval: seconds [rank][phase] and its length."""
        is_good = self._num_intervals > 0 and not spoilt
        self._num_intervals += 1
        before = self._sums.get(is_good, (0.0, 0.0, 0))
        self._sums[is_good] = before[0] + np.array(rows), before[1] + seconds, before[2] + num_iterations

    def lines(self) -> list[str]:
        """Return the shares of the time, mean over the ranks, and the slowest rank if it is notably slower than its pipeline stage."""
        if not self._sums:
            return []
        rows, seconds, count = self._sums.get(True) or self._sums[False]
        whole_s = max(seconds, rows.sum(axis=1).max())  # the first interval starts earlier on some ranks
        shares = dict(zip(PHASES, rows.mean(axis=0) / whole_s, strict=True))
        shares["other"] = max(0.0, 1 - sum(shares.values()))
        listed = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items() if share >= 0.0005)
        lines = [f" > time went to: {listed} ({count} iterations, mean of {len(rows)} ranks)"]
        names = list(PHASES)
        compute = rows[:, [names.index("forward"), names.index("backward")]].sum(axis=1).reshape(self._num_stages, -1)
        medians = np.median(compute, axis=1, keepdims=True)
        excess = (compute - medians) / np.where(medians > 0, medians, np.inf)
        worst = int(excess.argmax())
        if excess.flat[worst] >= NOTABLE:
            stage = f"of pipeline stage {worst // compute.shape[1]}" if self._num_stages > 1 else "of all"
            above = f"{100 * excess.flat[worst]:.0f} % above the median {stage}"
            lines.append(f" > slowest rank: {worst}, forward and backward {above}")
        return lines


class PhaseReport(Watcher):
    """Prints a table after each log line, in Megatron-LM's format, and a summary at the end."""

    def __init__(self, trainer: "Trainer", say: Say) -> None:
        self._say, self._device = say, trainer.device
        self._details = trainer.settings.timing_log_level > 1
        self._num_stages = trainer.settings.pipeline_model_parallel_size
        self._timers = Timers(trainer.device)
        optimizers = getattr(trainer.optimizer, "chained_optimizers", [trainer.optimizer])
        for config in (trainer.model[0].config, *(part.config for part in optimizers)):
            config.timers = self._timers
        trainer.watch_data(lambda batches: self._timers.timed(DATA, batches))
        self._num_iterations, self._sum = 0, PhaseSum(self._num_stages)
        window = (trainer.settings.profile_step_start, trainer.settings.profile_step_end)
        self._profiled = range(*window) if trainer.settings.profile else range(0)

    def after(self, iteration: int) -> None:  # noqa: ARG002
        self._num_iterations += 1
        self._timers.settle()

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        own, count = self._timers.take(), self._num_iterations
        rows = gather([own.get(name, 0.0) for name in TIMERS], self._device)
        self._num_iterations = 0
        phases = [list(phases_of(row).values()) for row in rows]
        names = [name for name, _ in PHASES.values()]
        table = [(name, [row[i] / count for row in phases]) for i, name in enumerate(names)]
        if self._details:
            table += [(f"timer {name}", [row[i] / count for row in rows]) for i, name in enumerate(TIMERS)]
        self._say("\n".join(table_lines(table)))
        scalars |= {f"{name}-time": max(seconds) for name, seconds in table if max(seconds) > 0}
        slowed = any(i in self._profiled for i in range(interval.iteration - count + 1, interval.iteration + 1))
        self._sum.add(phases, interval.elapsed_s * count, count, spoilt=slowed)

    def end(self, ending: TrainingEnd) -> None:  # noqa: ARG002
        for line in self._sum.lines():
            self._say(line)
