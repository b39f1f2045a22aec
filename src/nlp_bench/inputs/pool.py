"""Reads many items in several processes: results in the given order, stopped by Ctrl-C, complete even if a process dies."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

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


class Shared(NamedTuple):
    """Memory shared by the processes and their parent. No locks: each slot has one writer, and a writer may be killed."""

    states: Any  # for each item 0, _BEGUN or _DONE
    positions: Any  # for each item how many of its bytes are read
    stop: Any  # set by the parent to make the processes stop at the next block


def num_processes() -> int:
    """Return how many processes read at once, at most."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    return min(len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1, MAX_PROCESSES)


def read_many(items: Sequence[Item], all_options: Sequence[ReadOptions], show: Show) -> list[Read]:
    """Return `read_item` of each item with its options; `show` is called with the files and bytes read from time to time."""
    work = [(index, item, options) for index, (item, options) in enumerate(zip(items, all_options, strict=True))]
    try:
        pool = _Pool(work, show)
    except OSError:  # no shared memory: /dev/shm is absent, or closed to this user
        return _read_here(work, show)
    return pool.run()


def _read_here(work: list[Work], show: Show) -> list[Read]:
    results: list[Read] = []
    for _, item, options in work:
        results.append(read_item(item, options))
        show(len(results), sum(one.num_bytes for _, one, _ in work[: len(results)]))
    return results


class _Pool:
    """The items and their results so far."""

    def __init__(self, work: list[Work], show: Show) -> None:
        self.work, self.show = work, show
        self.results: dict[int, Read] = {}
        # Spawned, not forked: threads of numpy or an open terminal must not be copied.
        self.context = multiprocessing.get_context("spawn")
        array = self.context.RawArray
        self.shared = Shared(array("B", len(work)), array("q", len(work)), self.context.RawValue("B", 0))

    def run(self) -> list[Read]:
        while left := [one for one in self.work if one[0] not in self.results]:
            if self.round(_chunks(left), min(num_processes(), len(left))):
                continue
            suspects = [one for one in left if one[0] not in self.results and self.shared.states[one[0]] == _BEGUN]
            for one in suspects:
                self.shared.states[one[0]] = 0
                if not self.round([[one]], 1) and self.shared.states[one[0]] == _BEGUN:
                    self.results[one[0]] = broken(one[1], _DIED, one[2])
            if not suspects:  # processes cannot be started here at all
                left = [one for one in left if one[0] not in self.results]
                self.results.update((index, read_item(item, options)) for index, item, options in left)
        return [self.results[index] for index, _, _ in self.work]

    def round(self, chunks: list[list[Work]], count: int) -> bool:
        """Read the chunks; False when a process died or none could be started, which loses what is not yet in `results`."""
        executor = None
        others, hook = set(multiprocessing.active_children()), threading.excepthook
        threading.excepthook = lambda _: None  # of the executor's thread, whose death `gather` sees
        try:
            executor = ProcessPoolExecutor(min(count, len(chunks)), self.context, _begin, (self.shared,))
            futures = _submitted(executor, chunks)
            self.gather(futures, executor._executor_manager_thread)  # noqa: SLF001  # which hands out the work, and may die
        except (RuntimeError, OSError):  # a BrokenProcessPool; or a login node allows no more threads, or processes
            # The executor ends the processes that it knows and waits for all, but may miss one that it was starting
            # while another one died; that one would wait for work for ever.
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            return False
        else:
            return True
        finally:
            gc.unfreeze()
            self.shared.stop.value = 1
            if executor:
                with suppress(RuntimeError):  # its thread could not be started
                    executor.shutdown(wait=True, cancel_futures=True)
            threading.excepthook = hook
            self.shared.stop.value = 0

    def gather(self, waiting: "set[Future[dict[int, Read]]]", manager: Any) -> None:
        """Collect the results as they arrive. Raises `BrokenProcessPool`, after those that do arrive, when a process died, or the thread `manager`."""
        lost = None
        while waiting:
            is_alive = manager is None or manager.is_alive()
            done, waiting = wait(waiting, timeout=_WAIT_S)
            for future in done:
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost = error
                else:
                    self.results.update(future.result())
                    gc.freeze()  # none of it is garbage; scanning it repeatedly takes a tenth of the time
            self.show(bytes(self.shared.states).count(_DONE), sum(self.shared.positions))
            if not (done or is_alive):
                raise BrokenProcessPool("the thread that hands out the work has ended")
        if lost:
            raise lost


def _submitted(executor: ProcessPoolExecutor, chunks: list[list[Work]]) -> "set[Future[dict[int, Read]]]":
    """Return the futures of the chunks. Raises `BrokenProcessPool` or `OSError` where processes die or cannot be started."""
    try:
        with _sigint_blocked():
            return {executor.submit(_read_chunk, chunk) for chunk in chunks}
    except ValueError as error:
        # A process died while the next one was being started: the executor closes its pipes, whose descriptors are
        # reused, and a duplicate descriptor is refused ("bad value(s) in fds_to_keep").
        raise BrokenProcessPool(str(error)) from error


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


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Start processes with SIGINT blocked: Ctrl-C of a terminal goes to all of them, but the parent stops them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_SHARED: list[Shared] = []  # in a child process: the memory shared with its parent


def _begin(shared: Shared) -> None:
    _SHARED[:] = [shared]
    gc.disable()  # reading leaves no cycles (108 logs, 100 run folders: not one object); looking for them takes 3 % of the time
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    except RuntimeError:  # this user may have no further thread
        die_with_parent()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)  # the results are not needed any more


def _read_chunk(chunk: list[Work]) -> dict[int, Read]:
    shared = _SHARED[0]
    results = {}
    for index, item, options in chunk:

        def progress(source: Source, index: int = index) -> None:
            shared.positions[index] = source.position_bytes
            if shared.stop.value:
                raise KeyboardInterrupt

        shared.states[index] = _BEGUN
        results[index] = read_item(item, options, progress)
        shared.positions[index] = item.num_bytes
        shared.states[index] = _DONE
        if shared.stop.value:
            raise KeyboardInterrupt
    return results
