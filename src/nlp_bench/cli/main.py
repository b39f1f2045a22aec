"""The command line: one program with subcommands; signals, streams and errors end every one of them in the same way."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from nlp_bench import __version__
from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.cli.surroundings import keep_caches_private, settle
from nlp_bench.errors import NlpBenchError, UsageError, explained, nearest

WITH_TORCH = {"build", "data", "launch", "plan", "rehearse"}
"""Subcommands that compile with torch, or start what does, on this node."""


class _StoppedError(SystemExit):
    """SIGTERM or SIGHUP came: all callers clean up, and a child process of ours ends without a traceback."""


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; the result goes to stdout, messages to stderr; return the exit code (0, 1 or 2).

    Stopped by a signal it is 128 and the signal's number (130, 143), as in a shell; 141 where the reader has closed the pipe.
    """
    words = sys.argv[1:] if arguments is None else arguments
    received: list[int] = []
    try:
        if arguments is None:
            settle()
            if words and words[0] in WITH_TORCH:
                keep_caches_private()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A file name may hold characters that the terminal's encoding lacks.
            sys.stdout.reconfigure(errors="replace")
        with _stoppable(received):
            code = _dispatch(words)
            _flush()  # here, where a full disk or a closed pipe can still be reported
            return code
    except BaseException as error:  # noqa: BLE001  # what a signal breaks off in foreign code may come out as any exception
        number = received[-1] if received else signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        if number is None:
            return _reported(error)
    word = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    _say(f"{word}; repeat the same command to go on")
    return 128 + number


def _reported(error: BaseException) -> int:
    """Report the error in one sentence and return the exit code; an unforeseen one is raised again."""
    if isinstance(error, NlpBenchError):
        _say(f"error: {error}")
        return error.exit_code
    if isinstance(error, ImportError):
        from nlp_bench.packages import lacking, not_loadable

        if why := lacking(error) or not_loadable(error):
            return _reported(why)
    if isinstance(error, OSError):
        _discard_output()
    if isinstance(error, BrokenPipeError):
        return 141  # the reader (head, less) has closed the pipe: nothing to report
    if isinstance(error, MemoryError):
        _say("error: the memory is used up: check `free -h`, `ulimit -v` and the job's --mem; the output is not whole")
        return 1
    if isinstance(error, OSError):
        place = error.filename if error.filename is not None or Path().stat().st_nlink else "the current folder"
        _say(f"error: {'' if place is None else f'{place}: '}{explained(error)}; the output is not whole")
        return 1
    raise error


def _flush() -> None:
    if sys.stdout is not None:  # closed by the parent process
        sys.stdout.flush()


def _discard_output() -> None:
    """Discard buffered output: Python would write it at its end, and exit with a message of its own and 120."""
    try:
        _flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr is closed: the exit code remains
        print(f"nlp-bench: {text}", file=sys.stderr)


@contextlib.contextmanager
def _stoppable(received: list[int]) -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C raise an exception in the block, so that no partial file stays, and add them to `received`.

    An ignored signal (nohup) stays ignored.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if _is_in_import_lock(frame):
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
            return
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else _StoppedError(128 + number)

    if threading.current_thread() is not threading.main_thread():  # Python sets handlers in the main thread only
        yield
        return
    usual: dict[signal.Signals, Any] = {
        signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler,
    }  # fmt: skip
    own = [number for number, action in usual.items() if signal.getsignal(number) is action]
    for number in own:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, usual[number])


def _is_in_import_lock(frame: FrameType | None) -> bool:
    """Return whether Python frees the lock of an import, where it prints an exception and drops it."""
    while frame is not None:
        if frame.f_code.co_name == "cb" and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_overview())
        return 0
    if words[0] in {"-V", "--version"}:
        print(f"nlp-bench {__version__}")
        return 0
    if words[0] not in SUBCOMMANDS:
        raise UsageError(f"unknown subcommand {words[0]!r}{nearest(words[0], list(SUBCOMMANDS))}")
    name, words = words[0], words[1:]
    if words and words[0] in SUBCOMMANDS[name].verbs:
        name, words = f"{name} {words[0]}", words[1:]
    from nlp_bench.cli.parser import parser_of  # the overview needs no options

    return int(parser_of(name).read(words).run())


def _overview() -> str:
    subcommands = "\n".join(f"  {name:<10} {entry.text}" for name, entry in SUBCOMMANDS.items())
    return f"""nlp-bench {__version__}: how fast a machine trains large language models

usage: nlp-bench SUBCOMMAND …

{subcommands}

example:
  nlp-bench report job.out

nlp-bench SUBCOMMAND --help shows its options and an example."""
