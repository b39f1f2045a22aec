"""What the page says of a run, and of all runs together: one function per section, in the order of the page.

A function of a run takes it and the report and returns a Section, or None where it has nothing to say; one of all runs yields its Sections.
To add a section, write the function and name it at the end.
"""

from collections.abc import Callable, Iterator, Sized

from nlp_bench.analysis.repeats import repeat_lines
from nlp_bench.analysis.scaling import curve_table, scaling_charts, scaling_of
from nlp_bench.analysis.sweep import sweep_charts, sweep_of, sweep_table
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, FROZEN, OURS
from nlp_bench.report.explain import ONE_RUN, OTHER_WINDOWS, energy_facts, number_facts, origin_facts, sentences
from nlp_bench.report.explain import other_windows as windows_of
from nlp_bench.report.report import Report, title_of
from nlp_bench.show.page import Section
from nlp_bench.show.table import facts, first_rows, table_of


def notes(entry: RunResult, report: Report) -> Section | None:
    """Return the number in words and what qualifies it, or why there is none."""
    said: list[str] = []
    if entry.throughput:
        said += sentences(entry, entry.throughput, report.tokens, entry.verdict)
        is_head = entry.verdict and len(report.entries) == 1  # the head of the page has the verdict already
        said = said[1:] if is_head else said
        said += [] if report.is_repeated(entry) else [ONE_RUN]
    told = " ".join(said)
    said += [text for text in dict.fromkeys((*entry.reason_texts, *entry.remarks)) if text not in told]
    return Section(title="In words", words=said) if said else None


def window(entry: RunResult, _: Report) -> Section | None:
    """Return the steady window and what was left out."""
    measured = entry.throughput
    if measured is None:
        return None
    found = measured.window
    rows: list[tuple[object, ...]] = [
        ("counts", f"{found.first_iteration} to {found.last_iteration}", found.num_records)
    ]
    shown = found.excluded[:20]
    rows += [(f"left out: {e.why}", f"{e.first_iteration} to {e.last_iteration}", None) for e in shown]
    if len(found.excluded) > len(shown):
        rows.append((f"left out: {len(found.excluded) - len(shown)} further stretches", None, None))
    return Section(title="Steady window", table=table_of(("logged intervals", "iterations", "number"), rows))


def times(entry: RunResult, _: Report) -> Section | None:
    """Return the statistics of the time per iteration."""
    summary = entry.throughput.seconds_per_iteration if entry.throughput else None
    if summary is None:
        return None
    columns = ("mean [s]", "median [s]", "p95 [s]", "p99 [s]", "coefficient of variation")
    row = (summary.mean, summary.median, summary.p95, summary.p99, summary.cv)
    return Section(title="Time per iteration in the window", table=table_of(columns, [row]))


def other_windows(entry: RunResult, report: Report) -> Section | None:
    """Return the number under the windows of other tools."""
    found = windows_of(entry.throughput, report.tokens, entry.verdict) if entry.throughput else ()
    return Section(title=OTHER_WINDOWS, table=found) if found else None


def rules(entry: RunResult, _: Report) -> Section | None:
    """Return what the rules of the benchmark say."""
    found = entry.rules
    return Section(title=f"Rules: {found.result}", table=facts(found.lines())) if found else None


def efficiency(entry: RunResult, _: Report) -> Section | None:
    """Return FLOP/s per GPU by every count, and their share of the peak."""
    cells = entry.efficiency.cells() if entry.efficiency else {}
    rows = [(*title_of(name), value) for name, value in cells.items() if value is not None]
    return Section(title="FLOP/s", table=table_of(("count", "unit", "value"), rows)) if rows else None


def energy(entry: RunResult, report: Report) -> Section | None:
    """Return what was metered, and the machine as recorded."""
    rows = list(energy_facts(entry, report.tokens))
    return Section(title="Energy and machine", table=facts(rows)) if rows else None


