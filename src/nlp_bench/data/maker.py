"""Making training data: whole or not at all, once for the same parameters, never by two at the same time."""

import glob
import hashlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.data import PREFIX
from nlp_bench.data.present import require_file
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import locked, read_json, recover_folder, replace_folder, write_json

SCHEMA = "nlp-bench/data/1"
CHUNK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """What to make: an invented corpus, or tokens of the user's own text."""

    output: Path
    """Folder that will hold the data; it must be absent, empty or made by this program."""
    seed: int = 1
    """Seed of the invented corpus."""
    documents: int = 5000
    """Documents of the invented corpus."""
    vocab_size: int = 4096
    """Tokens of the vocabulary that is trained on the invented corpus."""
    input: Path | None = None
    """The user's text, JSON lines, plain or .gz; None for the invented corpus."""
    json_key: str = "text"
    """Key of the text in each line."""
    vocab_file: Path | None = None
    """vocab.json for the user's text."""
    merge_file: Path | None = None
    """merges.txt for the user's text."""
    append_eod: bool = False
    """End each of the user's documents with <|endoftext|>; the invented ones always do."""

    def __post_init__(self) -> None:
        """Refuse parameters that cannot work."""
        if self.seed < 0:
            raise UsageError(f"seed: {self.seed} is negative")
        if self.documents < 1:
            raise UsageError(f"documents: {self.documents} is less than 1")
        if self.vocab_size < 257:
            raise UsageError(f"vocab_size: {self.vocab_size} is less than 257 = 256 bytes + 1 end of document")
        if self.input is None and (self.vocab_file or self.merge_file or self.append_eod):
            raise UsageError("input: not given, but --vocab-file, --merge-file and --append-eod are for --input")
        if self.input is not None and not (self.vocab_file and self.merge_file):
            raise UsageError("input: needs --vocab-file vocab.json and --merge-file merges.txt")

    def parameters(self) -> dict[str, Any]:
        """Return what decides the content: for the user's files their names, sizes and times of change."""
        if self.input is None:
            return {"seed": self.seed, "documents": self.documents, "vocab_size": self.vocab_size}
        known: dict[str, Any] = {"json_key": self.json_key, "append_eod": self.append_eod}
        for name in ("input", "vocab_file", "merge_file"):
            path = Path(asdict(self)[name])
            require_file(name, path)
            state = path.stat()
            known[name] = {"path": str(path.resolve()), "bytes": state.st_size, "changed_ns": state.st_mtime_ns}
        return known


def make_data(request: DataRequest) -> tuple[dict[str, Any], bool]:
    """Make the data unless it is there; return the record of data.json and whether it was made now.

    Raises UsageError for bad input and for an output folder that holds something else.
    """
    parameters = request.parameters()
    lock = request.output.parent / f".{request.output.name}.lock"
    with locked(lock, "name another folder with --output"):
        try:
            recover_folder(request.output)
        except OSError as error:
            raise NlpBenchError(f"cannot write {request.output}: {explained(error)}") from error
        found = _finished(request.output)
        if found and found["parameters"] == parameters:
            return found, False
        return _make(request, parameters), True


def _finished(output: Path) -> dict[str, Any] | None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    if not (output / "data.json").is_file():
        raise UsageError(f"output: {output} exists and holds no data.json of ours; name another folder with --output")
    record = read_json(output / "data.json", SCHEMA)
    damaged = [name for name, known in record["files"].items() if _size(output / name) != known["bytes"]]
    return record | {"parameters": None} if damaged else record


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _make(request: DataRequest, parameters: dict[str, Any]) -> dict[str, Any]:
    name = f".{request.output.name}."
    for killed in request.output.parent.glob(f"{glob.escape(name)}*.part"):  # of one that was killed: we hold the lock
        shutil.rmtree(killed, ignore_errors=True)
    folder = request.output.with_name(f"{name}{secrets.token_hex(6)}.part")
    try:
        folder.mkdir()
        counts = _write_tokens(request, folder)
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())
        }
        record = {"schema": SCHEMA, "nlp_bench": __version__, "parameters": parameters, **counts, "files": files}
        write_json(folder / "data.json", record)
        replace_folder(folder, request.output)
    except OSError as error:
        raise NlpBenchError(f"cannot write {request.output}: {explained(error)}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def _write_tokens(request: DataRequest, folder: Path) -> dict[str, Any]:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from nlp_bench.data import bpe, corpus, source  # noqa: PLC0415  # tokenizers is loaded only when data is made

    if request.input and request.vocab_file and request.merge_file:
        tokenizer = bpe.load(request.vocab_file, request.merge_file)
        shutil.copy(request.vocab_file, folder / "vocab.json")
        shutil.copy(request.merge_file, folder / "merges.txt")
        documents = source.texts(request.input, request.json_key)
    else:
        tokenizer = bpe.train(corpus.documents(request.seed, request.documents), request.vocab_size)
        _save(tokenizer.model, folder)
        documents = corpus.documents(request.seed, request.documents)
    append_end = request.append_eod or request.input is None
    vocab_size = 1 + max(tokenizer.get_vocab().values())
    return _write_indexed(folder / PREFIX, bpe.encode(tokenizer, documents, append_end=append_end), vocab_size)


def _save(model: Any, folder: Path) -> None:
    """Write the tokenizer's files. Raises OSError; the library, which is Rust, raises a bare Exception that ends in `(os error 28)`."""
    try:
        model.save(str(folder))
    except Exception as error:
        said = re.search(r"\(os error (\d+)\)", str(error))
        if not said:
            raise
        raise OSError(int(said[1]), os.strerror(int(said[1])), str(folder)) from error


def _write_indexed(prefix: Path, documents: Iterator[list[int]], vocab_size: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core warns of every package that it does not find
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # noqa: PLC0415  # takes seconds
    kind = DType.optimal_dtype(vocab_size)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=kind)
    num_documents = num_tokens = 0
    with closing(builder.data_file):  # a fault in a document leaves it open otherwise
        for tokens in documents:
            builder.add_document(tokens, [len(tokens)])
            num_documents, num_tokens = num_documents + 1, num_tokens + len(tokens)
    builder.finalize(f"{prefix}.idx")
    if not num_documents:
        raise UsageError("input: no document has any token; nothing to train on")
    return {
        "num_documents": num_documents,
        "num_tokens": num_tokens,
        "vocab_size": vocab_size,
        "token_type": kind.__name__,
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()
