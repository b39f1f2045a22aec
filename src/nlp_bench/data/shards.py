"""All shards through the tokenizer: threads read and write in order, processes encode between them.

A thread per open shard unpacks it (the libraries let other threads run meanwhile), hands blocks of lines to the worker
processes and writes their tokens in the order of the lines; so one large packed file keeps every core busy, and what is written
does not depend on how many workers there are. Finished pieces of an earlier run are passed over.
"""

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.data.blocks import Block, blocks
from nlp_bench.data.pieces import Piece, PieceWriter, ShardFolder
from nlp_bench.data.progress import Progress
from nlp_bench.data.tokenizer import TokenizerChoice
from nlp_bench.data.worker import Encoded, Reading, begin, encode_block
from nlp_bench.errors import NlpBenchError, explained

PIECE_BYTES = 2**28
"""Text of a piece: what a killed run may have to do again, per open shard."""
MAX_OPEN_SHARDS = 8
_WAIT_S = 0.1
_CONTINUE = "the same command continues where it stopped"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One input file and the place of its pieces."""

    number: int
    """Its place in the order of the input, from 0."""
    path: Path
    """The file."""
    size: int
    """Bytes on disk."""
    folder: ShardFolder
    """Where its pieces are written."""


class Encoding:
    """The work on all shards of one preparation."""

    def __init__(
        self, shards: Sequence[Shard], choice: TokenizerChoice, reading: Reading, *, workers: int, piece_bytes: int
    ) -> None:
        """Prepare; nothing is started. `workers` processes encode, and pieces end behind `piece_bytes` of text."""
        self.shards, self.workers, self.piece_bytes = shards, workers, piece_bytes
        self.num_open = max(min(len(shards), workers, MAX_OPEN_SHARDS), 1)
        self.window = max(2 * workers // self.num_open, 2)
        self.stop = threading.Event()
        self.progress = Progress(num_shards=len(shards), num_bytes=sum(shard.size for shard in shards))
        code = {2: "H", 4: "i"}[shards[0].folder.token_bytes]
        # Spawned, not forked: a fork would copy the threads' locks in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self.processes = ProcessPoolExecutor(workers, context, begin, (choice, reading, code))

    def run(self) -> list[list[Piece]]:
        """Return the pieces of each shard; raises UsageError for bad input and NlpBenchError for a fault of the machine."""
        threads = ThreadPoolExecutor(self.num_open, initializer=_deaf)
        futures = [threads.submit(self._shard, shard) for shard in self.shards]
        try:
            waiting: set[Future[list[Piece]]] = set(futures)
            while waiting and not any(one.done() and one.exception() for one in futures):
                waiting = wait(waiting, timeout=_WAIT_S).not_done
                self.progress.show()
        finally:
            self.progress.close()
            self.stop.set()
            self.processes.shutdown(wait=True, cancel_futures=True)
            threads.shutdown(wait=True, cancel_futures=True)
        return _results(futures)

    def _shard(self, shard: Shard) -> list[Piece]:
        pieces = shard.folder.finished()
        if not (pieces and pieces[-1].is_last):
            job = _ShardJob(self, shard, pieces)
            try:
                job.run()
            except OSError as error:
                raise NlpBenchError(f"cannot write {shard.folder.folder}: {explained(error)}; {_CONTINUE}") from error
            finally:
                job.close()
        self.progress.end(shard.number, shard.size)
        return pieces


class _ShardJob:
    """One shard from where an earlier run stopped to its end."""

    def __init__(self, work: Encoding, shard: Shard, pieces: list[Piece]) -> None:
        self.work, self.shard, self.pieces = work, shard, pieces
        self.begin = pieces[-1].end if pieces else 0
        self.number = pieces[-1].next_line if pieces else 1
        self.writer: PieceWriter | None = None
        self.pending: deque[tuple[Block, Future[Encoded]]] = deque()

    def run(self) -> None:
        """Read, encode and write; a stop from outside ends it without a piece."""
        is_first = True
        for block in blocks(self.shard.path, self.begin, self.number):
            if is_first:
                self.work.progress.begin(self.shard.number, block.position if self.begin else 0)
                is_first = False
            if self.work.stop.is_set():
                raise CancelledError
            self.pending.append((block, self._submit(block)))
            if len(self.pending) >= self.work.window:
                self._write()
        while self.pending:
            self._write()
        self._finish(is_last=True)

    def _submit(self, block: Block) -> "Future[Encoded]":
        try:
            return self.work.processes.submit(encode_block, str(self.shard.path), block.data, block.number)
        except BrokenProcessPool:
            raise
        except RuntimeError:  # the pool is being closed
            raise CancelledError from None

    def _write(self) -> None:
        """Write the oldest block's tokens."""
        block, future = self.pending.popleft()
        found = future.result()
        self.writer = self.writer or PieceWriter(self.shard.folder, len(self.pieces))
        self.writer.add(found)
        begin, self.begin = self.begin, block.end
        self.number = block.number + block.data.count(b"\n")
        documents = len(found.sequences)
        self.work.progress.add(
            self.shard.number, position=block.position, text_bytes=block.end - begin, documents=documents
        )
        written = block.end - (self.pieces[-1].end if self.pieces else 0)
        if written >= self.work.piece_bytes:
            self._finish(is_last=False)

    def _finish(self, *, is_last: bool) -> None:
        writer = self.writer or PieceWriter(self.shard.folder, len(self.pieces))
        self.pieces.append(writer.finish(end=self.begin, next_line=self.number, is_last=is_last))
        self.writer = None

    def close(self) -> None:
        """Drop what is half done."""
        for _, future in self.pending:
            future.cancel()
        if self.writer:
            self.writer.close()


def _deaf() -> None:
    """Let the workers, which are started by these threads, not hear Ctrl-C: a terminal sends it to all, the parent stops them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _results(futures: Sequence["Future[list[Piece]]"]) -> list[list[Piece]]:
    """Return what the threads found, or raise the first real fault in the order of the input."""
    faults = [error for one in futures if not one.cancelled() and (error := one.exception())]
    real = [error for error in faults if not isinstance(error, CancelledError)]
    for error in real:
        if isinstance(error, BrokenProcessPool):
            raise NlpBenchError(
                f"a worker process died (killed, or out of memory); try fewer --workers: {_CONTINUE}"
            ) from error
        raise error
    return [one.result() for one in futures]
