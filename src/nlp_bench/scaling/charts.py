"""Curves of scaling as plots: rates over GPUs beside perfect linear scaling on logarithmic axes, and efficiency."""

from collections.abc import Iterable, Sequence

from nlp_bench.scaling.curve import Curve, Place
from nlp_bench.scaling.kind import Kind
from nlp_bench.scaling.report import ScalingReport
from nlp_bench.show.chart import Chart, Rule, Series, Shape

MAX_CURVES = 6
"""As many have a colour of their own."""
CLOSE = 1.15
"""Sizes nearer than this factor share one label."""
_KINDS = {Kind.STRONG: ", strong", Kind.WEAK: ", weak"}
SHAPES: dict[str, Shape] = {"super-linear": "triangle", "one sample": "square"}


def scaling_charts(report: ScalingReport) -> list[Chart]:
    """Return the plot of the rates and that of the efficiencies; none where no curve has two sizes."""
    curves = [curve for curve in report.curves if curve.is_drawn]
    drawn = curves[:MAX_CURVES]
    if not drawn:
        return []
    note = f"The first {MAX_CURVES} of {len(curves)} curves." if len(curves) > MAX_CURVES else ""
    x_label = "CPU ranks" if all(curve.is_cpu for curve in drawn) else "GPUs"
    ticks = _ticks(drawn)
    rates = Chart(
        key="scaling",
        title="Throughput over size",
        description="Tokens per second over GPUs. " + " ".join(map(_words, drawn)),
        x_label=x_label,
        y_label="tokens per second",
        series=[series for colour, curve in enumerate(drawn) for series in _rates(curve, colour)],
        log_axes="xy",
        x_ticks=ticks,
        note=f"Dashed: perfect linear scaling. Bars: 95 % intervals, where there are any. Both axes are logarithmic. {note}".strip(),
    )
    efficiencies = Chart(
        key="scaling-efficiency",
        title="Efficiency over size",
        description="Efficiency in percent of perfect linear scaling over GPUs. " + " ".join(map(_words, drawn)),
        x_label=x_label,
        y_label="efficiency in %",
        series=[series for colour, curve in enumerate(drawn) for series in _efficiencies(curve, colour)],
        rules=[Rule(value=100.0, is_dashed=True, name="perfect linear")],
        log_axes="x",
        x_ticks=ticks,
        y_from=0.0,
        note=note,
    )
    return [rates, efficiencies]


def _words(curve: Curve) -> str:
    last = [place for place in _drawn(curve) if place.efficiency][-1]
    percent = 100 * (last.efficiency or 0)
    return f"{curve.title}: {percent:.1f} % at {last.point.num_gpus}."


def _drawn(curve: Curve) -> list[Place]:
    return [place for place in curve.places if place.speed_up]


def _rates(curve: Curve, colour: int) -> Iterable[Series]:
    places = _drawn(curve)
    sizes = [float(place.point.num_gpus or 1) for place in places]
    yield Series(
        name=f"{curve.title}{_KINDS.get(curve.decision.kind, '')}",
        xs=sizes,
        ys=[place.point.tokens_per_second or 1.0 for place in places],
        colour=colour,
        errors=[place.point.interval for place in places],
    )
    yield Series(xs=sizes, ys=[place.perfect_linear or 1.0 for place in places], colour=colour, is_dashed=True)


def _efficiencies(curve: Curve, colour: int) -> Iterable[Series]:
    places = _drawn(curve)
    xs, ys = _points(places)
    yield Series(name=curve.title, colour=colour, xs=xs, ys=ys, errors=[_bounds(place) for place in places])
    for flag, shape in SHAPES.items():
        flagged = [place for place in places if flag in place.flags]
        if flagged:
            xs, ys = _points(flagged)
            yield Series(name=flag, colour=colour, style="points", shape=shape, xs=xs, ys=ys)


def _points(places: Sequence[Place]) -> tuple[list[float], list[float]]:
    sizes = [float(place.point.num_gpus or 1) for place in places]
    return sizes, [100 * (place.efficiency or 0.0) for place in places]


def _bounds(place: Place) -> tuple[float, float] | None:
    pair = place.efficiency_ci95
    return (100 * pair[0], 100 * pair[1]) if pair else None


def _ticks(curves: Sequence[Curve]) -> list[float]:
    sizes = sorted({float(place.point.num_gpus or 1) for curve in curves for place in _drawn(curve)})
    ticks = sizes[:1]
    for size in sizes[1:]:
        if size >= CLOSE * ticks[-1]:
            ticks.append(size)
    return ticks
