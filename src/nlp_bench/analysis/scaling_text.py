"""A report on scaling as table, JSON, CSV, markdown and plots."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from nlp_bench.analysis.points import legend_of_stars, not_placed
from nlp_bench.analysis.scaling import BY_HAND, DOUBTED, ROW, SECONDS_PER_DAY, Curve, Kind, Place, ScalingReport, row
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.show.chart import Chart, Rule, Series, Shape
from nlp_bench.show.table import (
    Column,
    Style,
    as_csv,
    as_document,
    columns_of,
    documents,
    duration,
    interval,
    number,
    percentage,
    rate,
    shown,
    tokens_in_words,
)

Named = tuple[Curve, Place]


def _csv(report: ScalingReport) -> str:
    return as_csv(ROW, (row(curve, place, report.tokens) for curve in report.curves for place in curve.places))


def _document(report: ScalingReport, style: Style) -> str:
    curves = [curve for curve in report.curves if curve.kind is not Kind.NONE]
    single = [curve for curve in report.curves if curve.kind is Kind.NONE]
    parts: list[tuple[str, list[Curve], Iterable[str]]] = [(curve.heading, [curve], curve.notes) for curve in curves]
    if single:
        notes = [f"{curve.title}, {note}" for curve in single for note in curve.notes]
        parts.append(("one size only: no scaling", single, notes))
    blocks = []
    for heading, group, sentences in parts:
        places = [(curve, place) for curve in group for place in curve.places]
        blocks.append([*style.heading(heading), *style.table(curve_table(places, report.tokens))])
        blocks.append([*map(style.sentence, sentences)])
    stars = legend_of_stars(place.point for curve in report.curves for place in curve.places)
    below = (not_placed(report.unplaced), [*(_legend(report) if curves else []), *stars])
    return as_document(*blocks, *([*map(style.sentence, lines)] for lines in below))


FORMATS: dict[str, Callable[[ScalingReport], str]] = {
    **documents(_document, lambda report: report.to_json()),
    "csv": _csv,
}


def curve_table(named: Sequence[Named], tokens: int) -> list[Column]:
    """Return the columns that have anything in them, for the points of one curve or for those that are alone."""
    ranks = "CPU ranks" if all(curve.is_cpu for curve, _ in named) else "GPUs"
    rows = [list(_cells(curve, place, ranks, tokens)) for curve, place in named]
    return shown(columns_of(rows, {"workload", "outcome", "flags"}))


def _cells(curve: Curve, place: Place, ranks: str, tokens: int) -> Iterator[tuple[str, str]]:
    point, found = place.point, place.point.published
    tokens_per_second, is_curve = point.tokens_per_second, curve.kind is not Kind.NONE
    compared = place if is_curve else Place(point=point, baseline=None)
    speed_up, train_tokens = compared.speed_up, found.train_tokens if found else None
    yield "workload", "" if is_curve else curve.title
    yield "nodes", number(point.entries[0].workload.count("nodes"))
    yield ranks, point.starred(number(point.num_gpus), "num_gpus", is_rate=False)
    yield "batch", point.starred(number(point.batch), "global_batch_size", is_rate=False)
    yield "runs", str(len(point.entries)) if len(point.entries) > 1 else ""
    yield "tokens/s", point.starred(rate(tokens_per_second))
    yield "95 %\ninterval", interval(point.interval)
    yield "perfect\nlinear", rate(compared.perfect_linear)
    yield "published\nlinear", (found and found.perfect_linear) or ""
    yield "speed-up", f"{speed_up:.2f}x" if speed_up else ""
    yield "published\nspeed-up", f"{found.speed_up}x" if found and found.speed_up else ""
    yield "efficiency", percentage(compared.efficiency, 1)
    yield "95 %\ninterval", interval(compared.efficiency_ci95, 100, 1)
    per_gpu = f"{tokens_per_second / point.num_gpus:.1f}" if tokens_per_second else ""
    yield "tokens/s\n/GPU", point.starred(per_gpu, "num_gpus")
    time = duration(time_to_report_s(tokens, tokens_per_second))
    yield f"time for\n{tokens_in_words(tokens)} tokens", point.starred(time)
    yield "training\ntokens", tokens_in_words(train_tokens) if train_tokens else ""
    days = train_tokens / tokens_per_second / SECONDS_PER_DAY if train_tokens and tokens_per_second else None
    yield "days", number(days)
    yield "published\ndays", (found and found.train_days) or ""
    yield "outcome", "" if tokens_per_second else point.outcome
    yield "flags", ", ".join(flag for flag in place.flags if is_curve or flag in {DOUBTED, BY_HAND})


def _legend(report: ScalingReport) -> list[str]:
    size = f"the runs with {report.baseline_gpus} GPUs" if report.baseline_gpus else "the smallest size"
    return [
        f"speed-up: rate / rate of the baseline ({size}). efficiency: speed-up / growth in GPUs; 100 % is perfect linear scaling.",
        "strong: the batch stays the same. weak: the batch grows with the GPUs. Both are decided from the batch sizes.",
    ]


MAX_CURVES = 6  # as many have a colour of their own
CLOSE = 1.15  # sizes nearer than this factor share one label
_KINDS = {Kind.STRONG: ", strong", Kind.WEAK: ", weak"}
SHAPES: dict[str, Shape] = {"super-linear": "triangle", "one sample": "square", DOUBTED: "cross"}


def scaling_charts(report: ScalingReport) -> list[Chart]:
    """Return the plot of the rates and that of the efficiencies; none where no curve has two sizes."""
    curves = [curve for curve in report.curves if curve.is_drawn]
    drawn = [(curve, [place for place in curve.places if place.speed_up]) for curve in curves[:MAX_CURVES]]
    if not drawn:
        return []
    note = f"The first {MAX_CURVES} of {len(curves)} curves." if len(curves) > MAX_CURVES else ""
    x_label = "CPU ranks" if all(curve.is_cpu for curve, _ in drawn) else "GPUs"
    lasts = [(curve.title, places[-1]) for curve, places in drawn]
    words = " ".join(f"{name}: {percentage(last.efficiency, 1)} at {last.point.num_gpus}." for name, last in lasts)
    ticks: list[float] = []
    for size in sorted({float(place.point.num_gpus) for _, places in drawn for place in places}):
        ticks += [size] if not ticks or size >= CLOSE * ticks[-1] else []
    rates = Chart(
        key="scaling",
        title="Throughput over size",
        description=f"Tokens per second over GPUs. {words}",
        x_label=x_label,
        y_label="tokens per second",
        series=[series for colour, (curve, places) in enumerate(drawn) for series in _rates(curve, places, colour)],
        log_axes="xy",
        x_ticks=ticks,
        note=f"Dashed: perfect linear scaling. Bars: 95 % intervals, where there are any. Both axes are logarithmic. {note}".strip(),
    )
    efficiencies = Chart(
        key="scaling-efficiency",
        title="Efficiency over size",
        description=f"Efficiency in percent of perfect linear scaling over GPUs. {words}",
        x_label=x_label,
        y_label="efficiency in %",
        series=[
            series for colour, (curve, places) in enumerate(drawn) for series in _efficiencies(curve, places, colour)
        ],
        rules=[Rule(value=100.0, is_dashed=True, name="perfect linear")],
        log_axes="x",
        x_ticks=ticks,
        y_from=0.0,
        note=note,
    )
    return [rates, efficiencies]


def _rates(curve: Curve, places: Sequence[Place], colour: int) -> Iterator[Series]:
    sizes, name = [float(place.point.num_gpus) for place in places], f"{curve.title}{_KINDS.get(curve.kind, '')}"
    ys, errors = [place.point.tokens_per_second or 1.0 for place in places], [place.point.interval for place in places]
    yield Series(name=name, xs=sizes, ys=ys, colour=colour, errors=errors)
    yield Series(xs=sizes, ys=[place.perfect_linear or 1.0 for place in places], colour=colour, is_dashed=True)


def _efficiencies(curve: Curve, places: Sequence[Place], colour: int) -> Iterator[Series]:
    bars = [(100 * pair[0], 100 * pair[1]) if (pair := place.efficiency_ci95) else None for place in places]
    points = [(float(place.point.num_gpus), 100 * (place.efficiency or 0.0)) for place in places]
    xs, ys = zip(*points, strict=True)
    yield Series(name=curve.title, colour=colour, xs=xs, ys=ys, errors=bars)
    for flag, shape in SHAPES.items():
        flagged = [point for point, place in zip(points, places, strict=True) if flag in place.flags]
        if flagged:
            xs, ys = zip(*flagged, strict=True)
            yield Series(name=flag, colour=colour, style="points", shape=shape, xs=xs, ys=ys)
