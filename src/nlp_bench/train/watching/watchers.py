"""What watches a training without being part of it: console, progress, memory, profiler, garbage collector."""

import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from nlp_bench.errors import NlpBenchError
from nlp_bench.seal import LogSeal
from nlp_bench.terminal import StatusLine, duration_text
from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.startup import RAN, STARTUP, StartUp, process_start_s
from nlp_bench.train.world import wait_for_all

Say = Callable[[str], None]  # prints lines of the log; does nothing on ranks that do not log
Scalars = dict[str, float]  # numbers of one interval by the tag under which they are drawn


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the training ended; the same on every rank."""

    iteration: int  # last iteration, counted from 1 over all jobs of a chain
    text: str  # one sentence for the log
    code: int = 0  # exit code; not 0 for a loss that is not finite


class Watcher:
    """Is told of each event of the training, in the order of the list; overrides what it wants to know.

    A watcher that talks with other ranks stands in the list of every rank. The time of `before`, `after` and `interval`
    counts: it is part of the run.
    """

    def before(self, iteration: int) -> None:
        """Hear that `iteration` begins."""

    def after(self, iteration: int) -> None:
        """Hear that the weights are updated; the time until this returns belongs to `iteration`."""

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        """Hear that a log line was printed; `scalars` may be added to for the watchers that follow."""

    def end(self, ending: Ending) -> None:
        """Hear that all ranks have stopped in good order."""

    def close(self) -> None:
        """Keep what is not on disk yet: called at every end, also after an error, without the other ranks."""


class Console:
    """The log on stdout and, below it on a terminal, one line of progress on stderr that gives way to each log line."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self.line = out or sys.stdout, StatusLine(err or sys.stderr)
        self.seal = LogSeal()  # what was said so far, for the line that closes the log

    def say(self, text: str) -> None:
        """Print lines of the log, in one write: torchrun's `--tee` passes on what it finds, whole or not."""
        self.line.wipe()
        self.seal.take(text)
        self._out.write(f"{text}\n")
        self._out.flush()


class Garbage(Watcher):
    """Collects on all ranks after the same iterations, as Megatron-LM's --manual-gc does: else ranks wait for each other in turns."""

    def __init__(self, settings: Settings) -> None:
        self._every = settings.manual_gc_interval
        gc.disable()
        gc.collect()

    def after(self, iteration: int) -> None:
        """Collect where the interval says so."""
        if self._every and iteration % self._every == 0:
            gc.collect()

    def close(self) -> None:
        """Switch the collector on again."""
        gc.enable()


STEP_S = 0.2  # shortest time between two drawings


class Progress(Watcher):
    """How far the training is and how long it still takes: redraws one line on a terminal; elsewhere, when it is asked for, prints a line with each log line."""

    def __init__(
        self, line: StatusLine, settings: Settings, layout: Layout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line, self._clock = line, clock
        self._tokens = layout.global_batch_size * settings.seq_length
        self._last_iteration = layout.train_iters
        self._first: tuple[int, float] | None = None
        self._drawn_s = float("-inf")

    def after(self, iteration: int) -> None:
        """Draw, if the last drawing is not too fresh."""
        now_s = self._clock()
        self._first = self._first or (iteration, now_s)  # the first iteration takes longer than the others
        if self._line.is_terminal and now_s - self._drawn_s >= STEP_S:
            self._drawn_s = now_s
            self._line.show(self.text(iteration, now_s))

    def interval(self, interval: Interval, scalars: Scalars) -> None:  # noqa: ARG002
        """Draw again below the log line."""
        self._line.show(self.text(interval.iteration, self._clock()))

    def close(self) -> None:
        """Leave nothing behind."""
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


MOST_LISTED = 8  # ranks up to which each is named; of more the least, the middle and the most
GIB = 2**30


def peak_bytes(device: torch.device) -> int:
    """Return the greatest memory of this process so far: torch's tensors on a GPU, the resident set on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


class MemoryReport(Watcher):
    """The peak memory of every rank: once after the first iteration, when everything has been allocated, and at the end.

    The ranks of a pipeline stage follow each other (megatron-core's order tp-cp-ep-dp-pp).
    """

    def __init__(self, device: torch.device, num_stages: int, say: Say) -> None:
        self._device, self._num_stages, self._say = device, num_stages, say
        self._printed = ""

    def after(self, iteration: int) -> None:
        """Print the first iteration's."""
        if not self._printed:
            self._printed = memory_text(self._gather(), self._num_stages)
            self._say(f" > memory after iteration {iteration}, {self._printed}")

    def end(self, ending: Ending) -> None:
        """Print the end's, where it is another."""
        now = memory_text(self._gather(), self._num_stages)
        if now != self._printed:
            self._say(f" > memory at the end, after iteration {ending.iteration}, {now}")

    def _gather(self) -> list[list[float]]:
        reserved = [torch.cuda.max_memory_reserved()] if self._device.type == "cuda" else []
        return gather([peak_bytes(self._device), *reserved], self._device)


def memory_text(rows: Sequence[Sequence[float]], num_stages: int) -> str:
    """Return the numbers for the log from bytes [rank][allocated, reserved], or [rank][resident set]."""
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
    """Return the `numbers` of each rank, in the order of the ranks; every rank calls it with as many."""
    own = torch.tensor(numbers, dtype=torch.float64, device=device)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    rows: list[list[float]] = torch.stack(found).tolist()
    return rows


class Profiler(Watcher):
    """A window of iterations recorded by torch's profiler; the log marks each of them, for they are slower than the others.

    Every rank waits until the traces are written.
    """

    def __init__(self, settings: Settings, device: torch.device, say: Say) -> None:
        """Prepare; raises NlpBenchError for a folder that cannot be."""
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
        """Mark an iteration of the window, and begin to record with the first."""
        if self._start <= iteration < self._end:
            ranks = " ".join(map(str, self._ranks))
            self._say(f" profiling iteration {iteration} on {'rank' if len(self._ranks) == 1 else 'ranks'} {ranks}")
            if self._rank in self._ranks and self._recording is None:
                activities = [torch.profiler.ProfilerActivity.CPU]
                activities += [torch.profiler.ProfilerActivity.CUDA] if self._on_gpu else []
                self._recording = torch.profiler.profile(activities=activities)
                self._recording.start()

    def after(self, iteration: int) -> None:
        """End the window with its last iteration."""
        if iteration == self._end - 1:
            self.close()
            wait_for_all()  # the time of writing belongs to the iteration that is marked, on every rank
            self._say(f" > profile: {self._folder}/rank*.json.gz (open in ui.perfetto.dev or chrome://tracing)")

    def close(self) -> None:
        """Write the trace, also of a window that the end of the training has cut."""
        recording, self._recording = self._recording, None
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
    """Prints the start-up after the first iteration, and which of torch's attention kernels it took."""

    def __init__(self, say: Say, startup: StartUp = STARTUP) -> None:
        self._say, self._startup, self._is_printed = say, startup, False

    def after(self, iteration: int) -> None:  # noqa: ARG002  # whichever is the first of this process
        """Print it once."""
        if not self._is_printed:
            self._is_printed = True
            self._startup.mark("first iteration")
            is_torchrun = "TORCHELASTIC_RUN_ID" in os.environ  # then the parent is its agent
            self._say(self._startup.text(process_start_s(os.getppid()) if is_torchrun else None))
            if RAN:
                self._say(f" > attention that ran: {', '.join(dict.fromkeys(RAN.values()))}")
