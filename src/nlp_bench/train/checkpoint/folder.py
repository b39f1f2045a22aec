"""The folder of checkpoints, by Megatron-LM's names: their records, and the one from which a training resumes. No torch here.

FOLDER/iter_0000020/                        one checkpoint; its metadata.json is written last
FOLDER/latest_checkpointed_iteration.txt    the iteration of the newest complete one, written after everything else
Source: Megatron-LM, megatron/training/checkpointing.py (`get_checkpoint_name`, `get_checkpoint_tracker_filename`).
"""

import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from nlp_bench.errors import UsageError, explained
from nlp_bench.files import read_json, real, write_json, write_text
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings, ShapeSettings
from nlp_bench.train.settings.families import FAMILIES

TRACKER = "latest_checkpointed_iteration.txt"
RECORD = "nlp-bench.json"  # our record in each checkpoint: its model and training
LAST_FILE = "metadata.json"  # written last by megatron-core (`dist_checkpointing/core.py`, CONFIG_FNAME)
WHOLE = f"a folder iter_* with {LAST_FILE} and {RECORD}"  # for messages
NAME = re.compile(r"iter_(\d{7,})")

MOST_OF_TMPDIR = 107 - len("/pymp-12345678/listener-12345678")
"""A socket's path has at most 107 characters; megatron-core's writers meet at one of Python's multiprocessing."""


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """Return the path of the checkpoint of `iteration`: FOLDER/iter_0000020."""
    return folder / f"iter_{iteration:07d}"


def newest(folder: Path, *, option: str = "load") -> Path | None:
    """Return the checkpoint that the tracker names, None where none was ever completed.

    Where the tracker is missing (purged, or not copied along) it is the newest whole one: a training that began anew would write over it.
    Raises UsageError, starting with the name of the `option`, where the tracker cannot be read or names an incomplete checkpoint.
    """
    tracker = folder / TRACKER
    try:
        word = tracker.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return next(reversed(whole(folder)), None)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}: cannot read {tracker}: {getattr(error, 'strerror', None) or error}") from error
    numbers = ", ".join(str(iteration_of(path)) for path in whole(folder))
    remedy = f"write the iteration of a whole one into it: {numbers}"
    if not numbers:
        remedy = "no whole one of nlp-bench is there, and those of Megatron-LM and other programs are not read; name another folder"
    if not re.fullmatch("[0-9]{1,18}", word):
        raise UsageError(f"{option}: {tracker} says {word[:40]!r}, not an iteration; {remedy}")
    path = checkpoint_path(folder, int(word))
    if not is_whole(path):
        raise UsageError(
            f"{option}: {tracker} names iteration {word}, but {path} is not a whole checkpoint of nlp-bench ({LAST_FILE} or {RECORD} is "
            f"missing); {remedy}"
        )
    return path


def whole(folder: Path) -> list[Path]:
    """Return the complete checkpoints in the folder, the oldest first."""
    paths = [path for path in folder.glob("iter_*") if NAME.fullmatch(path.name) and is_whole(path)]
    return sorted(paths, key=iteration_of)


def is_whole(path: Path) -> bool:
    """Whether the checkpoint is complete."""
    return (path / LAST_FILE).is_file() and (path / RECORD).is_file()


def clear(folder: Path, iteration: int) -> Path:
    """Make an empty folder for a checkpoint and return it; the remains of a killed save are removed."""
    path = checkpoint_path(folder, iteration)
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def publish(folder: Path, iteration: int, keep: int | None) -> None:
    """Write this checkpoint to the tracker, then remove older complete ones beyond `keep`."""
    write_text(folder / TRACKER, f"{iteration}\n")
    older = [path for path in whole(folder) if iteration_of(path) < iteration]
    for path in older[: len(older) - (keep - 1)] if keep and len(older) >= keep else []:
        (path / LAST_FILE).unlink(missing_ok=True)  # first, so that an interrupted removal leaves it incomplete
        shutil.rmtree(path, ignore_errors=True)


