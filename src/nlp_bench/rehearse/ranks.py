"""Processes that are one rank each: forks of one server process that has imported torch and megatron-core. No torch here."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.packages import lacking
from nlp_bench.rehearse.report import RankReport
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Work:
    """One rank to rehearse."""

    settings: Settings
    """What the job is asked to do."""
    layout: Layout
    """What follows from it and the number of ranks."""
    rank: int
    """Its number."""
    accelerator: str
    """cuda or cpu."""


def rehearse_ranks(works: Sequence[Work], at_a_time: int | None = None) -> Iterator[RankReport]:
    """Rehearse each in a process of its own and yield the reports in the same order.

    `at_a_time` processes run side by side, by default as many as there are cores. Raises what a rank raised.
    """
    most = at_a_time or len(os.sched_getaffinity(0))
    running: dict[int, tuple[ForkServerProcess, Connection]] = {}
    done: dict[int, Any] = {}
    begun = 0
    try:
        for place in range(len(works)):
            while place not in done:
                while begun < len(works) and len(running) < most:
                    running[begun] = _start(works[begun])
                    begun += 1
                done |= _finished(running, works)
            answer = done.pop(place)
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        for process, connection in running.values():
            process.terminate()
            process.join()
            connection.close()


def _finished(running: dict[int, tuple[ForkServerProcess, Connection]], works: Sequence[Work]) -> dict[int, Any]:
    """Wait for at least one process; return what it found, or an error."""
    ready = wait([connection for _, connection in running.values()])
    found: dict[int, Any] = {}
    for place, (process, connection) in list(running.items()):
        if connection not in ready:
            continue
        try:
            found[place] = connection.recv()
        except EOFError:
            process.join()
            found[place] = NlpBenchError(
                f"rehearse: the process of rank {works[place].rank} ended with code {process.exitcode} and no word; "
                "a negative code is the signal that ended it (-9: out of memory)"
            )
        process.join()
        connection.close()
        del running[place]
    return found


def _start(work: Work) -> tuple[ForkServerProcess, Connection]:
    here, there = _context().Pipe(duplex=False)
    process = _context().Process(target=be_rank, args=(work, there), daemon=True)
    process.start()
    there.close()
    return process, here


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nlp_bench.rehearse.quiet", "nlp_bench.rehearse.warm"])
    return context


def be_rank(work: Work, answer: Connection) -> None:
    """Rehearse in this process and send the report, or what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    try:
        from nlp_bench.rehearse import warm  # noqa: F401, PLC0415  # is there already, or says what is missing
        from nlp_bench.rehearse.inside import rehearse_here  # noqa: PLC0415  # torch

        answer.send(rehearse_here(work.settings, work.layout, work.rank, work.accelerator))
    except BrokenPipeError:  # the parent was killed: nobody listens
        os._exit(1)
    except ImportError as error:
        answer.send(lacking(error, "rehearse") or NlpBenchError(f"rehearse: {error}"))
    except NlpBenchError as error:
        answer.send(error)
    except Exception as error:  # noqa: BLE001  # whatever stops this rank would stop it on the machine
        answer.send(NlpBenchError(f"rehearse: rank {work.rank} stops: {type(error).__name__}: {error}"))
    answer.close()
    os._exit(0)  # megatron-core's state and torch's process group need no tidying
