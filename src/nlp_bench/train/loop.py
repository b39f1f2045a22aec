"""The training loop of one rank: steps, time measurement, log, watchers, checkpoints; it ends in the same iteration on every rank."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nlp_bench import clock, seal
from nlp_bench.layout.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.measure.anytime import Bound, ConfidenceSequence, percent
from nlp_bench.train import world
from nlp_bench.train.checkpoint.folder import found_checkpoint, read_record
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


class Keeper:
    """Checkpoints and early ends of one rank's training: all must decide to stop in the same iteration, or the others would wait for ever."""

    def __init__(self, trainer: Trainer, say: Say, started_s: float, *, writes_log: bool) -> None:
        """Every rank creates one at the same time; `started_s` is by time.monotonic. With --exit-signal-handler SIGTERM no longer ends this process."""
        self._trainer, self._settings, self._say = trainer, trainer.settings, say
        self._started_s, self._signalled = started_s, False
        if self._settings.exit_signal_handler:
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_signalled", True))
        self.until = Until(self._settings, trainer.device, decides=writes_log)
        self._store = None
        if self._settings.save is not None:
            from nlp_bench.train.checkpoint.store import Store  # noqa: PLC0415  # its imports take a second

            self._store = Store(trainer, Path(self._settings.save).absolute())

    def begin(self) -> int:
        """Load the checkpoint for --load; return its iterations, 0 where the training starts from scratch."""
        settings = self._settings
        path = found_checkpoint(settings)
        if path is None:
            missing = f"{settings.load} holds none, the training begins anew; " if settings.load else ""
            self._say(f" > checkpoints: {missing}{self._plan()}")
            return 0
        from nlp_bench.train.checkpoint.store import load  # noqa: PLC0415  # as above

        since_s, record = time.perf_counter(), read_record(path)
        load(self._trainer, path, record)
        self._trainer.skip_to(record["consumed_samples"])
        layout = ", ".join(f"{name} {value}" for name, value in record["layout"].items())
        self._say(
            f" > checkpoints: loaded {path} in {time.perf_counter() - since_s:.2f} s: {record['iteration']} iterations, "
            f"{record['consumed_samples']} samples, made with {layout}; {self._plan()}"
        )
        return int(record["iteration"])

    def asks(self) -> tuple[bool, ...]:
        """Return whether this rank has got a signal and whether its time is over, for `Trainer.step` to combine; nothing where neither option is set."""
        limit = self._settings.exit_duration_in_mins
        if limit is None and not self._settings.exit_signal_handler:
            return ()
        return self._signalled, limit is not None and time.monotonic() - self._started_s > 60 * limit

    def why_stop(self, iteration: int, votes: tuple[bool, ...]) -> str | None:
        """Return why the training stops after this iteration, None if it does not: one of the `votes` of all ranks (`asks`) is enough, all stop together."""
        signalled, late = votes or (False, False)
        every = self._settings.exit_interval
        if signalled:
            return "exit-signal-handler: SIGTERM came"
        if late:
            return f"exit-duration-in-mins {self._settings.exit_duration_in_mins}"
        return f"exit-interval {every}" if every and iteration % every == 0 else None

    def keep(self, iteration: int, *, last: bool) -> float:
        """Write a checkpoint if one is due and return the seconds this took; every rank must call it after each good iteration."""
        if self._store is None:
            return 0.0
        settings = self._settings
        due = last or (settings.save_interval is not None and iteration % settings.save_interval == 0)
        if (due or self._store.is_writing) and self._trainer.device.type == "cuda":
            torch.cuda.synchronize()  # pending kernels of the iteration count as training
        since_s = time.perf_counter()
        if due:
            path = self._store.save(iteration, iteration * self._trainer.layout.global_batch_size)
        if last:
            self._store.close()
        else:
            self._store.finish(wait=False)
        took_s = time.perf_counter() - since_s
        if due:
            state = "is being written" if settings.async_save and not last else "saved"
            what = f"{state} after iteration {iteration} in {took_s:.2f} s, which no iteration's time contains"
            self._say(f" checkpoint {path} {what}")
        return took_s

    def how_to_resume(self, iteration: int) -> str:
        """Return the last line of a log that ends before the last iteration: how to resume, or that nothing was saved."""
        save, total = self._settings.save, self._trainer.layout.train_iters
        if save is None:
            return f" nothing was kept of iteration {iteration} of {total}: a training goes on where --save FOLDER was given"
        command = f"--load {shlex.quote(str(Path(save).absolute()))}"
        return f" {total - iteration} of {total} iterations are left: repeat the command with {command}"

    def _plan(self) -> str:
        settings = self._settings
        if settings.save is None:
            return "none are written, as a throughput run wants it (see --save)"
        when = f"every {settings.save_interval} iterations and at the end" if settings.save_interval else "at the end"
        meanwhile = ", while the training goes on" if settings.async_save else ""
        return f"written to {Path(settings.save).absolute()} {when}{meanwhile}"


class Until:
    """--until on one rank: stops when the mean time is known well enough by the log's times; without the option the ranks do not communicate."""

    def __init__(self, settings: Settings, device: torch.device, *, decides: bool) -> None:
        """Every rank creates one; the one that writes the log `decides`."""
        self._share, self._device, self._decides = settings.until, device, decides
        self._sequence: ConfidenceSequence | None = None
        if settings.until is not None:
            self._sequence = ConfidenceSequence(percent("until", settings.until), settings.log_interval)
        self._bound: Bound | None = None

    def is_enough(self, interval: Interval) -> bool:
        """Add one log line; return whether the training ends with it, on every rank the same; every rank must call it."""
        if self._sequence is None:
            return False
        # Rounded as in the log, so that the decision can be reproduced from the log.
        if self._decides and self._sequence.add(interval.iteration, round(interval.elapsed_s, 4)):
            self._bound = self._sequence.bound()
        enough = self._decides and self._bound is not None and self._bound.is_enough
        return bool(world.greatest(int(enough), self._device))

    def text(self, iteration: int, train_iters: int) -> str:
        """Return the line on whether --until was met, whose beginning last_start.py parses; empty without the option."""
        if self._sequence is None:
            return ""
        enough = self._bound is not None and self._bound.is_enough
        known = self._bound.text() if self._bound else "too few lines to bound the mean"
        verdict = "enough" if enough else "not enough"
        return f" until {self._share}: {verdict} after iteration {iteration} of {train_iters}: {known}\n"


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
            (shows, lambda: watching.ProgressLine(line, settings, layout)),
        ]
    return [make() for condition, make in wanted if condition]
