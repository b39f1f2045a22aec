"""What a run may tune beyond its layout: switches of the trainer under Megatron-LM's names, in run.json and on the command line."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nlp_bench.config import checks
from nlp_bench.errors import UsageError

NO_WORDS = ("trainer", "megatron_lm_repo", "megatron_lm_commit", "train_args", "sequence_parallel")
"""Fields that are no argument of the same name."""
FILES = ("--vocab-file", "--merge-file", "--tokenizer-model", "--load")
"""Words of train_args whose value is read."""
TRAINERS = ("nlp-bench", "megatron-lm")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Switches that change how fast a run is, not what it trains. None: not given, the trainer's own default."""

    trainer: str = "nlp-bench"
    """nlp-bench, or megatron-lm: pretrain_gpt.py of the checkout that MEGATRON_LM_REPO names, with the same arguments."""
    megatron_lm_repo: str = ""
    """Of trainer megatron-lm: the folder of the checkout."""
    megatron_lm_commit: str = ""
    """Its commit, "+changes" behind it where it was not clean."""
    num_layers_per_virtual_pipeline_stage: int | None = None
    """Layers of one virtual stage of the interleaved schedule."""
    num_virtual_stages_per_pipeline_rank: int | None = None
    """Virtual stages of each pipeline rank, instead of the layers of one."""
    decoder_first_pipeline_num_layers: int | None = None
    """Layers of the first pipeline stage, where it differs from the others."""
    decoder_last_pipeline_num_layers: int | None = None
    """Layers of the last pipeline stage, where it differs from the others."""
    sequence_parallel: bool = True
    """Split normalisations along the sequence; without tensor parallelism it does nothing."""
    use_distributed_optimizer: bool = True
    """Split the optimizer state between replicas."""
    overlap_grad_reduce: bool = False
    """Reduce gradients while the backward pass runs."""
    overlap_param_gather: bool = False
    """Gather parameters while the forward pass runs."""
    recompute_method: str | None = None
    """uniform or block, of full recompute."""
    recompute_num_layers: int | None = None
    """Layers per group (uniform) or per stage (block), of full recompute."""
    recompute_modules: tuple[str, ...] = ()
    """What selective recompute covers: core_attn, mlp, layernorm."""
    kernels: str = "auto"
    """auto, te (Transformer Engine), apex or torch."""
    until: str | None = None
    """Share, as in 1%, to which the mean time of an iteration is to be known; the run ends then, before its iterations are done."""
    train_args: tuple[str, ...] = ()
    """Further words for the trainer, as it takes them."""

    def __post_init__(self) -> None:
        checks.one_of("tuning.trainer", self.trainer, TRAINERS)
        checks.one_of("tuning.kernels", self.kernels, ("auto", "te", "apex", "torch"))
        if self.until is not None and self.trainer != "nlp-bench":
            raise UsageError(
                f"tuning.until: {self.trainer} cannot end by itself; leave it out or use trainer nlp-bench"
            )
        if self.overlap_param_gather and not (self.use_distributed_optimizer and self.overlap_grad_reduce):
            raise UsageError("tuning.overlap_param_gather: needs use_distributed_optimizer and overlap_grad_reduce")

    def words(self) -> list[str]:
        """Return the trainer's words for what is not its default."""
        found: list[str] = []
        for field in fields(self):
            if field.name not in NO_WORDS:
                found += _option(field.name, getattr(self, field.name))
        return [*found, *self.train_args]


def _option(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, tuple):
        return [flag, *value] if value else []
    return [] if value is None or value == "auto" else [flag, str(value)]


def anchored(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return `words` with the files that they name from here made absolute: the ranks start in the run's folder."""
    if words is None:
        return None
    found: list[str] = []
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if equals and option in FILES and Path(value).exists():
            found.append(f"{option}={Path(value).absolute()}")
        elif place and words[place - 1] in FILES and Path(word).exists():
            found.append(str(Path(word).absolute()))
        else:
            found.append(word)
    return tuple(found)
