"""Chooses the kernels and installs them in megatron-core."""

import importlib
import os
from pathlib import Path
from typing import Any

import torch
from megatron.core import optimizer as package
from megatron.core.optimizer import clip_grads, distrib_optimizer
from megatron.core.optimizer import optimizer as base
from megatron.core.utils import local_multi_tensor_applier, local_multi_tensor_l2_norm, local_multi_tensor_scale

from nlp_bench.build.environment import RECORD
from nlp_bench.build.providers import NAMES, missing
from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json
from nlp_bench.train.kernels import Kernels, apex, native, te
from nlp_bench.train.kernels.native import install_accumulation, native_way
from nlp_bench.train.kernels.recompute import repair_recompute
from nlp_bench.train.settings import Settings


def choose_kernels(settings: Settings, device: torch.device) -> Kernels:
    """Choose by the settings, and by what is installed, verified in the build and working on this device; install the choice.

    To be called after the ranks are connected and before a model is built. Raises UsageError for unavailable kernels.
    """
    provider, why = choose_provider(settings, device)
    te.check_eight_bit(settings, provider, device)
    chosen = f"needs Transformer Engine, and {NAMES[provider]} was chosen"
    if settings.tp_comm_overlap and provider != "te":
        remedy = "install it with `nlp-bench build --te`, or leave the option out"
        raise UsageError(f"tp_comm_overlap: {chosen}; {remedy}")
    if settings.context_parallel_size > 1 and settings.cp_comm_type != "all_gather" and provider != "te":
        raise UsageError(f"cp_comm_type: {settings.cp_comm_type} {chosen}; use all_gather")
    off, torch_off = switched_off(provider), switched_off("torch")
    if provider == "te":
        modules = te.modules(settings)
        norm = f"Transformer Engine {settings.normalization}, inside the linear layer behind it"
    elif provider == "apex":
        modules, norm = apex.modules(settings, off)
    else:
        modules, norm = native.modules(on_cpu=device.type == "cpu"), f"torch {settings.normalization}"
    compiled, elementwise = native.compiled_operators(settings, device, torch_off)
    native.install_loss(compiled="cross entropy" in compiled)
    native.install_gelu(compiled="activation" in compiled)
    native.install_bias()
    gradient = _install_weight_gradient(provider, settings, device, off)
    order = native.order_attention(device, torch_off)
    loss = "made from the logits in place, without a copy of them" + ", compiled" * ("cross entropy" in compiled)
    lines = {
        "attention": "Transformer Engine DotProductAttention" if modules.attention else order,
        "normalisation": norm,
        "element-wise": elementwise,
        "cross entropy": "megatron-core, not fused" if settings.no_cross_entropy_loss_fusion else loss,
        "weight gradient": gradient or "made, then added by an operator of its own",
    }
    install_optimizer(provider, off)
    repair_recompute()
    return Kernels(
        provider=provider,
        why=why,
        modules=modules,
        lines=lines,
        compiled=compiled,
        accumulate_in_gemm=gradient is not None,
        overlaps_tensor_parallel=provider == "te" and te.start_overlap(settings),
    )


def choose_provider(settings: Settings, device: torch.device) -> tuple[str, str]:
    """Return te, apex or torch, and why; raises UsageError where the one given by name is not usable."""
    asked = settings.wanted_kernels
    if asked != "auto":
        reason = _unusable(asked, device)
        if reason:
            raise UsageError(f"kernels: {asked} asked for, but {reason}")
        return asked, f"asked: {asked}"
    if device.type != "cuda":
        return "torch", "asked: auto; no GPU"
    reasons = ["asked: auto"]
    for provider in ("te", "apex"):
        reason = _unusable(provider, device)
        if not reason:
            return provider, "; ".join(reasons)
        reasons.append(reason.split("; ")[0])
    return "torch", "; ".join(reasons)


def _unusable(provider: str, device: torch.device) -> str | None:
    """Return why a provider cannot be used, None where it can."""
    if provider == "torch":
        return None
    if device.type != "cuda":
        return f"{NAMES[provider]} needs a GPU and torch sees none; use --kernels torch"
    reason = missing(provider)
    if reason or provider == "apex":
        return reason
    if wrong := switched_off("te"):
        failed = ", ".join(sorted(wrong))
        return f"Transformer Engine's {failed} failed in the build's verification; use --kernels torch"
    fault = te.broken(device)
    return f"Transformer Engine does not work here ({fault}); build it again, or use --kernels torch" if fault else None


