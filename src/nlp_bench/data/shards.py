"""Tokenizes all shards: threads read and write in order, processes encode.

A thread per open shard decompresses it (the libraries release the GIL), sends blocks of lines to the worker processes and writes
their tokens in the order of the lines; so one large compressed file keeps every core busy, and the result does not depend on the
number of workers. Finished pieces of an earlier run are skipped: PREFIX.shards/NAME.KEY.NUMBER.bin, .idx and .json, each a complete
indexed dataset. The record, .json, is written last: a piece without one does not count.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench.data.indexed import Writer, index_bytes
from nlp_bench.data.text import Block, blocks, numbered_lines, split_sentences, texts_of
from nlp_bench.data.tokenizer import Encoder, TokenizerChoice, build
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import read_object, write_json
from nlp_bench.immutable import immutable
from nlp_bench.orphans import watch_parent
from nlp_bench.terminal import StatusLine, duration_text

SCHEMA = "nlp-bench/data-piece/1"
PIECE_BYTES = 2**28  # text of a piece: what a killed run has to repeat at most, per open shard
MAX_OPEN_SHARDS = 8
MAX_NAMED = 5  # broken lines that are listed
_WAIT_S = 0.1
_ENDING_S = 2.0  # in which the thread that manages the workers ends, once they are dead
_NAME_CHARACTERS = 120
_CONTINUE = "the same command continues where it stopped"


@immutable
class Reading:
    """How lines become sequences of tokens."""

    json_key: str = "text"  # key of the text in each line
    append_eod: bool = False  # end each document with the tokenizer's end token
    split_sentences: bool = False  # one sequence per sentence instead of one per document
    skip_broken: bool = False  # count broken lines instead of stopping at the first


@dataclass(kw_only=True)
class Encoded:
    """The tokens of some lines, in order, in the format of .bin and .idx."""

    tokens: bytes = b""  # all tokens, as uint16 or int32
    lengths: array = field(default_factory=lambda: array("i"))  # type: ignore[type-arg]  # not subscriptable in Python 3.10
    """Tokens of each sequence, int32."""
    sequences: array = field(default_factory=lambda: array("i"))  # type: ignore[type-arg]
    """Sequences of each document, int32."""
    num_empty: int = 0  # documents without any token, which are left out
    num_broken: int = 0  # broken lines, which are left out
    broken: list[str] = field(default_factory=list)  # what is wrong with the first of them


def encode(encoder: Encoder, documents: Sequence[Sequence[str]], token_bytes: int, *, append_eod: bool) -> Encoded:
    """Return the tokens of documents, each a list of texts."""
    found = Encoded()
    tokens = array({2: "H", 4: "i"}[token_bytes])
    encodings = iter(encoder.encode([text for texts in documents for text in texts]))
    for texts in documents:
        kept = [ids for ids in (next(encodings) for _ in texts) if ids]
        if not kept:
            found.num_empty += 1
            continue
        if append_eod and encoder.end_id is not None:
            kept[-1] = [*kept[-1], encoder.end_id]
        for ids in kept:
            tokens.extend(ids)
            found.lengths.append(len(ids))
        found.sequences.append(len(kept))
    found.tokens = tokens.tobytes()
    return found


Work = tuple[Encoder, Reading, int]  # tokenizer, how lines are read, and bytes per token, 2 or 4


def encode_lines(work: Work, path: str, data: bytes, number: int) -> Encoded:
    """Return the tokens of lines of the file `path`, from line `number` on; raises UsageError for a broken one."""
    encoder, reading, token_bytes = work
    documents, broken = list[list[str]](), list[str]()
    for place, line in numbered_lines(data, number):
        try:
            texts = texts_of(line, reading.json_key, f"input: {path}, line {place}")
        except UsageError as error:
            if not reading.skip_broken:
                raise UsageError(f"{error}; --skip-broken leaves such lines out") from error
            broken.append(str(error))
            continue
        if isinstance(texts, str):
            texts = split_sentences(texts) if reading.split_sentences else [texts]
        documents.append(texts)
    found = encode(encoder, documents, token_bytes, append_eod=reading.append_eod)
    found.num_broken, found.broken = len(broken), broken[:MAX_NAMED]
    return found


_WORK: list[Work] = []  # in a worker process: its work


def begin(choice: TokenizerChoice, reading: Reading, token_bytes: int) -> None:
    """Initialize a worker process: load its tokenizer, with one thread, and make it end when its parent does."""
    watch_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a worker per core already
    _WORK[:] = [(build(choice), reading, token_bytes)]


def _encode_block(path: str, data: bytes, number: int) -> Encoded:
    return encode_lines(_WORK[0], path, data, number)


@dataclass(kw_only=True)
class Piece:
    """The content of a piece: its record."""

    end: int = 0  # byte offset after its last line in the decompressed shard
    next_line: int = 1  # number of the line after it
    is_last: bool = False  # whether the shard ends here
    num_documents: int = 0  # documents with tokens
    num_sequences: int = 0  # sequences: as many as documents, or one per sentence
    num_tokens: int = 0  # tokens, end tokens included
    num_empty: int = 0  # documents without tokens, left out
    num_broken: int = 0  # broken lines, left out
    broken: list[str] = field(default_factory=list)  # what is wrong with the first of them


@immutable
class Shard:
    """One input file and the location of its pieces."""

    number: int  # its index in the input
    path: Path  # the file
    folder: Path  # PREFIX.shards
    identity: dict[str, Any]  # the file, and all parameters that determine its tokens; part of the pieces' names
    token_bytes: int  # bytes per token, 2 or 4

    def prefix(self, number: int) -> str:
        """Return the path of a piece without .bin, .idx or .json."""
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()
        return str(self.folder / f"{self.path.name[:_NAME_CHARACTERS]}.{digest[:16]}.{number:05d}")

    def finished(self) -> list[Piece]:
        """Return the complete pieces, up to the first gap."""
        found: list[Piece] = []
        while not (found and found[-1].is_last):
            prefix = self.prefix(len(found))
            record = read_object(Path(prefix + ".json"))
            if record.pop("schema", None) != SCHEMA:
                break
            try:
                piece = Piece(**record)
                sizes = [Path(prefix + suffix).stat().st_size for suffix in (".bin", ".idx")]
            except (TypeError, OSError):
                break
            index = index_bytes(piece.num_sequences, piece.num_documents + 1)
            if sizes != [piece.num_tokens * self.token_bytes, index]:
                break
            found.append(piece)
        return found


class Preparation:
    """The work on all shards of one preparation."""

    def __init__(self, shards: Sequence[Shard], choice: TokenizerChoice, reading: Reading, workers: int) -> None:
        """Prepare; nothing is started. `workers` processes encode."""
        self.shards = shards
        self.num_open = max(min(len(shards), workers, MAX_OPEN_SHARDS), 1)
        self.window = max(2 * workers // self.num_open, 2)
        self.stop = threading.Event()
        self.progress = ShardProgress([shard.path.stat().st_size for shard in shards])
        # Spawned, not forked: a fork would copy locks that threads hold.
        context = multiprocessing.get_context("spawn")
        self.processes = ProcessPoolExecutor(workers, context, begin, (choice, reading, shards[0].token_bytes))

    def run(self) -> list[list[Piece]]:
        """Return the pieces of each shard; raises UsageError for bad input and NlpBenchError for a system error."""
        # Workers inherit the blocked SIGINT of these threads: Ctrl-C of a terminal goes to all, but the parent stops them.
        sigint_blocked = (signal.SIG_BLOCK, {signal.SIGINT})
        threads = ThreadPoolExecutor(self.num_open, initializer=signal.pthread_sigmask, initargs=sigint_blocked)
        futures = [threads.submit(self._shard, shard) for shard in self.shards]
        try:
            waiting: set[Future[list[Piece]]] = set(futures)
            while waiting and not any(map(_error_of, futures)):
                waiting = wait(waiting, timeout=_WAIT_S).not_done
                self.progress.show()
        finally:
            self.progress.line.wipe()
            self.stop.set()
            if any(isinstance(_error_of(one), BrokenProcessPool) for one in futures):
                _end_sending(self.processes)
            self.processes.shutdown(wait=True, cancel_futures=True)
            threads.shutdown(wait=True, cancel_futures=True)
        for one in futures:  # the first real error in the order of the input
            error = _error_of(one)
            if isinstance(error, BrokenProcessPool):
                most_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
                died, remedy = "a worker process died (killed, or out of memory", "try fewer --workers"
                if most_s != resource.RLIM_INFINITY:  # of a login node
                    died += f", or at the {most_s} s of CPU time that `ulimit -t` allows each process"
                    remedy += ", or prepare the data in a job"
                raise NlpBenchError(f"{died}); {remedy}: {_CONTINUE}") from error
            if error and not isinstance(error, CancelledError):
                raise error
        return [one.result() for one in futures]

    def _shard(self, shard: Shard) -> list[Piece]:
        pieces = shard.finished()
        if not (pieces and pieces[-1].is_last):
            job = _ShardJob(self, shard, pieces)
            try:
                job.run()
            except OSError as error:
                raise NlpBenchError(f"cannot write {shard.folder}: {explained(error)}; {_CONTINUE}") from error
            finally:
                job.close()
        self.progress.end(shard.number)
        return pieces


def _error_of(future: Future[Any]) -> BaseException | None:
    """Return what a future that is done, and was not cancelled, has raised."""
    return future.exception() if future.done() and not future.cancelled() else None


def _end_sending(processes: ProcessPoolExecutor) -> None:
    """Let the thread that sends text to workers that are dead end: Python 3.10 and the first of 3.11 would wait for it for ever.

    It ends when nobody can read what it sends, and the parent could; later versions do this themselves at once
    (https://github.com/python/cpython/issues/94777).
    """
    with contextlib.suppress(AttributeError, OSError):  # private names
        manager: Any = processes._executor_manager_thread  # noqa: SLF001
        manager.join(_ENDING_S)
        if manager.is_alive():
            processes._call_queue._reader.close()  # type: ignore[attr-defined]  # noqa: SLF001


class _ShardJob:
    """One shard from where an earlier run stopped to its end."""

    def __init__(self, work: Preparation, shard: Shard, pieces: list[Piece]) -> None:
        self.work, self.shard, self.pieces = work, shard, pieces
        self.piece = self._next_piece()
        self.writer: Writer | None = None
        self.pending: deque[tuple[Block, Future[Encoded]]] = deque()

    def _next_piece(self) -> Piece:
        before = self.pieces[-1] if self.pieces else Piece()
        return Piece(end=before.end, next_line=before.next_line)

    def run(self) -> None:
        """Read, encode and write. Raises CancelledError when the preparation is stopped."""
        resumed_at = self.piece.end
        for block in blocks(self.shard.path, resumed_at, self.piece.next_line):
            self.work.progress.begin(self.shard.number, block.position if resumed_at else 0)
            if self.work.stop.is_set():
                raise CancelledError
            try:
                future = self.work.processes.submit(_encode_block, str(self.shard.path), block.data, block.number)
            except BrokenProcessPool:
                raise
            except RuntimeError:  # the pool is being closed
                raise CancelledError from None
            self.pending.append((block, future))
            if len(self.pending) >= self.work.window:
                self._write()
        while self.pending:
            self._write()
        self._finish(is_last=True)

    def _open(self) -> Writer:
        self.writer = self.writer or Writer(self.shard.prefix(len(self.pieces)), self.shard.token_bytes)
        return self.writer

    def _write(self) -> None:
        """Write the tokens of the oldest pending block."""
        block, future = self.pending.popleft()
        found, piece = future.result(), self.piece
        self._open().add(found.tokens, found.lengths, found.sequences)
        size, documents = block.end - piece.end, len(found.sequences)
        self.work.progress.add(self.shard.number, block, text_bytes=size, documents=documents)
        piece.end, piece.next_line = block.end, block.next_line
        piece.num_documents += documents
        piece.num_sequences += len(found.lengths)
        piece.num_tokens += len(found.tokens) // self.shard.token_bytes
        piece.num_empty += found.num_empty
        piece.num_broken += found.num_broken
        piece.broken = [*piece.broken, *found.broken][:MAX_NAMED]
        if piece.end - (self.pieces[-1].end if self.pieces else 0) >= PIECE_BYTES:
            self._finish(is_last=False)

    def _finish(self, *, is_last: bool) -> None:
        """Complete the piece with its record."""
        self.piece.is_last = is_last
        writer = self._open()
        writer.finish()
        write_json(Path(writer.prefix + ".json"), {"schema": SCHEMA, **asdict(self.piece)})
        self.pieces.append(self.piece)
        self.piece, self.writer = self._next_piece(), None

    def close(self) -> None:
        """Discard what is unfinished."""
        for _, future in self.pending:
            future.cancel()
        if self.writer:
            self.writer.close()


class ShardProgress:
    """Progress, updated by several threads: a line that is rewritten on a terminal, a new one every 30 s elsewhere."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Start; `sizes` are the bytes of all shards on disk."""
        self.sizes, self.line = sizes, StatusLine(sys.stderr)
        self.step_s, first_s = (0.2, 1.0) if self.line.is_terminal else (30.0, 30.0)  # none for short work
        self.started_s = time.monotonic()
        self.next_s = self.started_s + first_s
        self.lock = threading.Lock()
        self.begun: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.num_done = self.num_documents = self.text_bytes = 0

    def begin(self, shard: int, position: int) -> None:
        """Start a shard, unless it was started, at `position` in its file: what is before was done in an earlier run."""
        with self.lock:
            if shard not in self.begun:
                self.begun[shard] = self.read[shard] = position

    def add(self, shard: int, block: Block, *, text_bytes: int, documents: int) -> None:
        """Count a block."""
        with self.lock:
            self.read[shard] = block.position
            self.text_bytes += text_bytes
            self.num_documents += documents

    def end(self, shard: int) -> None:
        """Count a whole shard."""
        with self.lock:
            self.begun.setdefault(shard, self.sizes[shard])
            self.read[shard] = self.sizes[shard]
            self.num_done += 1

    def show(self) -> None:
        """Redraw the line, if it is time to."""
        now_s = time.monotonic()
        if now_s >= self.next_s:
            self.next_s = now_s + self.step_s
            self.line.show(self.text(now_s - self.started_s))

    def text(self, elapsed_s: float) -> str:
        """Return the line after `elapsed_s` seconds."""
        with self.lock:
            done = sum(self.read.values())
            fresh = done - sum(self.begun.values())
            documents, text, shards = self.num_documents / elapsed_s, self.text_bytes / elapsed_s, self.num_done
        total = sum(self.sizes)
        part = min(done / max(total, 1), 1.0)
        left = [f"{duration_text((total - done) / fresh * elapsed_s)} left"] if fresh > 0 and part < 1 else []
        amount = [
            f"{shards}/{len(self.sizes)} shards",
            f"{documents:.0f} documents/s",
            f"{text / 1e6:.1f} MB/s of text",
        ]
        return "nlp-bench: preparing " + ", ".join([f"{100 * part:.1f} %", *amount, *left])
