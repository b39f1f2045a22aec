"""Makes training data atomically, once for the same parameters, under a lock."""

import glob
import os
import re
import secrets
import shutil
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.data import PREFIX, corpus
from nlp_bench.data.indexed import TOKEN_TYPE, Writer, check_builder, token_bytes_for
from nlp_bench.data.prepare import describe, identity, is_whole
from nlp_bench.data.shards import Reading, documents_of, encode
from nlp_bench.data.text import blocks
from nlp_bench.data.tokenizer import (
    END_OF_DOCUMENT,
    GPT2,
    TokenizerChoice,
    build,
    encoder_of,
    require_file,
    train_byte_pairs,
)
from nlp_bench.errors import NlpBenchError, UsageError, explained, require
from nlp_bench.files import locked, read_json, real, recover_folder, replace_folder, reported_late, write_json
from nlp_bench.immutable import immutable

SCHEMA = "nlp-bench/data/1"


MOST_DOCUMENTS = 10_000_000
MOST_VOCABULARY = 1_000_000
LEARNED_FROM = 20_000
"""Documents of the invented corpus that its tokenizer is trained on: its words are few, and the library lets no signal in meanwhile."""


@immutable
class DataRequest:
    """The data to make: an invented corpus, or tokens of the user's own text."""

    output: Path  # folder for the data; it must be absent, empty or made by this program
    seed: int = 1  # seed of the invented corpus
    documents: int = 5000  # documents of the invented corpus
    vocab_size: int = 4096  # of the tokenizer that is trained on the invented corpus
    input: Path | None = None  # the user's text, JSON lines, plain or .gz; None for the invented corpus
    json_key: str = "text"  # key of the text in each line
    vocab_file: Path | None = None  # vocab.json for the user's text
    merge_file: Path | None = None  # merges.txt for the user's text
    append_eod: bool = False  # end each of the user's documents with <|endoftext|>; the invented ones always do

    def __post_init__(self) -> None:
        documents, tokens = self.documents, self.vocab_size
        require(self.seed >= 0, f"seed: {self.seed} is negative")
        require(documents >= 1, f"documents: {documents} is less than 1")
        most = f"{MOST_DOCUMENTS} (about 6 GB of invented text, an hour of one core); text of your own: nlp-bench data prepare"
        require(documents <= MOST_DOCUMENTS, f"documents: {documents} are more than {most}")
        rule = f"is more than {MOST_VOCABULARY}; no tokenizer has as many tokens"
        require(tokens <= MOST_VOCABULARY, f"vocab_size: {tokens} {rule}")
        require(tokens >= 257, f"vocab_size: {tokens} is less than 257 = 256 bytes + 1 end of document")
        theirs = self.vocab_file or self.merge_file or self.append_eod
        lone = "input: not given, but --vocab-file, --merge-file and --append-eod are for --input"
        require(self.input is not None or not theirs, lone)
        is_whole = self.input is None or (self.vocab_file and self.merge_file)
        require(bool(is_whole), "input: needs --vocab-file vocab.json and --merge-file merges.txt")

    def parameters(self) -> dict[str, Any]:
        """Return what determines the content: for the user's files their paths, sizes and modification times."""
        if self.input is None:
            return {"seed": self.seed, "documents": self.documents, "vocab_size": self.vocab_size}
        known: dict[str, Any] = {"json_key": self.json_key, "append_eod": self.append_eod}
        for name in ("input", "vocab_file", "merge_file"):
            require_file(name, path := Path(getattr(self, name)))
            known[name] = identity(path)
        return known


