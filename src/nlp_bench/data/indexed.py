"""Megatron's indexed data, PREFIX.bin and PREFIX.idx: written by megatron-core's own builder, checked without numpy or torch."""

import contextlib
import os
import struct
import warnings
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench.data.tokenizer import require_file, tokenizer_file
from nlp_bench.errors import UsageError, require
from nlp_bench.files import read_json, read_object, sha256_of
from nlp_bench.packages import import_megatron, lacking

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # magic, version, token type, sequences, document entries
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}  # by the code of the type; 6 and 7 are floats
UINT16_LIMIT = 65500  # megatron-core's `DType.optimal_dtype`: tokens of a vocabulary below this take 2 bytes
REMEDY = "make the data anew with nlp-bench data"
PREPARED = "nlp-bench/data/2"  # schema of PREFIX.json; version 1 is the data.json of `nlp-bench data`


def check_builder() -> None:
    """Raise NlpBenchError, which names the extra to install, where megatron-core is not installed; it is not imported."""
    if missing := lacking(ModuleNotFoundError(name="megatron"), "making training data"):
        raise missing


def token_bytes_for(vocab_size: int) -> int:
    """Return the bytes per token for a vocabulary, 2 or 4, as megatron-core chooses them."""
    return 2 if vocab_size < UINT16_LIMIT else 4


TOKEN_TYPE = {2: "uint16", 4: "int32"}  # bytes per token to the type that is written, as numpy names it


