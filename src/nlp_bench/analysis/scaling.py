"""Curves over the number of GPUs, strong or weak: speed-up and efficiency of every point over the baseline, with remarks on each.

speed-up = rate / rate of the baseline; efficiency = speed-up / (GPUs / GPUs of the baseline); perfect linear = rate of the
baseline * GPUs / GPUs of the baseline. Under weak scaling the same formulas hold, since rates count tokens and not iterations.
Intervals are those of the ratio of two estimates (`estimate.ratio_of`); the baseline itself has none. The report is a table, JSON, CSV,
markdown and plots.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

from nlp_bench.analysis.points import (
    FOLLOWS,
    Point,
    below_tables,
    doubts_of,
    is_cpu,
    num_gpus_of,
    points_of,
    says_model,
    title,
    unplaced_json,
    varying_in,
    workload_key,
)
from nlp_bench.analysis.repeats import grouped
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import ratio_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import heading
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

SECONDS_PER_DAY = 86400
TOLERANCE = 0.02  # without an interval, an efficiency above 1 + this is called super-linear
DOUBTED, BY_HAND = "doubted", "supplied by hand"  # flags that hold of a point without a curve, too
_CALLED = re.compile(r"(strong|weak)[\s_-]*scal", re.IGNORECASE)


class Kind(str, Enum):
    """What stays the same along a curve. Terms: Amdahl (strong), Gustafson (weak)."""

    STRONG = "strong"  # the global batch: the same work on more GPUs
    WEAK = "weak"  # the batch per GPU: the work grows with the GPUs
    MIXED = "mixed"
    UNKNOWN = "unknown"  # the batch of a point is not stated
    NONE = "none"  # one size only: no curve


@immutable
class Place:
    """One point of a curve."""

    point: Point
    baseline: Point | None  # the point it is compared with, None where no run of that size has a number
    changed: tuple[str, ...] = ()  # settings that differ from the baseline, as "PP 8 -> 16"

    @property
    def is_baseline(self) -> bool:
        """Whether the others are compared with this one."""
        return self.point is self.baseline

    @property
    def perfect_linear(self) -> float | None:
        """Tokens per second if the baseline's rate per GPU held."""
        base = self.baseline
        return (base.tokens_per_second or 0.0) * self.point.num_gpus / base.num_gpus if base else None

    @property
    def speed_up(self) -> float | None:
        """Rate / rate of the baseline."""
        rate, base = self.point.tokens_per_second, self.baseline
        return rate / base.tokens_per_second if rate and base and base.tokens_per_second else None

    @property
    def efficiency(self) -> float | None:
        """Speed-up / (GPUs / GPUs of the baseline); 1 is perfect."""
        rate, linear = self.point.tokens_per_second, self.perfect_linear
        return rate / linear if rate and linear else None

    @property
    def efficiency_ci95(self) -> tuple[float, float] | None:
        """95 % interval of the efficiency, None where one of the two rates has none, and for the baseline."""
        base, point = self.baseline, self.point
        if self.is_baseline or not base or not base.estimate or not point.estimate:
            return None
        ratio, growth = ratio_of(base.estimate, point.estimate), point.num_gpus / base.num_gpus
        return ratio.low / growth, ratio.high / growth

    @property
    def is_super_linear(self) -> bool:
        """Whether the efficiency is above 100 % beyond its interval, or beyond TOLERANCE where there is none; a size below the baseline's usually has more."""
        is_smaller = self.baseline and self.point.num_gpus < self.baseline.num_gpus
        if self.efficiency is None or self.is_baseline or is_smaller or self.efficiency <= 1:
            return False
        interval = self.efficiency_ci95
        return interval[0] > 1 if interval else self.efficiency > 1 + TOLERANCE

    @property
    def flags(self) -> tuple[str, ...]:
        """Short words for the table."""
        found = {
            "super-linear": self.is_super_linear,
            "one sample": self.point.one_sample is not None,
            "other configuration": bool(self.changed),
            "contradicts its run.json": bool(self.point.contradictions),
            DOUBTED: bool(self.point.doubts),
            BY_HAND: bool(self.point.supplied),
            "baseline": self.is_baseline,
        }
        return tuple(word for word, holds in found.items() if holds)


