"""The options that several subcommands take and that describe no run: what a log may not say, what is asked, what is printed."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.config.options import Container, add_fields
from nlp_bench.config.request import Request
from nlp_bench.config.values import OneOf, count, duration, size
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.measure.sizes import Overrides


def add_format(container: Container, *formats: str, default: str | None = "", text: str = "") -> None:
    """Add --format; the first of `formats` is the default unless `default` is another one, or None."""
    default = formats[0] if default == "" else default
    said = text or f"form of standard output (default {default})"
    container.add_argument("--format", type=OneOf(*formats), default=default, metavar="|".join(formats), help=said)


def add_tokens(container: Container, *, default: int | None = 20_000_000) -> None:
    """Add --tokens."""
    text = "tokens of the training: 20M (default), 300B, 1.5T"
    container.add_argument("--tokens", type=count, default=default, metavar="N", help=text)


def add_limit(
    container: Container, *more: str, text: str = "say per run whether its time is proven to be within"
) -> None:
    """Add --limit, the report time that is asked for; `more` are further spellings."""
    container.add_argument(*more, "--limit", type=duration("s"), metavar="SECONDS", help=f"{text}; 560, 560s or 10min")


def add_rules(container: Container) -> None:
    """Add --rules."""
    text = "hold every run to these rules: a file of benchmark/rules, or a .toml file of your own"
    container.add_argument("--rules", metavar="NAME_OR_FILE", help=text)


def add_constants(container: Container) -> None:
    """Add --constants."""
    text = "constants of `plan calibrate` or `plan learn` in place of benchmark/plan.toml"
    container.add_argument("--constants", type=Path, metavar="FILE", help=text)


def add_history_file(container: Container) -> None:
    """Add --file."""
    container.add_argument("--file", type=Path, metavar="FILE", help="the history (default reports/history.sqlite3)")


def add_every(container: Container, default_s: float, text: str) -> None:
    """Add --every."""
    container.add_argument("--every", "--poll", type=duration("s"), default=default_s, metavar="SECONDS", help=text)


def add_overwrite(container: Container, text: str) -> None:
    """Add --overwrite."""
    container.add_argument("--overwrite", "--force", action="store_true", help=text)


def refuse_to_replace(option: str, path: Path | None, *, overwrite: bool = False, mark: bytes = b"") -> None:
    """Raise UsageError where `path` is a file already, unless it is empty or holds `mark`, which this tool's own begin with."""
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


def add_sizes(container: Container) -> None:
    """Add the options that stand in for what a log does not say."""
    what = "where the log does not say"
    texts = {"sequence_length": f"tokens per sample, {what}", "global_batch_size": f"samples per iteration, {what}"}
    add_fields(container, Request, texts, texts)
    container.add_argument("--num-gpus", type=size, metavar="N", help=f"GPUs of the run, {what}")


def add_pattern(container: Container) -> None:
    """Add --pattern."""
    container.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="how to read the lines of an unknown program: a regular expression whose groups are named by what they hold: "
        r"'step (?P<iteration>\d+) .* (?P<elapsed_ms>[\d.]+) ms'; again for what stands in other lines (docs/logs.md has the names)",
    )


def add_allow_measured(container: Container, what: str) -> None:
    """Add --allow-measured; `what` says what it allows."""
    container.add_argument(
        "--allow-measured",
        action="store_true",
        help=f"{what} logs that do not show that their run ended well, trained and whole (MEASURED), too",
    )


def use_one_thread() -> None:
    """Keep numpy from starting a thread for each core: no linear algebra is done, and a login node may not allow them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def say_written(paths: Sequence[Path]) -> None:
    """Name the files of --output, and what is missing where they hold no plots."""
    from nlp_bench.packages import is_missing, remedy  # --help stays light

    for path in paths:
        print(f"wrote {path}", file=sys.stderr)
    if is_missing("matplotlib"):
        print(
            f"nlp-bench: no PNG: it needs matplotlib, which is not installed here: {remedy('matplotlib')}",
            file=sys.stderr,
        )


def overrides_of(options: argparse.Namespace) -> "Overrides":
    """Return what `add_sizes` was given."""
    from nlp_bench.measure.sizes import Overrides  # --help stays light

    return Overrides(
        sequence_length=options.sequence_length,
        global_batch_size=options.global_batch_size,
        num_gpus=options.num_gpus,
        pattern=tuple(getattr(options, "pattern", ())),
    )
