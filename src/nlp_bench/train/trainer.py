"""One training step with megatron-core: forward and backward passes of all micro-batches, then optimizer and schedule."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.utils import get_attr_wrapped_model

from nlp_bench.immutable import immutable
from nlp_bench.train.families import Loss, family_of, reads_batch
from nlp_bench.train.layout import Layout
from nlp_bench.train.model import Job, build_model, places, same_names
from nlp_bench.train.samples import Batch, microbatches
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.startup import STARTUP


@immutable
class Step:
    """The result of one iteration; the same on every rank."""

    loss: float  # mean loss over the global batch
    grad_norm: float | None  # norm of the gradient before clipping; None where the update was skipped
    skipped: bool  # whether float16 overflowed, so that the weights were not updated
    stuck: bool  # whether float16 overflowed in the loss itself at the smallest loss scale
    votes: tuple[bool, ...] = ()  # for each element of `asks` whether it was true on any rank

    @property
    def is_nan(self) -> bool:
        """Whether the training has failed; an overflow that a smaller loss scale may fix does not count."""
        if self.skipped:
            return self.stuck
        return not (math.isfinite(self.loss) and math.isfinite(self.grad_norm or 0.0))


class Trainer:
    """The model, its optimizer and its data on one rank."""

    def __init__(self, job: Job) -> None:
        """Build everything; every rank must do so at the same time."""
        self.job, self.settings, self.layout, self.device = job, job.settings, job.layout, job.device
        self.family = family_of(job.settings)
        self.places = places(job)
        self.model = build_model(job, self.family)
        self.optimizer, self.optimizer_name = build_optimizer(self.settings, self.model)
        self.schedule = build_schedule(self.settings, self.layout, self.optimizer)
        self._forward_backward = get_forward_backward_func()
        STARTUP.mark("model and optimizer")
        self._samples = self.family.open_samples(job)
        self._batches = self._batches_from(0)
        STARTUP.mark("data")

    @property
    def learning_rate(self) -> float:
        """The learning rate that the next update will use."""
        return float(max(group["lr"] for group in self.optimizer.param_groups))

    @property
    def loss_scale(self) -> float:
        """The loss scale that the next iteration will use; 1 outside float16."""
        return float(self.optimizer.get_loss_scale().item())

    def num_parameters(self) -> int:
        """Return the parameters of the whole model; every rank must call it."""
        first = parallel_state.get_tensor_model_parallel_rank() == 0
        own = sum(
            p.numel()
            for p in (p for part in self.model for p in part.parameters())
            if (first or getattr(p, "tensor_model_parallel", False))
            and not getattr(p, "shared", False)  # the tied embedding of the last pipeline stage
        )
        total = torch.tensor([own], dtype=torch.int64, device=self.device)
        dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
        return int(total.item())

    def step(self, asks: Callable[[], Sequence[bool]] = tuple) -> Step:
        """Train on one global batch; `asks` is called once, after the backward pass is queued, and returns as many votes on each rank.

        One reduction sums up loss and votes. The host waits for the device once: when megatron-core's optimizer reads the norm of the
        gradient (with float16 also when it reads the overflow flag); loss and votes have been copied by then.
        """
        for part in self.model:
            part.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses = self._forward_backward(
            forward_step_func=self._forward,
            data_iterator=self._batches,
            model=self.model,
            num_microbatches=self.layout.num_microbatches,
            seq_length=self.settings.seq_length + (self.settings.decoder_seq_length or 0),  # sent between t5's stages
            micro_batch_size=self.settings.micro_batch_size,
            forward_only=False,
        )
        copied = _copy_to_host(self._reduced(losses, asks()))
        updated, grad_norm, _ = self.optimizer.step()
        if updated:
            self.schedule.step(increment=self.layout.global_batch_size)
        loss, scale, *counts = copied()
        stuck = not updated and not math.isfinite(loss) and scale <= self.settings.min_loss_scale
        votes = tuple(count > 0 for count in counts)
        return Step(loss=loss, grad_norm=grad_norm, skipped=not updated, stuck=stuck, votes=votes)

    def skip_to(self, consumed_samples: int) -> None:
        """Skip the samples that an earlier part of the training has consumed."""
        self._batches = self._batches_from(consumed_samples)

    def watch_data(self, wrap: Callable[[Iterator[Batch]], Iterator[Batch]]) -> None:
        """Wrap the iterators over micro-batches, for example to time them."""
        self._batches = [wrap(batches) for batches in self._batches]

    def _batches_from(self, first: int) -> list[Iterator[Batch]]:
        return [microbatches(self._samples, self.settings, self.layout, self.device, first) for _ in self.model]

    def _forward(self, batches: Iterator[Batch], model: Any) -> tuple[torch.Tensor, Loss]:
        place = self.places[get_attr_wrapped_model(model, "vp_stage", allow_none=True) or 0]
        batch = next(batches) if reads_batch(self.job, place) else None
        output, loss = self.family.forward(self.job, batch, model)
        parts = self.settings.context_parallel_size
        if parts == 1:
            return output, loss

        # megatron-core's schedule multiplies the loss by `parts`: it expects the sum over a rank's tokens divided by the number of
        # all tokens, not their mean (megatron/core/pipeline_parallel/schedules.py, `forward_step_calc_loss`)
        def share(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            differentiated, logged = loss(output)
            return differentiated / parts, logged

        return output, share

    def _reduced(self, losses: list[torch.Tensor], votes: Sequence[bool]) -> torch.Tensor:
        """Return float32 [2 + votes] on the device: mean loss, loss scale of this iteration, number of ranks with each vote."""
        numbers = torch.zeros(1 + len(votes), dtype=torch.float32, device=self.device)
        # the other ranks of a tensor-parallel group have the same loss
        if losses and parallel_state.get_tensor_model_parallel_rank() == 0:
            replicas = self.layout.data_parallel_size * self.settings.context_parallel_size
            numbers[0] = torch.stack(losses).mean() / replicas
        if votes:
            numbers[1:] = torch.tensor(votes, dtype=torch.float32)
        if self.layout.world_size > 1:  # every rank must agree when the loss or the clock ends the run
            dist.all_reduce(numbers)
        return torch.cat((numbers[:1], self.optimizer.get_loss_scale().float().view(1), numbers[1:]))


def _copy_to_host(numbers: torch.Tensor) -> Callable[[], list[float]]:
    """Queue the copy of `numbers` to the host; the returned function waits for that copy only, not for kernels queued later."""
    copy = numbers.to("cpu", non_blocking=True)  # into pinned memory
    if not numbers.is_cuda:
        return lambda: list(copy.tolist())
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> list[float]:
        copied.synchronize()
        return list(copy.tolist())

    return wait


SAME_IN_OPTIMIZER = (
    "optimizer", "lr", "min_lr", "weight_decay", "adam_beta1", "adam_beta2", "adam_eps", "clip_grad", "bf16", "fp16",
    "use_distributed_optimizer", "overlap_param_gather", "initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis",
)  # fmt: skip
"""Settings with the same names in megatron-core's OptimizerConfig."""


