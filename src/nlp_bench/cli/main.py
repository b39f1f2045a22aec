"""The command line: one program with subcommands; signals, streams and errors end every one of them in the same way.

What it inherits from its caller is made the same everywhere first: encoding, streams, signals, import path, private caches.
"""

import atexit
import contextlib
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from nlp_bench import __version__, safe_path
from nlp_bench.cli.registry import SUBCOMMANDS, TASKS
from nlp_bench.errors import NlpBenchError, UsageError, explained, nearest

WITH_TORCH = {"build", "data", "launch", "plan", "rehearse"}  # subcommands that compile with torch, or start what does


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
            _warn_of_another_checkout()
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
    if isinstance(error, EOFError | TypeError | ValueError):
        from nlp_bench.bytecode import cut_bytecode

        if why_cut := cut_bytecode(error):
            _say(f"error: {why_cut}")
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
    from nlp_bench.terminal import say

    with contextlib.suppress(OSError, ValueError):  # stderr is closed: the exit code remains
        say(text)


@contextlib.contextmanager
def _stoppable(received: list[int]) -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C raise in the block, so that no partial file stays, and add them to `received`; an ignored one (nohup) stays so."""

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


def _refuse_unseen(words: list[str]) -> None:
    """Refuse words that a terminal does not show, and that no file or value has on purpose."""
    for before, word in zip(["nlp-bench", *words], words, strict=False):
        if word.endswith("\r"):
            remedy = "its script has Windows line ends; remove them with: sed -i 's/\\r$//' SCRIPT"
            raise UsageError(f"{word[:-1]!r} is followed by a carriage return: {remedy}")
        if word and not word.strip():
            raise UsageError(
                f"the word after {before!r} is blanks alone ({word!r}): remove the blank behind a \\ at a line's end, or name the value"
            )


def _no_subcommand(words: list[str]) -> str:
    """Return what to give in place of a first word that is no subcommand."""
    first = words[0]
    if first.startswith("-"):
        name = next(filter(SUBCOMMANDS.__contains__, words), "report")
        return f"{first} stands before the subcommand: begin with it, as in nlp-bench {name} {first} ... (known: {', '.join(SUBCOMMANDS)})"
    if os.path.exists(first):  # noqa: PTH110  # Path's own raises for a closed one
        import shlex

        return f"{first!r} is no subcommand; to read a log or a run folder: nlp-bench report {shlex.quote(first)}"
    return f"unknown subcommand {first!r}{nearest(first, list(SUBCOMMANDS))}"


def _dispatch(words: list[str]) -> int:
    _refuse_unseen(words)
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_overview())
        return 0
    if words[0] in {"-V", "--version"}:
        print(f"nlp-bench {__version__}")
        return 0
    if words[0] not in SUBCOMMANDS:
        raise UsageError(_no_subcommand(words))
    name, words = words[0], words[1:]
    if words and words[0] in SUBCOMMANDS[name].verbs:
        name, words = f"{name} {words[0]}", words[1:]
    from nlp_bench.cli.parser import parser_of  # the overview needs no options

    return int(parser_of(name).read(words).run())


def _overview() -> str:
    lines = (
        f"{task}\n" + "\n".join(f"  {name:<11} {entry.text}" for name, entry in entries.items())
        for task, entries in TASKS.items()
    )
    subcommands = "\n".join(lines)
    return f"""nlp-bench {__version__}: how fast a machine trains large language models

usage: nlp-bench SUBCOMMAND …

{subcommands}

example: nlp-bench report job.out
nlp-bench SUBCOMMAND --help shows its options and an example."""


VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # where torch keeps what it compiles, and loads it from; the user's value stays

FOREIGN_VARIABLES = ("PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONOPTIMIZE")
"""Variables for other programs: an interactive prompt at exit, a log in UTF-16, trainers without their assertions."""


def settle() -> None:
    """Continue in Python's UTF-8 mode where the locale has another encoding, without a closed standard stream, FOREIGN_VARIABLES or odd signals.

    In the locale C or a Latin-1 one, Python would read names of files and write results in that encoding: other bytes than
    elsewhere. A file that is opened while a standard stream is closed would get its number, and what a child prints; a non-blocking
    stream would lose what its reader is slow to read. Where SIGCHLD is ignored the exit status of every
    child is lost and reads as 0, and a blocked SIGTERM reaches neither this process nor any rank. Replaces this process, at most once;
    children inherit all of it. Source: PEP 540, wait(2).
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ[safe_path.NAME] = os.environ.get(safe_path.NAME) or safe_path.OURS
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # it is closed
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
            if number == 1:
                print("nlp-bench: stdout is closed: what would be printed there is lost", file=sys.stderr)
        os.set_blocking(number, True)
    _buffer_stdout()
    is_other = sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1"
    taken_out = {name: os.environ.pop(name, "") for name in FOREIGN_VARIABLES}
    if is_other or any(taken_out.values()):
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # the same words again, no shell


def _warn_of_another_checkout() -> None:
    """Say so where PYTHONPATH, as of a module loaded since, leads to another nlp-bench than the activated checkout's."""
    here, own = Path(__file__).parents[1], Path(os.environ.get("NLP_BENCH_ROOT", ""), "src/nlp_bench")
    is_led = str(here.parent) in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if is_led and "NLP_BENCH_ROOT" in os.environ and os.path.isdir(own) and not own.samefile(here):  # noqa: PTH112  # a closed one is none
        _say(
            f"warning: this is the nlp-bench of {here.parent}, where PYTHONPATH leads, not the activated one of {own.parent}: source its activate.bash again"
        )


def _buffer_stdout() -> None:
    """Write whole lines under PYTHONUNBUFFERED, which the ranks keep: Python's text layer would drop what a short write leaves (a full disk)."""
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        encoding = sys.stdout.encoding
        raw: Any = sys.stdout.detach()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, line_buffering=True)


def keep_caches_private() -> None:
    """Let torch compile into a folder of this user alone: in its own, /tmp/torchinductor_NAME, others may lay code that every rank of NAME would load."""
    if VARIABLE in os.environ:
        return
    import tempfile

    from nlp_bench.files import user_folder

    # Without a folder for temporary files torch reports it where it needs one.
    with contextlib.suppress(OSError, NlpBenchError):
        folder = user_folder()
        if folder.parent == Path.cwd() and not folder.parent.stat().st_mode & stat.S_ISVTX:
            atexit.register(_remove_empty, folder)  # tempfile's last resort: the folder that somebody works in
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            print(f"nlp-bench: {folder} is not yours alone: torch's cache is a new folder", file=sys.stderr)
            folder = Path(tempfile.mkdtemp(prefix="nlp-bench-"))
        os.environ[VARIABLE] = str(folder / "torchinductor")


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
