"""What the groups of settings are made with: a field of few words, and refusals with their arithmetic."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from nlp_bench.errors import UsageError


def one_of(*words: str, default: str | None = None) -> Any:
    """Return a dataclass field that accepts only these words; the command line shows them as choices."""
    return field(default=default, metadata={"choices": words})


def words_of(*words: str) -> Any:
    """Return a dataclass field that accepts any number of these words, none by default."""
    return field(default=(), metadata={"choices": words})


def require(condition: bool, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def multiple(name: str, value: int, divisor: int, rule: str) -> None:
    """Raise UsageError unless `value` is a multiple of `divisor`, which `rule` names."""
    require(value % divisor == 0, f"{name}: {value} is not a multiple of {rule} = {divisor}")


POSITIVE = (
    "num_layers", "encoder_num_layers", "decoder_num_layers", "hidden_size", "num_attention_heads", "kv_channels", "seq_length",
    "decoder_seq_length", "max_position_embeddings", "ffn_hidden_size", "num_query_groups", "rotary_base", "norm_epsilon",
    "init_method_std", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "microbatch_group_size_per_virtual_pipeline_stage",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "ddp_bucket_size", "ddp_num_buckets",
    "distributed_timeout_minutes", "micro_batch_size", "global_batch_size", "train_iters", "train_samples", "exit_duration_in_mins",
    "exit_interval", "lr_decay_iters", "lr_decay_samples", "recompute_num_layers", "initial_loss_scale", "min_loss_scale",
    "loss_scale_window", "hysteresis", "save_interval", "keep_checkpoints", "log_interval", "tensorboard_log_interval", "vocab_size",
    "make_vocab_size_divisible_by", "mask_prob",
)  # fmt: skip
"""Settings that are finite and above 0 where they are given."""
NOT_NEGATIVE = (
    "lr", "min_lr", "lr_warmup_iters", "lr_warmup_samples", "weight_decay", "clip_grad", "adam_eps", "seed", "manual_gc_interval",
    "vocab_extra_ids",
)  # fmt: skip
SHARES = ("attention_dropout", "hidden_dropout", "adam_beta1", "adam_beta2", "mask_prob", "short_seq_prob")
"""Settings in [0, 1)."""
EXCLUSIVE = (
    ("train_iters", "train_samples"), ("lr_decay_iters", "lr_decay_samples"), ("lr_warmup_iters", "lr_warmup_samples"),
    ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"), ("ddp_bucket_size", "ddp_num_buckets"),
)  # fmt: skip
"""Pairs of which one is given."""
NEEDS = {
    "save_interval": "--save FOLDER",
    "keep_checkpoints": "--save FOLDER",
    "async_save": "--save FOLDER",
    "exit_on_missing_checkpoint": "--load FOLDER",
    "manual_gc_interval": "--manual-gc",
    "fp8_param_gather": "--fp8-format",
    "align_param_gather": "--overlap-param-gather",
    "ddp_bucket_size": "--overlap-grad-reduce, without which there is one bucket",
    "ddp_num_buckets": "--overlap-grad-reduce, without which there is one bucket",
    "no_align_grad_reduce": "--overlap-grad-reduce, without which there is one bucket",
    "wandb_exp_name": "--wandb-project",
    "wandb_save_dir": "--wandb-project",
}
"""Settings that mean nothing without another option, and that option."""


def check_values(values: Mapping[str, Any]) -> None:
    """Raise UsageError for the first of the rules above that is broken."""
    for name in POSITIVE:
        require(values[name] is None or 0 < values[name] < math.inf, f"{name}: {values[name]} is not positive")
    for name in NOT_NEGATIVE:
        require(not values[name] < 0, f"{name}: {values[name]} is negative")
        require(values[name] < math.inf, f"{name}: {values[name]} is no finite number")
    for name in SHARES:
        require(0 <= values[name] < 1, f"{name}: {values[name]} is not in [0, 1)")
    for one, other in EXCLUSIVE:
        both = values[one] and values[other]
        require(not both, f"{one}: {values[one]} and {other} {values[other]} exclude each other; give one")
    for name, option in NEEDS.items():
        needed = option.split(",")[0].split()[0].removeprefix("--").replace("-", "_")
        require(bool(values[needed]) or not values[name], f"{name}: needs {option}")
