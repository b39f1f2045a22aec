"""The plots of runs: throughput, loss and step times, of one run for the page or of several in one plot for a file."""

from collections.abc import Callable, Iterable, Sequence

from nlp_bench.measure.curves import IN_WINDOW, Curve, Curves
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.summary import Summary
from nlp_bench.show.chart import EXCLUDED, Band, Chart, Rule, Series, Shape

SHAPES: dict[str, Shape] = {
    "warm-up": "cross",
    "slow end": "plus",
    "fast": "diamond",
    "evaluation": "triangle",
    "checkpoint": "square",
}
"""Word of the reason for which an interval does not count to its mark; any other is a cross."""
FEWER = "in each group of neighbours the lowest and the highest, so that the envelope is whole"
TOGETHER = "A flat line is a steady rate over its window; crosses and other single marks do not count."
Drawn = Sequence[RunEntry]


def drawable(entries: Iterable[RunEntry]) -> list[RunEntry]:
    """Return the entries that were measured and have curves."""
    return [entry for entry in entries if entry.throughput and entry.curves]


def throughput(entries: Drawn, max_points: int | None = None) -> Chart:
    """Return tokens per second over iterations, what does not count marked by its reason.

    The steady window of a single run is shaded; of several, a flat line at the steady rate spans each.
    """
    is_one, bands, rules, marks, lines = len(entries) == 1, [], [], [], []
    for colour, entry in enumerate(entries):
        measured, curves = entry.throughput, _curves(entry, max_points)
        if measured is None or curves is None:
            continue
        window = measured.window
        ends = float(window.first_iteration), float(window.last_iteration)
        if is_one:
            bands.append(Band(name="steady window", low=ends[0], high=ends[1], colour=colour))
        name = "steady rate" if is_one else ""
        rules.append(Rule(name=name, value=measured.steady, span=ends, colour=colour))
        for why, curve in curves.rates.items():
            if why == IN_WINDOW:
                lines.append(_line(curve, "logged interval" if is_one else entry.source, colour))
            else:
                marks.append(_excluded(curve, why, EXCLUDED if is_one else colour, is_named=is_one))
    return Chart(
        key="throughput",
        title="Throughput over iterations",
        description=_throughput_words(entries),
        x_label="iteration",
        y_label="tokens per second",
        series=[*lines, *marks],
        bands=bands,
        rules=rules,
        y_from=0.0,
        note=" ".join(filter(None, ("" if is_one else TOGETHER, _fewer(entries, _rates, max_points)))),
    )


def loss(entries: Drawn, max_points: int | None = None) -> Chart | None:
    """Return the training loss over iterations, None where no log has one."""
    found = [(colour, e, c.loss) for colour, e in enumerate(entries) if (c := _curves(e, max_points)) and c.loss]
    if not found:
        return None
    is_one = len(entries) == 1
    ends = ", ".join(f"{c.ys[0]:.4g} to {c.ys[-1]:.4g}" for _, _, c in found[:3])
    return Chart(
        key="loss",
        title="Training loss over iterations",
        description=f"Training loss from the first to the last logged iteration: {ends}.",
        x_label="iteration",
        y_label="lm loss",
        series=[_line(curve, "" if is_one else entry.source, colour) for colour, entry, curve in found],
        note=_fewer(entries, _losses, max_points),
    )


def step_times(entries: Drawn, max_points: int | None = None) -> Chart | None:
    """Return the distribution of the times of the window with median and 95th percentile, None where no log has times."""
    series, rules, words = [], [], []
    is_one = len(entries) == 1
    for colour, entry in enumerate(entries):
        curves, measured = _curves(entry, max_points), entry.throughput
        times = measured.seconds_per_iteration if measured else None
        if curves is None or curves.step_times is None or times is None:
            continue
        xs, ys = curves.step_times.xs.tolist(), (100 * curves.step_times.ys).tolist()
        name = "records of the window" if is_one else entry.source
        series.append(Series(name=name, xs=[xs[0], *xs], ys=[0.0, *ys], style="step", colour=colour))
        words.append(f"median {times.median:.4g} s, 95th percentile {times.p95:.4g} s")
        if is_one:
            rules += _quantiles(times)
    if not series:
        return None
    return Chart(
        key="step-times",
        title="Distribution of the time per iteration",
        description=f"Share of the steady window's records that are as fast or faster: {'; '.join(words[:3])}.",
        x_label="seconds per iteration",
        y_label="records as fast or faster, %",
        series=series,
        rules=rules,
        y_from=0.0,
        y_to=100.0,
        note="A steep line is an even pace; a long foot to the right are slow iterations.",
    )


CHARTS: tuple[Callable[..., Chart | None], ...] = (throughput, loss, step_times)
"""The plots of a run, in the order of the page; each is a file of `--output`."""


def _curves(entry: RunEntry, max_points: int | None) -> Curves | None:
    return entry.curves.fewer(max_points) if entry.curves and max_points else entry.curves


def _rates(curves: Curves) -> list[Curve]:
    return list(curves.rates.values())


def _losses(curves: Curves) -> list[Curve]:
    return [curves.loss] if curves.loss else []


def _quantiles(times: Summary) -> list[Rule]:
    return [
        Rule(name=f"median {times.median:.4g} s", value=times.median, axis="x", colour=1),
        Rule(name=f"p95 {times.p95:.4g} s", value=times.p95, axis="x", colour=EXCLUDED, is_dashed=True),
    ]


def _line(curve: Curve, name: str, colour: int) -> Series:
    return Series(name=name, xs=curve.xs.tolist(), ys=curve.ys.tolist(), colour=colour)


def _excluded(curve: Curve, why: str, colour: int, *, is_named: bool) -> Series:
    name = f"{why} ({curve.num_all}), does not count" if is_named else ""
    shape: Shape = next((shape for word, shape in SHAPES.items() if word in why), "cross")
    return Series(name=name, xs=curve.xs.tolist(), ys=curve.ys.tolist(), style="points", shape=shape, colour=colour)


def _fewer(entries: Drawn, curves_in: Callable[[Curves], list[Curve]], max_points: int | None) -> str:
    drawn = there = 0
    for entry in entries:
        curves = _curves(entry, max_points)
        for curve in curves_in(curves) if curves else ():
            drawn, there = drawn + len(curve.xs), there + curve.num_all
    return f"{drawn} of {there} logged intervals are drawn: {FEWER}." if drawn < there else ""


def _throughput_words(entries: Drawn) -> str:
    said = []
    for entry in entries[:3]:
        if entry.throughput:
            window = entry.throughput.window
            where = f"iterations {window.first_iteration} to {window.last_iteration}"
            said.append(f"steady rate {entry.throughput.steady:,.0f} tokens per second over {where}")
    return f"Tokens per second of each logged interval; {'; '.join(said)}."
