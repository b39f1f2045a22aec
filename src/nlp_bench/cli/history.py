"""Comparison of measurements: `nlp-bench compare` and `history`."""

from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    HistoryOption,
    PatternOptions,
    TokensOption,
    allowing_measured,
    form,
    say_written,
    use_one_thread,
)
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import argument, flag, given, value
from nlp_bench.config.request import shared
from nlp_bench.config.values import OneOf, count, duration, percent_below_100
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.analysis.baseline import Decision
    from nlp_bench.analysis.row import Row
    from nlp_bench.analysis.store import Filter


@immutable
class Compare(Command, HistoryOption, TokensOption, PatternOptions):
    """Compare two measurements: whether B is faster than A, by how much, and whether both did the same work.

    A and B are each what `nlp-bench report` takes (log, run folder, JUBE run, folder with several repeats), or a part of the history:
    history:NAME, history:NUMBER, history:last (the accepted run before the other side's), history:last-N.
    Runs of different work are refused: the frozen parameters must be equal, and what both may tune is shown.
    One run each proves nothing (NOT PROVEN) unless it is known what runs of the machine differ by: from repeats, --scatter, or history:last.
    A run that fails its --gate against history:last-N is no baseline of later runs, until `nlp-bench history accept` says so.
    Exit code 0, also where the history has nothing to compare with yet; 1 when the gate stops or a side has no number; 2 for a refused
    comparison or a wrong word.
    """

    EXAMPLE = """nlp-bench compare runs/before runs/after
  nlp-bench compare history:last-10 runs/tonight --gate 3
  nlp-bench compare baseline.log new.log --same-workload --format markdown"""

    a: str = argument("A")  # The baseline: log, run folder, folder of repeats, or history:NAME.
    b: str = argument("B")  # What is held against it.
    gate: float | None = value(read=percent_below_100, metavar="PERCENT")
    """Exit with 1 when B is proven to be slower by more than this (FAIL), or has no number."""
    equivalent: float | None = value(read=percent_below_100, metavar="PERCENT")
    """Say whether neither is slower than the other by more than this: EQUIVALENT, NOT EQUIVALENT (exit code 1) or NOT PROVEN."""
    strict: bool = flag()  # With --gate or --equivalent: exit with 1 where it is not proven, too.
    scatter: str | None = value(metavar="RUNS")
    """Repeated runs of the same machine, as A: what they differ by is known then, and one run each can be enough."""
    same_workload: bool = flag()  # You vouch that logs which do not show what they trained did the same.
    allow_measured: bool = allowing_measured("take as repeats of each other")
    format: str = form("table", "json", "markdown")

    def run(self) -> int:
        use_one_thread()
        from nlp_bench.analysis.comparison import FORMATS, Reading, compare, read_sides
        from nlp_bench.analysis.contrast import Gate

        asked = ((self.gate, False), (self.equivalent, True))
        gates = [Gate(percent=percent, strict=self.strict, equivalence=both) for percent, both in asked if percent]
        if self.strict and not gates:
            raise UsageError("--strict goes with --gate PERCENT or --equivalent PERCENT")
        wanted = Reading(
            overrides=self.overrides(),
            trust=self.same_workload,
            allow_measured=self.allow_measured,
            history=self.file,
            scatter=self.scatter,
        )
        a, b = read_sides(self.a, self.b, wanted)
        found = compare(a, b, tokens=self.tokens, vouched=self.same_workload, gates=gates)
        print(FORMATS[self.format](found), end="")
        if self.gate and found.verdicts:
            self._record(found.verdicts, self.gate)
        return found.exit_code

    def _record(self, verdicts: dict[str, str], percent: float) -> None:
        """Keep runs that failed out of the next baselines."""
        from nlp_bench.analysis.store import command, default_file, record_verdicts

        path = self.file or default_file()
        try:
            for run in record_verdicts(path, verdicts, percent):
                if run is None:
                    say(
                        f"B is not in the history, so that its verdict is not kept; first: {command('history add PATH', path)}"
                    )
                    continue
                again = command(f"history accept {run}", path)
                say(f"run {run} failed its gate and is no baseline; if this speed is right from now on: {again}")
        except NlpBenchError as error:
            say(f"the verdict is not in the history: {error}")


