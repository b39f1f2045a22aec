"""Watchers of a training: console, progress, memory, profiler, garbage collector."""

import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.seal import LogSeal
from nlp_bench.terminal import StatusLine, duration_text
from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.startup import RAN, STARTUP, process_start_s
from nlp_bench.train.world import wait_for_all

Say = Callable[[str], None]  # prints lines of the log; does nothing on ranks that do not log
Scalars = dict[str, float]  # numbers of one interval by TensorBoard's tags


@immutable
class TrainingEnd:
    """How the training ended; the same on every rank."""

    iteration: int  # last iteration, counted from 1 over all jobs of a chain
    text: str  # one sentence for the log
    code: int = 0  # exit code; not 0 for a loss that is not finite


class Watcher:
    """Base class; its methods are called at each event of the training, watcher by watcher, and do nothing by default.

    A watcher that communicates with other ranks must be on every rank. The time of `before`, `after` and `interval` counts as part of
    the run.
    """

    def before(self, iteration: int) -> None:
        """Handle the start of `iteration`."""

    def after(self, iteration: int) -> None:
        """Handle the end of `iteration`, after the update of the weights; the time of this call counts for it."""

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        """Handle a log line that was printed; `scalars` may be extended for the watchers that follow."""

    def end(self, ending: TrainingEnd) -> None:
        """Handle the regular end, on all ranks."""

    def close(self) -> None:
        """Release resources and write what is pending; called at every end, also after an error, without the other ranks."""


class Console:
    """The log on stdout and, below it on a terminal, one line of progress on stderr that is wiped before each log line."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self.line = out or sys.stdout, StatusLine(err or sys.stderr)
        self.seal = LogSeal()  # hash of the log so far, for its closing line

    def say(self, text: str) -> None:
        """Print lines of the log, in one write: torchrun's `--tee` may forward parts of lines."""
        self.line.wipe()
        self.seal.take(text)
        self._out.write(f"{text}\n")
        self._out.flush()


class Garbage(Watcher):
    """Collects garbage on all ranks after the same iterations, as Megatron-LM's --manual-gc: else ranks delay each other in turn."""

    def __init__(self, settings: Settings) -> None:
        self._every = settings.manual_gc_interval
        gc.disable()
        gc.collect()

    def after(self, iteration: int) -> None:
        if self._every and iteration % self._every == 0:
            gc.collect()

    def close(self) -> None:
        gc.enable()


STEP_S = 0.2  # shortest time between two updates of the line


