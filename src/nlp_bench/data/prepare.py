"""Prepares a user's text for training: atomically, once for the same parameters, resumed where a killed run stopped."""

import contextlib
import gc
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.data.indexed import PREPARED, TOKEN_TYPE, Writer, check_builder, read_prepared, token_bytes_for
from nlp_bench.data.shards import MAX_NAMED, Piece, Preparation, Reading, Shard
from nlp_bench.data.tokenizer import TokenizerChoice, build, require_file
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import locked, opened, real, sha256_of, write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.walk import walk

PACKED = (".gz", ".xz", ".zst", ".bz2")
NAMES = (".jsonl", ".json", ".ndjson", ".jl")
FOLDER_NAME = "corpus"  # name of the data where the output is a folder
RECORD_MARK = b'"schema": "nlp-bench/data'  # begins PREPARED and the schema of a piece
MAX_WORKERS = 4096
JOINING = "joining"  # marker in PREFIX.shards while the result is written: data without a record are then ours
LARGE_BYTES = 2**30  # size of a result from which joining takes seconds, so that a line is printed


@immutable
class PrepareRequest:
    """The input, how it is prepared, and the output."""

    inputs: tuple[str, ...]  # files, folders and patterns of JSON lines; each file is a shard
    output: str  # prefix of the result, or a folder (an existing one, or a path that ends in /)
    tokenizer: TokenizerChoice  # the tokenizer and its files
    reading: Reading = field(default_factory=Reading)  # how lines become sequences of tokens
    workers: int | None = None  # processes that encode; None: one per usable core. Does not change the result
    keep_shards: bool = False  # keep the finished pieces, so that input can be added later without encoding all again
    overwrite: bool = False  # replace a result that was made from other input or with other parameters

    def __post_init__(self) -> None:
        if self.workers is not None and not 1 <= self.workers <= MAX_WORKERS:
            raise UsageError(f"workers: {self.workers} is not between 1 and {MAX_WORKERS}")
        if not self.output:
            raise UsageError("output: empty; give a prefix or a folder")
        for suffix in (".bin", ".idx", f"_{self._kind}"):
            if self.output.endswith(suffix):
                raise UsageError(
                    f"output: {self.output} ends in {suffix}, which is added; give {self.output.removesuffix(suffix)}"
                )

    @property
    def _kind(self) -> str:
        key = re.sub(r"[^\w.-]", "_", self.reading.json_key)
        return f"{key}_{'sentence' if self.reading.split_sentences else 'document'}"

    @property
    def stem(self) -> Path:
        """The given prefix, or FOLDER_NAME in the given folder."""
        path = Path(self.output)
        return path / FOLDER_NAME if self.output.endswith("/") or path.is_dir() else path

    @property
    def prefix(self) -> str:
        """The value for `--data-path`: Megatron-LM's PREFIX_KEY_document, or PREFIX_KEY_sentence."""
        return f"{self.stem}_{self._kind}"

    @property
    def shards(self) -> Path:
        """Folder of the finished pieces."""
        return self.stem.with_name(self.stem.name + ".shards")


def prepare(request: PrepareRequest) -> tuple[dict[str, Any], bool]:
    """Prepare the data unless they exist; return their record and whether they were made now.

    Raises UsageError for bad input and for an output that holds something else, NlpBenchError for a system error.
    """
    paths = find_shards(request.inputs)
    parameters = {
        "inputs": [identity(path) for path in paths],
        **asdict(request.reading),
        "tokenizer": request.tokenizer.identity(),
    }
    lock = request.stem.with_name(f".{request.stem.name}.lock")
    with locked(lock, "name another place with --output"):
        found = _existing(request, parameters)
        return (found, False) if found else (_make(request, paths, parameters), True)


