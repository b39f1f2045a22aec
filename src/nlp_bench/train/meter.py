"""From the iterations since the last log line to the numbers of the next one."""

import time
from dataclasses import dataclass, field

import torch

from nlp_bench.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.train import world
from nlp_bench.train.layout import model_shape
from nlp_bench.train.logline import Interval
from nlp_bench.train.trainer import Step, Trainer
from nlp_bench.train.watching.memory import peak_bytes


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


class Meter:
    """Adds up the iterations and takes their time."""

    def __init__(self, trainer: Trainer) -> None:
        """Begin to measure now."""
        self._trainer = trainer
        settings, layout = trainer.settings, trainer.layout
        shape = model_shape(settings, layout)
        self._model_flops = model_flops_per_token(shape) * layout.global_batch_size * settings.seq_length
        recompute = settings.granularity is not None
        self._legacy_flops = legacy_flops_per_iteration(shape, layout.global_batch_size, recompute=recompute)
        self._tally, self._since_s = _Tally(), self._now_s()

    def add(self, step: Step) -> None:
        """Take one iteration."""
        self._tally.add(step)

    def leave_out(self, seconds: float) -> None:
        """Let what has just taken so long be no part of any iteration: a checkpoint is not training."""
        self._since_s += seconds

    def read(self, iteration: int, step: Step) -> Interval:
        """Return the interval that ends with `iteration`, and begin the next; every rank must call it."""
        now_s, unix_time_s = self._now_s(), time.time()
        tally, elapsed_s = self._tally, (now_s - self._since_s) / self._tally.num_iterations
        self._tally, self._since_s = _Tally(), now_s  # the time of logging counts: it is part of the run
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
            peak_bytes=world.greatest(peak_bytes(trainer.device), trainer.device),
            unix_time_s=unix_time_s,
        )

    def _now_s(self) -> float:
        if self._trainer.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()
