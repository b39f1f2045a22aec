"""A window of iterations recorded by torch's profiler; the log marks each of them, for they are slower than the others."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.watcher import Say, Watcher
from nlp_bench.train.world import wait_for_all


class Profiler(Watcher):
    """Records on the ranks that were asked for; every rank waits until the traces are written."""

    def __init__(self, settings: Settings, layout: Layout, device: torch.device, say: Say) -> None:
        """Prepare; raises UsageError for iterations or ranks that there are not, NlpBenchError for a folder that cannot be."""
        self._start, self._end = settings.profile_step_start, settings.profile_step_end
        self._ranks, self._say = settings.profile_ranks, say
        self._folder = Path(settings.profile_dir or "profile")
        check_window(settings, layout)
        self._rank, self._on_gpu = dist.get_rank(), device.type == "cuda"
        self._recording: Any = None
        if self._rank in self._ranks:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise NlpBenchError(
                    f"profile_dir: cannot make {self._folder}: {error.strerror}; name another folder"
                ) from error

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


def check_window(settings: Settings, layout: Layout) -> None:
    """Raise UsageError where the window begins after the training, or a rank to record is none of its ranks."""
    start, last = settings.profile_step_start, layout.train_iters
    if start > last:
        raise UsageError(f"profile_step_start: {start} is after the last iteration = {last}; give an earlier one")
    missing = [rank for rank in settings.profile_ranks if rank >= layout.world_size]
    if missing:
        raise UsageError(f"profile_ranks: {missing[0]} is none of the ranks 0 to {layout.world_size - 1}")
