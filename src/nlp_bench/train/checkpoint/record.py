"""What a checkpoint says of itself, and whether a training may go on from it. No torch here."""

from pathlib import Path
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.files import read_json, write_json
from nlp_bench.train.checkpoint.folder import RECORD, checkpoint_path
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

SCHEMA = "nlp-bench/checkpoint/1"
FAMILY_AND_SHAPE = (
    "model_family", "num_layers", "encoder_num_layers", "decoder_num_layers", "hidden_size", "num_attention_heads",
    "position_embedding_type", "rotary_percent", "rotary_base", "untie_embeddings_and_output_weights", "normalization",
    "norm_epsilon", "swiglu", "geglu", "disable_bias_linear", "bert_no_binary_head",
)  # fmt: skip
"""Settings that decide which weights there are and what they mean."""
SAMPLES = ("seq_length", "decoder_seq_length", "seed", "mock_data", "split")
"""Settings that decide which samples are read and in which order."""
MASKING = ("mask_prob", "short_seq_prob")
"""Settings that change the samples of bert and t5."""
UPDATES = (
    "optimizer", "use_distributed_optimizer", "lr", "min_lr", "lr_decay_style", "weight_decay", "adam_beta1", "adam_beta2",
    "adam_eps",
)  # fmt: skip
"""Settings that decide how the weights are updated; the form of the optimizer's state belongs to them."""
FLAGS_OF = {
    "ffn_width": "ffn_hidden_size",
    "head_width": "kv_channels",
    "query_groups": "num_query_groups",
    "warmup_samples": "lr_warmup_samples",
    "decay_samples": "lr_decay_samples",
}
"""Names of what is computed, and the option by which a person sets it."""


def describe(settings: Settings, layout: Layout, iteration: int, consumed_samples: int) -> dict[str, Any]:
    """Return the record of a checkpoint that is written now."""
    return {
        "schema": SCHEMA,
        "iteration": iteration,
        "consumed_samples": consumed_samples,
        "train_iters": layout.train_iters,
        "must_match": _must_match(settings, layout),
        "layout": {
            "world_size": layout.world_size,
            "tensor_model_parallel_size": settings.tensor_model_parallel_size,
            "pipeline_model_parallel_size": settings.pipeline_model_parallel_size,
            "context_parallel_size": settings.context_parallel_size,
            "data_parallel_size": layout.data_parallel_size,
            "virtual_stages": layout.virtual_stages,
        },
    }


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record into the checkpoint `path`."""
    write_json(path / RECORD, record)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of the checkpoint `path`; raises NlpBenchError where it is none or newer than this program."""
    record = read_json(path / RECORD, SCHEMA)
    for name, kind in (("iteration", int), ("consumed_samples", int), ("must_match", dict), ("layout", dict)):
        if not isinstance(record.get(name), kind):
            raise UsageError(
                f"load: {path / RECORD}: {name} is {record.get(name)!r}; the file is damaged, take an older checkpoint"
            )
    if path.name != checkpoint_path(path.parent, record["iteration"]).name:
        raise UsageError(
            f"load: {path / RECORD}: iteration is {record['iteration']}, but the folder is {path.name}; the file is damaged or of "
            "another checkpoint, take an older one"
        )
    return record


def check_record(record: dict[str, Any], path: Path, settings: Settings, layout: Layout) -> None:
    """Raise UsageError for the first setting that is another one in the checkpoint, with both values and the remedy."""
    there, here = record["must_match"], _must_match(settings, layout)
    for name, value in here.items():
        if name in there and there[name] != value:
            raise UsageError(_mismatch(name, there[name], value, path) + _padding(name, there[name], settings))
    samples = record["iteration"] * layout.global_batch_size
    if record["consumed_samples"] != samples:
        raise UsageError(
            f"load: {path / RECORD}: consumed_samples is {record['consumed_samples']}, but {record['iteration']} iterations of "
            f"global_batch_size {layout.global_batch_size} have {samples}; the file is damaged, take an older checkpoint"
        )


def _must_match(settings: Settings, layout: Layout) -> dict[str, Any]:
    learned = settings.position_embedding_type == "learned_absolute"
    return {
        **{name: getattr(settings, name) for name in FAMILY_AND_SHAPE},
        "ffn_width": settings.ffn_width,
        "head_width": settings.head_width,
        "query_groups": settings.query_groups,
        "max_position_embeddings": settings.max_position_embeddings if learned else None,
        "vocab_size": layout.vocab_size,
        "padded_vocab_size": layout.padded_vocab_size,
        "params_dtype": settings.params_dtype,
        "global_batch_size": layout.global_batch_size,
        **{name: getattr(settings, name) for name in SAMPLES},
        **{name: getattr(settings, name) for name in MASKING if settings.model_family != "gpt"},
        **{name: getattr(settings, name) for name in UPDATES},
        "warmup_samples": layout.warmup_samples,
        "decay_samples": layout.decay_samples,
    }


def _padding(name: str, there: int, settings: Settings) -> str:
    if name != "padded_vocab_size":
        return ""
    ranks = settings.tensor_model_parallel_size
    fits = there % ranks == 0
    return (
        f"; give --make-vocab-size-divisible-by {there // ranks}"
        if fits
        else f"; {there} rows cannot be shared by tp = {ranks}: choose another tp"
    )


def _mismatch(name: str, there: object, here: object, path: Path) -> str:
    option = "--" + FLAGS_OF.get(name, name).replace("_", "-")
    says = f"load: {name} is {there} in the checkpoint {path}, and {here} here"
    if name == "padded_vocab_size":
        return f"{says}, where the other rows are untrained words that all words compete with"
    if isinstance(there, bool):
        return f"{says}; {'give' if there else 'leave out'} {option}, or --load another folder"
    if name == "params_dtype":
        return f"{says}; train in {there} (--bf16, --fp16, or neither for float32), or --load another folder"
    if name == "global_batch_size":
        rule = "another number of nodes is no reason: micro_batch_size*dp has to divide it, no more"
        return f"{says}; samples and learning rate would not continue: give {option} {there} ({rule})"
    return f"{says}; give {option} {there}, or --load another folder"
