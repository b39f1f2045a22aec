"""What a program prints of its arguments, held against its lines, against itself, and against the run.json of a run of ours."""

from collections.abc import Iterator

import numpy as np

from nlp_bench.logs.record import Attempt
from nlp_bench.measure.contradiction import Code, Contradiction, Weight, weigh
from nlp_bench.measure.sizes import Overrides, Sizes
from nlp_bench.measure.workload import Setting, Workload, heading
from nlp_bench.show.escape import one_line

CHECKED = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "data_parallel_size", "micro_batch_size", "global_batch_size", "world_size", "nodes",
    "num_layers", "hidden_size", "num_attention_heads", "seq_length", "recompute_granularity", "precision",
)  # fmt: skip
"""Settings in which a log must not contradict its run.json."""
_SIZES = {
    "sequence_length": "seq_length",
    "global_batch_size": "global_batch_size",
    "num_gpus": "world_size",
}
"""Sizes that the number is computed with, and their names in the log."""
_SAME = 0.005


def against_run(workload: Workload, used: Overrides | None = None) -> Iterator[Contradiction]:
    """Yield where the log says something else than run.json about model, layout, batch or length; `used` is what was computed with.

    Nothing for somebody's log, which has no run.json.
    """
    asked, logged = dict(workload.asked), workload.logged
    sizes = {_SIZES[name]: value for name, value in vars(used).items() if value} if used and asked else {}
    asked.update({name: Setting(value, "run.json") for name, value in sizes.items()})
    for name in CHECKED:
        if name in asked and name in logged and asked[name].value != logged[name].value:
            yield Contradiction(
                code=Code.ARGUMENTS_VS_RUN,
                weight=Weight.VOID,
                text=f"{heading(name)} is {one_line(logged[name].value)} in the log ({logged[name].source}) but "
                f"{one_line(asked[name].value)} in {asked[name].source}",
            )


def against_lines(attempt: Attempt, sizes: Sizes) -> Iterator[Contradiction]:
    """Yield where the lines count more than the dump of the arguments says: a ramp-up or a curriculum only ever counts less."""
    for name, fact, words in (
        ("global_batch_size", "global_batch_size", "global batch size"),
        ("sequence_length", "sequence_length", "sequence length"),
    ):
        dumped, column = attempt.fact(fact), attempt.records.column(name)
        lines = column[np.isfinite(column)]
        used = sizes.sequence_length if name == "sequence_length" else sizes.global_batch_size
        if not dumped or not len(lines) or used != lines[-1]:
            continue
        ratio = float(np.max(lines)) / dumped
        if ratio > 1 + _SAME:
            yield Contradiction(
                code=Code.ARGUMENTS_VS_LINES,
                weight=weigh(ratio, is_ours=False),
                text=f"the {words} is {np.max(lines):.0f} in the lines and {dumped:.0f} in the arguments "
                f"(line {attempt.facts[fact].line_number})",
                lines=(attempt.facts[fact].line_number,),
            )
    shortest, length = attempt.fact("curriculum_length"), sizes.sequence_length
    if shortest and length and length > (1 + _SAME) * shortest and not attempt.records.has("tokens").any():
        yield Contradiction(
            code=Code.ARGUMENTS_VS_LINES,
            weight=Weight.DOUBT,
            text=f"samples of {length} tokens are counted, but a curriculum is on, and in line "
            f"{attempt.facts['curriculum_length'].line_number} they have {shortest:.0f}",
            lines=(attempt.facts["curriculum_length"].line_number,),
        )


def against_themselves(attempt: Attempt, workload: Workload, sizes: Sizes) -> Iterator[Contradiction]:
    """Yield arguments that Megatron-LM itself refuses together (NVIDIA/Megatron-LM megatron/training/arguments.py `validate_args`)."""
    logged = Workload(logged=workload.logged)
    length = logged.count("seq_length")
    for name in ("max_position_embeddings", "encoder_seq_length"):
        other = logged.count(name)
        if other and length and length == sizes.sequence_length and length > other:
            yield _together(workload, ("seq_length", name), f"{length} tokens do not fit", weight_of=length / other)
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size")
    # DeepSpeed's engine prints a world of its own: the first word counts.
    counts, world = [logged.count(name) for name in names], attempt.count("num_devices")
    if all(counts) and world:
        tensor, pipeline, data = (count or 1 for count in counts)
        product = tensor * pipeline * data * (logged.count("context_parallel_size") or 1)
        if product != world:
            yield _together(workload, names, f"TP x PP x CP x DP is {product}, the world {world}")
        micro, batch = logged.count("micro_batch_size"), sizes.global_batch_size
        if micro and batch and batch % (micro * data):
            yield _together(workload, ("micro_batch_size", "data_parallel_size"), f"a batch of {batch} is no multiple")


def said_twice(attempt: Attempt, workload: Workload) -> Iterator[Contradiction]:
    """Yield a size that the arguments state twice, once for this number and once otherwise: the first word was used."""
    for fact in ("sequence_length", "global_batch_size"):
        name = _SIZES[fact]
        first, last = attempt.count(fact), workload.logged.get(name)
        if first and last and isinstance(last.value, int) and last.value < first:
            yield Contradiction(
                code=Code.ARGUMENTS_VS_ARGUMENTS,
                weight=weigh(first / last.value if last.value else np.inf, is_ours=False),
                text=f"{heading(name)} is {first} and, further on, {last.value} ({last.source}) in one start of the program",
            )


def _together(workload: Workload, names: tuple[str, ...], words: str, *, weight_of: float = 1.0) -> Contradiction:
    said = ", ".join(f"{name} {one_line(workload.logged[name].value)}" for name in names)
    return Contradiction(
        code=Code.ARGUMENTS_VS_ARGUMENTS,
        weight=weigh(weight_of, is_ours=False),
        text=f"the log's arguments cannot stand together: {words} with {said} ({workload.logged[names[0]].source})",
    )