def find_shards(words: tuple[str, ...]) -> list[Path]:
    """Return the files of the inputs `words`, in their order and sorted within each.

    Raises UsageError for an input without a file, a file given twice, and one that is unreadable or a git-lfs pointer.
    """
    if not words:
        kinds = "files, folders or patterns of JSON lines, plain, .gz, .xz, .zst or .bz2"
        raise UsageError(f"input: not given; name {kinds}")
    found: dict[Path, tuple[Path, str]] = {}
    for word in words:
        for path in _named(word):
            place = real(path)
            if place in found:
                first, named = found[place]
                same = f"as {first}, by {named}, and as {path}, by {word}"
                raise UsageError(f"input: {place.name} is named twice ({same}); leave one of the two out")
            found[place] = (path, word)
            require_file("input", path)
    return [path for path, _ in found.values()]


def _named(word: str) -> list[Path]:
    path = Path(word)
    if word == "-":
        raise UsageError("input: -: standard input cannot be continued after a stop; write it into a file")
    if path.is_dir():
        inside = sorted(one for folder, names in walk(path) for name in names if _is_text(one := folder / name, path))
        if not inside:
            raise UsageError(f"input: {path} holds no file named *.jsonl or *.json, plain or with {', '.join(PACKED)}")
        return inside
    if os.path.lexists(path) or not set("*?[") & set(word):
        return [path]  # the caller checks that it is readable
    matches = [Path(one) for one in sorted(glob.glob(word, recursive=True))]  # noqa: PTH207  # patterns may be absolute
    files = [one for one in matches if one.is_file() and not one.name.startswith(".") and not _is_ours(one)]
    if not files:
        raise UsageError(f"input: no file matches {word!r}")
    return files


def _is_text(path: Path, top: Path) -> bool:
    name = path.name
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    is_hidden = any(part.startswith(".") for part in path.relative_to(top).parts)
    return name.endswith(NAMES) and path.is_file() and not is_hidden and not _is_ours(path)


def _is_ours(path: Path) -> bool:
    """Whether it is of prepared data, or of a piece of them, by their record: the output may lie among the text."""
    if path.suffix not in {".json", ".bin", ".idx"}:
        return False
    try:
        with opened(path.with_suffix(".json")) as stream:
            return RECORD_MARK in stream.read(4096)
    except OSError:  # no record; of text that cannot be read require_file says why
        return False


def identity(path: Path) -> dict[str, Any]:
    """Return what identifies the content of a file: its path, size and modification time."""
    state = path.stat()
    return {"path": str(real(path)), "bytes": state.st_size, "changed_ns": state.st_mtime_ns}


