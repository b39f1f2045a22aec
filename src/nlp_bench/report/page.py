"""The page of a report as data for its template: head, table, plots, runs, legend."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from nlp_bench import __version__
from nlp_bench.analysis.repeats import pool_words
from nlp_bench.escape import end_of, shortened
from nlp_bench.measure.judgement import INVALID
from nlp_bench.measure.limit import VERDICTS
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import SHAPE
from nlp_bench.outcome import Outcome
from nlp_bench.report.explain import verdict_words
from nlp_bench.report.plots import CHARTS, MAX_TOGETHER, drawable, many
from nlp_bench.report.report import ALL_FIELDS, Report, is_many, legend, starred, title_of
from nlp_bench.report.sections import BRIEF_SECTIONS, REPORT_SECTIONS, RUN_SECTIONS
from nlp_bench.show.chart import Chart, why_no_plots
from nlp_bench.show.page import Section
from nlp_bench.show.page import page as html_page
from nlp_bench.show.table import interval, seconds

NO_VALID_RUN = "no valid run"
MAX_DETAILED, MAX_WHOLE, MAX_DRAWN, MAX_PRINTED = 1000, 100, 30, 3
"""Runs with details (the others are in the table only), runs up to which each has all of its sections, and its plots (they take 0.2 s a run),
and runs that are printed whole (of more, words and plots are; of many, neither)."""
ALL_POINTS, MAX_POINTS = 15_000, 400  # points of all plots of one kind, and of one curve: a page stays below 5 MB
NUMBER = ("time_to_report_steady_s", "bar", "tokens_per_second_steady")
"""Columns of the number; REFERENCE stands in their place where no run has a steady one."""
REFERENCE = ("time_to_report_reference_s", "tokens_per_second_reference")
WORDS = ("outcome", "limit", "rules")  # columns whose cells are outcomes or verdicts
FILTERS = ("outcome", "dialect", "model")  # columns by which the page filters and groups: each row carries their values
MAX_REASON, MAX_SHOWN = 100, 28  # letters of a reason, and of a path where the column is full
FAR_APART = 20  # ratio of the longest to the shortest time from which bars are logarithmic: outliers flatten the rest
BARS = f"Bars: the 95 % interval of the steady time, all on one scale; logarithmic where the longest is {FAR_APART} times the shortest."
_BAR_WIDTH = 160
KINDS = {
    **{word: means.kind for word, means in VERDICTS.items()},
    Outcome.VALID.value: "good",
    Outcome.MEASURED.value: "open",
}
"""Colours of words; every other one is bad."""


def page(report: Report) -> str:
    """Return the report as one HTML document."""
    detailed = report.entries[:MAX_DETAILED]
    return html_page(
        "report/page.html",
        title=f"{subject(report)} - nlp-bench report",
        script="page.js",
        version=__version__,
        subject=subject(report),
        kinds=KINDS,
        head={"tiles": [], **_head(report)},
        counts=Counter(entry.outcome.value for entry in report.entries).most_common(),
        **_results(report, len(detailed)),
        together=list(_together(report)),
        runs=[_run(entry, report, index, len(detailed)) for index, entry in enumerate(detailed)],
        is_folded=is_many(report),
        max_printed=MAX_PRINTED,
        reading=list(_reading(report, len(detailed))),
    )


def subject(report: Report) -> str:
    """Return what the report is about, in a few words."""
    if len(report.entries) != 1:
        return f"Training speed of {len(report.entries):,} runs" if report.entries else "Training speed: no run"
    (entry,) = report.entries
    what = f"model {entry.model}" if entry.model else entry.source
    where = f" on {entry.num_gpus:,} {_rank(entry)}{'s' if entry.num_gpus > 1 else ''}" if entry.num_gpus else ""
    return f"Training speed: {what}{where}"


def _rank(entry: RunResult) -> str:
    return "CPU rank" if entry.accelerator == "cpu" else "GPU"


def _head(report: Report) -> dict[str, Any]:
    """Return the verdict as lines of bold words, outcomes and text, and for a single run its main figures."""
    entries = report.entries
    numbered = [entry for entry in entries if entry.has_number]
    if not numbered:
        alone = entries if len(entries) == 1 else []
        why = "; ".join(text for entry in alone for text in entry.reason_texts)
        return {"kind": "bad", "lines": [_line(why, NO_VALID_RUN, [(entry.outcome.value, None) for entry in alone])]}
    if len(entries) > 1:
        return _head_of_many(report, numbered)
    (entry,) = numbered
    word = entry.verdict.word if entry.verdict else ""
    line = _line(" ".join((*_sentences(entry, report), *_broken([entry]))), pills=[(word, None)] if word else [])
    kind = VERDICTS[word].kind if word else "plain"
    return {"kind": kind, "lines": [line], "tiles": list(_tiles(entry, report))}


def _line(text: str = "", strong: str = "", pills: Sequence[tuple[str, int | None]] = ()) -> dict[str, Any]:
    """Return a line of the head: bold words, then outcomes or verdicts with their numbers, then text."""
    return {"strong": strong, "pills": pills, "text": text}


def _sentences(entry: RunResult, report: Report) -> Iterator[str]:
    interval_s = entry.time_ci95_s(report.tokens)
    rate = "the measured steady rate" if entry.steady else "the published rate"
    within = f" (95 % interval {seconds(interval_s[0])} to {seconds(interval_s[1])})" if interval_s else ""
    time = seconds(time_to_report_s(report.tokens, entry.rate))
    yield f"A training on {report.tokens:,} tokens takes {time} at {rate}{within}."
    if entry.verdict:
        yield f"By that {verdict_words(entry.verdict)}"


def _head_of_many(report: Report, numbered: list[RunResult]) -> dict[str, Any]:
    num_none = len(report.entries) - len(numbered)
    said = [f"{len(numbered):,} of {len(report.entries):,} runs have a number."]
    if num_none:
        said.append(f"{num_none:,} {'has' if num_none == 1 else 'have'} none; the table says why.")
    whole = report.repeats[0] if len(report.repeats) == 1 else None
    if whole and len(whole.runs) == len(numbered):  # the best of several repeats is no result
        said.append(f"They are repeats of one configuration: {pool_words(whole, report.tokens, report.limit_s)}.")
    elif len({(entry.model, *entry.workload.values(SHAPE).items()) for entry in numbered}) == 1:
        best = max(numbered, key=lambda entry: entry.rate or 0.0)
        shortest = seconds(time_to_report_s(report.tokens, best.rate))
        said.append(f"The shortest time for a training on {report.tokens:,} tokens is {shortest} ({best.source}).")
    else:
        said.append("They trained different models: their times are no ranking.")
    lines = [_line(" ".join((*said, *_broken(numbered))))]
    if report.limit_s is None:
        return {"kind": "plain", "lines": lines}
    found = Counter(entry.verdict.word for entry in report.entries if entry.verdict)
    limit = _line("", f"Limit of {report.limit_s:g} s:", [(word, found[word]) for word in VERDICTS if found[word]])
    kinds = {VERDICTS[word].kind for word in found}
    return {"kind": kinds.pop() if len(kinds) == 1 else "open", "lines": [limit, *lines]}


def _broken(numbered: list[RunResult]) -> list[str]:
    """Say that numbers come from runs that break rules: the number alone would not tell."""
    number = sum(entry.rules is not None and entry.rules.result == INVALID for entry in numbered)
    if not number:
        return []
    who = "It breaks" if len(numbered) == 1 else f"{number:,} of them {'breaks' if number == 1 else 'break'}"
    return [f"{who} rules of the benchmark: see which in the part of the run."]


def _tiles(entry: RunResult, report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each figure."""
    interval_s = entry.time_ci95_s(report.tokens)
    within = f"95 %: {interval_s[0]:,.1f} to {interval_s[1]:,.1f} s" if interval_s else f"{report.tokens:,} tokens"
    yield "Time to report", seconds(time_to_report_s(report.tokens, entry.rate)), within
    yield "Throughput", f"{entry.rate:,.0f}", "tokens per second, steady" if entry.steady else "tokens per second"
    per_gpu = entry.tokens_per_second_per_gpu
    if per_gpu and entry.num_gpus:
        yield f"Per {_rank(entry)}", f"{per_gpu:,.1f}", f"tokens per second, {entry.num_gpus:,} of them"
    if entry.efficiency and entry.efficiency.mfu is not None:
        yield "MFU", f"{100 * entry.efficiency.mfu:.1f} %", "model FLOP/s as a share of the peak"
    if entry.throughput:
        window = entry.throughput.window
        where = f"logged intervals; iterations {window.first_iteration:,} to {window.last_iteration:,}"
        yield "Steady window", f"{window.num_records:,} of {entry.throughput.num_records:,}", where


