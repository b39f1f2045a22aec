"""The training loop of one rank: it steps, times and logs, and ends the same way on every rank."""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nlp_bench.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.train import dump, world
from nlp_bench.train.kernels import Kernels, choose_kernels
from nlp_bench.train.layout import Layout, Rank, model_shape
from nlp_bench.train.logline import Interval, format_line
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Step, Trainer

NAN_EXIT_CODE = 3


def train(settings: Settings, layout: Layout, rank: Rank, device: torch.device) -> int:
    """Train; return the exit code: 0, or NAN_EXIT_CODE when a loss or gradient was not finite.

    The last rank writes the log to stdout. Errors are raised; the caller must then leave without waiting for the others.
    """
    started_s = time.monotonic()
    world.connect(settings, rank, device)
    kernels = choose_kernels(settings, device)
    trainer = Trainer(settings, layout, kernels, device)
    say = _log if rank.rank == rank.world_size - 1 else _silence
    facts = _facts(trainer, kernels)
    say("\n".join(dump.argument_lines(settings, layout) + dump.fact_lines(facts)))
    code = _Loop(trainer, say, started_s).run()
    world.disconnect()  # a loss that is not finite is known to all ranks, so they leave together here too
    return code


def _log(text: str) -> None:
    print(text, flush=True)


def _silence(_text: str) -> None:
    """Say nothing: the log is written once."""


def _facts(trainer: Trainer, kernels: Kernels) -> dict[str, str]:
    settings, on_gpu = trainer.settings, trainer.device.type == "cuda"
    return {
        "versions": dump.versions(torch.version.cuda),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads per rank",
        "backend": torch.distributed.get_backend(),
        **kernels.describe(),
        "optimizer": trainer.optimizer_name,
        "recompute": dump.recompute_text(settings),
        "initial weights": "same for every layout" if settings.use_cpu_initialization or not on_gpu else "by layout",
        "data": dump.data_text(settings),
        "model FLOPs": "3 x forward, causal attention counted as half",
        "number of parameters": f"{trainer.num_parameters()}",
        "clocks of the ranks": f"within {_clock_spread_s(trainer.device):.6f} s after a barrier",
    }


def _clock_spread_s(device: torch.device) -> float:
    """Return how far the clocks of the ranks are apart, at most: they are read as all leave a reduction. All ranks call it."""
    world.greatest(0, device)
    now_us = time.time_ns() // 1000
    return (world.greatest(now_us, device) + world.greatest(-now_us, device)) / 1e6


@dataclass
class _Tally:
    """What the iterations since the last log line add up to."""

    losses: list[float] = field(default_factory=list)
    num_iterations: int = 0
    num_skipped: int = 0
    num_nan: int = 0

    def add(self, step: Step) -> None:
        self.num_iterations += 1
        self.num_skipped += step.skipped
        self.num_nan += step.is_nan
        if not step.skipped or step.is_nan:
            self.losses.append(step.loss)


class _Loop:
    def __init__(self, trainer: Trainer, say: Callable[[str], None], started_s: float) -> None:
        self._trainer, self._say, self._started_s = trainer, say, started_s
        settings, layout = trainer.settings, trainer.layout
        shape = model_shape(settings, layout)
        tokens = layout.global_batch_size * settings.seq_length
        self._model_flops = model_flops_per_token(shape) * tokens
        recompute = settings.granularity is not None
        self._legacy_flops = legacy_flops_per_iteration(shape, layout.global_batch_size, recompute=recompute)

    def run(self) -> int:
        """Train to the end, the time limit or the first loss that is not finite; return the exit code."""
        settings, layout = self._trainer.settings, self._trainer.layout
        tally, since_s = _Tally(), self._now_s()
        for iteration in range(1, layout.train_iters + 1):
            step = self._trainer.step()
            tally.add(step)
            last = step.is_nan or iteration == layout.train_iters or self._out_of_time()
            if last or iteration % settings.log_interval == 0:
                now_s, unix_time_s = self._now_s(), time.time()
                elapsed_s = (now_s - since_s) / tally.num_iterations
                self._say(format_line(self._interval(iteration, step, tally, elapsed_s, unix_time_s)))
                tally, since_s = _Tally(), now_s  # the time of logging counts: it is part of the run
            if last:
                return self._end(iteration, step)
        raise AssertionError("a run has at least one iteration")

    def _end(self, iteration: int, step: Step) -> int:
        if step.is_nan:
            text = f"error: loss {step.loss} or gradient norm {step.grad_norm} is not finite in iteration {iteration}"
            if self._say is _log:
                print(text, file=sys.stderr, flush=True)
            return NAN_EXIT_CODE
        if iteration < self._trainer.layout.train_iters:
            limit = self._trainer.settings.exit_duration_in_mins
            self._say(f" training stopped by exit-duration-in-mins {limit} after iteration {iteration}")
        else:
            self._say(f" training finished: {iteration} iterations")
        return 0

    def _now_s(self) -> float:
        if self._trainer.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _out_of_time(self) -> bool:
        limit = self._trainer.settings.exit_duration_in_mins
        if limit is None:
            return False
        late = time.monotonic() - self._started_s > 60 * limit
        return bool(world.greatest(int(late), self._trainer.device))  # one clock must not end only some of the ranks

    def _interval(self, iteration: int, step: Step, tally: _Tally, elapsed_s: float, unix_time_s: float) -> Interval:
        trainer, layout = self._trainer, self._trainer.layout
        return Interval(
            iteration=iteration,
            train_iters=layout.train_iters,
            consumed_samples=iteration * layout.global_batch_size,
            elapsed_s=elapsed_s,
            learning_rate=trainer.learning_rate,
            global_batch_size=layout.global_batch_size,
            loss=sum(tally.losses) / len(tally.losses) if tally.losses else None,
            loss_scale=trainer.loss_scale,
            grad_norm=step.grad_norm,
            num_skipped=tally.num_skipped,
            num_nan=tally.num_nan,
            legacy_flops=self._legacy_flops,
            model_flops=self._model_flops,
            sequence_length=trainer.settings.seq_length,
            num_gpus=layout.world_size,
            peak_bytes=world.greatest(_peak_bytes(trainer.device), trainer.device),
            unix_time_s=unix_time_s,
        )


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