def _existing(request: PrepareRequest, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of a complete result with the same parameters; raise UsageError for anything else in its place."""
    paths = [Path(request.prefix + suffix) for suffix in (".bin", ".idx", ".json")]
    there = [path for path in paths if path.exists()]
    record, remedy = read_prepared(request.prefix), "name another --output, or add --overwrite"
    if record is None:
        if there and not request.overwrite and not (request.shards / JOINING).exists():
            raise UsageError(f"output: {there[0]} exists and has no record of ours; {remedy}")
        return None
    if record["parameters"] == parameters:
        return record if is_whole(Path(request.prefix).parent, record) else None
    if not request.overwrite:
        other = _difference(record["parameters"], parameters)
        raise UsageError(f"output: {request.prefix} was made with other parameters ({other}); {remedy}")
    return None


def is_whole(folder: Path, record: dict[str, Any]) -> bool:
    """Whether the files that a record names are in `folder` with their sizes."""
    paths = {folder / name: file["bytes"] for name, file in record["files"].items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    keys = [key for key in now if before.get(key) != now[key]]
    found = [f"{key} {before.get(key)!r}, now {now[key]!r}" for key in keys if not isinstance(now[key], (list, dict))]
    if "tokenizer" in keys:
        old, new = before.get("tokenizer", {}).get("type"), now["tokenizer"]["type"]
        found.append(f"tokenizer {old}, now {new}" if old != new else "other tokenizer files or end token")
    if "inputs" in keys:
        counts = f"{len(before.get('inputs', []))} files, now {len(now['inputs'])} files"
        found.append(f"input of {counts}, or changed since")
    return "; ".join(found)


def _make(request: PrepareRequest, paths: Sequence[Path], parameters: dict[str, Any]) -> dict[str, Any]:
    check_builder()
    encoder = build(request.tokenizer)
    if request.reading.append_eod and encoder.end_id is None:
        remedy = "name it with --eod-token, or leave --append-eod out"
        raise UsageError(f"append_eod: the tokenizer names no token for the end of a document; {remedy}")
    try:
        request.shards.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{error.strerror}; name another place with --output"
        raise NlpBenchError(f"output: cannot make {request.shards}: {why}") from error
    token_bytes = token_bytes_for(encoder.vocab_size)
    common = {**parameters, "inputs": None, "library": encoder.library, "token_bytes": token_bytes}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        shards = [
            Shard(
                number=number,
                path=path,
                folder=request.shards,
                identity=common | identity(path),
                token_bytes=token_bytes,
            )
            for number, path in enumerate(paths)
        ]
        workers = request.workers or cores
        pieces = Preparation(shards, request.tokenizer, request.reading, workers).run()
    finally:
        with contextlib.suppress(OSError):  # not empty: it holds pieces to resume from
            request.shards.rmdir()
    broken = [text for found in pieces for piece in found for text in piece.broken]
    record = {  # depends neither on the time nor on the number of workers
        "schema": PREPARED,
        "nlp_bench": __version__,
        "parameters": parameters,
        "tokenizer": {
            **parameters["tokenizer"],
            "vocab_size": encoder.vocab_size,
            "eod_id": encoder.end_id if request.reading.append_eod else None,
            "library": encoder.library,
        },
        **_counts(pieces),
        "vocab_size": encoder.vocab_size,
        "token_type": TOKEN_TYPE[token_bytes],
        "broken": broken[:MAX_NAMED],
        "shards": [{"path": str(shard.path), **_counts([found])} for shard, found in zip(shards, pieces, strict=True)],
    }
    if not record["num_documents"]:
        counts = f"{record['num_empty']} empty documents, {record['num_broken']} broken lines"
        first = "".join(f"; the first: {text}" for text in broken[:1])
        raise UsageError(f"input: no document has any token; nothing to train on ({counts}{first})")
    for path, before in zip(paths, parameters["inputs"], strict=True):
        if (now := identity(path)) != before:
            sizes = f"{before['bytes']} bytes, now {now['bytes']}"
            raise UsageError(
                f"input: {path} changed while it was read ({sizes}), as a file that is still being copied; repeat when it is whole"
            )
    return _publish(request, shards, pieces, record)


def _counts(pieces: Sequence[Sequence[Piece]]) -> dict[str, int]:
    names = ("num_documents", "num_sequences", "num_tokens", "num_empty", "num_broken")
    return {name: sum(getattr(piece, name) for found in pieces for piece in found) for name in names}


def _publish(
    request: PrepareRequest, shards: Sequence[Shard], pieces: Sequence[Sequence[Piece]], record: dict[str, Any]
) -> dict[str, Any]:
    """Join the pieces in the order of the input, write the record last, then remove the pieces."""
    prefixes = [
        shard.prefix(number)
        for shard, found in zip(shards, pieces, strict=True)
        for number, piece in enumerate(found)
        if piece.num_sequences
    ]
    size = record["num_tokens"] * shards[0].token_bytes
    if size >= LARGE_BYTES:
        print(f"nlp-bench: joining {len(prefixes)} pieces, {size / 1e9:.1f} GB", file=sys.stderr)
    marker, record_path = request.shards / JOINING, Path(request.prefix + ".json")
    try:
        write_text(marker, "")
        record_path.unlink(missing_ok=True)  # it does not describe the new data
        with contextlib.closing(Writer(request.prefix, shards[0].token_bytes)) as writer:
            gc.freeze()  # the builder collects garbage after each dataset: 0.25 s with all that torch has loaded
            for prefix in prefixes:
                writer.add_dataset(prefix)
            gc.unfreeze()
            writer.finish()
        record = record | {"files": describe(Path(request.prefix + suffix) for suffix in (".bin", ".idx"))}
        write_json(record_path, record)
        marker.unlink()
    except OSError as error:
        raise NlpBenchError(
            f"cannot write {request.prefix}.bin: {explained(error)}; then the same command continues"
        ) from error
    if not request.keep_shards:
        shutil.rmtree(request.shards, ignore_errors=True)
    return record


def describe(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of files by name, for their record."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in paths}
