"""The runs of a machine over time, in one SQLite file: add runs, list them, show one, draw the trend, export.

add PATH...   what `nlp-bench report` reads; a run that is there already is one row still, measured anew
list          the latest runs             show ID   everything about one
trend         per configuration the level of its speed, runs that leave it, and where it changed; with --output also a plot
variance      per configuration what its runs differ by (iterations, runs, nodes, days), and how many runs of how many iterations to buy
export        all rows as CSV or JSON
Exit code 0; 1 when something could not be added; 2 for a wrong word. `nlp-bench compare history:last-10 RUN` reads the same file.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    add_allow_measured,
    add_format,
    add_history_file,
    add_pattern,
    add_sizes,
    overrides_of,
    say_written,
    use_one_thread,
)
from nlp_bench.config.options import add_fields
from nlp_bench.config.request import Request
from nlp_bench.config.values import OneOf, count, duration
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.analysis.history import Row
    from nlp_bench.analysis.store import Filter

EXAMPLE = """nlp-bench history add runs/tonight && nlp-bench compare history:last-10 runs/tonight --gate 3
  nlp-bench history add runs/acceptance --name acceptance
  nlp-bench history list --model 175 --last 10
  nlp-bench history trend --output reports/trend
  nlp-bench history variance --within 1%"""
ACTIONS = ("add", "list", "show", "trend", "variance", "export")
FORMATS = {
    "list": ("table", "csv", "json"),
    "show": ("table", "json"),
    "trend": ("table", "json"),
    "variance": ("table", "json"),
    "export": ("csv", "json"),
}
LISTED = 50
_WITH = {
    "--name": ("name", ("add", "list", "trend", "variance", "export")),
    "--model": ("model", ("list", "trend", "variance", "export")),
    "--system": ("system", ("list", "trend", "variance", "export")),
    "--configuration": ("identity", ("list", "trend", "variance", "export")),
    "--last": ("last", ("list", "trend", "variance", "export")),
    "--output": ("output", ("trend",)),
    "--within": ("within", ("variance",)),
    "--start-up": ("start_up", ("variance",)),
    "--format": ("format", ("list", "show", "trend", "variance", "export")),
}
"""Option, where it is kept, and the actions that take it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to do, with what, and which runs."""
    parser.add_argument("action", metavar="ACTION", type=OneOf(*ACTIONS), help=", ".join(ACTIONS))
    parser.add_argument("words", metavar="PATH or ID", nargs="*", help="add: paths; show: the number of a run")
    add_history_file(parser)
    parser.add_argument(
        "--name", metavar="NAME", help="add: a name for these runs, for history:NAME; else: runs of this name"
    )
    which = {"model": "runs of this model only", "system": "runs of this system only"}
    add_fields(parser, Request, which, which)
    parser.add_argument(
        "--configuration", dest="identity", metavar="HEX", help="runs of this configuration only (or its beginning)"
    )
    parser.add_argument("--last", type=count, metavar="N", help=f"the latest N runs only (list: {LISTED})")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="trend: write trend.png, .svg, .json and .csv into this folder"
    )
    parser.add_argument("--within", metavar="SHARE", help="variance: the half width that is wanted (default 1%%)")
    parser.add_argument(
        "--start-up",
        type=duration("s"),
        metavar="SECONDS",
        help="variance: time of a job before its first iteration (default 120)",
    )
    add_format(
        parser, "table", "csv", "json", default=None, text="form of standard output (default table; of export csv)"
    )
    add_allow_measured(parser, "trend and variance: count")
    add_sizes(parser)
    add_pattern(parser)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    use_one_thread()
    from nlp_bench.analysis.store import default_file

    action = options.action
    if options.allow_measured and action not in {"trend", "variance"}:
        raise UsageError(f"--allow-measured does not go with history {action}; it goes with trend, variance")
    for option, (kept, actions) in _WITH.items():
        if getattr(options, kept) is not None and action not in actions:
            raise UsageError(f"{option} does not go with history {action}; it goes with {', '.join(actions)}")
    if options.words and action not in {"add", "show"}:
        raise UsageError(f"history {action} takes no PATH or ID: {options.words[0][:60]!r}")
    form = options.format or ("csv" if action == "export" else "table")
    if action != "add" and form not in FORMATS[action]:
        raise UsageError(f"history {action} has no --format {form}; choose one of {', '.join(FORMATS[action])}")
    path = options.file or default_file()
    if action == "add":
        return _add(options, path)
    if action == "show":
        return _show(options.words, path, form)
    if action == "variance":
        return _variance(options, path, form)
    return _trend(options, path, form) if action == "trend" else _list(options, path, form)


def _add(options: argparse.Namespace, path: Path) -> int:
    from nlp_bench.analysis.store import add_runs, why_no_name

    if not options.words:
        raise UsageError("history add: PATH is missing; give a run folder, a log or a folder of them")
    if options.name is not None and (why := why_no_name(options.name)):
        raise UsageError(f"--name {options.name[:40]!r}: {why}")
    lines, refused = add_runs(options.words, path, name=options.name or "", overrides=overrides_of(options))
    for line in lines:
        print(line)
    for line in refused:
        print(f"nlp-bench: not added: {line}", file=sys.stderr)
    return 1 if refused else 0


def _filter(options: argparse.Namespace, last: int | None) -> "Filter":
    from nlp_bench.analysis.store import Filter

    return Filter(
        name=options.name,
        model=options.model,
        system=options.system,
        identity=options.identity,
        last=options.last or last,
    )


def _list(options: argparse.Namespace, path: Path, form: str) -> int:
    from nlp_bench.analysis.history import COLUMNS, SHORT, listed, rows_csv, rows_json
    from nlp_bench.analysis.store import open_to_read

    default = LISTED if options.action == "list" and form == "table" else None
    with open_to_read(path) as store:
        rows = store.rows(_filter(options, default), COLUMNS if form == "json" else SHORT)
        total = store.count()
    print({"table": listed, "csv": rows_csv, "json": rows_json}[form](rows), end="")
    if len(rows) < total and form == "table":
        print(f"nlp-bench: {len(rows)} of {total} runs; more with --last N", file=sys.stderr)
    return 0


def _show(words: list[str], path: Path, form: str) -> int:
    from nlp_bench.analysis.history import COLUMNS, rows_json, shown
    from nlp_bench.analysis.store import Filter, open_to_read

    if len(words) != 1 or not words[0].isdecimal() or len(words[0]) > 17:
        raise UsageError("history show takes one ID, the number in the first column of: nlp-bench history list")
    with open_to_read(path) as store:
        rows = store.rows(Filter(ids=[int(words[0])]), COLUMNS)
    if not rows:
        raise UsageError(f"history show: {path} has no run {words[0]}; see: nlp-bench history list")
    print(rows_json(rows) if form == "json" else shown(rows[0]), end="")
    return 0


def _trend(options: argparse.Namespace, path: Path, form: str) -> int:
    from nlp_bench.analysis.history import COLUMNS
    from nlp_bench.analysis.store import open_to_read
    from nlp_bench.analysis.trend import trend_json, trend_text, trends, write_trend

    if options.output:
        from nlp_bench.report.output import prepare

        prepare(options.output)
    with open_to_read(path) as store:
        rows = _counted(store.rows(_filter(options, None), COLUMNS), options)
    found = trends(rows)
    if not found:
        _say_empty(rows, path)
    print({"table": trend_text, "json": trend_json}[form](found), end="")
    _say_unplaced(rows, {row.identity for trend in found for row in trend.rows})
    if options.output:
        say_written(write_trend(found, rows, options.output))
    return 0


def _variance(options: argparse.Namespace, path: Path, form: str) -> int:
    from nlp_bench.analysis.history import COLUMNS
    from nlp_bench.analysis.store import open_to_read
    from nlp_bench.analysis.variance import START_UP_S, analyse, as_json, as_text
    from nlp_bench.measure.anytime import percent

    within = percent("--within", options.within or "1%")
    with open_to_read(path) as store:
        rows = _counted(store.rows(_filter(options, None), COLUMNS), options)
    found = analyse(rows, within=within, start_up_s=options.start_up or START_UP_S)
    if not found:
        _say_empty(rows, path)
    print({"table": as_text, "json": as_json}[form](found), end="")
    return 0


def _counted(rows: "list[Row]", options: argparse.Namespace) -> "list[Row]":
    """Return the runs that count, each once: logs that do not show how their run ended only where that was asked for."""
    from nlp_bench.analysis.history import without_copies
    from nlp_bench.outcome import Outcome

    kept = [row for row in rows if options.allow_measured or row.outcome != Outcome.MEASURED.value]
    if len(kept) < len(rows):
        number = len(rows) - len(kept)
        print(f"nlp-bench: {number} MEASURED left out; --allow-measured counts them", file=sys.stderr)
    kept, copies = without_copies(kept)
    if copies:
        named = ", ".join(str(row.id) for row in sorted(copies, key=lambda row: row.id)[:10]) + (
            ", ..." if len(copies) > 10 else ""
        )
        print(f"nlp-bench: run {named}: a copy of another run, whole or cut: counted once", file=sys.stderr)
    return kept


def _say_unplaced(rows: "list[Row]", identities: set[str]) -> None:
    """Say which runs stand in no line of the trend: one that ended before its log said much is of no known configuration."""
    lost = [row for row in rows if row.identity not in identities]
    if identities and lost:
        named = ", ".join(f"run {row.id} {row.outcome}" for row in lost[-3:])
        more = f" and {len(lost) - 3} before" if len(lost) > 3 else ""
        print(
            f"nlp-bench: {len(lost)} without a number, of configurations that never had one or not known ({named}{more}); "
            "see: nlp-bench history list",
            file=sys.stderr,
        )


def _say_empty(rows: "list[Row]", path: Path) -> None:
    what = f"{len(rows)} runs, none with a number" if rows else "no such run"
    print(f"nlp-bench: {path}: {what}", file=sys.stderr)
