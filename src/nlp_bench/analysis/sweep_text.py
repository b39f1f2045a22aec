"""A report on sweeps as table, JSON, CSV, markdown and plots."""

from collections.abc import Callable, Iterator

from nlp_bench.analysis.points import cell, legend_of_stars, not_placed
from nlp_bench.analysis.sweep import Ranked, Standing, Sweep, SweepReport, record
from nlp_bench.escape import end_of
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import Value, heading
from nlp_bench.show.chart import Chart, HeatMap, Series
from nlp_bench.show.table import (
    Column,
    Style,
    as_csv,
    as_document,
    columns_of,
    documents,
    duration,
    interval,
    label,
    number,
    percentage,
    rate,
    shown,
    tokens_in_words,
)

MAX_SOURCE = 30
LEGEND = (
    "tied for best: no other configuration is faster beyond doubt (Welch's t, one-sided, corrected for the number of rivals); "
    "the truly best one is among them with at least 95 %."
)


def _csv(report: SweepReport) -> str:
    """Return one line per configuration with full precision, a column for each setting that varies somewhere."""
    varied = dict.fromkeys(name for sweep in report.sweeps for name in sweep.names)
    rows = []
    for sweep in report.sweeps:
        for row in sweep.rows:
            found = record(sweep, row, report.tokens)
            settings = found.pop("settings")
            where = {"workload": sweep.title, "num_gpus": sweep.num_gpus}
            rows.append({**where, **{name: settings.get(name) for name in varied}, **found})
    return as_csv(list(rows[0]) if rows else ["workload", "num_gpus"], rows)


def _document(report: SweepReport, style: Style) -> str:
    blocks: list[list[str]] = []
    for sweep in report.sweeps:
        title, *space = style.heading(sweep.heading)
        ranked = style.table(sweep_table(sweep, report.tokens))
        blocks += [[title, *space, style.sentence(sweep.sentence()), *space, *ranked]]
        blocks += [[*map(style.sentence, _notes(sweep))]]
    stars = legend_of_stars(row.point for sweep in report.sweeps for row in sweep.rows)
    below = (not_placed(report.unplaced), [*([LEGEND] if report.sweeps else []), *stars])
    return as_document(*blocks, *([*map(style.sentence, lines)] for lines in below))


FORMATS: dict[str, Callable[[SweepReport], str]] = {
    **documents(_document, lambda report: report.to_json()),
    "csv": _csv,
}


def sweep_table(sweep: Sweep, tokens: int) -> list[Column]:
    """Return the columns that have anything in them, a row for each configuration."""
    has_failed = bool(sweep.of(Standing.FAILED, Standing.CONTRADICTED))
    rows = [list(_cells(sweep, row, tokens, has_failed=has_failed)) for row in sweep.rows]
    words = {heading(name) for name in sweep.names if any(isinstance(_value(row, name), str) for row in sweep.rows)}
    return shown(columns_of(rows, {"standing", "outcome", "source", *words}))


def _cells(sweep: Sweep, row: Ranked, tokens: int, *, has_failed: bool) -> Iterator[tuple[str, str]]:
    """Yield heading and cell of each column; of the settings those that vary."""
    point, counted, total = row.point, row.point.num_counted, len(row.point.entries)
    time_s = time_to_report_s(tokens, point.tokens_per_second)
    yield "rank", number(row.rank)
    yield "standing", point.starred(row.standing.value, "num_gpus")
    for name in sweep.names:
        yield heading(name), cell(_value(row, name))
    yield "runs", str(total) if counted == total else f"{counted} of {total}"
    yield "tokens/s", point.starred(rate(point.tokens_per_second))
    yield "95 %\ninterval", interval(point.interval)
    yield "of\nfastest", percentage(row.ratio.ratio if row.ratio else None, 1)
    yield f"time for\n{tokens_in_words(tokens)} tokens", point.starred(duration(time_s))
    yield "outcome", point.outcome if has_failed else ""
    yield "source", end_of(point.entries[0].source, MAX_SOURCE) + (f" +{total - 1}" if total > 1 else "")


def _notes(sweep: Sweep) -> list[str]:
    """Return why configurations have no number, and what the intervals contain, one sentence each."""
    lines = [
        row.point.cause if row.point.tokens_per_second else f"{sweep.words(row)}: {row.point.cause}"
        for row in sweep.rows
        if row.point.cause
    ]
    if sweep.is_of_single_runs:
        lines.append(
            "one run per configuration: the intervals hold the scatter within each run, not what runs differ by; repeat the winners"
        )
    samples = [sweep.words(row) for row in sweep.rows if row.point.one_sample and row.rank]
    return lines + [f"{words}: one sample, its window is a single logged interval" for words in samples]


