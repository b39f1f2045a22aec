"""What the page says of a run, and of all runs together: one function per section, in the order of the page.

A function takes the run and the report (or the report alone) and returns a Section, or None where it has nothing to say.
To add a section, write the function and name it at the end.
"""

from collections.abc import Callable, Iterator

from nlp_bench.analysis.repeats import Pool, repeat_lines
from nlp_bench.analysis.scaling import Curve, Place, scaling_of
from nlp_bench.analysis.scaling_text import scaling_charts
from nlp_bench.analysis.sweep import Sweep, sweep_of
from nlp_bench.analysis.sweep_text import sweep_charts
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, FROZEN, OURS
from nlp_bench.report.explain import energy_facts, number_facts, origin_facts
from nlp_bench.report.table import Report, title_of
from nlp_bench.report.words import ONE_RUN, OTHER_WINDOWS, sentences
from nlp_bench.report.words import other_windows as windows_of
from nlp_bench.show.page import Section
from nlp_bench.show.table import facts, table_of


def notes(entry: RunResult, report: Report) -> Section | None:
    """Return why there is no number, what it means in words, and what qualifies it."""
    said: list[str] = []
    if entry.throughput:
        said += sentences(entry, entry.throughput, report.tokens, entry.verdict)
        is_head = entry.verdict and len(report.entries) == 1  # the head of the page has the verdict already
        said = said[1:] if is_head else said
        said += [ONE_RUN] if len(report.entries) == 1 else []
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
    """Return what was metered, and what the machine really was."""
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


MAX_ROWS = 100
"""Of more, the first are listed; the table of results has all runs."""

MAX_TOLD = 3
"""Repeated configurations that are told of in words too."""


def repeats(report: Report) -> Section | None:
    """Return the configurations that were run more than once as one measurement each, None where there is none."""
    pools = report.repeats
    if not pools:
        return None
    columns = ("configuration of", "runs", "tokens/s, mean", "95 % over runs from", "to", "time [s]", "from", "to")
    return Section(
        title="Repeats",
        words=[
            *repeat_lines(pools[:MAX_TOLD], report.tokens, report.limit_s),
            *_cut(len(pools), "repeated configurations"),
        ],
        table=table_of(
            columns if report.limit_s is None else (*columns, "limit"),
            [_repeated(pool, report) for pool in pools[:MAX_ROWS]],
        ),
    )


def _repeated(pool: Pool, report: Report) -> tuple[object, ...]:
    rate = pool.tokens_per_second
    low, high = (pool.over_runs.interval() if pool.over_runs else None) or (None, None)
    interval_s = pool.time_interval_s(report.tokens)
    cells = (pool.runs[0].source, len(pool.runs), rate, low, high, time_to_report_s(report.tokens, rate))
    cells = (*cells, *(interval_s or (None, None)))
    return cells if report.limit_s is None else (*cells, pool.verdict(report.tokens, report.limit_s)[0])


_SCALING = ("workload", "GPUs", "global batch", "tokens/s", "95 % from", "to", "speed-up", "efficiency [%]", "flags")


def scaling(report: Report) -> Section | None:
    """Return the curves over the number of GPUs, None where no workload has a number at two sizes."""
    found = scaling_of(report.entries, report.tokens, report.baseline_gpus, allow_measured=report.allow_measured)
    curves = [curve for curve in found.curves if curve.is_drawn]
    if not curves:
        return None
    rows = [_point(curve, place) for curve in curves for place in curve.places]
    words = [curve.heading for curve in curves]
    words += [f"{curve.title}: {note}" for curve in curves for note in curve.notes]
    return Section(
        title="Scaling",
        words=[*words, *_cut(len(rows), "points")],
        table=table_of(_SCALING, rows[:MAX_ROWS]),
        plots=scaling_charts(found),
    )


def _point(curve: Curve, place: Place) -> tuple[object, ...]:
    point = place.point
    low, high = point.interval or (None, None)
    efficiency = None if place.efficiency is None else 100 * place.efficiency
    flags = "; ".join((*place.flags, *([point.cause] if point.cause else [])))
    measured = point.num_gpus, point.batch, point.tokens_per_second, low, high
    return curve.title, *measured, place.speed_up, efficiency, flags


def sweep(report: Report) -> Section | None:
    """Return the rankings on equal GPUs, None where no two configurations with a number are known to differ."""
    found = sweep_of(report.entries, report.tokens, allow_measured=report.allow_measured)
    sweeps = [each for each in found.sweeps if each.is_worth_a_note and each.rows[0].rank]
    if not sweeps:
        return None
    sweeps.sort(key=lambda each: -len(each.rows))
    rows = [row for each in sweeps for row in _rows(each)]
    words = [f"{each.heading}: {each.sentence()}{each.caution}." for each in sweeps]
    return Section(
        title="Fastest configurations",
        words=[*words, *_cut(len(rows), "configurations")],
        table=table_of(
            ("workload", "rank", "configuration", "tokens/s", "of the fastest [%]", "standing"), rows[:MAX_ROWS]
        ),
        plots=sweep_charts(found),
    )


def _rows(found: Sweep) -> Iterator[tuple[object, ...]]:
    for row in found.rows:
        rate = row.point.tokens_per_second
        share = 100 * row.ratio.ratio if row.ratio else None
        yield found.heading, row.rank, found.words(row), rate, share, row.standing.value if rate else row.point.outcome


def _cut(number: int, what: str) -> list[str]:
    return [f"The first {MAX_ROWS} of {number} {what} are listed."] if number > MAX_ROWS else []


RUN_SECTIONS: tuple[Callable[[RunResult, Report], Section | None], ...] = (
    notes,
    window,
    rules,
    other_windows,
    times,
    efficiency,
    energy,
    settings,
    derivation,
)
"""The first above the plots of each run, the others below."""
BRIEF_SECTIONS = (notes,)
"""What stays of them on a page of many runs."""
REPORT_SECTIONS: tuple[Callable[[Report], Section | None], ...] = (repeats, scaling, sweep)
"""Between the table and the runs."""
