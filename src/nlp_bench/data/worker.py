"""What a worker process does: a block of lines to the bytes of its tokens. Each worker has its own tokenizer and one thread."""

import multiprocessing
import os
import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from nlp_bench.data.blocks import without_mark
from nlp_bench.data.encoder import Encoder, build
from nlp_bench.data.lines import text_of
from nlp_bench.data.sentences import split_sentences
from nlp_bench.data.tokenizer import TokenizerChoice
from nlp_bench.errors import UsageError

MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How lines become sequences of tokens."""

    json_key: str = "text"
    """Key of the text in each line."""
    append_eod: bool = False
    """End each document with the tokenizer's end token."""
    split_sentences: bool = False
    """One sequence per sentence in place of one per document."""
    skip_broken: bool = False
    """Count broken lines in place of stopping at the first."""


@dataclass(kw_only=True)
class Encoded:
    """The tokens of some lines, in order, as they stand in .bin and .idx."""

    tokens: bytes = b""
    """All tokens, of 2 bytes (unsigned) or 4 (signed)."""
    lengths: array = field(default_factory=lambda: array("i"))  # type: ignore[type-arg]  # not subscriptable in Python 3.10
    """Tokens of each sequence, int32."""
    sequences: array = field(default_factory=lambda: array("i"))  # type: ignore[type-arg]
    """Sequences of each document, int32."""
    num_empty: int = 0
    """Documents without any token, which are left out."""
    num_broken: int = 0
    """Broken lines, which are left out."""
    broken: list[str] = field(default_factory=list)
    """What is wrong with the first of them."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a worker needs for every block."""

    encoder: Encoder
    """The tokenizer."""
    reading: Reading
    """How lines are read."""
    token_code: str
    """Type code of Python's `array` for a token: H (2 bytes, unsigned) or i (4 bytes)."""


_WORK: list[Work] = []
"""In a worker: its tokenizer and settings."""


def begin(choice: TokenizerChoice, reading: Reading, token_code: str) -> None:
    """Prepare a worker process: load its tokenizer, and let it end when its parent does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a worker per core already
    _WORK[:] = [Work(encoder=build(choice), reading=reading, token_code=token_code)]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)  # nobody waits for an answer any more


def encode_block(path: str, data: bytes, number: int) -> Encoded:
    """Return the tokens of lines of the file `path`, the first of which has `number`; raises UsageError for a broken one."""
    return encode_lines(_WORK[0], path, data, number)


def encode_lines(work: Work, path: str, data: bytes, number: int) -> Encoded:
    """Do the work of `encode_block` with what is given."""
    found = Encoded()
    documents = list(_documents(work.reading, path, data, number, found))
    tokens = array(work.token_code)
    encodings = iter(work.encoder.encode([text for texts in documents for text in texts]))
    for texts in documents:
        kept = [ids for ids in (next(encodings) for _ in texts) if ids]
        if not kept:
            found.num_empty += 1
            continue
        if work.reading.append_eod and work.encoder.end_id is not None:
            kept[-1] = [*kept[-1], work.encoder.end_id]
        for ids in kept:
            tokens.extend(ids)
            found.lengths.append(len(ids))
        found.sequences.append(len(kept))
    found.tokens = tokens.tobytes()
    return found


def _documents(reading: Reading, path: str, data: bytes, number: int, found: Encoded) -> Iterator[list[str]]:
    """Yield the texts of each document: one, or one per sentence."""
    for offset, line in enumerate(without_mark(data, number).split(b"\n")):
        if not line.strip():
            continue
        try:
            text = text_of(line, reading.json_key, f"input: {path}, line {number + offset}", sentences=True)
        except UsageError as error:
            if not reading.skip_broken:
                raise UsageError(f"{error}; --skip-broken leaves such lines out") from error
            found.num_broken += 1
            found.broken += [str(error)] if len(found.broken) < MAX_NAMED else []
            continue
        if isinstance(text, list):
            yield text
        else:
            yield split_sentences(text) if reading.split_sentences else [text]
