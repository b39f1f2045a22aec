"""A report on sweeps as text: table, JSON, CSV, markdown."""

from collections.abc import Callable, Iterable, Sequence

from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import heading
from nlp_bench.scaling.workloads import cell
from nlp_bench.show.escape import end_of
from nlp_bench.show.grid import (
    MARKDOWN,
    TEXT,
    Column,
    Style,
    as_csv,
    duration,
    interval,
    json_text,
    rate,
    shown,
    tokens_in_words,
)
from nlp_bench.sweep.record import record
from nlp_bench.sweep.sweep import Row, Standing, Sweep, SweepReport

MAX_SOURCE = 30


def table(report: SweepReport) -> str:
    """Return the tables for a terminal: the sentence on the winners, the configurations, what to know."""
    return _document(report, TEXT)


def markdown(report: SweepReport) -> str:
    """Return the same in GitHub's markdown, to paste."""
    return _document(report, MARKDOWN)


def as_json(report: SweepReport) -> str:
    """Return the record of nlp-bench/sweep/1 as indented JSON."""
    return json_text(report.to_json())


def csv(report: SweepReport) -> str:
    """Return one line per configuration with full precision, a column for each setting that varies somewhere."""
    varied = list(dict.fromkeys(name for sweep in report.sweeps for name in sweep.names))
    rows = []
    for sweep in report.sweeps:
        for row in sweep.rows:
            found = record(sweep, row, report.tokens)
            settings = found.pop("settings")
            found["sources"] = "; ".join(found["sources"])
            where = {"workload": sweep.title, "num_gpus": sweep.num_gpus}
            rows.append({**where, **{name: settings.get(name) for name in varied}, **found})
    names = list(rows[0]) if rows else ["workload", "num_gpus"]
    return as_csv(names, rows)


FORMATS: dict[str, Callable[[SweepReport], str]] = {
    "table": table, "json": as_json, "csv": csv, "markdown": markdown,
}  # fmt: skip


def _document(report: SweepReport, style: Style) -> str:
    blocks: list[list[str]] = []
    for sweep in report.sweeps:
        title, *space = style.heading(sweep.heading)
        blocks.append(
            [title, *space, style.sentence(sweep.sentence()), *space, *style.table(columns(sweep, report.tokens))]
        )
        notes = [style.sentence(note) for note in notes_of(sweep)]
        blocks += [notes] if notes else []
    unplaced = [f"{entry.source}: not placed, {_why(entry.reason_texts)}" for entry in report.unplaced]
    for lines in (unplaced, legend() if report.sweeps else []):
        if lines:
            blocks.append([style.sentence(line) for line in lines])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _why(reasons: Sequence[str]) -> str:
    return reasons[0] if reasons else "the number of GPUs is not in the log"


def columns(sweep: Sweep, tokens: int) -> list[Column]:
    """Return the columns that have anything in them; of the settings those that vary."""
    rows = sweep.rows
    made: list[tuple[str, Iterable[str], bool]] = [
        ("rank", (str(row.rank or "") for row in rows), False),
        ("standing", (row.standing.value for row in rows), True),
    ]
    for name in sweep.names:
        found = [row.point.settings.get(name) for row in rows]
        is_text = any(isinstance(each.value, str) for each in found if each)
        made.append((heading(name), [cell(each.value) if each else "" for each in found], is_text))
    made += [
        ("runs", (_runs(row) for row in rows), False),
        ("tokens/s", (rate(row.point.tokens_per_second) for row in rows), False),
        ("95 %\ninterval", (interval(row.point.interval) for row in rows), False),
        ("of\nfastest", (f"{100 * row.ratio.ratio:.1f} %" if row.ratio else "" for row in rows), False),
        (
            f"time for\n{tokens_in_words(tokens)} tokens",
            (duration(time_to_report_s(tokens, row.point.tokens_per_second)) for row in rows),
            False,
        ),
        ("outcome", (row.point.outcome for row in rows) if _has_failures(sweep) else (), True),
        ("source", (_source(row) for row in rows), True),
    ]
    filled = [
        Column(heading=name, cells=tuple(cells) or ("",) * len(rows), is_text=is_text) for name, cells, is_text in made
    ]
    return shown(filled)


def _has_failures(sweep: Sweep) -> bool:
    return any(row.standing in {Standing.FAILED, Standing.CONTRADICTED} for row in sweep.rows)


def _runs(row: Row) -> str:
    counted, total = row.point.num_counted, len(row.point.entries)
    return str(total) if counted == total else f"{counted} of {total}"


def _source(row: Row) -> str:
    source = row.point.entries[0].source
    return end_of(source, MAX_SOURCE) + (f" +{len(row.point.entries) - 1}" if len(row.point.entries) > 1 else "")


def notes_of(sweep: Sweep) -> list[str]:
    """Return why configurations have no number, and what the intervals hold, one sentence each."""
    lines = [
        row.point.cause if row.point.tokens_per_second else f"{sweep.words(row)}: {row.point.cause}"
        for row in sweep.rows
        if row.point.cause
    ]
    if sweep.is_of_single_runs:
        lines.append(
            "one run per configuration: the intervals hold the scatter within each run, not what runs differ by; repeat the winners"
        )
    samples = [sweep.words(row) for row in sweep.rows if row.point.one_sample and row.point.tokens_per_second]
    lines += [f"{words}: one sample, its window is a single logged interval" for words in samples]
    return lines


def legend() -> list[str]:
    """Return what the words mean, in plain sentences."""
    words = "no other configuration is faster beyond doubt (Welch's t, one-sided, corrected for the number of rivals)"
    return [f"tied for best: {words}; the truly best one is among them with at least 95 %."]
