"""Reads many items in several processes: results in the given order, stopped by Ctrl-C, complete even if a process dies."""

import gc
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from nlp_bench.inputs.find import Item
from nlp_bench.inputs.read import Read, ReadOptions, broken, read_item
from nlp_bench.logs.source import Source
from nlp_bench.orphans import die_with_parent

MAX_PROCESSES = 16
CHUNK_FILES, CHUNK_BYTES = 64, 8 << 20
_WAIT_S = 0.1
_BEGUN, _DONE = 1, 2
_DIED = "the process that read it ended without an answer (killed, or out of memory); read it alone to see more"
Show = Callable[[int, int], None]
Work = tuple[int, Item, ReadOptions]


def num_processes() -> int:
    """Return how many processes read at once, at most."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    return min(len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1, MAX_PROCESSES)


def read_many(work: Sequence[Work], show: Show) -> dict[int, Read]:
    """Return `read_item` of each item with its options by its number, of which the last is the highest.

    `show` is called with the files and bytes read from time to time.
    """
    try:
        pool = _Pool(work, show)
    except OSError:  # no shared memory: /dev/shm is absent, or closed to this user
        return {index: read_item(item, options) for index, item, options in work}
    return pool.run()


class _Pool:
    """The items and their results so far."""

    def __init__(self, work: Sequence[Work], show: Show) -> None:
        self.work, self.show = work, show
        self.results: dict[int, Read] = {}
        # Spawned, not forked: threads of numpy or an open terminal must not be copied.
        self.context = multiprocessing.get_context("spawn")
        # Shared without locks, as each place has one writer, which may be killed: for each item 0, _BEGUN or _DONE, and the bytes read.
        self.states, self.positions = (self.context.RawArray(kind, work[-1][0] + 1) for kind in "Bq")

    def run(self) -> dict[int, Read]:
        while left := self.left():
            self.round(_chunks(left), num_processes())
            suspects = [one for one in self.left() if self.states[one[0]] == _BEGUN]
            for one in suspects:
                self.states[one[0]] = 0
                self.round([[one]], 1)
                if self.states[one[0]] == _BEGUN:
                    self.results[one[0]] = broken(one[1], _DIED, one[2])
            if not suspects:  # nothing is left, or no process can be started here
                self.results.update((index, read_item(item, options)) for index, item, options in self.left())
        return self.results

    def left(self) -> list[Work]:
        """Return the items without a result."""
        return [one for one in self.work if one[0] not in self.results]

    def round(self, chunks: list[list[Work]], most: int) -> None:
        """Read the chunks by at most `most` processes; a chunk that one had begun when it died is left, and all are where none can be started."""
        readers: dict[Any, tuple[BaseProcess, list[Work]]] = {}

        def hand_out(pipe: Any, process: BaseProcess) -> None:
            readers[pipe] = process, chunks.pop(0)
            with suppress(OSError):  # one that died already is noticed when it is waited for
                pipe.send(readers[pipe][1])

        try:
            while chunks or readers:
                with suppress(OSError):  # a login node allows no more processes
                    while chunks and len(readers) < most:
                        hand_out(*self.started())
                if not readers:
                    return
                ready: list[Any] = wait(list(readers), _WAIT_S)
                for pipe in ready:
                    process, chunk = readers.pop(pipe)
                    try:
                        answer = pipe.recv_bytes()
                    except (EOFError, OSError):
                        most -= 1
                        chunks += [] if any(self.states[index] for index, _, _ in chunk) else [chunk]
                        process.join()
                        continue
                    if chunks:  # it goes on reading while its answer is unpacked
                        hand_out(pipe, process)
                    else:
                        _end(process)
                    self.results.update(pickle.loads(answer))  # noqa: S301  # of our own process
                    gc.freeze()  # none of it is garbage; scanning it repeatedly takes a tenth of the time
                self.show(bytes(self.states).count(_DONE), sum(self.positions))
        finally:
            gc.unfreeze()
            for process, _ in readers.values():
                _end(process)

    def started(self) -> tuple[Any, BaseProcess]:
        """Start a process; return the pipe to it, and it."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.states, self.positions), daemon=True)
        resource_tracker.ensure_running()  # which unblocks SIGINT when it starts
        # Ctrl-C of a terminal goes to all processes, but the parent ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        return ours, process


def _end(process: BaseProcess) -> None:
    process.kill()  # it writes nothing
    process.join()


def _chunks(work: list[Work]) -> list[list[Work]]:
    """Return the work in chunks large enough for one message each, the largest first."""
    chunks: list[list[Work]] = []
    sizes: list[int] = []
    for one in work:
        size = one[1].num_bytes
        if not chunks or len(chunks[-1]) >= CHUNK_FILES or sizes[-1] + size > CHUNK_BYTES:
            chunks.append([])
            sizes.append(0)
        chunks[-1].append(one)
        sizes[-1] += size
    return [chunks[index] for index in sorted(range(len(chunks)), key=lambda index: -sizes[index])]


def _serve(pipe: Any, states: Any, positions: Any) -> None:
    """Read chunks until the parent ends this process, or dies."""
    parent = multiprocessing.parent_process()
    die_with_parent()
    gc.disable()  # reading leaves no cycles (108 logs, 100 run folders: not one object); looking for them takes 3 % of the time

    def progress(source: Source) -> None:
        positions[index] = source.position_bytes
        if parent and os.getppid() != parent.pid:  # it died before, or the system sends no signal
            os._exit(1)

    with suppress(EOFError):
        while True:
            results = {}
            for index, item, options in pipe.recv():
                states[index] = _BEGUN
                results[index] = read_item(item, options, progress)
                positions[index] = item.num_bytes
                states[index] = _DONE
            pipe.send(results)
