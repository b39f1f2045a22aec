"""The training loop of one rank: steps, time measurement, log, watchers; it ends in the same iteration on every rank."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from nlp_bench import clock, seal
from nlp_bench.layout.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.train import world
from nlp_bench.train.checkpoint.keeper import Keeper
from nlp_bench.train.kernels.choice import choose_kernels
from nlp_bench.train.kernels.recompute import recompute_text
from nlp_bench.train.layout import Layout, Rank, model_shape
from nlp_bench.train.logline import Interval, argument_lines, fact_lines, format_line, versions
from nlp_bench.train.model import Job
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Step, Trainer
from nlp_bench.train.watching import watchers as watching
from nlp_bench.train.watching.startup import STARTUP
from nlp_bench.train.watching.timing import PhaseReport
from nlp_bench.train.watching.watchers import Console, Say, TrainingEnd, Watcher
from nlp_bench.train.watching.writers import MlLog, TensorBoard, WeightsBiases, scalars_of

NAN_EXIT_CODE = 3


def train(settings: Settings, layout: Layout, rank: Rank, device: torch.device) -> int:
    """Train; return 0, or NAN_EXIT_CODE for a loss or gradient that is not finite. The last rank logs to stdout. After an exception the caller must exit at once, without waiting for the other ranks."""
    started_s = time.monotonic()
    STARTUP.mark("imports")
    world.connect(settings, layout, rank, device)
    STARTUP.mark("process groups")
    kernels = choose_kernels(settings, device)
    STARTUP.mark("kernels")
    trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
    console = Console() if rank.rank == rank.world_size - 1 else None
    say = console.say if console else lambda _: None  # the log is written once
    say(seal.opening_line(os.environ.get(seal.VARIABLE), settings.nonce))
    say("\n".join(argument_lines(settings, layout) + fact_lines(facts_of(trainer))))
    keeper = Keeper(trainer, say, started_s, writes_log=console is not None)
    STARTUP.mark("facts")
    first = keeper.begin() + 1
    STARTUP.mark("checkpoint")
    watchers = watchers_of(trainer, say, console)
    STARTUP.mark("watching")
    try:
        ending = _iterate(trainer, keeper, watchers, first, say)
        for watcher in watchers:
            watcher.end(ending)
    finally:
        for watcher in watchers:
            watcher.close()
    if console:
        say(console.seal.closing_line())
        print(ending.text, file=sys.stderr if ending.code else sys.stdout, flush=True)
    world.wait_for_all()  # all ranks come here, also after a loss that is not finite
    torch.distributed.destroy_process_group()
    return ending.code


def _iterate(trainer: Trainer, keeper: Keeper, watchers: Sequence[Watcher], first: int, say: Say) -> TrainingEnd:
    """Train from iteration `first` to the end, a stop or the first loss that is not finite, which all ranks agree on."""
    meter, iteration = Meter(trainer), first
    while True:
        for watcher in watchers:
            watcher.before(iteration)
        step = trainer.step(keeper.asks)
        meter.steps.append(step)
        for watcher in watchers:
            watcher.after(iteration)
        ending = _ending(trainer.layout.train_iters, iteration, step, keeper)
        if ending or iteration % trainer.settings.log_interval == 0:
            interval = meter.read(iteration)
            say(format_line(interval))
            scalars = scalars_of(interval)
            for watcher in watchers:
                watcher.interval(interval, scalars)
            if keeper.until.is_enough(interval) and not ending:
                ending = TrainingEnd(iteration=iteration, text=FINISHED.format(iteration))
        if not step.is_nan:
            meter.since_s += keeper.keep(iteration, last=ending is not None)  # time of checkpoints does not count
        if ending:
            until = keeper.until.text(iteration, trainer.layout.train_iters)
            return replace(ending, text=until + ending.text) if ending.code == 0 else ending
        iteration += 1


FINISHED = " training finished: {} iterations"


def _ending(last: int, iteration: int, step: Step, keeper: Keeper) -> TrainingEnd | None:
    if step.is_nan:
        text = f"error: loss {step.loss} or gradient norm {step.grad_norm} is not finite in iteration {iteration}"
        return TrainingEnd(iteration=iteration, code=NAN_EXIT_CODE, text=text)
    if iteration == last:
        return TrainingEnd(iteration=iteration, text=FINISHED.format(iteration))
    reason = keeper.why_stop(iteration, step.votes)
    if reason is None:
        return None
    stopped = f" training stopped by {reason} after iteration {iteration}"
    return TrainingEnd(iteration=iteration, text=f"{stopped}\n{keeper.how_to_resume(iteration)}")


class Meter:
    """Collects the steps since the last log line, and computes the numbers of the next one."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        settings, layout = trainer.settings, trainer.layout
        shape = model_shape(settings, layout)
        self._model_flops = model_flops_per_token(shape) * layout.global_batch_size * settings.seq_length
        recompute = settings.granularity is not None
        self._legacy_flops = legacy_flops_per_iteration(shape, layout.global_batch_size, recompute=recompute)
        self.steps: list[Step] = []
        self.since_s = self._now_s()

    def read(self, iteration: int) -> Interval:
        """Return the interval that ends with `iteration`, and start the next; every rank must call it."""
        now_s, unix_time_s = self._now_s(), clock.unix_s()
        steps, elapsed_s = self.steps, (now_s - self.since_s) / len(self.steps)
        losses = [step.loss for step in steps if step.is_nan or not step.skipped]
        self.steps, self.since_s = [], now_s  # the time of logging counts for the next interval
        trainer, layout = self._trainer, self._trainer.layout
        return Interval(
            iteration=iteration,
            train_iters=layout.train_iters,
            consumed_samples=iteration * layout.global_batch_size,
            elapsed_s=elapsed_s,
            learning_rate=trainer.learning_rate,
            global_batch_size=layout.global_batch_size,
            loss=sum(losses) / len(losses) if losses else None,
            loss_scale=trainer.loss_scale,
            grad_norm=steps[-1].grad_norm,
            num_skipped=sum(step.skipped for step in steps),
            num_nan=sum(step.is_nan for step in steps),
            legacy_flops=self._legacy_flops,
            model_flops=self._model_flops,
            sequence_length=trainer.settings.seq_length,
            num_gpus=layout.world_size,
            peak_bytes=world.greatest(watching.peak_bytes(trainer.device), trainer.device),
            unix_time_s=unix_time_s,
        )

    def _now_s(self) -> float:
        if self._trainer.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def facts_of(trainer: Trainer) -> dict[str, str]:
    """Return the facts of the log in order; every rank must call it."""
    settings, on_gpu = trainer.settings, trainer.device.type == "cuda"
    return {
        "versions": versions(torch.version.cuda),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads per rank",
        "backend": torch.distributed.get_backend(),
        **trainer.job.kernels.describe(),
        "optimizer": trainer.optimizer_name,
        "recompute": recompute_text(settings),
        "initial weights": "same for every layout" if settings.use_cpu_initialization or not on_gpu else "by layout",
        "data": "mock: random tokens, no file is read" if settings.mock_data else " ".join(settings.data_path),
        **trainer.family.facts(trainer.job),
        "number of parameters": f"{trainer.num_parameters()}",
        "clocks of the ranks": f"within {_clock_spread_s(trainer.device):.6f} s after a barrier",
    }