def _results(report: Report, num_detailed: int) -> dict[str, Any]:
    """Return columns (what is decided on first, which is all that paper shows), rows and filters of the table; the first `num_detailed` runs link to their details."""
    cells = report.rows()
    cells = [{**row, "bar": bar} for row, bar in zip(cells, _bars(cells, report.limit_s), strict=True)]
    number = NUMBER if any(entry.steady for entry in report.entries) else REFERENCE
    first = ("source", "model", "outcome", "rules", "limit", *number, "reasons", "num_gpus", "dialect")
    names = [
        name for name in dict.fromkeys((*first, *report.fields)) if any(row.get(name) is not None for row in cells)
    ]
    sources = [entry.source for entry in report.entries]
    parts = zip(*(source.split("/")[:-1] for source in sources), strict=False)
    folder = "".join(f"{same[0]}/" for same in takewhile(lambda each: len({*each}) == 1, parts))
    rows: list[dict[str, Any]] = []
    for index, (row, entry) in enumerate(zip(cells, report.entries, strict=True)):
        is_replaced = len(cells) > 1 and not entry.has_number and "reasons" in names
        replaced = [name for name in number if name in names] if is_replaced else []
        row["reasons"] = row["reasons"] and shortened(row["reasons"], MAX_REASON)
        line = {
            "index": index,
            "name": entry.source.removeprefix(folder),
            "has_details": index < num_detailed,
            "stars": starred(entry),
            "replaced": len(replaced),  # the reason stands in the place of the number
            "cells": {name: value for name, value in row.items() if name not in replaced},
        }
        rows.append(line)
    columns = [
        {
            "name": name,
            **dict(zip(("title", "unit"), title_of(name), strict=True)),
            "is_more": name not in first,
            "is_text": ALL_FIELDS[name].is_text,
            "is_word": name in WORDS,
        }
        for name in names
    ]
    values = {name: {row["cells"][name] or "" for row in rows} for name in FILTERS}
    filters = {name: sorted(found - {""}) for name, found in values.items() if len(found) > 1}
    is_whole = len({end_of(source, MAX_SHOWN) for source in sources}) < len({*sources})
    return {"columns": columns, "rows": rows, "filters": filters, "is_whole": is_whole}


