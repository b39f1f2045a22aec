"""The invented corpus: text with enough structure to learn from, and its tokens, made atomically, once for the same parameters, under a lock."""

import glob
import os
import random
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.data import PREFIX
from nlp_bench.data.indexed import TOKEN_TYPE, Writer, check_builder, token_bytes_for
from nlp_bench.data.prepare import describe, is_whole
from nlp_bench.data.shards import encode
from nlp_bench.data.tokenizer import END_OF_DOCUMENT, encoder_of, train_byte_pairs
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
    """The invented corpus to make."""

    output: Path  # folder for the data; it must be absent, empty or made by this program
    seed: int = 1
    documents: int = 5000
    vocab_size: int = 4096  # of the tokenizer that is trained on it

    def __post_init__(self) -> None:
        documents, tokens = self.documents, self.vocab_size
        require(self.seed >= 0, f"seed: {self.seed} is negative")
        require(documents >= 1, f"documents: {documents} is less than 1")
        most = f"{MOST_DOCUMENTS} (about 6 GB of invented text, an hour of one core); text of your own: nlp-bench data prepare"
        require(documents <= MOST_DOCUMENTS, f"documents: {documents} are more than {most}")
        rule = f"is more than {MOST_VOCABULARY}; no tokenizer has as many tokens"
        require(tokens <= MOST_VOCABULARY, f"vocab_size: {tokens} {rule}")
        require(tokens >= 257, f"vocab_size: {tokens} is less than 257 = 256 bytes + 1 end of document")


def make_data(request: DataRequest) -> tuple[dict[str, Any], bool]:
    """Make the data unless they exist; return the record of data.json and whether they were made now.

    Raises UsageError for bad input and for an output folder that holds something else.
    """
    output = real(request.output) if request.output.exists() else request.output  # a link to a scratch stays
    request = replace(request, output=output)
    parameters = {"seed": request.seed, "documents": request.documents, "vocab_size": request.vocab_size}
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
        with reported_late(f"making tokens of {request.documents} documents of invented text; it may take a while"):
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
    learned_from = documents(request.seed, min(request.documents, LEARNED_FROM))
    tokenizer = train_byte_pairs(learned_from, request.vocab_size)
    _save(tokenizer.model, folder)
    encoder = encoder_of(tokenizer, [END_OF_DOCUMENT])
    texts = ([text] for text in documents(request.seed, request.documents))
    token_bytes = token_bytes_for(encoder.vocab_size)
    num_documents = num_tokens = 0
    with closing(Writer(str(folder / PREFIX), token_bytes)) as writer:
        while batch := list(islice(texts, 1000)):
            found = encode(encoder, batch, token_bytes, append_eod=True)
            writer.add(found.tokens, found.lengths, found.sequences)
            num_documents += len(found.sequences)
            num_tokens += sum(found.lengths)
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


ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "kr", "st", "tr")
VOWELS = ("a", "e", "i", "o", "u", "ai", "or", "en")
SENTENCES = (
    ("article", "noun", "verb", "article", "noun"),
    ("article", "adjective", "noun", "verb", "adverb"),
    ("noun", "verb", "preposition", "article", "adjective", "noun"),
    ("article", "noun", "preposition", "article", "noun", "verb", "noun", "adverb"),
)
SHARES = {"article": 4, "preposition": 24, "adverb": 200, "adjective": 500, "verb": 900, "noun": 2400}
NUM_TOPICS = 16


def documents(seed: int, count: int) -> Iterator[str]:
    """Yield `count` documents of about 600 characters each, drawn from one random grammar, the same for the same seed on every machine.

    Words of a class follow Zipf's law; the topic of a document decides which nouns and verbs are frequent in it.
    """
    draw = random.Random(seed)  # noqa: S311  # reproducible text, no secret
    classes = _lexicon(draw)
    weights = {name: list(accumulate(1 / rank for rank in range(1, len(words) + 1))) for name, words in classes.items()}
    for _ in range(count):
        topic = draw.randrange(NUM_TOPICS)
        words = {name: _shifted(entries, topic) for name, entries in classes.items()}
        sentences = (draw.choice(SENTENCES) for _ in range(draw.randint(12, 24)))
        lines = (" ".join(draw.choices(words[name], cum_weights=weights[name])[0] for name in one) for one in sentences)
        yield ". ".join(line.capitalize() for line in lines) + ".\n"


def _lexicon(draw: random.Random) -> dict[str, list[str]]:
    known: dict[str, None] = {}
    while len(known) < sum(SHARES.values()):
        syllables = 1 + min(len(known) // 60, 1) + draw.randrange(2)  # the first, most frequent words are short
        known["".join(draw.choice(ONSETS) + draw.choice(VOWELS) for _ in range(syllables))] = None
    words = iter(known)
    return {name: [next(words) for _ in range(share)] for name, share in SHARES.items()}


def _shifted(words: list[str], topic: int) -> list[str]:
    if len(words) < 900:
        return words
    start = topic * len(words) // NUM_TOPICS
    return words[start:] + words[:start]
