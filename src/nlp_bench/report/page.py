"""The page of a report as data for its template: head, table, plots, runs, legend."""

import math
import re
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
from nlp_bench.report.answer import MAX_NOTES, Answer, numbers_of
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
REFERENCE = ("time_to_report_reference_s", "tokens_per_second_reference")
NUMBER = ("quality", REFERENCE[0], "time_to_report_steady_s", "bar", "tokens_per_second_steady")
"""Columns of the number; REFERENCE alone where no run has a steady one."""
DIGITS = ("time_to_report_steady_s", "tokens_per_second_steady", "num_gpus")
"""Columns with the digits that people read."""
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
    answer = report.answer(report.entries[0])
    return ", ".join(part for part in (answer.source, answer.what) if part)


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
    kind = VERDICTS[word].kind if word else "plain"
    answer = report.answer(entry)
    return {"kind": kind, "lines": _answer_lines(answer), "tiles": list(_tiles(answer))}


def _answer_lines(answer: Answer) -> list[dict[str, Any]]:
    """Return what the terminal says of the run below its numbers, at most MAX_NOTES notes."""
    lines = [_line(text, name) for name, text in answer.lines]
    lines += [_line(text, "note") for text in answer.notes[:MAX_NOTES]]
    if len(answer.notes) > MAX_NOTES:
        lines.append(_line(f"{len(answer.notes) - MAX_NOTES} more below", "note"))
    lines += [_line(answer.next_step, "next")] if answer.next_step else []
    return [*lines, *([_line(answer.details, "details")] if answer.details else [])]


def _line(text: str = "", strong: str = "", pills: Sequence[tuple[str, int | None]] = ()) -> dict[str, Any]:
    """Return a line of the head: bold words, then outcomes or verdicts with their numbers, then text."""
    return {"strong": strong, "pills": pills, "text": text}


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
        shortest, kind = seconds(time_to_report_s(report.tokens, best.rate)), "steady" if best.steady else "reference"
        said.append(f"The shortest {kind} time for {report.tokens:,} tokens is {shortest} ({best.source}).")
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


def _tiles(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield the cards of a run: its numbers, the one to hand in first, their quality, and what else is known."""
    for found in answer.numbers:
        notes = [f"{found.time_interval} s (95 %)"] if found.time_interval else []
        between = f" ({found.rate_interval})" if found.rate_interval else ""
        notes = [_unbroken(note) for note in (*notes, f"{found.rate} tokens/s{between}")]
        name = f"{found.name} time for {answer.tokens} tokens"
        badge = "hand this in" if found.is_deciding else ""
        yield _tile(name, _unbroken(f"{found.time} s"), [*notes, found.where], badge)
    if answer.quality:
        yield _tile("quality of the run", answer.quality.value, [answer.quality_words, answer.quality.rule])


def _unbroken(text: str) -> str:
    """Return a text whose numbers are not broken between their groups of three digits."""
    return _GROUP.sub("\N{NO-BREAK SPACE}", text)


_GROUP = re.compile(r"(?<=\d) (?=\d{3}\b)")


def _tile(name: str, value: str, notes: Sequence[str], badge: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "notes": notes, "badge": badge}


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
        row |= {name: ALL_FIELDS[name].shown(entry, report) for name in DIGITS if row.get(name) is not None}
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
        "time": ", ".join(f"{one.name} {one.time} s" for one in numbers_of(entry, report.tokens)),
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
