"""Options of several subcommands that describe no run: what a log may lack, the question, the output."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.config.options import given, value
from nlp_bench.config.request import shared
from nlp_bench.config.values import OneOf, count, duration, size
from nlp_bench.errors import UsageError
from nlp_bench.files import real
from nlp_bench.immutable import immutable
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.measure.sizes import Overrides

_THREADS = "OPENBLAS_NUM_THREADS"
LOG, ASKED = "what a log may not say", "what is asked"


def form(*formats: str, default: str | None = "", group: str = "", text: str = "") -> Any:
    """Return the field of --format; the first of `formats` is the default unless `default` is another one, or None."""
    default = formats[0] if default == "" else default
    said = text or f"form of standard output (default {default})"
    return value(default=default, read=OneOf(*formats), metavar="|".join(formats), group=group, help=said)


def allowing_measured(what: str, group: str = "") -> Any:
    """Return the field of --allow-measured; `what` says what it allows."""
    said = f"{what} logs that do not show that their run ended well, trained and whole (MEASURED), too"
    return value(default=False, group=group, help=said)


def overwriting(text: str, group: str = "") -> Any:
    """Return the field of --overwrite."""
    return value("--overwrite", "--force", default=False, group=group, help=text)


def poll_every(default_s: float, text: str) -> Any:
    """Return the field of --every, seconds between two polls."""
    return value("--every", "--poll", default=default_s, read=duration("s"), metavar="SECONDS", help=text)


@immutable
class LogOptions:
    """Options for sizes that a log does not state."""

    sequence_length: int | None = shared("sequence_length", group=LOG)  # Tokens per sample, where the log does not say.
    global_batch_size: int | None = shared("global_batch_size", group=LOG)
    """Samples per iteration, where the log does not say."""
    num_gpus: int | None = value(read=size, group=LOG)  # GPUs of the run, where the log does not say.

    def overrides(self) -> "Overrides":
        """Return them for the reader of logs."""
        from nlp_bench.measure.sizes import Overrides  # --help stays light

        return Overrides(**given(self, Overrides))


@immutable
class PatternOptions(LogOptions):
    """The same, and patterns for the lines of an unknown program."""

    pattern: tuple[str, ...] = value(default=(), metavar="REGEX", group=LOG)
    r"""How to read the lines of an unknown program: a regular expression whose groups are named by what they hold:
    'step (?P<iteration>\d+) .* (?P<elapsed_ms>[\d.]+) ms'; again for what stands in other lines (docs/logs.md has the names)."""


@immutable
class TokensOption:
    """The option for the length of the hypothetical training."""

    tokens: int = value(default=REPORT_TOKENS, read=count, group=ASKED)
    """Tokens of the training: 20M (default), 300B, 1.5T."""


@immutable
class JudgedOptions(TokensOption):
    """Options for the limit and the rules of a run."""

    limit: float | None = value(read=duration("s"), metavar="SECONDS", group=ASKED)
    """Say per run whether its time is proven to be within; 560, 560s or 10min."""
    rules: str | None = value(metavar="NAME_OR_FILE", group=ASKED)
    """Hold every run to these rules: a file of benchmark/rules, or a .toml file of your own."""


@immutable
class ConstantsOption:
    """The option for the planner's constants."""

    constants: Path | None = value(metavar="FILE")
    """Constants of `plan calibrate` or `plan learn` in place of benchmark/plan.toml."""


@immutable
class HistoryOption:
    """The option for the file of the history."""

    file: Path | None = value(metavar="FILE")  # The history (default reports/history.sqlite3).


def refuse_to_replace(option: str, path: Path | None, *, overwrite: bool = False, mark: bytes = b"") -> None:
    """Raise UsageError where `path` is a pipe, or a file already, unless it is empty or begins with `mark`, as this tool's own files do."""
    if path is not None and os.path.exists(path) and path.is_fifo() and not real(path).is_relative_to("/proc"):  # noqa: PTH110  # >(command)
        raise UsageError(f"{option} {path} is a pipe, which a file would replace; name a file")
    if path is None or overwrite or not os.path.isfile(path):  # noqa: PTH113  # false, too, where it cannot be looked at
        return
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        head = b"unreadable"
    if head and not (mark and mark in head):
        remedy = "name another file" if mark else "name another file, or give --overwrite to replace it"
        raise UsageError(f"{option} {path} exists; {remedy}")


def refuse_one_file(named: Mapping[str, Path | None]) -> None:
    """Raise UsageError where two options (their names to their values) name one file, so that one answer would replace the other."""
    taken: dict[Path, str] = {}
    for option, path in named.items():
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):  # noqa: PTH110, PTH113  # false where it cannot be looked at
            continue  # a device, a pipe: nothing is replaced
        if (first := taken.setdefault(real(path), option)) != option:
            raise UsageError(f"{first} and {option} both name {path}: one would replace the other; name two files")


def use_one_thread() -> None:
    """Keep numpy from starting a thread for each core: no linear algebra is done, and a login node may limit threads."""
    os.environ.setdefault(_THREADS, "1")


def load_in_one_thread() -> None:
    """Load numpy as `use_one_thread` does where jobs and trainings are started too: they must not inherit the variable."""
    is_own = _THREADS not in os.environ
    use_one_thread()
    try:
        import numpy  # noqa: F401, ICN001  # which reads the variable now
    finally:
        if is_own:
            del os.environ[_THREADS]


def say_written(paths: Sequence[Path]) -> None:
    """Name the files of --output, and what is missing where they hold no plots."""
    from nlp_bench.show.chart import why_no_plots  # --help stays light

    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    for folder, names in folders.items():
        print(f"wrote {', '.join(names)} in {folder}", file=sys.stderr)
    if not any(path.suffix == ".png" for path in paths) and (why := why_no_plots()):
        say(f"no plots: {why}")
