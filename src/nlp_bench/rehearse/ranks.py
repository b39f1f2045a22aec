"""Selects ranks and rehearses each in a process of its own, forked from a server that has imported torch. No torch here."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from nlp_bench.errors import NlpBenchError, UsageError, require
from nlp_bench.immutable import immutable
from nlp_bench.packages import lacking
from nlp_bench.rehearse.report import RankReport
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

MOST_DIGITS = 18  # of a rank's number: it fits 64 bits


@immutable
class Work:
    """One rank to rehearse."""

    settings: Settings
    layout: Layout
    rank: int
    accelerator: str  # cuda or cpu: whose kernels are rehearsed


def chosen_ranks(words: str, num_ranks: int, num_stages: int) -> list[int]:
    """Return the ranks of the option --ranks, `words`, in order and each once: numbers, 0-7, last, stages, all, fullest; commas between.

    The ranks of a pipeline stage are consecutive (megatron-core's order tp-cp-ep-dp-pp) and differ only in their data and, where
    the last shards of the optimizer's state are smaller, by a few bytes; so `stages` is the first rank of each. `fullest` are the
    first ranks of the first stage (the embedding, and activations of the most micro-batches), of the second (the first may have
    fewer layers) and of the last (the output layer and its logits). Raises UsageError for anything else.
    """
    stages = [stage * (num_ranks // num_stages) for stage in range(num_stages)]
    named = {
        "last": [num_ranks - 1],
        "stages": stages,
        "all": list(range(num_ranks)),
        "fullest": sorted({stages[0], stages[min(1, num_stages - 1)], stages[-1]}),
    }
    found: set[int] = set()
    for word in (word.strip() for word in words.split(",")):
        found |= {*named[word]} if word in named else {*_numbered(word, num_ranks, named)}
    return sorted(found)


def _numbered(word: str, num_ranks: int, named: dict[str, list[int]]) -> range:
    first, dash, last = word.partition("-")
    is_one = first.isdecimal() and (last.isdecimal() or not dash)
    require(is_one, f"--ranks: {word!r} is no rank; give numbers (0,8 or 0-7), {', '.join(named)}")
    none_of = f"is none of the job's {num_ranks} ranks, 0 to {num_ranks - 1}"
    require(max(len(first), len(last)) <= MOST_DIGITS, f"--ranks: {word[:40]!r} {none_of}")
    low, high = int(first), int(last or first)
    require(low <= high, f"--ranks: {word} begins after its end")
    require(high < num_ranks, f"--ranks: {high} {none_of}")
    return range(low, high + 1)


def rehearsable(settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings to rehearse instead of these (torch's own kernels, no files), and the differences as sentences.

    Raises UsageError for features of Transformer Engine whose absence would change memory or communication.
    """
    for name, wrong in (
        ("fp8_format", settings.fp8_format),
        ("cp_comm_type", settings.cp_comm_type != "all_gather" and settings.context_parallel_size > 1),
    ):
        if wrong:
            said = f"{name}: {getattr(settings, name)} is Transformer Engine's"
            raise UsageError(f"{said}, whose kernels need a GPU and cannot be rehearsed; leave it out")
    notes = []
    if kernels := {"te": "Transformer Engine", "apex": "Apex"}.get(settings.wanted_kernels):
        notes.append(
            f"torch's own kernels are rehearsed: {kernels}'s need a GPU even to be imported; their memory differs a little"
        )
    if settings.tp_comm_overlap:
        notes.append("tp_comm_overlap is left out: it is Transformer Engine's")
    if settings.short_seq_prob:
        notes.append("short_seq_prob is left out: samples are not padded, and attention has no mask")
    replaced = replace(
        settings, kernels="torch", transformer_impl=None, tp_comm_overlap=False, short_seq_prob=0.0, mock_data=True,
        data_path=(), load=None, save=None,
    )  # fmt: skip
    return replaced, tuple(notes)


_CHECK = "check `free -h`, `ulimit -v` and `ulimit -u`, or rehearse on another machine"
_LACKING = f"it mostly lacked memory or processes: {_CHECK}"


def rehearse_ranks(works: Sequence[Work]) -> Iterator[RankReport]:
    """Rehearse each rank in a process of its own, one per core at a time; yield the reports in their order, and raise what a rank raised."""
    most = len(os.sched_getaffinity(0))
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
    """Wait for at least one process; return index to report, or to an error."""
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
                f"a negative code is the signal that ended it (-9: out of memory); {_LACKING}"
            )
        process.join()
        connection.close()
        del running[place]
    return found


def _start(work: Work) -> tuple[ForkServerProcess, Connection]:
    here, there = _context().Pipe(duplex=False)
    process = _context().Process(target=be_rank, args=(work, there), daemon=True)
    try:
        process.start()
    except (OSError, EOFError) as error:
        raise NlpBenchError(
            f"rehearse: the process that imports torch could not be started, or ended; {_LACKING}"
        ) from error
    there.close()
    return process, here


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nlp_bench.rehearse.warm"])
    return context


def be_rank(work: Work, answer: Connection) -> None:
    """Rehearse in this process and send the report, or an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    try:
        from nlp_bench.rehearse import warm  # noqa: F401, PLC0415  # imported already, unless something is missing
        from nlp_bench.rehearse.iteration import rehearse_here  # noqa: PLC0415  # torch

        answer.send(rehearse_here(work.settings, work.layout, work.rank, work.accelerator))
    except BrokenPipeError:  # the parent was killed
        os._exit(1)
    except ImportError as error:
        answer.send(
            lacking(error, "rehearse")
            or NlpBenchError(f"rehearse: {error}; where no file is missing, memory is: {_CHECK}")
        )
    except NlpBenchError as error:
        answer.send(error)
    except Exception as error:  # noqa: BLE001  # it would stop this rank on the machine, too
        answer.send(NlpBenchError(f"rehearse: rank {work.rank} stops: {type(error).__name__}: {error}"))
    answer.close()
    os._exit(0)  # megatron-core's state and torch's process group need no cleanup
