"""Helpers of the groups of settings: fields with choices, rules of single values and their errors."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from nlp_bench.errors import UsageError


def one_of(*choices: str, default: str | None = None) -> Any:
    """Return a dataclass field that accepts only these choices, which the command line shows."""
    return field(default=default, metadata={"choices": choices})


def any_of(*choices: str) -> Any:
    """Return a dataclass field that accepts any number of these choices, none by default."""
    return field(default=(), metadata={"choices": choices})


def require(condition: bool, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def multiple(name: str, value: int, divisor: int, rule: str) -> None:
    """Raise UsageError unless `value` is a multiple of `divisor`; `rule` is the divisor's name."""
    require(value % divisor == 0, f"{name}: {value} is not a multiple of {rule} = {divisor}")


NOT_NEGATIVE = (
    "lr", "min_lr", "lr_warmup_iters", "lr_warmup_samples", "weight_decay", "clip_grad", "adam_eps", "seed", "manual_gc_interval",
    "vocab_extra_ids",
)  # fmt: skip
SHARES = ("attention_dropout", "hidden_dropout", "adam_beta1", "adam_beta2", "mask_prob", "short_seq_prob")
"""Settings that must be in [0, 1)."""
OTHERS = (
    "rotary_percent", "eval_interval", "eval_iters", "timing_log_level", "profile_step_start", "profile_step_end",
)  # fmt: skip
"""Numbers with a rule of their own, or none. All other numbers must be finite and above 0, if given."""
EXCLUSIVE = (
    ("train_iters", "train_samples"), ("lr_decay_iters", "lr_decay_samples"), ("lr_warmup_iters", "lr_warmup_samples"),
    ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"), ("ddp_bucket_size", "ddp_num_buckets"),
)  # fmt: skip
"""Pairs of which at most one may be given."""
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
"""Setting to another option that it needs."""


def check_values(values: Mapping[str, Any]) -> None:
    """Raise UsageError for the first of the rules above that is broken."""
    may_be_zero = {*NOT_NEGATIVE, *SHARES, *OTHERS} - {"mask_prob"}
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in may_be_zero:
            require(0 < value < math.inf, f"{name}: {value} is not positive")
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