def iteration_of(path: Path) -> int:
    """Return the iteration of the checkpoint `path`, by its name."""
    return int(path.name.removeprefix("iter_"))


SCHEMA = "nlp-bench/checkpoint/1"
RECORDED_OTHERWISE = (
    "kv_channels", "seq_length", "decoder_seq_length", "max_position_embeddings", "ffn_hidden_size", "group_query_attention",
    "num_query_groups", "init_method_std", "attention_dropout", "hidden_dropout",
)  # fmt: skip
"""Settings of the shape that a record has under another name or elsewhere, or that do not affect the weights."""
MASKING = ("mask_prob", "short_seq_prob")  # settings that change the samples of bert and t5
MUST_MATCH = (
    # the weights and their meaning
    *(one.name for one in fields(ShapeSettings) if one.name not in RECORDED_OTHERWISE),
    "ffn_width", "head_width", "query_groups", "max_position_embeddings", "vocab_size", "padded_vocab_size", "params_dtype",
    # samples and their order
    "global_batch_size", "seq_length", "decoder_seq_length", "seed", "mock_data", "split", *MASKING,
    # the updates of the weights, and the format of the optimizer's state
    "optimizer", "use_distributed_optimizer", "lr", "min_lr", "lr_decay_style", "weight_decay", "adam_beta1", "adam_beta2", "adam_eps",
    "warmup_samples", "decay_samples",
)  # fmt: skip
LAYOUT = (
    "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "data_parallel_size",
    "virtual_stages",
)  # fmt: skip
FLAGS_OF = {
    "ffn_width": "ffn_hidden_size",
    "head_width": "kv_channels",
    "query_groups": "num_query_groups",
    "warmup_samples": "lr_warmup_samples",
    "decay_samples": "lr_decay_samples",
}
"""Derived value to the option that sets it."""


def describe(settings: Settings, layout: Layout, iteration: int, consumed_samples: int) -> dict[str, Any]:
    """Return the record of a new checkpoint."""
    return {
        "schema": SCHEMA,
        "iteration": iteration,
        "consumed_samples": consumed_samples,
        "train_iters": layout.train_iters,
        "must_match": _must_match(settings, layout),
        "layout": _values(settings, layout, LAYOUT),
    }


def _values(settings: Settings, layout: Layout, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(layout if hasattr(layout, name) else settings, name) for name in names}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record into the checkpoint `path`."""
    write_json(path / RECORD, record)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of the checkpoint `path`; raises NlpBenchError where it is damaged or newer than this program."""
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
    """Raise UsageError for the first setting that differs from the checkpoint's, with both values and the remedy."""
    there, here = record["must_match"], _must_match(settings, layout)
    for name, value in here.items():
        if name in there and there[name] != value:
            ranks = settings.tensor_model_parallel_size
            raise UsageError(
                f"load: {name} is {there[name]} in the checkpoint {path}, " + _mismatch(name, there[name], value, ranks)
            )
    samples = record["iteration"] * layout.global_batch_size
    if record["consumed_samples"] != samples:
        raise UsageError(
            f"load: {path / RECORD}: consumed_samples is {record['consumed_samples']}, but {record['iteration']} iterations of "
            f"global_batch_size {layout.global_batch_size} have {samples}; the file is damaged, take an older checkpoint"
        )


def _must_match(settings: Settings, layout: Layout) -> dict[str, Any]:
    values = _values(settings, layout, MUST_MATCH)
    if settings.position_embedding_type != "learned_absolute":
        values["max_position_embeddings"] = None
    if not FAMILIES[settings.model_family].hides_tokens:
        values = {name: value for name, value in values.items() if name not in MASKING}
    return values