@immutable
class Curve:
    """All sizes of one workload on one machine."""

    title: str
    table: str | None  # the file of a published curve
    kind: Kind
    why: str  # why it is of that kind, in one sentence
    places: tuple[Place, ...]  # sorted by GPUs, then by batch
    notes: tuple[str, ...]  # remarks, one sentence each

    @property
    def heading(self) -> str:
        """Title and kind."""
        words = {Kind.NONE: "one size, no curve", Kind.UNKNOWN: "strong or weak not known"}
        return f"{self.title}: {words.get(self.kind, f'{self.kind.value} scaling')} ({self.why})"

    @property
    def is_drawn(self) -> bool:
        """Whether there are two sizes or more with a number, and a baseline."""
        return self.kind is not Kind.NONE and any(place.is_baseline for place in self.places)

    @property
    def is_cpu(self) -> bool:
        """Whether CPU ranks ran and no GPUs."""
        return all(is_cpu(place.point.entries[0]) for place in self.places)


@immutable
class ScalingReport:
    """Everything that the writers need."""

    curves: Sequence[Curve]
    unplaced: Sequence[RunResult]  # runs whose number of GPUs is not known
    tokens: int
    baseline_gpus: int | None = None  # size of the baseline, where the user chose it

    def to_json(self) -> dict[str, Any]:
        """Return the record nlp-bench/scaling/1; missing is null."""
        return {
            "schema": "nlp-bench/scaling/1",
            "tokens": self.tokens,
            "baseline_gpus": self.baseline_gpus,
            "curves": [
                {
                    "workload": curve.title,
                    "table": curve.table,
                    "kind": curve.kind.value,
                    "why": curve.why,
                    "points": [row(curve, place, self.tokens) for place in curve.places],
                    "notes": list(curve.notes),
                }
                for curve in self.curves
            ],
            "unplaced": unplaced_json(self.unplaced),
        }


def scaling_of(
    entries: Sequence[RunResult], tokens: int, baseline_gpus: int | None = None, *, allow_measured: bool = False
) -> ScalingReport:
    """Return the curves of `entries`. Raises UsageError where no run has the GPUs of the requested baseline."""
    placed = [entry for entry in entries if num_gpus_of(entry)]
    sizes = sorted({num_gpus_of(entry) or 0 for entry in placed})
    if baseline_gpus and baseline_gpus not in sizes:
        there = ", ".join(map(str, sizes)) or "none whose GPUs are known"
        raise UsageError(f"--baseline-gpus {baseline_gpus}: no run has so many GPUs; there are {there}")
    curves = [_curve(group, baseline_gpus, allow_measured=allow_measured) for group in grouped(placed, workload_key)]
    unplaced = [entry for entry in entries if not num_gpus_of(entry)]
    return ScalingReport(curves=curves, unplaced=unplaced, tokens=tokens, baseline_gpus=baseline_gpus)


def _curve(entries: Sequence[RunResult], baseline_gpus: int | None, *, allow_measured: bool) -> Curve:
    found = points_of(entries, allow_measured=allow_measured)
    points = sorted(found, key=lambda p: (p.num_gpus, p.batch or 0, -(p.tokens_per_second or 0)))
    counted = [point for point in points if point.tokens_per_second]
    size = baseline_gpus or min((point.num_gpus for point in counted), default=None)
    # The fastest of that size is the strictest baseline, one that nothing contradicts before others.
    same = [point for point in counted if point.num_gpus == size]
    sound = [point for point in same if not point.doubts] or same
    base = max(sound, key=lambda point: point.tokens_per_second or 0, default=None)
    names = [name for name in varying_in(points) if name not in FOLLOWS]
    places = tuple(Place(point=point, baseline=base, changed=_changed(base, point, names)) for point in points)
    kind, why = _kind(counted)
    published = entries[0].published
    return Curve(
        title=title(entries[0]),
        table=published.table if published else None,
        kind=kind,
        why=why,
        places=places,
        notes=(
            *_baseline_notes(points, base, baseline_gpus),
            *_misnamed(points, kind),
            *(note for place in places for note in _place_notes(place)),
            *doubts_of(points),
            *_interval_notes(counted),
            *_published_notes(places),
        ),
    )


