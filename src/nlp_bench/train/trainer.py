"""One training step: forward and backward passes of all micro-batches, then the optimizer."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

from nlp_bench.train.batches import IndexedSamples, MockSamples, microbatches
from nlp_bench.train.kernels import Kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.model import build_model
from nlp_bench.train.optim import build_optimizer, build_schedule, use_fused_kernels
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one iteration did; the same on every rank."""

    loss: float
    """Mean loss over the global batch."""
    grad_norm: float | None
    """Norm of the gradient before clipping; None where the update was skipped."""
    skipped: bool
    """Whether float16 overflowed, so that the weights were not updated."""
    stuck: bool
    """Whether float16 overflowed in the loss itself although the loss scale cannot shrink any more."""

    @property
    def is_nan(self) -> bool:
        """Whether the training has gone wrong; an overflow that the loss scale can still mend is none."""
        if self.skipped:
            return self.stuck
        return not (math.isfinite(self.loss) and math.isfinite(self.grad_norm or 0.0))


class Trainer:
    """The model, its optimizer and its data on one rank."""

    def __init__(self, settings: Settings, layout: Layout, kernels: Kernels, device: torch.device) -> None:
        """Build everything; every rank must do so at the same time."""
        self.settings, self.layout, self.device = settings, layout, device
        self.model = build_model(settings, layout, kernels, device)
        self.optimizer = build_optimizer(settings, self.model)
        self.optimizer_name = use_fused_kernels(self.optimizer)
        self.schedule = build_schedule(settings, layout, self.optimizer)
        self._forward_backward = get_forward_backward_func()
        self._batches = self._open_data()
        self._positions = torch.arange(settings.seq_length, device=device).expand(settings.micro_batch_size, -1)

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
        own = sum(p.numel() for p in self.model.parameters() if _counts(p))
        total = torch.tensor([own], dtype=torch.int64, device=self.device)
        dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
        return int(total.item())

    def step(self) -> Step:
        """Train on one global batch."""
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses = self._forward_backward(
            forward_step_func=self._forward,
            data_iterator=self._batches,
            model=[self.model],
            num_microbatches=self.layout.num_microbatches,
            seq_length=self.settings.seq_length,
            micro_batch_size=self.settings.micro_batch_size,
            forward_only=False,
        )
        scale = self.loss_scale if self.settings.fp16 else 1.0
        updated, grad_norm, _ = self.optimizer.step()
        if updated:
            self.schedule.step(increment=self.layout.global_batch_size)
        loss = self._mean_loss(losses)
        stuck = not updated and not math.isfinite(loss) and scale <= self.settings.min_loss_scale
        return Step(loss=loss, grad_norm=grad_norm, skipped=not updated, stuck=stuck)

    def _open_data(self) -> Iterator[torch.Tensor]:
        settings, layout = self.settings, self.layout
        if settings.mock_data:
            mock = MockSamples(layout.vocab_size, settings.seq_length, settings.seed)
            return microbatches(mock, settings, layout, self.device)
        return microbatches(IndexedSamples(settings, layout), settings, layout, self.device)

    def _forward(self, batches: Iterator[torch.Tensor], model: Any) -> tuple[torch.Tensor, Callable[..., Any]]:
        tokens = labels = None
        if parallel_state.is_pipeline_first_stage() or parallel_state.is_pipeline_last_stage():
            batch = next(batches)
            tokens, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        return model(tokens, self._positions, None, labels=labels), _mean

    def _mean_loss(self, losses: list[torch.Tensor]) -> float:
        loss = torch.stack(losses).mean() if losses else torch.zeros((), device=self.device)
        if losses and self.layout.data_parallel_size > 1:
            dist.all_reduce(loss, group=parallel_state.get_data_parallel_group())
            loss /= self.layout.data_parallel_size
        if self.settings.pipeline_model_parallel_size > 1:  # every rank must agree when the loss ends the run
            source = parallel_state.get_pipeline_model_parallel_last_rank()
            dist.broadcast(loss, source, group=parallel_state.get_pipeline_model_parallel_group())
        return float(loss.item())


def _mean(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = losses.float().mean()
    return loss, loss.detach().clone()  # the schedule scales the first one in place


def _counts(parameter: torch.nn.Parameter) -> bool:
    split = getattr(parameter, "tensor_model_parallel", False)
    shared_copy = getattr(parameter, "shared", False)  # the tied embedding of the last pipeline stage
    return (split or parallel_state.get_tensor_model_parallel_rank() == 0) and not shared_copy
