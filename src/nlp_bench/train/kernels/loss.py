"""Cross entropy over a vocabulary that tensor-parallel ranks share, which keeps no second copy of the logits.

megatron-core's keeps the softmax in float32 (4 bytes per token and word beside the 2 of the logits); here the backward pass
makes the gradient out of the logits themselves and writes it over them.
"""

from typing import Any

import torch
import torch.distributed as dist
from megatron.core.models.common.language_module import language_module

from nlp_bench.train.kernels.processor import loss_in_place

FUSED_NAME = "fused_vocab_parallel_cross_entropy"
"""The name under which megatron-core's models look their fused loss up."""


def install_loss(*, compiled: bool) -> None:
    """Let megatron-core's models use `vocab_parallel_loss`, `compiled` by torch or as it stands."""
    for name, function in (("sums", sums), ("gradient", gradient)):
        setattr(_Loss, name, staticmethod(torch.compile(function) if compiled else function))
    setattr(language_module, FUSED_NAME, vocab_parallel_loss)


def vocab_parallel_loss(logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return -log softmax(logits)[target] per token, float32 [s, b].

    `logits` are this rank's columns [s, b, v / tp]; they are overwritten in the backward pass. `target` [s, b] counts over
    the whole vocabulary; `group` are the tensor-parallel ranks.
    """
    if logits.device.type == "cpu" and group.size() == 1 and logits.dtype == torch.float32:
        return loss_in_place(logits, target)  # takes a third less time there than torch's cross entropy
    return shared_loss(logits, target, group)


def shared_loss(logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Do the same by our own operators, on any device and any number of ranks."""
    return _Loss.apply(logits, target, group)  # type: ignore[no-any-return,no-untyped-call]


def sums(logits: torch.Tensor, local: torch.Tensor, greatest: torch.Tensor) -> torch.Tensor:
    """Return sum(exp(logits - greatest)) and the target's logit, 0 where another rank has it: [2, s, b] in float32."""
    width = logits.shape[-1]
    total = (logits - greatest.unsqueeze(-1)).exp_().sum(-1)
    ours = (local >= 0) & (local < width)
    picked = logits.gather(-1, local.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1).float()
    return torch.stack((total, torch.where(ours, picked, torch.zeros_like(picked))))


def gradient(logits: torch.Tensor, local: torch.Tensor, log_total: torch.Tensor, upper: torch.Tensor) -> None:
    """Write (softmax - one-hot(target)) * upper over `logits`; `log_total` [s, b] is the logarithm of the softmax's sum."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    softmax = (logits.float() - log_total.unsqueeze(-1)).exp()
    logits.copy_((softmax - (columns == local.unsqueeze(-1)).float()) * upper.unsqueeze(-1))


def gradient_in_place(logits: torch.Tensor, local: torch.Tensor, log_total: torch.Tensor, upper: torch.Tensor) -> None:
    """Do the same for float32 without a compiler: four passes over the logits and no other tensor of their size."""
    width = logits.shape[-1]
    ours = ((local >= 0) & (local < width)).float().unsqueeze(-1)
    logits.sub_(log_total.unsqueeze(-1)).exp_()
    logits.scatter_add_(-1, local.clamp(0, width - 1).unsqueeze(-1), -ours)
    logits.mul_(upper.unsqueeze(-1))


class _Loss(torch.autograd.Function):
    """Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867: the softmax from its maximum and its sum alone."""

    sums = staticmethod(sums)
    gradient = staticmethod(gradient)

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        local = target - group.rank() * logits.shape[-1]
        greatest = logits.amax(-1).float()
        if group.size() > 1:
            dist.all_reduce(greatest, op=dist.ReduceOp.MAX, group=group)
        both = _Loss.sums(logits, local, greatest)
        if group.size() > 1:
            dist.all_reduce(both, group=group)
        log_total = both[0].log() + greatest
        ctx.save_for_backward(logits, local, log_total)
        return log_total - both[1]

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, local, log_total = ctx.saved_tensors
        plain = _Loss.gradient is gradient and logits.dtype == torch.float32
        (gradient_in_place if plain else _Loss.gradient)(logits, local, log_total, upper)
        return logits, None, None
