"""Refuse --train-args that change what run.json records: the record would not be true."""

from collections.abc import Sequence
from dataclasses import fields

from nlp_bench.config.run import Tuning
from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import flag
from nlp_bench.train.settings import ScheduleSettings, Settings, ShapeSettings

OWN_OPTION = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "micro_batch_size",
    "global_batch_size", "train_iters", "log_interval", "data_path", "mock_data", "recompute_granularity",
    "nonce",
    *(field.name for field in fields(Tuning)),
)  # fmt: skip
"""Given by an option of `nlp-bench submit` or a parameter of JUBE, which run.json records."""
MODEL_FILE_FIELDS = (
    "vocab_size", "vocab_extra_ids", "bf16", "fp16", "fp8_format", "train_samples", "recompute_activations",
    *(field.name for group in (ShapeSettings, ScheduleSettings) for field in fields(group)),
)  # fmt: skip
"""Given by the model file."""


WITHOUT_EFFECT = {
    "-h": "prints the trainer's options and trains nothing; see them by `python -m nlp_bench.train --help`",
    "--help": "prints the trainer's options and trains nothing; see them by `python -m nlp_bench.train --help`",
    "--data-path": "would have no effect, for run.json records the data; give it as an option of its own, --data-path",
    "--mock-data": "would have no effect, for run.json records the data; give it as an option of its own, --mock-data",
    "--data-cache-path": "would have no effect, for run.json records the folder of the index cache; leave it out",
}
"""Words that come from elsewhere in the trainer's command, or belong to no training, and what to do."""


def refuse_words(words: Sequence[str]) -> None:
    """Raise UsageError for a word of `train_args` that belongs to no training, or that the run's own data would replace without a word."""
    for word in words:
        if why := WITHOUT_EFFECT.get(word.split("=")[0]):
            raise UsageError(f"train_args: {word.split('=')[0]} {why}")


def refuse_overrides(stated: Settings, given: Settings) -> None:
    """Raise UsageError where `given`, with `train_args`, is not what `stated`, without them, says of a recorded field."""
    for name in (*OWN_OPTION, *MODEL_FILE_FIELDS):
        if hasattr(stated, name) and getattr(stated, name) != getattr(given, name):
            remedy = "a model file of your own, a copy of one in benchmark/models"
            if name in OWN_OPTION:
                remedy = "its own option or JUBE parameter"
            raise UsageError(
                f"train_args: {flag(name)} would make run.json untrue, which records it; change it by {remedy}"
            )