def make_data(request: DataRequest) -> tuple[dict[str, Any], bool]:
    """Make the data unless they exist; return the record of data.json and whether they were made now.

    Raises UsageError for bad input and for an output folder that holds something else.
    """
    output = real(request.output)  # a link to a scratch stays
    request, parameters = replace(request, output=output), request.parameters()
    with locked(output.parent / f".{output.name}.lock", "name another folder with --output"):
        try:
            recover_folder(output)
        except OSError as error:
            raise NlpBenchError(f"cannot write {output}: {explained(error)}") from error
        found = _finished(output)
        if found and found["parameters"] == parameters and is_whole(output, found):
            return found, False
        return _make(request, parameters), True


def _finished(output: Path) -> dict[str, Any] | None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    if not (output / "data.json").is_file():
        raise UsageError(f"output: {output} exists and holds no data.json of ours; name another folder with --output")
    return read_json(output / "data.json", SCHEMA)


def _make(request: DataRequest, parameters: dict[str, Any]) -> dict[str, Any]:
    check_builder()
    name = f".{request.output.name}."
    for killed in request.output.parent.glob(f"{glob.escape(name)}*.part"):  # left by a killed one, as we hold the lock
        shutil.rmtree(killed, ignore_errors=True)
    folder = request.output.with_name(f"{name}{secrets.token_hex(6)}.part")
    try:
        folder.mkdir()
        what = str(request.input) if request.input else f"{request.documents} documents of invented text"
        with reported_late(f"making tokens of {what}; it may take a while"):
            counts = _write_tokens(request, folder)
        files = describe(sorted(folder.iterdir()))
        record = {"schema": SCHEMA, "nlp_bench": __version__, "parameters": parameters, **counts, "files": files}
        write_json(folder / "data.json", record)
        replace_folder(folder, request.output)
    except OSError as error:
        raise NlpBenchError(f"cannot write {request.output}: {explained(error)}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def _write_tokens(request: DataRequest, folder: Path) -> dict[str, Any]:
    """Write tokenizer and tokens into `folder`; return their counts for the record."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if request.input is None:
        learned_from = corpus.documents(request.seed, min(request.documents, LEARNED_FROM))
        tokenizer = train_byte_pairs(learned_from, request.vocab_size)
        _save(tokenizer.model, folder)
        encoder = encoder_of(tokenizer, [END_OF_DOCUMENT])
        documents = ([text] for text in corpus.documents(request.seed, request.documents))
        batches = iter(lambda: list(islice(documents, 1000)), [])
    else:
        choice = TokenizerChoice(tokenizer_type=GPT2, vocab_file=request.vocab_file, merge_file=request.merge_file)
        encoder, paths = build(choice), choice.paths()
        if request.append_eod and encoder.end_id is None:
            raise UsageError(f"append_eod: the vocabulary has no {END_OF_DOCUMENT}; leave --append-eod out")
        shutil.copy(paths["vocab_file"], folder / "vocab.json")
        shutil.copy(paths["merge_file"], folder / "merges.txt")
        path, reading = request.input, Reading(json_key=request.json_key)
        batches = (list(documents_of(reading, str(path), one.data, one.number, [])) for one in blocks(path))
    token_bytes = token_bytes_for(encoder.vocab_size)
    append_eod = request.append_eod or request.input is None
    num_documents = num_tokens = 0
    with closing(Writer(str(folder / PREFIX), token_bytes)) as writer:
        for batch in batches:
            found = encode(encoder, batch, token_bytes, append_eod=append_eod)
            writer.add(found.tokens, found.lengths, found.sequences)
            num_documents += len(found.sequences)
            num_tokens += sum(found.lengths)
        if not num_documents:
            raise UsageError("input: no document has any token; nothing to train on")
        writer.finish()
    return {
        "num_documents": num_documents,
        "num_tokens": num_tokens,
        "vocab_size": encoder.vocab_size,
        "token_type": TOKEN_TYPE[token_bytes],
    }


def _save(model: Any, folder: Path) -> None:
    """Write the tokenizer's files. Raises OSError, where the library, in Rust, raises a bare Exception ending in `(os error 28)`."""
    try:
        model.save(str(folder))
    except Exception as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if not found:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(folder)) from error
