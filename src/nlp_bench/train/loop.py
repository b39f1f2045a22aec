"""The training loop of one rank: it steps, logs, tells the watchers, and ends the same way on every rank."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from nlp_bench import seal
from nlp_bench.train import dump, world
from nlp_bench.train.checkpoint.keeper import Keeper
from nlp_bench.train.facts import facts_of
from nlp_bench.train.job import Job
from nlp_bench.train.kernels import choose_kernels
from nlp_bench.train.layout import Layout, Rank
from nlp_bench.train.logline import format_line
from nlp_bench.train.meter import Meter
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Step, Trainer
from nlp_bench.train.watching.chosen import watchers_of
from nlp_bench.train.watching.console import Console
from nlp_bench.train.watching.scalars import scalars_of
from nlp_bench.train.watching.startup import STARTUP
from nlp_bench.train.watching.watcher import Ending, Say, Watcher

NAN_EXIT_CODE = 3


def train(settings: Settings, layout: Layout, rank: Rank, device: torch.device) -> int:
    """Train; return the exit code: 0, or NAN_EXIT_CODE when a loss or gradient was not finite.

    The last rank writes the log to stdout. Errors are raised; the caller must then leave without waiting for the others.
    """
    started_s = time.monotonic()
    STARTUP.mark("imports")
    world.connect(settings, layout, rank, device)
    STARTUP.mark("process groups")
    kernels = choose_kernels(settings, device)
    STARTUP.mark("kernels")
    trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
    console = Console() if rank.rank == rank.world_size - 1 else None
    say = console.say if console else _silence
    say(seal.opening_line(os.environ.get(seal.VARIABLE), settings.nonce))
    say("\n".join(dump.argument_lines(settings, layout) + dump.fact_lines(facts_of(trainer))))
    keeper = Keeper(trainer, say, started_s, writes_log=console is not None)
    STARTUP.mark("facts")
    first = keeper.begin() + 1
    STARTUP.mark("checkpoint")
    watchers = watchers_of(trainer, say, console)
    STARTUP.mark("watching")
    ending = run(trainer, keeper, watchers, first, say)
    if console:
        say(console.seal.closing_line())
        print(ending.text, file=sys.stderr if ending.code else sys.stdout, flush=True)
    world.disconnect()  # a loss that is not finite is known to all ranks, so they leave together here too
    return ending.code


def _silence(_text: str) -> None:
    """Say nothing: the log is written once."""


def run(trainer: Trainer, keeper: Keeper, watchers: Sequence[Watcher], first: int, say: Say) -> Ending:
    """Train from iteration `first` to the end, a stop or the first loss that is not finite; the same on every rank."""
    try:
        ending = _iterate(trainer, keeper, watchers, first, say)
        for watcher in watchers:
            watcher.end(ending)
    finally:
        for watcher in watchers:
            watcher.close()
    return ending


def _iterate(trainer: Trainer, keeper: Keeper, watchers: Sequence[Watcher], first: int, say: Say) -> Ending:
    meter, iteration = Meter(trainer), first
    while True:
        for watcher in watchers:
            watcher.before(iteration)
        step = trainer.step(keeper.asks)
        meter.add(step)
        for watcher in watchers:
            watcher.after(iteration)
        ending = _ending(trainer.layout.train_iters, iteration, step, keeper)
        if ending or iteration % trainer.settings.log_interval == 0:
            interval = meter.read(iteration, step)
            say(format_line(interval))
            scalars = scalars_of(interval)
            for watcher in watchers:
                watcher.interval(interval, scalars)
            if keeper.until.is_enough(interval) and not ending:
                ending = _finished(iteration)
        if not step.is_nan:
            meter.leave_out(keeper.keep(iteration, last=ending is not None))
        if ending:
            said = keeper.until.text(iteration, trainer.layout.train_iters)
            return replace(ending, text=said + ending.text) if ending.code == 0 else ending
        iteration += 1


def _ending(last: int, iteration: int, step: Step, keeper: Keeper) -> Ending | None:
    if step.is_nan:
        text = f"error: loss {step.loss} or gradient norm {step.grad_norm} is not finite in iteration {iteration}"
        return Ending(iteration=iteration, code=NAN_EXIT_CODE, text=text)
    if iteration == last:
        return _finished(iteration)
    reason = keeper.why_stop(iteration, step.votes)
    if reason is None:
        return None
    stopped = f" training stopped by {reason} after iteration {iteration}"
    return Ending(iteration=iteration, code=0, text=f"{stopped}\n{keeper.how_to_go_on(iteration)}")


def _finished(iteration: int) -> Ending:
    return Ending(iteration=iteration, code=0, text=f" training finished: {iteration} iterations")
