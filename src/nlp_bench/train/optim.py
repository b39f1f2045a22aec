"""Adam with decoupled weight decay, gradient clipping and the learning-rate schedule, all megatron-core's."""

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


def build_optimizer(settings: Settings, model: list[DistributedDataParallel]) -> MegatronOptimizer:
    """Return the optimizer of this rank; with torch's Adam its fused kernel, with one from Apex that one."""
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer=settings.optimizer,
            lr=settings.lr,
            min_lr=settings.min_lr,
            weight_decay=settings.weight_decay,
            adam_beta1=settings.adam_beta1,
            adam_beta2=settings.adam_beta2,
            adam_eps=settings.adam_eps,
            clip_grad=settings.clip_grad,
            bf16=settings.bf16,
            fp16=settings.fp16,
            params_dtype=getattr(torch, settings.params_dtype),
            use_distributed_optimizer=settings.use_distributed_optimizer,
            overlap_param_gather=settings.overlap_param_gather,
            initial_loss_scale=settings.initial_loss_scale,
            min_loss_scale=settings.min_loss_scale,
            loss_scale_window=settings.loss_scale_window,
            hysteresis=settings.hysteresis,
            fp8_recipe=settings.fp8_recipe if settings.fp8_format else None,
        ),
        model,
        use_gloo_process_groups=False,
    )
    model[0].config.grad_scale_func = optimizer.scale_loss  # one configuration for all parts
    return optimizer


def use_fused_kernels(optimizer: MegatronOptimizer) -> str:
    """Switch torch's Adam to one kernel for all parameters; return the optimizer's name for the log.

    Which Adam it is, and the kernels that measure and scale the gradients, kernels/optimizers.py has chosen before.
    """
    inner = [part.optimizer for part in optimizer.chained_optimizers if part.optimizer is not None]
    for group in (group for one in inner if isinstance(one, torch.optim.AdamW) for group in one.param_groups):
        group["fused"] = True
    kinds = {f"{type(one).__module__.split('.')[0]} {type(one).__name__}" for one in inner}
    return ", ".join(sorted(kinds)) + ", fused"


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