def _bars(rows: Sequence[dict[str, Any]], limit_s: float | None) -> list[dict[str, Any] | None]:
    """Return per row its interval in words and, where several are drawn, as positions on one scale; None where it has no time."""
    names = ("time_to_report_ci95_low_s", "time_to_report_steady_s", "time_to_report_ci95_high_s")
    known = [float(row[name]) for row in rows for name in names if row[name] is not None]
    num_times = sum(row[names[1]] is not None for row in rows)
    if not num_times:
        return [None] * len(rows)
    # A limit far away from every time would leave no room for them.
    near = limit_s if limit_s is not None and min(known) / 2 <= limit_s <= 2 * max(known) else None
    low, high = min([*known, near or min(known)]), max([*known, near or 0.0])
    scale = math.log if high > FAR_APART * low else float
    start, length = scale(low), scale(high) - scale(low) or 1.0

    def place(value: float | None) -> str | None:
        return f"{6 + (_BAR_WIDTH - 12) * (scale(value) - start) / length:.1f}" if value else None

    bars: list[dict[str, Any] | None] = []
    for row in rows:
        begin, time_s, end = (row[name] for name in names)
        words = interval((begin, end), digits=1).replace("-", " to ") if begin and end else ""
        is_drawn = num_times > 1 or limit_s is not None
        bar = {
            "words": words,
            "dot": place(time_s) if is_drawn else None,
            "ends": (place(begin), place(end)) if begin and end else None,
            "limit": place(near),
        }
        bars.append(bar if time_s is not None and (is_drawn or words) else None)
    return bars


def _together(report: Report) -> Iterator[Section]:
    drawn = drawable(report.entries)
    if len(drawn) > 1 and not why_no_plots():
        plots = _plots(drawn, MAX_POINTS) if len(drawn) <= MAX_TOGETHER else [many(make, drawn) for make in CHARTS]
        yield Section(title="Runs together", plots=[plot for plot in plots if plot])
    for make in REPORT_SECTIONS:
        yield from make(report)


def _run(entry: RunResult, report: Report, index: int, num_detailed: int) -> dict[str, Any]:
    points = min(MAX_POINTS, ALL_POINTS // num_detailed)
    is_drawn = drawable([entry]) and len(report.entries) <= MAX_DRAWN and not why_no_plots()
    plots = _plots([entry], points) if is_drawn else []
    makers = RUN_SECTIONS if len(report.entries) <= MAX_WHOLE else BRIEF_SECTIONS
    first, *others = (make(entry, report) for make in makers)
    sections = (first, Section(title="Plots", plots=plots) if plots else None, *others)
    return {
        "index": index,
        "source": entry.source,
        "outcome": entry.outcome.value,
        "time": seconds(time_to_report_s(report.tokens, entry.rate)),
        "sections": [section for section in sections if section],
    }


def _plots(entries: list[RunResult], points: int) -> list[Chart]:
    return [chart for make in CHARTS if (chart := make(entries, points))]


def _reading(report: Report, num_detailed: int) -> Iterator[str]:
    yield from (*legend(report), BARS, *(passed.sentence() for passed in report.passed_over))
    if why := why_no_plots():
        yield f"There are no plots: {why}."
    elif len(report.entries) > MAX_DRAWN:
        yield f"With more than {MAX_DRAWN} runs, the plots of each run are left to a report of fewer."
    if len(report.entries) > MAX_WHOLE:
        yield f"With more than {MAX_WHOLE} runs, all but the words of each run is left to --format json and --explain."
    if num_detailed < len(report.entries):
        yield f"Details are given of the first {num_detailed:,} of {len(report.entries):,} runs."