FORMATS = {
    "add": ("table",),
    "list": ("table", "csv", "json"),
    "show": ("table", "json"),
    "accept": ("table",),
    "trend": ("table", "json"),
    "variance": ("table", "json"),
    "export": ("csv", "json"),
}
"""Formats of each action, its default first."""
LISTED = 50
_CHOSEN = ("list", "trend", "variance", "export")
_WITH = {
    "--allow-measured": ("allow_measured", ("trend", "variance")),
    "--name": ("name", ("add", *_CHOSEN)),
    "--model": ("model", _CHOSEN),
    "--system": ("system", _CHOSEN),
    "--configuration": ("identity", _CHOSEN),
    "--last": ("last", _CHOSEN),
    "--output": ("output", ("trend",)),
    "--gate": ("gate", ("trend",)),
    "--why": ("why", ("accept",)),
    "--within": ("within", ("variance",)),
    "--start-up": ("start_up", ("variance",)),
    "--format": ("format", ("list", "show", "trend", "variance", "export")),
}
"""Option, its field, and the actions that take it."""


@immutable
class History(Command, HistoryOption, PatternOptions):
    """The runs of a machine over time, in one SQLite file: add runs, list them, show one, accept one, draw the trend, export.

    add PATH...   what `nlp-bench report` reads; a run that is there already is one row still, measured anew
    list          the latest runs             show ID   everything about one
    accept RUN    the baseline of history:last-N begins with this run (its number or path): a new level is right
    trend         per configuration the level of its speed, runs that leave it, and where it changed; with --output also a plot
    variance      per configuration what its runs differ by (iterations, runs, nodes, days), and how many runs of how many iterations to buy
    export        all rows as CSV or JSON
    Exit code 0; 1 when something could not be added, or --gate stops; 2 for a wrong word. `nlp-bench compare history:last-10 RUN` reads the same file.
    """

    EXAMPLE = """nlp-bench history add runs/tonight && nlp-bench compare history:last-10 runs/tonight --gate 3
  nlp-bench history add runs/acceptance --name acceptance
  nlp-bench history list --model 175 --last 10
  nlp-bench history accept 9 --why "new firmware"
  nlp-bench history trend --gate --output reports/trend
  nlp-bench history variance --within 1%"""

    action: str = argument("ACTION", read=OneOf(*FORMATS), help=", ".join(FORMATS))
    words: tuple[str, ...] = argument("PATH or ID", nargs="*", default=())  # add: paths; show, accept: a run.
    name: str | None = value(metavar="NAME")  # add: a name for these runs, for history:NAME; else: runs of this name.
    model: str | None = shared("model", group="")  # Runs of this model only.
    system: str | None = shared("system", group="")  # Runs of this system only.
    identity: str | None = value("--configuration", metavar="HEX")
    """Runs of this configuration only (or its beginning)."""
    last: int | None = value(read=count, help=f"the latest N runs only (list: {LISTED})")
    output: Path | None = value(metavar="DIR")  # trend: write trend.png, .svg, .json and .csv into this folder.
    gate: bool = flag()  # trend: exit with 1 where the latest run of a configuration is slower and not accepted.
    why: str | None = value(metavar="TEXT")  # accept: the reason, which is kept.
    within: str | None = value(metavar="SHARE")  # variance: the half width that is wanted (default 1%).
    start_up: float | None = value(read=duration("s"), metavar="SECONDS")
    """variance: time of a job before its first iteration (default 120)."""
    format: str | None = form(
        "table", "csv", "json", default=None, text="form of standard output (default table; of export csv)"
    )
    allow_measured: bool = allowing_measured("trend and variance: count")

    def run(self) -> int:
        use_one_thread()
        from nlp_bench.analysis.store import default_file

        action = self.action
        for option, (kept, actions) in _WITH.items():
            if getattr(self, kept) not in {None, False} and action not in actions:
                raise UsageError(f"{option} does not go with history {action}; it goes with {', '.join(actions)}")
        if self.words and action not in {"add", "show", "accept"}:
            raise UsageError(f"history {action} takes no PATH or ID: {self.words[0][:60]!r}")
        shown = self.format or FORMATS[action][0]
        if shown not in FORMATS[action]:
            raise UsageError(f"history {action} has no --format {shown}; choose one of {', '.join(FORMATS[action])}")
        path = self.file or default_file()
        if action == "add":
            return self._add(path)
        if action == "accept":
            return self._accept(path)
        what = {"show": self._show, "variance": self._variance, "trend": self._trend}.get(action, self._list)
        return what(path, shown)

    def _add(self, path: Path) -> int:
        from nlp_bench.analysis.store import add_runs, why_no_name

        if not self.words:
            raise UsageError("history add: PATH is missing; give a run folder, a log or a folder of them")
        if self.name is not None and (why := why_no_name(self.name)):
            raise UsageError(f"--name {self.name[:40]!r}: {why}")
        lines, refused = add_runs(self.words, path, name=self.name or "", overrides=self.overrides())
        for line in lines:
            print(line)
        say(*(f"not added: {line}" for line in refused))
        return 1 if refused else 0

    def _accept(self, path: Path) -> int:
        from nlp_bench.analysis.store import accept, command

        if len(self.words) != 1:
            see = command("history list", path)
            raise UsageError(f"history accept takes one run, its path or the number in the first column of: {see}")
        print(accept(path, self.words[0], self.why or ""))
        return 0

    def _filter(self, last: int | None = None) -> "Filter":
        from nlp_bench.analysis.store import Filter

        return Filter(**{"last": last} | given(self, Filter))

    def _list(self, path: Path, form: str) -> int:
        from nlp_bench.analysis.listing import listed, rows_json, runs_csv
        from nlp_bench.analysis.store import open_to_read

        most = self.last or (LISTED if self.action == "list" and form == "table" else None)
        with open_to_read(path) as store:
            found = store.judged(self._filter(most))
            total = store.count()
        print({"table": listed, "csv": runs_csv, "json": rows_json}[form](found), end="")
        if len(found) < total and form == "table":
            how = "more with --last N" if len(found) == most else "the options leave the others out"
            say(f"{len(found)} of {total} runs; {how}")
        return 0

    def _show(self, path: Path, form: str) -> int:
        from nlp_bench.analysis.listing import rows_json, shown
        from nlp_bench.analysis.store import Filter, command, open_to_read

        see = command("history list", path)
        if len(self.words) != 1 or not self.words[0].isdecimal() or len(self.words[0]) > 17:
            raise UsageError(f"history show takes one ID, the number in the first column of: {see}")
        with open_to_read(path) as store:
            found = store.judged(Filter(ids=[int(self.words[0])]))
        if not found:
            raise UsageError(f"history show: {path} has no run {self.words[0]}; see: {see}")
        print(rows_json(found) if form == "json" else shown(found[0]), end="")
        return 0

    def _trend(self, path: Path, form: str) -> int:
        from nlp_bench.analysis.trend import gate_lines, trend_json, trend_text, trends, write_trend

        if self.output:
            from nlp_bench.report.output import prepare

            prepare(self.output, "trend")
        rows, decisions = self._counted(path)
        found = trends(rows, decisions, measured=self.allow_measured)
        if not found:
            _report_empty(rows, path)
        print(trend_json(found) if form == "json" else trend_text(found, path), end="")
        _report_unplaced(rows, {row.identity for trend in found for row in trend.rows}, path)
        if self.output:
            say_written(write_trend(found, rows, self.output))
        if not self.gate:
            return 0
        alarms = gate_lines(found, rows, path)
        words = [f"GATE FAIL: {line}" for line in alarms] or [
            "GATE PASS: no configuration is slower than it was accepted"
        ]
        if form == "json":
            say(*words)
        else:
            print("\n".join([*([""] if found else []), *map(one_line, words)]))
        return int(bool(alarms))

    def _variance(self, path: Path, form: str) -> int:
        from nlp_bench.analysis.variance import START_UP_S, analyse, as_json, as_text
        from nlp_bench.measure.anytime import percent

        within = percent("--within", self.within or "1%")
        rows, _ = self._counted(path)
        found = analyse(rows, within=within, start_up_s=self.start_up or START_UP_S)
        if not found:
            _report_empty(rows, path)
        print({"table": as_text, "json": as_json}[form](found), end="")
        return 0

    def _counted(self, path: Path) -> "tuple[list[Row], list[Decision]]":
        """Return the runs that count, each once, and what was decided on them: logs that do not show how their run ended only with --allow-measured."""
        from nlp_bench.analysis.row import COLUMNS, without_copies
        from nlp_bench.analysis.store import open_to_read
        from nlp_bench.outcome import Outcome

        with open_to_read(path) as store:
            rows, decisions = store.rows(self._filter(), COLUMNS), store.decisions()
        kept = [row for row in rows if self.allow_measured or row.outcome != Outcome.MEASURED.value]
        if len(kept) < len(rows):
            say(f"{len(rows) - len(kept)} MEASURED left out; --allow-measured counts them")
        kept, said = without_copies(kept)
        say(*said)
        return kept, decisions


def _report_unplaced(rows: "list[Row]", identities: set[str], path: Path) -> None:
    """Report the runs in no line of the trend: one that ended early has no known configuration."""
    from nlp_bench.analysis.store import command

    lost = [row for row in rows if row.identity not in identities]
    if identities and lost:
        named = ", ".join(f"run {row.id} {row.outcome}" for row in lost[-3:])
        more = f" and {len(lost) - 3} before" if len(lost) > 3 else ""
        say(
            f"{len(lost)} without a number, of configurations that never had one or not known ({named}{more}); "
            f"see: {command('history list', path)}"
        )


def _report_empty(rows: "list[Row]", path: Path) -> None:
    what = f"{len(rows)} runs, none with a number" if rows else "no such run"
    say(f"{path}: {what}")