def _clock_spread_s(device: torch.device) -> float:
    """Return the spread of the ranks' clocks, read when a reduction ends; an upper bound. All ranks call it."""
    world.greatest(0, device)
    now_us = int(clock.unix_s() * 1e6)
    return (world.greatest(now_us, device) + world.greatest(-now_us, device)) / 1e6


def watchers_of(trainer: Trainer, say: Say, console: Console | None) -> list[Watcher]:
    """Return the watchers of this rank in the order in which they are called; `console` is None except on the logging rank.

    The start-up is first, so that no other counts for it; a watcher that adds to an interval's numbers precedes those that write them;
    progress is last, below all lines.
    """
    settings, layout, device = trainer.settings, trainer.layout, trainer.device
    wanted: list[tuple[object, Callable[[], Watcher]]] = [
        (True, lambda: watching.StartUpReport(say)),
        (settings.manual_gc, lambda: watching.Garbage(settings)),
        (settings.profile, lambda: watching.Profiler(settings, device, say)),
        (True, lambda: watching.MemoryReport(device, settings.pipeline_model_parallel_size, say)),
        (settings.timing_log_level, lambda: PhaseReport(trainer, say)),
    ]
    if console:
        line = console.line
        shows = settings.progress == "on" or (settings.progress == "auto" and line.is_terminal)
        wanted += [
            (settings.tensorboard_dir, lambda: TensorBoard(settings, say)),
            (settings.wandb_project, lambda: WeightsBiases(settings, layout, say)),
            (settings.mllog, lambda: MlLog(settings, layout, device.type, say)),
            (shows, lambda: watching.Progress(line, settings, layout)),
        ]
    return [make() for condition, make in wanted if condition]