def _kind(points: Sequence[Point]) -> tuple[Kind, str]:
    """Decide from the points that have a number; return also why."""
    pairs = sorted({(point.num_gpus, point.batch) for point in points}, key=lambda pair: (pair[0], pair[1] or 0))
    sizes, batches = {gpus for gpus, _ in pairs}, {batch for _, batch in pairs}
    if len(sizes) < 2:
        return Kind.NONE, f"all runs with a number have {sizes.pop()} GPUs" if sizes else "no run has a number"
    if None in batches:
        return Kind.UNKNOWN, "the batch is not stated, so nobody can say what stays the same"
    if len(batches) == 1:
        return Kind.STRONG, f"the global batch is {batches.pop()} at every size"
    per_gpu = (pairs[0][1] or 0) / pairs[0][0]
    if all((batch or 0) * pairs[0][0] == (pairs[0][1] or 0) * gpus for gpus, batch in pairs):
        return Kind.WEAK, f"the batch grows with the GPUs, {per_gpu:.4g} samples per GPU at every size"
    listing = ", ".join(f"{batch} on {gpus}" for gpus, batch in pairs[:8]) + (", ..." if len(pairs) > 8 else "")
    return Kind.MIXED, f"neither the batch nor the batch per GPU stays the same (batch on GPUs: {listing})"


def _changed(base: Point | None, point: Point, names: Sequence[str]) -> tuple[str, ...]:
    if base is None or point is base:
        return ()
    pairs = ((name, base.settings.get(name), point.settings.get(name)) for name in names)
    differing = ((name, a.value, b.value) for name, a, b in pairs if a and b and a.value != b.value)
    return tuple(f"{heading(name)} {one} -> {two}" for name, one, two in differing)


def _baseline_notes(points: Sequence[Point], base: Point | None, baseline_gpus: int | None) -> Iterator[str]:
    sizes = {point.num_gpus for point in points}
    if base is None:
        wanted = f" with {baseline_gpus} GPUs" if baseline_gpus else ""
        yield f"baseline missing: no run{wanted} has a number, so there is no speed-up"
    elif not baseline_gpus and min(sizes) < base.num_gpus:
        yield f"baseline missing: the smallest size, {min(sizes)} GPUs, has no number; {base.num_gpus} GPUs are the baseline instead"
    if len(sizes) > 1 and not says_model(points[0].entries[0]):
        yield "the logs do not say which model they trained: that all sizes trained the same one is taken on trust"
    if base and base.doubts and len(sizes) > 1:
        yield "the baseline is doubted, and every speed-up and efficiency with it"
    if base and base.one_sample and len(sizes) > 1:
        yield f"the baseline is one sample ({base.one_sample}): every efficiency hangs on it"


def _misnamed(points: Sequence[Point], kind: Kind) -> list[str]:
    """Return that a source calls the curve strong where it is weak, or the other way round."""
    if kind not in {Kind.STRONG, Kind.WEAK}:
        return []
    entries = [entry for point in points for entry in point.entries]
    names = [(e.published.source, e.published.table) if e.published else (e.source,) for e in entries]
    for source in (name for pair in names for name in pair):
        called = _CALLED.search(source)
        if called and (word := called[1].lower()) != kind.value:
            return [f"the source calls it {word} scaling ({source}), the batch sizes make it {kind.value} scaling"]
    return []


