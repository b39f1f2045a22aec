"""Preparing a user's text for training: once, whole or not at all, continued where a killed run stopped."""

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.data import inputs
from nlp_bench.data.encoder import Encoder, build
from nlp_bench.data.indexed import token_bytes_for
from nlp_bench.data.merge import merge
from nlp_bench.data.pieces import Piece, ShardFolder, make_folder
from nlp_bench.data.record import PREPARED, read_prepared, record_path
from nlp_bench.data.request import PrepareRequest
from nlp_bench.data.shards import Encoding, Shard
from nlp_bench.data.worker import MAX_NAMED
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import locked, write_json, write_text

JOINING = "joining"
"""File in PREFIX.shards that stands while the result is written: data without a record are then ours."""
LARGE_BYTES = 2**30
"""A result of this size takes seconds to join, and that is said."""


def prepare(request: PrepareRequest) -> tuple[dict[str, Any], bool]:
    """Prepare the data unless they are there; return the record beside them and whether they were made now.

    Raises UsageError for bad input and for an output that holds something else, NlpBenchError for a fault of the machine.
    """
    shards = inputs.find_shards(request.inputs)
    parameters = request.parameters(shards)
    lock = request.stem.with_name(f".{request.stem.name}.lock")
    with locked(lock, "name another place with --output"):
        found = _existing(request, parameters)
        return (found, False) if found else (_make(request, shards, parameters), True)


def _existing(request: PrepareRequest, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of a whole result with the same parameters; refuse to write over anything else."""
    paths = [*(Path(request.prefix + suffix) for suffix in (".bin", ".idx")), record_path(request.prefix)]
    there = [path for path in paths if path.exists()]
    record = read_prepared(request.prefix)
    if record is None:
        if there and not request.overwrite and not (request.shards / JOINING).exists():
            raise UsageError(
                f"output: {there[0]} exists and has no record of ours; name another --output, or add --overwrite"
            )
        return None
    is_whole = all(
        _size(Path(request.prefix).with_name(name)) == file["bytes"] for name, file in record["files"].items()
    )
    if record["parameters"] == parameters and is_whole:
        return record
    if record["parameters"] != parameters and not request.overwrite:
        other = _difference(record["parameters"], parameters)
        raise UsageError(
            f"output: {request.prefix} was made with other parameters ({other}); name another --output, or add --overwrite"
        )
    return None


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    keys = [key for key in now if before.get(key) != now[key]]
    simple = [f"{key} {before.get(key)!r}, now {now[key]!r}" for key in keys if not isinstance(now[key], (list, dict))]
    types = (before.get("tokenizer", {}).get("type"), now["tokenizer"]["type"])
    if "tokenizer" in keys:
        simple.append(
            f"tokenizer {types[0]}, now {types[1]}" if types[0] != types[1] else "other tokenizer files or end token"
        )
    if "inputs" in keys:
        simple.append(
            f"input of {len(before.get('inputs', []))} files, now {len(now['inputs'])} files, or changed since"
        )
    return "; ".join(simple)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _make(request: PrepareRequest, paths: Sequence[Path], parameters: dict[str, Any]) -> dict[str, Any]:
    encoder = build(request.tokenizer)
    if request.reading.append_eod and encoder.end_id is None:
        raise UsageError(
            "append_eod: the tokenizer names no token for the end of a document; name it with --eod-token, or leave "
            "--append-eod out"
        )
    make_folder(request.shards)
    try:
        shards = _shards(request, paths, parameters, encoder)
        pieces = Encoding(
            shards,
            request.tokenizer,
            request.reading,
            workers=request.workers or _num_cores(),
            piece_bytes=request.piece_bytes,
        ).run()
    finally:
        with contextlib.suppress(OSError):  # it holds pieces, and stays
            request.shards.rmdir()
    record = _record(shards, pieces, parameters, encoder, with_end=request.reading.append_eod)
    _require_some(record)
    return _publish(request, shards, pieces, record)


def _shards(
    request: PrepareRequest, paths: Sequence[Path], parameters: dict[str, Any], encoder: Encoder
) -> list[Shard]:
    token_bytes = token_bytes_for(encoder.vocab_size)
    common = {**parameters, "inputs": None, "library": encoder.library, "token_bytes": token_bytes}
    return [
        Shard(
            number=number,
            path=path,
            size=path.stat().st_size,
            folder=ShardFolder.of(request.shards, path, {**common, **inputs.identity(path)}, token_bytes),
        )
        for number, path in enumerate(paths)
    ]


def _record(
    shards: Sequence[Shard],
    pieces: Sequence[Sequence[Piece]],
    parameters: dict[str, Any],
    encoder: Encoder,
    *,
    with_end: bool,
) -> dict[str, Any]:
    """Return the record of the result without its files; nothing in it depends on when or with how many workers it was made."""
    tokenizer = {
        **parameters["tokenizer"],
        "vocab_size": encoder.vocab_size,
        "eod_id": encoder.end_id if with_end else None,
        "library": encoder.library,
    }
    broken = [text for found in pieces for piece in found for text in piece.broken]
    return {
        "schema": PREPARED,
        "nlp_bench": __version__,
        "parameters": parameters,
        "tokenizer": tokenizer,
        **_counts(pieces),
        "vocab_size": encoder.vocab_size,
        "token_type": {2: "uint16", 4: "int32"}[shards[0].folder.token_bytes],
        "broken": broken[:MAX_NAMED],
        "shards": [{"path": str(shard.path), **_counts([found])} for shard, found in zip(shards, pieces, strict=True)],
    }


def _counts(pieces: Sequence[Sequence[Piece]]) -> dict[str, int]:
    names = ("num_documents", "num_sequences", "num_tokens", "num_empty", "num_broken")
    return {name: sum(getattr(piece, name) for found in pieces for piece in found) for name in names}


def _require_some(record: dict[str, Any]) -> None:
    if not record["num_documents"]:
        first = "".join(f"; the first: {text}" for text in record["broken"][:1])
        raise UsageError(
            "input: no document has any token; nothing to train on "
            f"({record['num_empty']} empty documents, {record['num_broken']} broken lines{first})"
        )


def _publish(
    request: PrepareRequest, shards: Sequence[Shard], pieces: Sequence[Sequence[Piece]], record: dict[str, Any]
) -> dict[str, Any]:
    """Join the pieces and write the record, which comes last; then the pieces may go."""
    folders = [shard.folder for shard, found in zip(shards, pieces, strict=True) for _ in found]
    numbers = [number for found in pieces for number in range(len(found))]
    prefixes = [folder.prefix(number) for folder, number in zip(folders, numbers, strict=True)]
    marker = request.shards / JOINING
    size = record["num_tokens"] * folders[0].token_bytes
    if size >= LARGE_BYTES:
        print(f"nlp-bench: joining {len(prefixes)} pieces, {size / 1e9:.1f} GB", file=sys.stderr)
    try:
        write_text(marker, "")
        record_path(request.prefix).unlink(missing_ok=True)  # never beside data that it does not describe
        record = record | {"files": merge(prefixes, request.prefix, folders[0].token_bytes)}
        write_json(record_path(request.prefix), record)
        marker.unlink()
    except OSError as error:
        raise NlpBenchError(
            f"cannot write {request.prefix}.bin: {explained(error)}; then the same command continues"
        ) from error
    if not request.keep_shards:
        shutil.rmtree(request.shards, ignore_errors=True)
    return record


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