def switched_off(provider: str) -> frozenset[str]:
    """Return the kernels of this provider that gave wrong results in the build; none without a build."""
    path = os.environ.get(RECORD)
    if not path:
        return frozenset()
    try:
        trials = parse_json(Path(path).read_text(encoding="utf-8"))["verified"]
        return frozenset(one["kernel"] for one in trials if one["provider"] == provider and not one["passed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "unset it, or build again"
        raise UsageError(f"environment: {RECORD}={path} cannot be read ({error!r}); {remedy}") from error


def _install_weight_gradient(
    provider: str, settings: Settings, device: torch.device, off: frozenset[str]
) -> str | None:
    """Make the matrix product add weight gradients to their sum where it can; return the text for the log, None where it cannot."""
    if settings.no_gradient_accumulation_fusion:
        return None
    if provider == "apex" and "weight gradient" not in off:
        install_accumulation(apex.accumulation())
        return "added to its sum by the matrix product itself (Apex)"
    way = native_way(device, *(getattr(torch, name) for name in (settings.params_dtype, settings.gradients_dtype)))
    if way is None or "weight gradient" in switched_off("torch"):
        return None
    text, function = way
    install_accumulation(function)
    return text if provider != "te" else f"Transformer Engine; output layer: {text}"


def install_optimizer(provider: str, off: frozenset[str]) -> None:
    """Set megatron-core's Adam, and its norm and scaling of all gradients, to this provider's; by itself it uses whatever it can import."""
    maker = "torch" if "adamw" in off else provider
    adam, foreign = adam_of(maker)
    package.Adam = distrib_optimizer.Adam = adam
    package.USING_PYTORCH_OPTIMIZER = not foreign
    distrib_optimizer.HAVE_APEX_OR_TE = foreign  # decides where checkpoints look for the step count
    distrib_optimizer.USING_TE_OPTIMIZER, distrib_optimizer.USING_APEX_OPTIMIZER = maker == "te", maker == "apex"
    applier, norm, scale = norm_of_provider("torch" if "grad norm" in off else provider)
    if "grad norm" in off and provider == "torch":
        applier, norm, scale = local_multi_tensor_applier, local_multi_tensor_l2_norm, local_multi_tensor_scale
    clip_grads.multi_tensor_applier = base.multi_tensor_applier = applier
    clip_grads.multi_tensor_scale_impl = base.multi_tensor_scale_impl = scale
    clip_grads.l2_norm_impl = norm


def adam_of(provider: str) -> tuple[Any, bool]:
    """Return the class, and whether it is Apex's or Transformer Engine's, which have the argument `adam_w_mode`."""
    if provider == "torch":
        return torch.optim.AdamW, False
    module = "transformer_engine.pytorch.optimizers" if provider == "te" else "apex.optimizers"
    return importlib.import_module(module).FusedAdam, True


def norm_of_provider(provider: str) -> tuple[Any, Any, Any]:
    """Return the function that applies an operation to many tensors, and two operations: norm and scaling."""
    if provider == "te":
        from transformer_engine.pytorch import optimizers as te  # noqa: PLC0415  # only where it is installed

        return te.multi_tensor_applier, te.multi_tensor_l2norm, te.multi_tensor_scale
    if provider == "apex":
        import amp_C  # noqa: PLC0415  # as above
        from apex.multi_tensor_apply import multi_tensor_applier  # noqa: PLC0415  # as above

        return multi_tensor_applier, amp_C.multi_tensor_l2norm, amp_C.multi_tensor_scale
    return local_multi_tensor_applier, _norm_of_all, _scale_all


def _norm_of_all(_chunk: int, _flag: Any, lists: list[list[torch.Tensor]], *_: Any) -> tuple[torch.Tensor, None]:
    """Return the norm of all tensors together, by one kernel and without synchronising the device."""
    return torch.nn.utils.get_total_norm(lists[0], foreach=True).unsqueeze(0), None


def _scale_all(_chunk: int, _flag: Any, lists: list[list[torch.Tensor]], scale: float) -> None:
    """Write the tensors of the first list times `scale` to those of the second."""
    source, target = lists
    if source is not target:
        torch._foreach_copy_(target, source)
    torch._foreach_mul_(target, scale)
