"""A report on scaling as table, JSON, CSV, markdown and plots."""

from collections.abc import Callable, Iterable, Sequence

from nlp_bench.analysis.scaling import ROW, Curve, Kind, Place, ScalingReport, row, train_days
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.show.chart import Chart, Rule, Series, Shape
from nlp_bench.show.table import (
    Column,
    Style,
    as_csv,
    documents,
    duration,
    interval,
    json_text,
    number,
    rate,
    shown,
    tokens_in_words,
)

Named = tuple[Curve, Place]


def csv(report: ScalingReport) -> str:
    """Return one line per point with full precision."""
    rows = [row(curve, place, report.tokens) for curve in report.curves for place in curve.places]
    lists = ("flags", "changed", "sources")
    return as_csv(ROW, [{**each, **{name: "; ".join(each[name]) for name in lists}} for each in rows])


def _document(report: ScalingReport, style: Style) -> str:
    blocks: list[list[str]] = []
    for curve in report.curves:
        if curve.decision.kind is not Kind.NONE:
            places = [(curve, place) for place in curve.places]
            blocks += _block(
                style.heading(_heading(curve)), style.table(columns(places, report)), map(style.sentence, curve.notes)
            )
    single = [(curve, place) for curve in report.curves if curve.decision.kind is Kind.NONE for place in curve.places]
    if single:
        notes = [f"{curve.title}, {note}" for curve in _curves(single) for note in curve.notes]
        blocks += _block(
            style.heading("one size only: no scaling"), style.table(columns(single, report)), map(style.sentence, notes)
        )
    blocks += [[style.sentence(line) for line in lines] for lines in (_unplaced(report), legend(report)) if lines]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


FORMATS: dict[str, Callable[[ScalingReport], str]] = {
    **documents(_document),
    "json": lambda report: json_text(report.to_json()),
    "csv": csv,
}


def _block(heading: list[str], grid: list[str], notes: Iterable[str]) -> list[list[str]]:
    said = list(notes)
    return [[*heading, *grid], *([said] if said else [])]


def _curves(named: Sequence[Named]) -> list[Curve]:
    return list({id(curve): curve for curve, _ in named}.values())


def _heading(curve: Curve) -> str:
    return f"{curve.title}: {curve.decision.kind.words} ({curve.decision.why})"


def columns(named: Sequence[Named], report: ScalingReport) -> list[Column]:
    """Return the columns that have anything in them, for the points of one curve or for those that are alone."""
    places = [place for _, place in named]
    is_curve = len(_curves(named)) == 1 and named[0][0].decision.kind is not Kind.NONE
    points = [place.point for place in places]
    published = [point.entries[0].published for point in points]
    ends = ["" if point.tokens_per_second else point.outcome for point in points]
    made: list[tuple[str, Iterable[str], bool]] = [
        ("workload", ("" if is_curve else curve.title for curve, _ in named), True),
        ("nodes", (number(point.nodes) for point in points), False),
        (_ranks(named), (number(point.num_gpus) for point in points), False),
        ("batch", (number(point.batch) for point in points), False),
        ("runs", (str(len(point.entries)) if len(point.entries) > 1 else "" for point in points), False),
        ("tokens/s", (rate(point.tokens_per_second) for point in points), False),
        ("95 %\ninterval", (interval(point.interval) for point in points), False),
        ("perfect\nlinear", (rate(place.perfect_linear) if is_curve else "" for place in places), False),
        ("published\nlinear", (p.perfect_linear or "" if p else "" for p in published), False),
        ("speed-up", (_times(place.speed_up) if is_curve else "" for place in places), False),
        ("published\nspeed-up", (f"{p.speed_up}x" if p and p.speed_up else "" for p in published), False),
        ("efficiency", (_percent(place.efficiency) if is_curve else "" for place in places), False),
        ("95 %\ninterval", (interval(place.efficiency_ci95, 100, 1) if is_curve else "" for place in places), False),
        ("tokens/s\n/GPU", (_per_gpu(place) for place in places), False),
        (
            f"time for\n{tokens_in_words(report.tokens)} tokens",
            (duration(time_to_report_s(report.tokens, point.tokens_per_second)) for point in points),
            False,
        ),
        (
            "training\ntokens",
            (f"{tokens_in_words(p.train_tokens)}" if p and p.train_tokens else "" for p in published),
            False,
        ),
        ("days", (_days(place) for place in places), False),
        ("published\ndays", (p.train_days or "" if p else "" for p in published), False),
        ("outcome", ends, True),
        ("flags", (", ".join(place.flags) if is_curve else "" for place in places), True),
    ]
    return shown([Column(heading=name, cells=tuple(cells), is_text=is_text) for name, cells, is_text in made])


def _ranks(named: Sequence[Named]) -> str:
    return "CPU ranks" if all(curve.is_cpu for curve, _ in named) else "GPUs"


def _times(speed_up: float | None) -> str:
    return "" if speed_up is None else f"{speed_up:.2f}x"


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.1f} %"


def _per_gpu(place: Place) -> str:
    found, gpus = place.point.tokens_per_second, place.point.num_gpus
    return f"{found / gpus:.1f}" if found and gpus else ""


def _days(place: Place) -> str:
    found, tokens_per_second = place.point.entries[0].published, place.point.tokens_per_second
    if not found or not found.train_tokens or not tokens_per_second:
        return ""
    return f"{train_days(found.train_tokens, tokens_per_second):.2f}"


def _unplaced(report: ScalingReport) -> list[str]:
    lines = []
    for entry in report.unplaced:
        reason = (
            entry.reason_texts[0]
            if entry.reason_texts and not entry.has_number
            else "the number of GPUs is not in the log"
        )
        lines.append(f"{entry.source}: not placed, {reason}")
    return lines


def legend(report: ScalingReport) -> list[str]:
    """Return what the columns mean, in plain sentences."""
    size = f"the runs with {report.baseline_gpus} GPUs" if report.baseline_gpus else "the smallest size"
    lines = [
        f"speed-up: rate / rate of the baseline ({size}). efficiency: speed-up / growth in GPUs; 100 % is perfect linear scaling.",
        "strong: the batch stays the same. weak: the batch grows with the GPUs. Both are decided from the batch sizes.",
    ]
    return lines if any(curve.decision.kind is not Kind.NONE for curve in report.curves) else []


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
