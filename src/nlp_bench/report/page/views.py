"""Repeats, scaling and sweeps on the page: shown by themselves where the runs are such."""

from collections.abc import Iterator

from nlp_bench.analysis.repeats import Pool, repeat_lines, time_interval_s, word_over_runs
from nlp_bench.analysis.scaling import Curve, Place, scaling_of
from nlp_bench.analysis.scaling_text import scaling_charts
from nlp_bench.analysis.sweep import Sweep, sweep_of
from nlp_bench.analysis.sweep_text import sweep_charts
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.report.table import Report
from nlp_bench.show.page import Section

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
        columns=columns if report.limit_s is None else (*columns, "limit"),
        rows=[_repeated(pool, report) for pool in pools[:MAX_ROWS]],
    )


def _repeated(pool: Pool, report: Report) -> tuple[object, ...]:
    rate = pool.tokens_per_second
    low, high = (pool.over_runs.interval() if pool.over_runs else None) or (None, None)
    interval_s = time_interval_s(pool, report.tokens)
    cells = (pool.runs[0].source, len(pool.runs), rate, low, high, time_to_report_s(report.tokens, rate))
    cells = (*cells, *(interval_s or (None, None)))
    return cells if report.limit_s is None else (*cells, word_over_runs(pool, report.tokens, report.limit_s))


def scaling(report: Report) -> Section | None:
    """Return the curves over the number of GPUs, None where no workload has a number at two sizes."""
    found = scaling_of(report.entries, report.tokens, report.baseline_gpus, allow_measured=report.allow_measured)
    curves = [curve for curve in found.curves if curve.is_drawn]
    if not curves:
        return None
    rows = [_point(curve, place) for curve in curves for place in curve.places]
    words = [f"{curve.title}: {curve.decision.kind.words} ({curve.decision.why})" for curve in curves]
    words += [f"{curve.title}: {note}" for curve in curves for note in curve.notes]
    return Section(
        title="Scaling",
        words=[*words, *_cut(len(rows), "points")],
        columns=(
            "workload",
            "GPUs",
            "global batch",
            "tokens/s",
            "95 % from",
            "to",
            "speed-up",
            "efficiency [%]",
            "flags",
        ),
        rows=rows[:MAX_ROWS],
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
        columns=("workload", "rank", "configuration", "tokens/s", "of the fastest [%]", "standing"),
        rows=rows[:MAX_ROWS],
        plots=sweep_charts(found),
    )


def _rows(found: Sweep) -> Iterator[tuple[object, ...]]:
    for row in found.rows:
        rate = row.point.tokens_per_second
        share = 100 * row.ratio.ratio if row.ratio else None
        yield found.heading, row.rank, found.words(row), rate, share, row.standing.value if rate else row.point.outcome


def _cut(number: int, what: str) -> list[str]:
    return [f"The first {MAX_ROWS} of {number} {what} are listed."] if number > MAX_ROWS else []