MAX_SWEEPS = 4
MAX_CELLS = 20  # rows or columns of a heat map; larger ones become a ranking
RANKED = (Standing.WINNER, Standing.TIED, Standing.SLOWER, Standing.ALONE, Standing.UNDECIDED)
"""Each has a colour of its own."""
FOLLOWS = ("data_parallel_size", "gradient_accumulation_steps", "global_batch_size")  # settings that others may imply


def sweep_charts(report: SweepReport) -> list[Chart | HeatMap]:
    """Return one plot for each sweep with a number and two configurations, those with the most of them first."""
    sweeps = [sweep for sweep in report.sweeps if len(sweep.rows) > 1 and sweep.rows[0].rank]
    drawn = sorted(sweeps, key=lambda sweep: -len(sweep.rows))[:MAX_SWEEPS]
    keys = ["sweep", *(f"sweep-{number}" for number in range(2, MAX_SWEEPS + 1))]
    return [_heat_map(sweep, key) or _ranking(sweep, key) for sweep, key in zip(drawn, keys, strict=False)]


def _heat_map(sweep: Sweep, key: str) -> HeatMap | None:
    """Return rates over two settings, None where the configurations do not differ in exactly two."""
    free = [name for name in sweep.names if name not in FOLLOWS]
    names = list(sweep.names) if len(sweep.names) == 2 else free
    rows = [row for row in sweep.rows if row.standing not in {Standing.CONTRADICTED, Standing.DOUBTED}]  # not ranked
    if len(names) != 2:
        return None
    x_name, y_name = names
    across, down = _texts(rows, x_name), _texts(rows, y_name)
    place = {(down.index(_text(row, y_name)), across.index(_text(row, x_name))): row for row in rows}
    if len(place) < len(rows) or min(len(across), len(down)) < 2 or max(len(across), len(down)) > MAX_CELLS:
        return None
    cells = [[place.get((line, column)) for column in range(len(across))] for line in range(len(down))]
    return HeatMap(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label=heading(x_name),
        y_label=heading(y_name),
        x_names=across,
        y_names=down,
        values=[[row.point.tokens_per_second if row else None for row in line] for line in cells],
        texts=[[_cell(row) if row else "" for row in line] for line in cells],
        marked=frozenset(at for at, row in place.items() if row.standing in {Standing.WINNER, Standing.TIED}),
        note="Tokens per second. Framed or bold: cannot be told from the best at 95 %.",
    )


def _ranking(sweep: Sweep, key: str) -> Chart:
    series = [
        Series(
            name="with an interval" if standing is Standing.ALONE else standing.value,
            xs=[float(row.rank or 0) for row in rows],
            ys=[row.point.tokens_per_second or 0.0 for row in rows],
            style="points",
            colour=colour,
            errors=[row.point.interval for row in rows],
        )
        for colour, standing in enumerate(RANKED)
        if (rows := sweep.of(standing))
    ]
    failed, doubted = len(sweep.of(Standing.FAILED, Standing.CONTRADICTED)), len(sweep.of(Standing.DOUBTED))
    return Chart(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label="rank in the table",
        y_label="tokens per second",
        series=series,
        note="Bars are 95 % intervals."
        + (f" {failed} configuration(s) have no number." if failed else "")
        + (f" {doubted} doubted one(s) are not drawn." if doubted else ""),
    )


def _cell(row: Ranked) -> str:
    rate = row.point.tokens_per_second
    return label(float(f"{rate:.4g}")) if rate else row.point.outcome.replace("OUT_OF_MEMORY", "no memory").lower()


def _value(row: Ranked, name: str) -> Value | None:
    found = row.point.settings.get(name)
    return found.value if found else None


def _text(row: Ranked, name: str) -> str:
    return cell(_value(row, name)) or "none"


def _texts(rows: list[Ranked], name: str) -> list[str]:
    """Return the values of a setting, numbers before words."""
    values = {_text(row, name): _value(row, name) for row in rows}

    def order(text: str) -> tuple[bool, float, str]:
        value = values[text]
        return not isinstance(value, int | float), float(value) if isinstance(value, int | float) else 0.0, text

    return sorted(values, key=order)
