"""A report on sweeps as table, JSON, CSV, markdown and plots."""

from collections.abc import Callable, Iterable, Sequence

from nlp_bench.analysis.observation import cell
from nlp_bench.analysis.sweep import Row, Standing, Sweep, SweepReport, record
from nlp_bench.escape import end_of
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import Value, heading
from nlp_bench.show.chart import Chart, HeatMap, Series, label
from nlp_bench.show.table import (
    Column,
    Style,
    as_csv,
    documents,
    duration,
    interval,
    json_text,
    rate,
    shown,
    tokens_in_words,
)

MAX_SOURCE = 30


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


FORMATS: dict[str, Callable[[SweepReport], str]] = {
    **documents(_document),
    "json": lambda report: json_text(report.to_json()),
    "csv": csv,
}


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


MAX_SWEEPS = 4
MAX_CELLS = 20
"""Rows or columns of a heat map; larger ones become a ranking."""
NAMES = {
    Standing.WINNER: "winner",
    Standing.TIED: "tied for best",
    Standing.SLOWER: "slower",
    Standing.ALONE: "with an interval",
    Standing.UNDECIDED: "no interval",
}
FOLLOWS = ("data_parallel_size", "gradient_accumulation_steps", "global_batch_size")
"""Settings that others may imply."""


def sweep_charts(report: SweepReport) -> list[Chart | HeatMap]:
    """Return one plot for each sweep with a number and two configurations, those with the most of them first."""
    sweeps = [sweep for sweep in report.sweeps if len(sweep.rows) > 1 and sweep.rows[0].rank]
    drawn = sorted(sweeps, key=lambda sweep: -len(sweep.rows))[:MAX_SWEEPS]
    return [_plot(sweep, "sweep" if index == 0 else f"sweep-{index + 1}") for index, sweep in enumerate(drawn)]


def _plot(sweep: Sweep, key: str) -> Chart | HeatMap:
    axes = axes_of(sweep)
    return _heat_map(sweep, key, axes) if axes else _ranking(sweep, key)


def axes_of(sweep: Sweep) -> tuple[str, str] | None:
    """Return the two settings of a heat map, None where not exactly two tell the configurations apart."""
    free = [name for name in sweep.names if name not in FOLLOWS]
    names = list(sweep.names) if len(sweep.names) == 2 else free
    if len(names) != 2:
        return None
    places = [(_text(row, names[0]), _text(row, names[1])) for row in _on_map(sweep)]
    sizes = [len({place[axis] for place in places}) for axis in (0, 1)]
    is_map = len(set(places)) == len(places) and min(sizes) > 1 and max(sizes) <= MAX_CELLS
    return (names[0], names[1]) if is_map else None


def _on_map(sweep: Sweep) -> list[Row]:
    """Return all rows but those whose log contradicts their run.json: they have no place."""
    return [row for row in sweep.rows if row.standing is not Standing.CONTRADICTED]


def _heat_map(sweep: Sweep, key: str, axes: tuple[str, str]) -> HeatMap:
    across, down = _values(sweep, axes[0]), _values(sweep, axes[1])
    rates: list[list[float | None]] = [[None] * len(across) for _ in down]
    texts = [[""] * len(across) for _ in down]
    won = set()
    for row in _on_map(sweep):
        line, column = down.index(_text(row, axes[1])), across.index(_text(row, axes[0]))
        rates[line][column] = row.point.tokens_per_second
        texts[line][column] = _cell(row)
        if row.standing in {Standing.WINNER, Standing.TIED}:
            won.add((line, column))
    return HeatMap(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label=heading(axes[0]),
        y_label=heading(axes[1]),
        x_names=across,
        y_names=down,
        values=rates,
        texts=texts,
        marked=frozenset(won),
        note="Tokens per second. Framed or bold: cannot be told from the best at 95 %.",
    )


def _ranking(sweep: Sweep, key: str) -> Chart:
    series = []
    for colour, (standing, name) in enumerate(NAMES.items()):
        rows = [row for row in sweep.rows if row.standing is standing and row.rank]
        if rows:
            series.append(
                Series(
                    name=name,
                    xs=[float(row.rank or 0) for row in rows],
                    ys=[row.point.tokens_per_second or 0.0 for row in rows],
                    style="points",
                    colour=colour,
                    errors=[row.point.interval for row in rows],
                )
            )
    failed = sum(row.rank is None for row in sweep.rows)
    return Chart(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label="rank in the table",
        y_label="tokens per second",
        series=series,
        note="Bars are 95 % intervals." + (f" {failed} configuration(s) have no number." if failed else ""),
    )


def _cell(row: Row) -> str:
    rate = row.point.tokens_per_second
    return label(float(f"{rate:.4g}")) if rate else row.point.outcome.replace("OUT_OF_MEMORY", "no memory").lower()


def _value(row: Row, name: str) -> Value | None:
    found = row.point.settings.get(name)
    return found.value if found else None


def _text(row: Row, name: str) -> str:
    return cell(_value(row, name)) or "none"


def _values(sweep: Sweep, name: str) -> list[str]:
    values = {_text(row, name): _value(row, name) for row in _on_map(sweep)}

    def order(text: str) -> tuple[bool, float, str]:
        value = values[text]
        return not isinstance(value, int | float), float(value) if isinstance(value, int | float) else 0.0, text

    return sorted(values, key=order)
