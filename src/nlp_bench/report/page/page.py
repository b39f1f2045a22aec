"""The page: head, table, plots, runs, legend; the browser may load nothing and run nothing but our own script."""

from collections.abc import Callable

from nlp_bench import __version__
from nlp_bench.measure.entry import RunResult
from nlp_bench.report.page.columns import FAR_APART, main_table, pill
from nlp_bench.report.page.head import head, seconds, subject
from nlp_bench.report.page.hooks import BRIEF_SECTIONS, REPORT_SECTIONS, RUN_SECTIONS
from nlp_bench.report.plots import CHARTS, MAX_TOGETHER, drawable, many
from nlp_bench.report.readable import is_many, legend
from nlp_bench.report.table import Report
from nlp_bench.show.chart import Chart
from nlp_bench.show.escape import html_text
from nlp_bench.show.page import Section, asset, digest, render

MAX_DETAILED = 1000
"""Runs with details; of the others the table alone tells."""
MAX_WHOLE = 100
"""Runs up to which each has all of its sections."""
MAX_PRINTED = 3
"""Runs that paper shows whole; of more it has words and plots, of many neither."""
ALL_POINTS, MIN_POINTS, MAX_POINTS = 15_000, 30, 400
"""Points of all plots of one kind together, and of one curve: the page of 500 runs stays below 5 MB."""

BARS = f"Bars: the 95 % interval of the steady time, all on one scale; logarithmic where the longest is {FAR_APART} times the shortest."


def page(report: Report) -> str:
    """Return the report as one HTML document."""
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # A module: it runs after the page is there, in its own scope. The empty icon keeps a browser from asking for one.
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>{html_text(subject(report))} - nlp-bench report</title>\n<style>{style}</style></head>\n"
        f"<body><main>\n{_body(report)}\n</main>\n<footer>nlp-bench {html_text(__version__)}</footer>\n"
        f'<script type="module">{script}</script></body></html>\n'
    )


def _body(report: Report) -> str:
    num_detailed = min(len(report.entries), MAX_DETAILED)
    parts = [head(report)]
    if report.entries:
        parts.append(f"<section><h2>Results</h2>{main_table(report, num_detailed)}</section>")
    drawn = drawable(report.entries)
    if len(drawn) > 1:
        plots = _plots(drawn, MAX_POINTS) if len(drawn) <= MAX_TOGETHER else [many(make, drawn) for make in CHARTS]
        parts.append(render(Section(title="Runs together", plots=[plot for plot in plots if plot]), "all", 2))
    parts += [_rendered(make(report), f"s{index}", 2) for index, make in enumerate(REPORT_SECTIONS)]
    if report.entries:
        parts.append(_runs(report, num_detailed))
    parts.append(_reading(report, num_detailed))
    return "\n".join(part for part in parts if part)


def _runs(report: Report, num_detailed: int) -> str:
    points = max(MIN_POINTS, min(MAX_POINTS, ALL_POINTS // num_detailed))
    runs = [_run(entry, report, index, points) for index, entry in enumerate(report.entries[:num_detailed])]
    title = "The run" if len(report.entries) == 1 else "Each run"
    if not is_many(report):
        kind = ' class="several"' if len(runs) > MAX_PRINTED else ""
        return f"<section{kind}><h2>{title}</h2>\n" + "\n".join(runs) + "</section>"
    folded = f"<summary>Words and plots of {num_detailed:,} runs; their names in the table lead here</summary>"
    words = '<p class="paper">They are left out on paper; the page and report.json have them.</p>'
    return f'<section><h2>{title}</h2>{words}<details class="all">{folded}\n' + "\n".join(runs) + "</details></section>"


def _run(entry: RunResult, report: Report, index: int, points: int) -> str:
    time_s = report.tokens / rate if (rate := entry.rate) else None
    plots = _plots([entry], points) if drawable([entry]) else []
    said_first, *others = [
        _rendered(make(entry, report), f"r{index}-{number}") for number, make in enumerate(sections_of(report))
    ]
    drawn = render(Section(title="Plots", plots=plots), f"r{index}") if plots else ""
    sections = [said_first, drawn, *others]
    is_open = " open" if len(report.entries) == 1 else ""
    said = f"<span>{html_text(seconds(time_s))}</span>" if time_s else ""
    summary = f"<summary><bdi>{html_text(entry.source)}</bdi> {pill(entry.outcome.value)} {said}</summary>"
    return f'<details{is_open}>{summary}<div id="r{index}">{"".join(sections)}</div></details>'


def sections_of(report: Report) -> tuple[Callable[[RunResult, Report], Section | None], ...]:
    """Return the sections of each run."""
    return RUN_SECTIONS if len(report.entries) <= MAX_WHOLE else BRIEF_SECTIONS


def _plots(entries: list[RunResult], points: int) -> list[Chart]:
    return [chart for make in CHARTS if (chart := make(entries, points))]


def _rendered(section: Section | None, name: str, level: int = 3) -> str:
    return render(section, name, level) if section else ""


def _reading(report: Report, num_detailed: int) -> str:
    lines = [*legend(report), BARS, *(passed.sentence() for passed in report.passed_over)]
    if sections_of(report) is BRIEF_SECTIONS:
        lines.append(
            f"With more than {MAX_WHOLE} runs, all but words and plots of each run is left to --format json and --explain."
        )
    if num_detailed < len(report.entries):
        lines.append(f"Details are given of the first {num_detailed:,} of {len(report.entries):,} runs.")
    items = "".join(f"<li>{html_text(line)}</li>" for line in lines)
    return f'<section class="reading"><h2>How to read this</h2><ul>{items}</ul></section>'