class Writer:
    """megatron-core's IndexedDatasetBuilder; both files are flushed to disk before they are renamed to their final names."""

    def __init__(self, prefix: str, token_bytes: int) -> None:
        """Open PREFIX.bin.part. Raises OSError where that fails."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # megatron-core warns of every package that is not installed
            import numpy as np  # noqa: PLC0415  # slow, as is torch, which the next line imports

            import_megatron(lambda function: function)  # without torch's compiler, which nothing here uses
            from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # noqa: PLC0415  # as above
        self.prefix = prefix
        self._builder = IndexedDatasetBuilder(f"{prefix}.bin.part", dtype=getattr(np, TOKEN_TYPE[token_bytes]))

    def add(self, tokens: bytes, lengths: Sequence[int], sequences: Sequence[int]) -> None:
        """Append documents: the bytes of their tokens, the length of each sequence and the number of sequences of each document.

        The builder's lists are extended as in its `add_index`, because `add_document` takes one document at a time.
        """
        first = len(self._builder.sequence_lengths)
        self._builder.data_file.write(tokens)
        self._builder.sequence_lengths.extend(lengths)
        self._builder.document_indices.extend(first + end for end in accumulate(sequences))

    def add_dataset(self, prefix: str) -> None:
        """Append another dataset."""
        self._builder.add_index(prefix)

    def finish(self) -> None:
        """Write PREFIX.idx and rename both files to their final names."""
        self._builder.finalize(f"{self.prefix}.idx.part")
        for suffix in (".bin", ".idx"):
            with Path(f"{self.prefix}{suffix}.part").open("rb") as stream:
                os.fsync(stream.fileno())
        for suffix in (".bin", ".idx"):
            Path(f"{self.prefix}{suffix}.part").replace(self.prefix + suffix)

    def close(self) -> None:
        """Remove unfinished files; does nothing after `finish`."""
        with contextlib.suppress(OSError):  # it flushes its buffer, which fails again on a full disk
            self._builder.data_file.close()
        for suffix in (".bin", ".idx"):
            with contextlib.suppress(OSError):
                Path(f"{self.prefix}{suffix}.part").unlink()


def index_bytes(num_sequences: int, num_entries: int) -> int:
    """Return the bytes of an .idx: length (int32) and first byte (int64) of each sequence, an int64 per document entry."""
    return HEADER.size + 12 * num_sequences + 8 * num_entries


def check_indexed(prefix: str) -> None:
    """Raise UsageError when PREFIX.bin or PREFIX.idx is missing, a git-lfs pointer, truncated or of another format.

    The format is that of megatron-core's `datasets/indexed_dataset.py` (`index_bytes`); the entries of the documents are the first
    sequence of each, then the number of sequences. Only the ends of the three lists are checked: an index may have gigabytes.
    """
    paths = [Path(prefix + ".bin"), Path(prefix + ".idx")]
    for path in paths:
        if path.is_symlink() and not path.exists():
            target = f"{path.readlink()}, which does not exist"
            raise UsageError(f"data_path: {path} is a link to {target}; fetch the data (git annex get)")
        if not path.exists():
            given = Path(prefix)
            has_suffix = given.suffix in {".bin", ".idx"}
            hint = f"give the prefix {given.with_suffix('')}" if has_suffix else "make it with nlp-bench data"
            raise UsageError(f"data_path: {path} does not exist; {hint}, or use --mock-data")
        require(path.is_file(), f"data_path: {path} is no file; {REMEDY}")
        require_file("data_path", path)
    found, expected = paths[0].stat().st_size, _expected_bytes(paths[1])
    if found != expected:
        what = "truncated" if found < expected else "of other data than its index"
        sizes = f"has {found} bytes but its index says {expected}"
        raise UsageError(f"data_path: {paths[0]} {sizes}; it is {what}; {REMEDY}")


def _expected_bytes(index: Path) -> int:
    """Return the size that .bin must have; raises UsageError where the index is inconsistent."""
    size = index.stat().st_size
    with index.open("rb") as stream:
        header = stream.read(HEADER.size)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise UsageError(f"data_path: {index} is not a Megatron index (wrong first bytes); {REMEDY}")
        _, version, kind, sequences, entries = HEADER.unpack(header)
        if version != VERSION or kind not in TOKEN_BYTES:
            raise UsageError(f"data_path: {index} has version {version}, token type {kind}; only version 1 is known")
        whole = index_bytes(sequences, entries)
        require(size == whole, f"data_path: {index} has {size} bytes but its header says {whole}; {REMEDY}")
        require(sequences > 0 and entries > 1, f"data_path: {index} holds no sequences; {REMEDY}")
        length = _number(stream, "<i", HEADER.size + 4 * (sequences - 1))
        pointers, documents = HEADER.size + 4 * sequences, HEADER.size + 12 * sequences
        ends = {
            "the first sequence begins at byte": (_number(stream, "<q", pointers), 0),
            "the first document begins with sequence": (_number(stream, "<q", documents), 0),
            "the last document ends with sequence": (_number(stream, "<q", whole - 8), sequences),
        }
        for what, (found, expected) in ends.items():
            why = f"{what} {found}, not {expected}"
            require(found == expected, f"data_path: {index} is damaged: {why}; {REMEDY}")
        return _number(stream, "<q", documents - 8) + length * TOKEN_BYTES[kind]


_AT_ONCE = 1 << 20  # sequences whose places are looked at together


def check_places(prefix: str) -> None:
    """Raise UsageError where a sequence of whole data (`check_indexed`) does not begin where the one before it ends; all are looked at."""
    index = Path(prefix + ".idx")
    with index.open("rb") as stream:
        _, _, kind, sequences, _ = HEADER.unpack(stream.read(HEADER.size))
        begin = 0
        for first in range(0, sequences, _AT_ONCE):
            count = min(_AT_ONCE, sequences - first)
            stream.seek(HEADER.size + 4 * first)
            lengths = struct.unpack(f"<{count}i", stream.read(4 * count))
            stream.seek(HEADER.size + 4 * sequences + 8 * first)
            places = struct.unpack(f"<{count}q", stream.read(8 * count))
            ends = list(accumulate((length * TOKEN_BYTES[kind] for length in lengths), initial=begin))
            begin = ends.pop()
            if tuple(ends) != places or min(lengths) < 0:
                wrong = (n for n in range(count) if ends[n] != places[n] or lengths[n] < 0)
                raise UsageError(
                    f"data_path: {index} is damaged: sequence {first + max(0, next(wrong) - 1)} or the one behind it has a wrong length or "
                    f"place; {REMEDY}"
                )


def _number(stream: BinaryIO, form: str, place: int) -> int:
    stream.seek(place)
    (found,) = struct.unpack(form, stream.read(struct.calcsize(form)))
    return int(found)


def read_prepared(prefix: str) -> dict[str, Any] | None:
    """Return the record of prepared data, None where there is none of ours; raises NlpBenchError for a newer one."""
    path = Path(prefix + ".json")
    is_ours = str(read_object(path).get("schema", "")).startswith(PREPARED.rpartition("/")[0])
    return read_json(path, PREPARED) if is_ours else None


def check_tokenizer(prefix: str, *, tokenizer_type: str, vocab_size: int | None = None, **files: str | None) -> None:
    """Raise UsageError when the data at `prefix` were made with another tokenizer than that of the training.

    The values are the training's arguments of the same names, `files` vocab_file, merge_file and tokenizer_model; None is not compared.
    Data without a record of ours pass. NullTokenizer has no files: only the vocabulary size is compared. Neither torch nor a tokenizer
    is loaded.
    """
    made, anew = _tokenizer_of(prefix), "prepare the text anew with nlp-bench data prepare"
    if made is None:
        return
    if vocab_size is not None and vocab_size < made["vocab_size"]:
        raise UsageError(
            f"vocab_size: {vocab_size} is less than the {made['vocab_size']} of the tokenizer that made {prefix}; "
            f"use --vocab-size {made['vocab_size']} or more, or leave it out"
        )
    if tokenizer_type == "NullTokenizer":
        return
    if tokenizer_type != made["type"]:
        options = [f"--{field.replace('_', '-')} {file['name']}" for field, file in made["files"].items()]
        words = " ".join([f"--tokenizer-type {made['type']}", *options])
        raise UsageError(
            f"tokenizer_type: {tokenizer_type}, but {prefix} was made with {made['type']}; use {words}, or {anew}"
        )
    for field, word in files.items():
        known = made["files"].get(field)
        if word is None or known is None:
            continue
        path = tokenizer_file(made["type"], Path(word))
        try:
            found = sha256_of(path)
        except OSError as error:
            raise UsageError(f"{field}: cannot read {path}: {error.strerror}") from error
        if found != known["sha256"]:
            other = f"the {known['name']} (sha256 {known['sha256'][:16]}) that made {prefix}"
            raise UsageError(f"{field}: {path} (sha256 {found[:16]}) is not {other}; give that file, or {anew}")


def _tokenizer_of(prefix: str) -> dict[str, Any] | None:
    """Return type, vocab_size and files of the tokenizer that made the data, None without a record."""
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
