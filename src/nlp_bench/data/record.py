"""The record beside prepared data, PREFIX.json: what made them; and whether a training's tokenizer is theirs."""

from pathlib import Path
from typing import Any

from nlp_bench.data.tokenizer import sha256_of, tokenizer_file
from nlp_bench.errors import UsageError
from nlp_bench.files import read_json, read_object

PREPARED = "nlp-bench/data/2"
"""Schema of PREFIX.json; version 1 is the data.json of the folder that `nlp-bench data` makes."""
NULL = "NullTokenizer"


def record_path(prefix: str) -> Path:
    """Return where the record of the data PREFIX.bin and PREFIX.idx lies."""
    return Path(prefix + ".json")


def read_prepared(prefix: str) -> dict[str, Any] | None:
    """Return the record of prepared data, None where there is none of ours; raises NlpBenchError for a newer one."""
    path = record_path(prefix)
    is_ours = str(read_object(path).get("schema", "")).startswith(PREPARED.rpartition("/")[0])
    return read_json(path, PREPARED) if is_ours else None


def check_tokenizer(  # noqa: PLR0913  # each is an argument of a training
    prefix: str,
    *,
    tokenizer_type: str | None = None,
    vocab_file: str | None = None,
    merge_file: str | None = None,
    tokenizer_model: str | None = None,
    vocab_size: int | None = None,
) -> None:
    """Raise UsageError when the data at `prefix` were made with another tokenizer than a training is given.

    The values are those of a training's arguments of the same names; None is not compared. Data without a record of ours pass.
    NullTokenizer has no files: only its vocabulary size is compared. Neither torch nor a tokenizer is loaded.
    """
    made = _tokenizer_of(prefix)
    if made is None:
        return
    if vocab_size is not None and vocab_size < made["vocab_size"]:
        raise UsageError(
            f"vocab_size: {vocab_size} is less than the {made['vocab_size']} of the tokenizer that made {prefix}; "
            f"use --vocab-size {made['vocab_size']} or more, or leave it out"
        )
    if tokenizer_type in {None, NULL}:
        return
    if tokenizer_type != made["type"]:
        raise UsageError(
            f"tokenizer_type: {tokenizer_type}, but {prefix} was made with {made['type']}; use {_arguments(made)}, or "
            "prepare the text anew with nlp-bench data prepare"
        )
    given = {"vocab_file": vocab_file, "merge_file": merge_file, "tokenizer_model": tokenizer_model}
    for field, word in given.items():
        if word is not None and field in made["files"]:
            _compare(prefix, field, tokenizer_file(made["type"], Path(word)), made)


def _compare(prefix: str, field: str, path: Path, made: dict[str, Any]) -> None:
    try:
        found = sha256_of(path)
    except OSError as error:
        raise UsageError(f"{field}: cannot read {path}: {error.strerror}") from error
    known = made["files"][field]
    if found != known["sha256"]:
        raise UsageError(
            f"{field}: {path} (sha256 {found[:16]}) is not the {known['name']} (sha256 {known['sha256'][:16]}) that made "
            f"{prefix}; give that file, or prepare the text anew with nlp-bench data prepare"
        )


def _arguments(made: dict[str, Any]) -> str:
    files = [f"--{field.replace('_', '-')} {file['name']}" for field, file in made["files"].items()]
    return " ".join([f"--tokenizer-type {made['type']}", *files])


def _tokenizer_of(prefix: str) -> dict[str, Any] | None:
    """Return type, vocab_size and files of the tokenizer that made the data, None where no record tells."""
    record = read_prepared(prefix)
    if record is not None:
        return dict(record["tokenizer"])
    folder = Path(prefix).parent / "data.json"
    if not folder.is_file():
        return None
    older = read_json(folder, PREPARED)
    if f"{Path(prefix).name}.bin" not in older.get("files", {}):
        return None
    names = {"vocab_file": "vocab.json", "merge_file": "merges.txt"}
    files = {field: {"name": name, **older["files"][name]} for field, name in names.items() if name in older["files"]}
    return {"type": "GPT2BPETokenizer", "vocab_size": older["vocab_size"], "files": files}
