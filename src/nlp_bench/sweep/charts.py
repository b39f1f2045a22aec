"""Sweeps as plots: a heat map where two settings tell the configurations apart, else rates in the order of the ranking."""

from nlp_bench.measure.workload import Value, heading
from nlp_bench.scaling.workloads import cell
from nlp_bench.show.chart import Chart, HeatMap, Series
from nlp_bench.show.scale import label
from nlp_bench.sweep.sweep import Row, Standing, Sweep, SweepReport

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