def settings(entry: RunResult, _: Report) -> Section | None:
    """Return what was trained and how."""
    names = dict.fromkeys((*OURS, *FROZEN, *FREE))
    rows = [(name, found.value, found.source) for name in names if (found := entry.workload.setting(name))]
    return Section(title="Settings", table=table_of(("name", "value", "from"), rows)) if rows else None


def derivation(entry: RunResult, report: Report) -> Section:
    """Return each number with its lines and formula."""
    return Section(
        title="Where each number comes from", table=facts([*number_facts(entry, report.tokens), *origin_facts(entry)])
    )


MAX_ROWS, MAX_PARTS, MAX_TOLD = 100, 12, 3
"""Rows of a table and tables of one kind (report.csv and the views have all); repeated configurations that are described in words too."""


def repeats(report: Report) -> Iterator[Section]:
    """Yield the configurations that were run more than once, as one measurement each."""
    pools, limit_s = report.repeats, report.limit_s
    columns = ("configuration of", "runs", "tokens/s, mean", "95 % over runs from", "to", "time [s]", "from", "to")
    rows: list[tuple[object, ...]] = []
    for found in pools[:MAX_ROWS]:
        rate, interval = found.tokens_per_second, (found.over_runs.interval() if found.over_runs else None)
        row = (found.runs[0].source, len(found.runs), rate, *(interval or (None, None)))
        row = (*row, time_to_report_s(report.tokens, rate), *(found.time_interval_s(report.tokens) or (None, None)))
        rows.append(row if limit_s is None else (*row, found.verdict(report.tokens, limit_s)[0]))
    if rows:
        words = repeat_lines(pools[:MAX_TOLD], report.tokens, limit_s)
        words += _cut(pools, MAX_ROWS, "repeated configurations")
        table = table_of(columns if limit_s is None else (*columns, "limit"), rows)
        yield Section(title="Repeats", words=words, table=table)


def scaling(report: Report) -> Iterator[Section]:
    """Yield the curves over the number of GPUs, of workloads that have a number at two sizes."""
    found = scaling_of(report.entries, report.tokens, report.baseline_gpus, allow_measured=report.allow_measured)
    curves = [curve for curve in found.curves if curve.is_drawn]
    plots = scaling_charts(found)
    words = _cut(curves, MAX_PARTS, "curves")
    for curve in curves[:MAX_PARTS]:
        table = first_rows(curve_table([(curve, place) for place in curve.places], report.tokens), MAX_ROWS)
        words += [*curve.notes, *_cut(curve.places, MAX_ROWS, "points")]
        yield Section(title=f"Scaling: {curve.heading}", words=words, table=table, plots=plots)
        plots, words = [], []


def sweep(report: Report) -> Iterator[Section]:
    """Yield the rankings on equal GPUs, of configurations with a number that are known to differ."""
    found = sweep_of(report.entries, report.tokens, allow_measured=report.allow_measured)
    sweeps = [each for each in found.sweeps if each.is_worth_a_note and each.rows[0].point.tokens_per_second]
    sweeps.sort(key=lambda each: -len(each.rows))
    plots = sweep_charts(found)
    words = _cut(sweeps, MAX_PARTS, "rankings")
    for each in sweeps[:MAX_PARTS]:
        table = first_rows(sweep_table(each, report.tokens), MAX_ROWS)
        words += [f"{each.sentence()}{each.caution}.", *_cut(each.rows, MAX_ROWS, "configurations")]
        yield Section(title=f"Fastest configurations: {each.heading}", words=words, table=table, plots=plots)
        plots, words = [], []


def _cut(found: Sized, most: int, what: str) -> list[str]:
    return [f"The first {most} of {len(found)} {what} are listed."] if len(found) > most else []


RUN_SECTIONS: tuple[Callable[[RunResult, Report], Section | None], ...] = (
    notes, window, rules, other_windows, times, efficiency, energy, settings, derivation,
)  # fmt: skip
"""The first above the plots of each run, the others below."""
BRIEF_SECTIONS = (notes,)  # what stays of them on a page of many runs
REPORT_SECTIONS: tuple[Callable[[Report], Iterator[Section]], ...] = (repeats, scaling, sweep)
"""Between the table and the runs."""