def _place_notes(place: Place) -> Iterator[str]:
    point, first = place.point, place.point.entries[0]
    counts = [(point.num_gpus, "CPU rank" if is_cpu(first) else "GPU"), (first.workload.count("nodes"), "node")]
    size, *nodes = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    name = size + (f" ({nodes[0]})" if nodes else "")
    if place.is_super_linear:
        above = "beyond its interval" if place.efficiency_ci95 else "without an interval to judge it by"
        yield (
            f"{name}: super-linear, {100 * (place.efficiency or 0):.1f} % of perfect linear scaling, {above}; "
            "look for a slow baseline or another configuration before believing it"
        )
    if point.one_sample and point.tokens_per_second:
        yield f"{name}: one sample: {point.one_sample}"
    if place.changed:
        yield f"{name}: configured differently from the baseline: {', '.join(place.changed)}"
    if point.remark:
        yield f"{name}: {point.remark}"


def _interval_notes(points: Sequence[Point]) -> list[str]:
    if len({point.num_gpus for point in points}) < 2:
        return []
    if all(point.published for point in points):
        return ["published rates: without logs there is no window and no interval"]
    if all(point.num_counted == 1 for point in points):
        return ["one run per point: the intervals hold the scatter within each run, not what runs differ by"]
    return []


def agrees(computed: float, printed: str, slack: float = 0.0) -> bool:
    """Say whether `computed` is `printed` within half a unit of the last printed digit, and `slack` more: "1.84" allows 0.005."""
    half_unit = float(Decimal((0, (5,), int(Decimal(printed).as_tuple().exponent) - 1)))
    return abs(computed - float(printed)) <= half_unit + slack + 1e-9 * abs(computed)


def _published_notes(places: Sequence[Place]) -> Iterator[str]:
    """Yield where a published table contradicts its own rates, one sentence each."""
    base = places[0].baseline
    # Published speed-ups are over the publication's baseline: over another one the computed ones must differ.
    is_same_baseline = base and base.published and base.published.speed_up and float(base.published.speed_up) == 1
    for place in places:
        found, rate, size = place.point.published, place.point.tokens_per_second, f"{place.point.num_gpus} GPUs"
        if not found or not rate:
            continue
        if base and is_same_baseline:
            for printed, who in ((found.speed_up, "table"), (found.stated_speed_up, "text")):
                if printed and not agrees(place.speed_up or 0.0, printed):
                    text = f"the {who} of the publication says {printed}x, its rates give {place.speed_up:.2f}x"
                    yield f"{size}: {text} ({found.source})"
            # The printed rate of the baseline is rounded, and the factor makes its rounding larger.
            slack = 0.5 * place.point.num_gpus / base.num_gpus
            if found.perfect_linear and not agrees(place.perfect_linear or 0.0, found.perfect_linear, slack):
                yield f"{size}: published perfect linear rate {found.perfect_linear}, recomputed {place.perfect_linear:.0f}"
        if not found.train_tokens:
            continue
        days = found.train_tokens / rate / SECONDS_PER_DAY
        is_same = found.train_days == found.stated_train_days
        stated_days = [(found.train_days, "table and text say" if is_same else "the table says")]
        for printed, who in stated_days if is_same else [*stated_days, (found.stated_train_days, "the text says")]:
            if printed and not agrees(days, printed):
                implied = found.train_tokens / (float(printed) * SECONDS_PER_DAY)
                yield (
                    f"{size}: {who} {printed} days, {found.train_tokens:,} tokens at the published rate take {days:.2f}; "
                    f"{printed} days would be {implied:,.0f} tokens/s, {100 * implied / rate:.0f} % of that rate ({found.source})"
                )


