"""Run a check for many seeds on all cores, with a bound for each, so that a hang is found as well as an exception."""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

STUCK = 6
"""After so many bounds, or one less, a worker that Python cannot interrupt (a loop in C) prints its stack and ends."""
PROGRESS_S = 60.0


class TooLongError(BaseException):
    """One seed took longer than its bound; no `except Exception` may swallow that."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise TooLongError inside the block after `seconds`."""

    def ring(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TooLongError

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a private folder in memory where there is one: files of a disk would take most of the time."""
    shared_memory = Path("/dev/shm")  # noqa: S108  # mkdtemp inside it is private
    with tempfile.TemporaryDirectory(
        prefix="nlp-bench-soak-", dir=shared_memory if shared_memory.is_dir() else None
    ) as folder:
        yield Path(folder)


def run_all(
    prepare: Callable[[Path], Callable[[int], str | None]], *, first: int, num: int, processes: int, bound_s: float
) -> int:
    """Run `check(seed)` for `num` seeds from `first` on; print what failed, with its seed; return how many did.

    `prepare(folder)` is called once in each worker and returns the check, which says what is wrong or None.
    """
    processes = max(1, min(processes or len(os.sched_getaffinity(0)), num))
    context = multiprocessing.get_context("fork")
    at, failed = [context.Value("q", -1) for _ in range(processes)], context.Value("q", 0)
    done = context.Value("q", 0)
    workers = []
    sys.stdout.flush()
    for number in range(processes):
        seeds = range(first + number, first + num, processes)
        worker = context.Process(target=_work, args=(prepare, seeds, bound_s, at[number], failed, done))
        worker.start()
        workers.append(worker)
    begin = said = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        workers[0].join(0.2)
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            print(f"  {done.value} of {num}, {failed.value} failed, {said - begin:.0f} s", flush=True)
        time.sleep(0.0 if workers[0].is_alive() else 0.2)
    lost = 0
    for worker, seed in zip(workers, at, strict=True):
        worker.join()
        if worker.exitcode:
            lost += 1
            print(f"seed {seed.value}: its process ended with {worker.exitcode}", flush=True)
    return int(failed.value) + lost


def _work(  # what a worker shares with its parent
    prepare: Callable[[Path], Callable[[int], str | None]],
    seeds: range,
    bound_s: float,
    at: Any,
    failed: Any,
    done: Any,
) -> None:
    with memory_folder() as folder:
        check, armed = prepare(folder), float("-inf")
        for seed in seeds:
            at.value = seed
            if time.monotonic() - armed > bound_s:  # not for each seed: it starts a thread
                faulthandler.dump_traceback_later(STUCK * bound_s, exit=True)
                armed = time.monotonic()
            try:
                with bounded(bound_s):
                    found = check(seed)
            except TooLongError:
                found = f"seed {seed}: no answer within {bound_s} s"
            if found:
                print(found, flush=True)
                with failed.get_lock():
                    failed.value += 1
            with done.get_lock():
                done.value += 1
        faulthandler.cancel_dump_traceback_later()