class ProgressLine(Watcher):
    """Progress and remaining time: one line that is redrawn on a terminal; elsewhere, with --progress on, a line after each log line."""

    def __init__(
        self, line: StatusLine, settings: Settings, layout: Layout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line, self._clock = line, clock
        self._tokens = layout.global_batch_size * settings.seq_length
        self._last_iteration = layout.train_iters
        self._first: tuple[int, float] | None = None
        self._drawn_s = float("-inf")

    def after(self, iteration: int) -> None:
        now_s = self._clock()
        self._first = self._first or (iteration, now_s)  # the first iteration takes longer than the others
        if self._line.is_terminal and now_s - self._drawn_s >= STEP_S:
            self._drawn_s = now_s
            self._line.show(self.text(iteration, now_s))

    def interval(self, interval: Interval, scalars: Scalars) -> None:  # noqa: ARG002
        self._line.show(self.text(interval.iteration, self._clock()))

    def close(self) -> None:
        self._line.wipe()

    def text(self, iteration: int, now_s: float) -> str:
        """Return "iteration 34 of 40, 85 %, 12345 tokens/s, 8 s left"; the rate is known from the second iteration on."""
        words = [f"iteration {iteration} of {self._last_iteration}", f"{100 * iteration // self._last_iteration} %"]
        first, since_s = self._first or (iteration, now_s)
        if iteration > first and now_s > since_s:
            seconds = (now_s - since_s) / (iteration - first)
            left = f"{duration_text((self._last_iteration - iteration) * seconds)} left"
            words += [f"{self._tokens / seconds:.0f} tokens/s", left]
        return ", ".join(words)


MOST_LISTED = 8  # ranks up to which each is listed; of more the minimum, the maximum and the median
GIB = 2**30


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory of this process: torch's allocated tensors on a GPU, the resident set on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


class MemoryReport(Watcher):
    """Prints each rank's peak memory after the first iteration and at the end; the ranks of a stage are consecutive (megatron-core's tp-cp-ep-dp-pp)."""

    def __init__(self, device: torch.device, num_stages: int, say: Say) -> None:
        self._device, self._num_stages, self._say = device, num_stages, say
        self._printed = ""

    def after(self, iteration: int) -> None:
        if not self._printed:
            self._printed = memory_text(self._gather(), self._num_stages)
            self._say(f" > memory after iteration {iteration}, {self._printed}")

    def end(self, ending: TrainingEnd) -> None:
        now = memory_text(self._gather(), self._num_stages)
        if now != self._printed:
            self._say(f" > memory at the end, after iteration {ending.iteration}, {now}")

    def _gather(self) -> list[list[float]]:
        reserved = [torch.cuda.max_memory_reserved()] if self._device.type == "cuda" else []
        return gather([peak_bytes(self._device), *reserved], self._device)


def memory_text(rows: Sequence[Sequence[float]], num_stages: int) -> str:
    """Return the text for the log from bytes [rank][allocated, reserved], or [rank][resident set]."""
    names = ("peak resident set",) if len(rows[0]) == 1 else ("peak allocated", "peak reserved")
    columns = list(zip(*rows, strict=True))
    parts = [f"{name} {_spread(column)}" for name, column in zip(names, columns, strict=True)]
    if num_stages > 1 and len(rows) > MOST_LISTED:
        size = len(rows) // num_stages
        stages = (max(columns[0][i : i + size]) for i in range(0, len(rows), size))
        parts.append("by pipeline stage " + " ".join(map(_gib, stages)))
    return "GiB: " + "; ".join(parts)


def _spread(column: Sequence[float]) -> str:
    if len(column) == 1:
        return _gib(column[0])
    if len(column) <= MOST_LISTED:
        return "by rank " + " ".join(map(_gib, column))
    least, most = (f"{_gib(one)} (rank {column.index(one)})" for one in (min(column), max(column)))
    return f"{least} to {most}, median {_gib(statistics.median(column))}"


def _gib(number: float) -> str:
    return f"{number / GIB:.2f}"


def gather(numbers: Sequence[float], device: torch.device) -> list[list[float]]:
    """Return the `numbers` of each rank, in the order of the ranks; every rank calls it with the same length."""
    own = torch.tensor(numbers, dtype=torch.float64, device=device)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    rows: list[list[float]] = torch.stack(found).tolist()
    return rows


class Profiler(Watcher):
    """Records a window of iterations by torch's profiler and marks them in the log, for they are slower; every rank waits until the traces are written."""

    def __init__(self, settings: Settings, device: torch.device, say: Say) -> None:
        """Prepare; raises NlpBenchError for a folder that cannot be made."""
        self._start, self._end = settings.profile_step_start, settings.profile_step_end
        self._ranks, self._say = settings.profile_ranks, say
        self._folder = Path(settings.profile_dir or "profile")
        self._rank, self._on_gpu = dist.get_rank(), device.type == "cuda"
        self._recording: Any = None
        if self._rank in self._ranks:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                why = f"{error.strerror}; name another folder"
                raise NlpBenchError(f"profile_dir: cannot make {self._folder}: {why}") from error

    def before(self, iteration: int) -> None:
        if self._start <= iteration < self._end:
            ranks = " ".join(map(str, self._ranks))
            self._say(f" profiling iteration {iteration} on {'rank' if len(self._ranks) == 1 else 'ranks'} {ranks}")
            if self._rank in self._ranks and self._recording is None:
                activities = [torch.profiler.ProfilerActivity.CPU]
                activities += [torch.profiler.ProfilerActivity.CUDA] if self._on_gpu else []
                self._recording = torch.profiler.profile(activities=activities)
                self._recording.start()

    def after(self, iteration: int) -> None:
        if iteration == self._end - 1:
            self.close()
            wait_for_all()  # the time of writing counts for the marked iteration, on every rank
            self._say(f" > profile: {self._folder}/rank*.json.gz (open in ui.perfetto.dev or chrome://tracing)")

    def close(self) -> None:
        recording, self._recording = self._recording, None  # of a window that was not completed, too
        if recording is None:
            return
        if self._on_gpu:
            torch.cuda.synchronize()
        recording.stop()
        path = self._folder / f"rank{self._rank}_iterations_{self._start}-{self._end - 1}.json.gz"
        try:
            recording.export_chrome_trace(str(path))
        except OSError as error:
            print(f"nlp_bench.train: the profile {path} cannot be written: {error.strerror}", flush=True)


class StartUpReport(Watcher):
    """Prints the start-up time after the first iteration, and the attention kernels of torch that ran."""

    def __init__(self, say: Say) -> None:
        self._say, self._is_printed = say, False

    def after(self, iteration: int) -> None:  # noqa: ARG002
        if not self._is_printed:
            self._is_printed = True
            STARTUP.mark("first iteration")
            is_torchrun = "TORCHELASTIC_RUN_ID" in os.environ  # then the parent is its agent
            self._say(STARTUP.text(process_start_s(os.getppid()) if is_torchrun else None))
            if RAN:
                self._say(f" > attention that ran: {', '.join(dict.fromkeys(RAN.values()))}")