def _mismatch(name: str, there: Any, here: object, ranks: int) -> str:
    """Return the rest of the sentence: the value here, and the remedy; `ranks` is the tensor-parallel size."""
    option, another = "--" + FLAGS_OF.get(name, name).replace("_", "-"), "or --load another folder"
    if name == "padded_vocab_size":
        remedy = f"{there} rows cannot be shared by tp = {ranks}: choose another tp"
        if there % ranks == 0:
            remedy = f"give --make-vocab-size-divisible-by {there // ranks}"
        return f"and {here} here, where the other rows are untrained words that all words compete with; {remedy}"
    if isinstance(there, bool):
        remedy = f"{'give' if there else 'leave out'} {option}, {another}"
    elif name == "params_dtype":
        remedy = f"train in {there} (--bf16, --fp16, or neither for float32), {another}"
    elif name == "global_batch_size":
        rule = "another number of nodes is no reason: micro_batch_size*dp has to divide it, no more"
        remedy = f"samples and learning rate would not continue: give {option} {there} ({rule})"
    else:
        remedy = f"give {option} {there}, {another}"
    return f"and {here} here; {remedy}"


def found_checkpoint(settings: Settings) -> Path | None:
    """Return the checkpoint for --load, None to start from scratch; raises UsageError where --exit-on-missing-checkpoint is given and there is none."""
    if settings.load is None:
        return None
    folder = Path(settings.load)
    if NAME.fullmatch(folder.absolute().name) and is_whole(folder):
        raise UsageError(
            f"load: {folder} is itself a checkpoint; give --load {shlex.quote(str(folder.parent))}, whose {TRACKER} says which one is meant"
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"load: {folder} is no folder; give the folder that --save was given")
    path = newest(folder)
    if path is None and settings.exit_on_missing_checkpoint:
        raise UsageError(
            f"load: {settings.load} holds no whole checkpoint ({WHOLE}); leave --exit-on-missing-checkpoint out to begin anew"
        )
    return path


def check_start(settings: Settings, layout: Layout) -> str | None:
    """Check that the checkpoint fits the settings; return a line for the log where all iterations are done already, else None.

    Every rank calls it before torch is imported. Raises UsageError naming the field, both values and the remedy.
    """
    all_done = check_load(settings, layout)
    check_save(settings)
    _make_save(settings)
    return all_done


def check_load(settings: Settings, layout: Layout) -> str | None:
    """Do the part of `check_start` that only reads."""
    path = found_checkpoint(settings)
    if path is None:
        return None
    record = read_record(path)
    check_record(record, path, settings, layout)
    if record["iteration"] < layout.train_iters:
        return None
    done = f"{path} holds iteration {record['iteration']} of {layout.train_iters}"
    return f" nothing is left to train: {done}; raise --train-iters to go on"


def check_save(settings: Settings) -> None:
    """Do the part of `check_start` that only reads the folder of --save; what a login node may not see, such as a file system of the nodes, passes."""
    if settings.save is None:
        return
    folder = Path(settings.save)
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    try:
        is_folder = stat.S_ISDIR(there.stat().st_mode)
    except FileNotFoundError as error:
        # A link to nothing; where even the folder around that is unseen, it may be on the nodes.
        target = real(there)
        if target.parent.is_dir() and target.parent != target.parent.parent:
            raise UsageError(
                f"save: {there} is a link to {target}, which is not there (purged?): make that folder again, or name another one"
            ) from error
    except OSError:
        pass  # closed to this user here, or a link to itself
    else:
        if not is_folder:
            raise UsageError(f"save: {there} is no folder; name another one")
    if settings.load is not None and real(folder) == real(settings.load):
        return
    if earlier := newest(folder, option="save"):
        remedy = f"name a new folder, or continue it with --load {shlex.quote(str(folder))}"
        raise UsageError(f"save: {folder} holds {earlier.name} of another training; {remedy}")


def _make_save(settings: Settings) -> None:
    if settings.save is None:
        return
    if len(os.fsencode(tempfile.gettempdir())) > MOST_OF_TMPDIR:
        raise UsageError(
            f"save: a socket of the processes that write a checkpoint finds no room in TMPDIR, {tempfile.gettempdir()}: its path may have "
            f"{MOST_OF_TMPDIR} characters; export TMPDIR=/tmp, or another short one"
        )
    folder = Path(settings.save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"save: cannot make the folder {folder}: {explained(error)}; or name another one") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"save: {folder} is not writable; name another folder")