ROW = (
    "workload", "table", "kind", "nodes", "num_gpus", "global_batch_size", "outcome", "num_runs", "tokens_per_second",
    "tokens_per_second_ci95_low", "tokens_per_second_ci95_high", "perfect_linear_tokens_per_second", "speed_up", "efficiency",
    "efficiency_ci95_low", "efficiency_ci95_high", "tokens_per_second_per_gpu", "time_to_train_s", "time_to_train_days",
    "published_perfect_linear_tokens_per_second", "published_speed_up", "stated_speed_up", "train_tokens", "train_days",
    "published_train_days", "stated_train_days", "flags", "changed", "cause", "supplied", "sources", "doubts",
)  # fmt: skip
"""Columns of the CSV and keys of a point; efficiency 1 is perfect, flags, sources and the like are separated by "; " in the CSV."""


def row(curve: Curve, place: Place, tokens: int) -> dict[str, Any]:
    """Return one point, a value for each of ROW; missing is None."""
    point, found = place.point, place.point.published
    rate, time_s = point.tokens_per_second, time_to_report_s(tokens, point.tokens_per_second)
    printed = [
        float(value) if found and (value := getattr(found, name)) else None
        for name in ("perfect_linear", "speed_up", "stated_speed_up", "train_days", "stated_train_days")
    ]
    train_tokens = found.train_tokens if found else None
    values = (
        curve.title, curve.table, curve.kind.value, point.entries[0].workload.count("nodes"), point.num_gpus, point.batch,
        point.outcome, point.num_counted, rate, *(point.interval or (None, None)), place.perfect_linear, place.speed_up,
        place.efficiency, *(place.efficiency_ci95 or (None, None)), rate / point.num_gpus if rate else None, time_s,
        time_s / SECONDS_PER_DAY if time_s else None, *printed[:3], train_tokens,
        train_tokens / rate / SECONDS_PER_DAY if train_tokens and rate else None, *printed[3:], list(place.flags),
        list(place.changed), point.cause, [each.cell for each in point.supplied], [entry.source for entry in point.entries],
        list(point.doubts),
    )  # fmt: skip
    return dict(zip(ROW, values, strict=True))


def _csv(report: ScalingReport) -> str:
    return as_csv(ROW, (row(curve, place, report.tokens) for curve in report.curves for place in curve.places))


def _document(report: ScalingReport, style: Style) -> str:
    curves = [curve for curve in report.curves if curve.kind is not Kind.NONE]
    single = [curve for curve in report.curves if curve.kind is Kind.NONE]
    parts: list[tuple[str, list[Curve], Iterable[str]]] = [(curve.heading, [curve], curve.notes) for curve in curves]
    if single:
        notes = [f"{curve.title}, {note}" for curve in single for note in curve.notes]
        parts.append(("one size only: no scaling", single, notes))
    blocks = list[list[str]]()
    for heading_of_part, group, sentences in parts:
        places = [(curve, place) for curve in group for place in curve.places]
        table = style.table(curve_table(places, report.tokens))
        blocks += [[*style.heading(heading_of_part), *table], [*map(style.sentence, sentences)]]
    points = (place.point for curve in report.curves for place in curve.places)
    return as_document(*blocks, *below_tables(style, report.unplaced, _legend(report), points))


FORMATS: dict[str, Callable[[ScalingReport], str]] = {
    **documents(_document, lambda report: report.to_json()),
    "csv": _csv,
}


def curve_table(named: Sequence[tuple[Curve, Place]], tokens: int) -> list[Column]:
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
    yield "runs", str(point.num_runs) if point.num_runs > 1 else ""
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
    speed_up = f"speed-up: rate / rate of the baseline ({size}). efficiency: speed-up / growth in GPUs; 100 % is perfect linear scaling."
    kinds = (
        "strong: the batch stays the same. weak: the batch grows with the GPUs. Both are decided from the batch sizes."
    )
    curves = [curve for curve in report.curves if curve.kind is not Kind.NONE]
    is_compared = any(place.speed_up for curve in curves for place in curve.places)
    is_named = any(curve.kind is not Kind.MIXED for curve in curves)
    return [*([speed_up] if is_compared else []), *([kinds] if is_named else [])]


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