def build_optimizer(settings: Settings, model: list[DistributedDataParallel]) -> tuple[MegatronOptimizer, str]:
    """Return this rank's optimizer and its name for the log, with the Adam and gradient kernels of kernels/choice.py; torch's AdamW is the fused one."""
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            **same_names(settings, SAME_IN_OPTIMIZER),
            params_dtype=getattr(torch, settings.params_dtype),
            fp8_recipe=settings.fp8_recipe if settings.fp8_format else None,
        ),
        model,
        use_gloo_process_groups=False,
    )
    model[0].config.grad_scale_func = optimizer.scale_loss  # one configuration for all parts
    inner = [part.optimizer for part in optimizer.chained_optimizers if part.optimizer is not None]
    for one in inner:
        for group in one.param_groups if isinstance(one, torch.optim.AdamW) else ():
            group["fused"] = True
    kinds = {f"{type(one).__module__.split('.')[0]} {type(one).__name__}" for one in inner}
    return optimizer, ", ".join(sorted(kinds)) + ", fused"


def build_schedule(settings: Settings, layout: Layout, optimizer: MegatronOptimizer) -> OptimizerParamScheduler:
    """Return the learning-rate schedule, which counts samples as Megatron-LM does."""
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=settings.lr,
        min_lr=settings.min_lr,
        lr_warmup_steps=layout.warmup_samples,
        lr_decay_steps=layout.decay_samples,
        lr_decay_style=settings.lr_decay_style,
        start_wd=settings.weight_decay,
        end_wd=settings.weight_decay,
        wd_incr_steps=layout.decay_samples,
        wd_incr_style="constant",
        use_checkpoint_opt_param_scheduler=False,
    )
