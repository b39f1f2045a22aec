"""Who updates the weights and measures the gradients: Transformer Engine's, Apex's or torch's kernels, by one choice.

megatron-core takes what it can import, whatever was asked for; here its names are pointed to the choice.
"""

from typing import Any

import torch
from megatron.core import optimizer as package
from megatron.core.optimizer import clip_grads, distrib_optimizer
from megatron.core.optimizer import optimizer as base
from megatron.core.utils import local_multi_tensor_applier, local_multi_tensor_l2_norm, local_multi_tensor_scale


def install_optimizer(provider: str, off: frozenset[str]) -> None:
    """Point megatron-core's names to this provider's Adam and to its norm and scaling of all gradients at once."""
    maker = "torch" if "adamw" in off else provider
    adam, foreign = adam_of(maker)
    package.Adam = distrib_optimizer.Adam = adam
    package.USING_PYTORCH_OPTIMIZER = not foreign
    distrib_optimizer.HAVE_APEX_OR_TE = (
        foreign  # where its checkpoints look for the step count: lost if the wrong one is asked
    )
    distrib_optimizer.USING_TE_OPTIMIZER, distrib_optimizer.USING_APEX_OPTIMIZER = maker == "te", maker == "apex"
    applier, norm, scale = norm_of_provider("torch" if "grad norm" in off else provider)
    if "grad norm" in off and provider == "torch":
        applier, norm, scale = local_multi_tensor_applier, local_multi_tensor_l2_norm, local_multi_tensor_scale
    clip_grads.multi_tensor_applier = base.multi_tensor_applier = applier
    clip_grads.multi_tensor_scale_impl = base.multi_tensor_scale_impl = scale
    clip_grads.l2_norm_impl = norm


def adam_of(provider: str) -> tuple[Any, bool]:
    """Return the class, and whether it is Apex's or Transformer Engine's, which take `adam_w_mode`."""
    if provider == "te":
        from transformer_engine.pytorch.optimizers import FusedAdam  # noqa: PLC0415  # only where it is installed

        return FusedAdam, True
    if provider == "apex":
        from apex.optimizers import FusedAdam  # noqa: PLC0415

        return FusedAdam, True
    return torch.optim.AdamW, False


def norm_of_provider(provider: str) -> tuple[Any, Any, Any]:
    """Return what runs an operation over many tensors, and the operations: norm and scaling."""
    if provider == "te":
        from transformer_engine.pytorch import optimizers as te  # noqa: PLC0415  # only where it is installed

        return te.multi_tensor_applier, te.multi_tensor_l2norm, te.multi_tensor_scale
    if provider == "apex":
        import amp_C  # noqa: PLC0415
        from apex.multi_tensor_apply import multi_tensor_applier  # noqa: PLC0415

        return multi_tensor_applier, amp_C.multi_tensor_l2norm, amp_C.multi_tensor_scale
    return local_multi_tensor_applier, norm_of_all, scale_all


def norm_of_all(_chunk: int, _flag: Any, lists: list[list[torch.Tensor]], *_: Any) -> tuple[torch.Tensor, None]:
    """Return the norm of all tensors together: one kernel for all of them, and no wait for the device."""
    total = torch.nn.utils.get_total_norm(lists[0], foreach=True)
    return total.unsqueeze(0), None


def scale_all(_chunk: int, _flag: Any, lists: list[list[torch.Tensor]], scale: float) -> None:
    """Write the first tensors times `scale` to the second ones."""
    source, target = lists
    if source is not target:
        torch._foreach_copy_(target, source)
    torch._foreach_mul_(target, scale)
