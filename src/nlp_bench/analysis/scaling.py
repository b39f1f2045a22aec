"""Curves over the number of GPUs, strong or weak: speed-up and efficiency of every point over the baseline, with what to know about each.

speed-up = rate / rate of the baseline; efficiency = speed-up / (GPUs / GPUs of the baseline); perfect linear = rate of the
baseline * GPUs / GPUs of the baseline. Under weak scaling the same formulas hold, since rates count tokens and not iterations.
Intervals are those of the ratio of two estimates (`estimate.ratio_of`); the baseline itself has none.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from nlp_bench.analysis.observation import device_of, num_gpus_of, says_model, title, workload_key
from nlp_bench.analysis.points import Point, points_of, unplaced_json, varying_in
from nlp_bench.errors import UsageError
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.estimate import ratio_of
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import heading

_CALLED = re.compile(r"(strong|weak)[\s_-]*scal", re.IGNORECASE)


class Kind(str, Enum):
    """What stays the same along a curve. Terms: Amdahl (strong), Gustafson (weak)."""

    STRONG = "strong"
    """The global batch: the same work on more GPUs."""
    WEAK = "weak"
    """The batch per GPU: the work grows with the GPUs."""
    MIXED = "mixed"
    """Neither."""
    UNKNOWN = "unknown"
    """The batch of a point is not stated."""
    NONE = "none"
    """One size only: no curve."""

    @property
    def words(self) -> str:
        """How a heading names it."""
        return {"none": "one size, no curve", "unknown": "strong or weak not known"}.get(
            self.value, f"{self.value} scaling"
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The kind of a curve and why."""

    kind: Kind
    """What stays the same."""
    why: str
    """One sentence."""


def decide(points: Sequence[Point]) -> Decision:
    """Decide from the points that have a number and whose GPUs are known."""
    sizes = sorted({point.num_gpus for point in points if point.num_gpus})
    if len(sizes) < 2:
        return Decision(
            kind=Kind.NONE, why=f"all runs with a number have {sizes[0]} GPUs" if sizes else "no run has a number"
        )
    pairs = sorted({(point.num_gpus or 1, point.batch) for point in points}, key=lambda pair: (pair[0], pair[1] or 0))
    if any(batch is None for _, batch in pairs):
        return Decision(kind=Kind.UNKNOWN, why="the batch is not stated, so nobody can say what stays the same")
    batches = {batch for _, batch in pairs}
    if len(batches) == 1:
        return Decision(kind=Kind.STRONG, why=f"the global batch is {batches.pop()} at every size")
    first_gpus, first_batch = pairs[0]
    if all((batch or 0) * first_gpus == (first_batch or 0) * gpus for gpus, batch in pairs):
        per_gpu = (first_batch or 0) / first_gpus
        return Decision(
            kind=Kind.WEAK, why=f"the batch grows with the GPUs, {per_gpu:.4g} samples per GPU at every size"
        )
    listing = ", ".join(f"{batch} on {gpus}" for gpus, batch in pairs[:8]) + (", ..." if len(pairs) > 8 else "")
    return Decision(
        kind=Kind.MIXED, why=f"neither the batch nor the batch per GPU stays the same (batch on GPUs: {listing})"
    )


def misnamed(points: Sequence[Point], kind: Kind) -> str | None:
    """Say that a source calls the curve strong where it is weak, or the other way round."""
    for point in points:
        for entry in point.entries:
            sources = (entry.published.source, entry.published.table) if entry.published else (entry.source,)
            for source in sources:
                called = _CALLED.search(source)
                if called and kind in {Kind.STRONG, Kind.WEAK} and called[1].lower() != kind.value:
                    word = called[1].lower()
                    return (
                        f"the source calls it {word} scaling ({source}), the batch sizes make it {kind.value} scaling"
                    )
    return None


SECONDS_PER_DAY = 86400


def train_days(tokens: int, tokens_per_second: float) -> float:
    """Return days for a training on `tokens`."""
    return tokens / tokens_per_second / SECONDS_PER_DAY


def agrees(computed: float, printed: str, slack: float = 0.0) -> bool:
    """Say whether `computed` is `printed` within half a unit of the last printed digit, and `slack` more."""
    return abs(computed - float(printed)) <= half_unit(printed) + slack + 1e-9 * abs(computed)


def half_unit(printed: str) -> float:
    """Return half a unit of the last printed digit: "1.84" gives 0.005, "16" gives 0.5."""
    exponent = Decimal(printed).as_tuple().exponent
    return float(Decimal((0, (5,), int(exponent) - 1)))


def published_notes(places: Sequence["Place"]) -> Iterable[str]:
    """Return where a published table contradicts its own rates, one sentence each."""
    base = next((place for place in places if place.is_baseline), None)
    # Published speed-ups are over the publication's baseline: over another one ours must differ.
    found = base.point.entries[0].published if base else None
    is_theirs = base is not None and found is not None and found.speed_up is not None and float(found.speed_up) == 1
    for place in places:
        if place.point.entries[0].published and place.point.tokens_per_second:
            if base and is_theirs:
                yield from _speed_ups(place)
                yield from _linear(place, base)
            yield from _days(place)


def _speed_ups(place: "Place") -> Iterable[str]:
    found = place.point.entries[0].published
    if not found or place.speed_up is None:
        return
    for printed, who in ((found.speed_up, "table"), (found.stated_speed_up, "text")):
        if printed and not agrees(place.speed_up, printed):
            said = f"the {who} of the publication says {printed}x, its rates give {place.speed_up:.2f}x"
            yield f"{_gpus(place)}: {said} ({found.source})"


def _linear(place: "Place", base: "Place") -> Iterable[str]:
    found = place.point.entries[0].published
    if not found or not found.perfect_linear or not place.perfect_linear or not place.point.num_gpus:
        return
    # The printed rate of the baseline is rounded, and the factor makes its rounding larger.
    slack = half_unit("1") * place.point.num_gpus / (base.point.num_gpus or 1)
    if not agrees(place.perfect_linear, found.perfect_linear, slack):
        yield f"{_gpus(place)}: published perfect linear rate {found.perfect_linear}, recomputed {place.perfect_linear:.0f}"


def _days(place: "Place") -> Iterable[str]:
    found, rate = place.point.entries[0].published, place.point.tokens_per_second
    if not found or not found.train_tokens or not rate:
        return
    days = train_days(found.train_tokens, rate)
    same = found.train_days == found.stated_train_days
    said = [(found.train_days, "table and text say" if same else "the table says")]
    said += [] if same else [(found.stated_train_days, "the text says")]
    for printed, who in said:
        if printed and not agrees(days, printed):
            implied = found.train_tokens / (float(printed) * SECONDS_PER_DAY)
            yield (
                f"{_gpus(place)}: {who} {printed} days, {found.train_tokens:,} tokens at the published rate take {days:.2f}; "
                f"{printed} days would be {implied:,.0f} tokens/s, {100 * implied / rate:.0f} % of that rate ({found.source})"
            )


def _gpus(place: "Place") -> str:
    return f"{place.point.num_gpus} GPUs"


TOLERANCE = 0.02
"""Without an interval, an efficiency above 1 + this is called super-linear."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One point of a curve."""

    point: Point
    perfect_linear: float | None = None
    """Tokens per second if the baseline's rate per GPU held."""
    speed_up: float | None = None
    """Rate / rate of the baseline."""
    efficiency: float | None = None
    """Speed-up / (GPUs / GPUs of the baseline); 1 is perfect."""
    baseline: Point | None = None
    """The point it is held against."""
    is_baseline: bool = False
    """Whether the others are held against this one."""
    changed: tuple[str, ...] = ()
    """What is configured differently from the baseline, as "PP 8 -> 16"."""

    @property
    def efficiency_ci95(self) -> tuple[float, float] | None:
        """95 % interval of the efficiency, None where one of the two rates has none, and for the baseline."""
        base, point = self.baseline, self.point
        if self.is_baseline or not base or not base.estimate or not point.estimate:
            return None
        ratio = ratio_of(base.estimate, point.estimate)
        growth = (point.num_gpus or 1) / (base.num_gpus or 1)
        return ratio.low / growth, ratio.high / growth

    @property
    def is_super_linear(self) -> bool:
        """Whether the efficiency is above 100 % beyond its interval, or beyond TOLERANCE where there is none."""
        if self.efficiency is None or self.is_baseline or self.efficiency <= 1:
            return False
        interval = self.efficiency_ci95
        return interval[0] > 1 if interval else self.efficiency > 1 + TOLERANCE

    @property
    def flags(self) -> tuple[str, ...]:
        """Short words for the table."""
        point = self.point
        found = {
            "super-linear": self.is_super_linear,
            "one sample": point.one_sample is not None,
            "other configuration": bool(self.changed),
            "contradicts its run.json": bool(point.contradictions),
            "baseline": self.is_baseline,
        }
        return tuple(word for word, holds in found.items() if holds)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """All sizes of one workload on one machine."""

    title: str
    table: str | None
    """The file of a published curve."""
    decision: Decision
    places: tuple[Place, ...]
    """Sorted by GPUs, then by batch."""
    notes: tuple[str, ...]
    """What to know, one sentence each."""

    @property
    def baseline(self) -> Place | None:
        """The point that the others are held against, None where there is none."""
        return next((place for place in self.places if place.is_baseline), None)

    @property
    def is_drawn(self) -> bool:
        """Whether there are two sizes or more with a number, and a baseline."""
        return self.decision.kind is not Kind.NONE and self.baseline is not None

    @property
    def is_cpu(self) -> bool:
        """Whether CPU ranks ran and no GPUs."""
        return all(device_of(place.point.entries[0]) == "cpu" for place in self.places)


def curves_of(
    entries: Iterable[RunResult], baseline_gpus: int | None = None, *, allow_measured: bool = False
) -> list[Curve]:
    """Return the curves of all runs whose GPUs are known, in the order of their first runs."""
    groups: dict[object, list[RunResult]] = {}
    for entry in entries:
        groups.setdefault(workload_key(entry), []).append(entry)
    return [_curve(group, baseline_gpus, allow_measured=allow_measured) for group in groups.values()]


def _curve(entries: Sequence[RunResult], baseline_gpus: int | None, *, allow_measured: bool) -> Curve:
    found = points_of(entries, allow_measured=allow_measured)
    points = sorted(found, key=lambda p: (p.num_gpus or 0, p.batch or 0, -(p.tokens_per_second or 0)))
    counted = [point for point in points if point.tokens_per_second]
    base = _baseline(counted, baseline_gpus)
    names = varying_in(points)
    places = tuple(_place(point, base, names) for point in points)
    decision = decide(counted)
    first = entries[0].published
    notes = (*_baseline_notes(points, base, baseline_gpus), misnamed(points, decision.kind), *_notes(places))
    return Curve(
        title=title(entries[0]),
        table=first.table if first else None,
        decision=decision,
        places=places,
        notes=tuple(note for note in notes if note),
    )


def _baseline(points: Sequence[Point], baseline_gpus: int | None) -> Point | None:
    """Return the fastest point of the smallest size (or of the size that was asked for): the hardest to be held against."""
    sizes = {point.num_gpus for point in points}
    size = baseline_gpus or min((size for size in sizes if size), default=None)
    found = [point for point in points if point.num_gpus == size]
    return max(found, key=lambda point: point.tokens_per_second or 0, default=None)


def _place(point: Point, base: Point | None, names: Sequence[str]) -> Place:
    rate, gpus = point.tokens_per_second, point.num_gpus
    base_rate, base_gpus = (base.tokens_per_second, base.num_gpus) if base else (None, None)
    if base is None or not gpus or not base_rate or not base_gpus:
        return Place(point=point)
    changed = () if point is base else _changed(base, point, names)
    linear = base_rate * gpus / base_gpus
    if not rate:
        return Place(point=point, perfect_linear=linear, changed=changed)
    return Place(
        point=point,
        perfect_linear=linear,
        speed_up=rate / base_rate,
        efficiency=rate / linear,
        baseline=base,
        is_baseline=point is base,
        changed=changed,
    )


_FOLLOWS = ("global_batch_size", "data_parallel_size", "gradient_accumulation_steps")


def _changed(base: Point, point: Point, names: Sequence[str]) -> tuple[str, ...]:
    """Return what was configured differently; batch, data parallelism and accumulation follow from the size."""
    said = []
    for name in names:
        one, two = base.settings.get(name), point.settings.get(name)
        if name not in _FOLLOWS and one and two and one.value != two.value:
            said.append(f"{heading(name)} {one.value} -> {two.value}")
    return tuple(said)


def _baseline_notes(points: Sequence[Point], base: Point | None, baseline_gpus: int | None) -> Iterable[str]:
    sizes = [point.num_gpus for point in points if point.num_gpus]
    if base is None:
        wanted = f" with {baseline_gpus} GPUs" if baseline_gpus else ""
        yield f"baseline missing: no run{wanted} has a number, so there is no speed-up"
    elif not baseline_gpus and sizes and base.num_gpus and min(sizes) < base.num_gpus:
        yield f"baseline missing: the smallest size, {min(sizes)} GPUs, has no number; {base.num_gpus} GPUs are the baseline instead"
    if len(set(sizes)) > 1 and not says_model(points[0].entries[0]):
        yield "the logs do not say which model they trained: that all sizes trained the same one is taken on trust"
    if base and base.one_sample and len(set(sizes)) > 1:
        yield f"the baseline is one sample ({base.one_sample}): every efficiency hangs on it"


def _notes(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        point, name = place.point, _name(place.point)
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
        if point.cause:
            yield f"{name}: {point.cause}"
    counted = [place.point for place in places if place.point.tokens_per_second]
    if len({point.num_gpus for point in counted}) > 1:
        yield from _about_intervals(counted)
    yield from published_notes(places)


def _about_intervals(points: Sequence[Point]) -> Iterable[str]:
    if all(point.entries[0].published for point in points):
        yield "published rates: without logs there is no window and no interval"
    elif all(point.num_counted == 1 for point in points):
        yield "one run per point: the intervals hold the scatter within each run, not what runs differ by"


def _name(point: Point) -> str:
    what = "CPU rank" if device_of(point.entries[0]) == "cpu" else "GPU"
    return _counted(point.num_gpus, what) + (f" ({_counted(point.nodes, 'node')})" if point.nodes else "")


def _counted(number: int | None, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


SCHEMA = "nlp-bench/scaling/1"


@dataclass(frozen=True, kw_only=True)
class ScalingReport:
    """Everything that the writers need."""

    curves: Sequence[Curve]
    unplaced: Sequence[RunResult]
    """Runs whose number of GPUs nobody states."""
    tokens: int
    baseline_gpus: int | None = None
    """Size of the baseline, where a person chose it."""

    def to_json(self) -> dict[str, Any]:
        """Return the record; missing is null."""
        return {
            "schema": SCHEMA,
            "tokens": self.tokens,
            "baseline_gpus": self.baseline_gpus,
            "curves": [
                {
                    "workload": curve.title,
                    "table": curve.table,
                    "kind": curve.decision.kind.value,
                    "why": curve.decision.why,
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
    """Return the report on `entries`. Raises UsageError where no run has the GPUs of the baseline that was asked for."""
    placed = [entry for entry in entries if num_gpus_of(entry)]
    sizes = sorted({size for entry in placed if (size := num_gpus_of(entry))})
    if baseline_gpus and baseline_gpus not in sizes:
        there = ", ".join(map(str, sizes)) or "none whose GPUs are known"
        raise UsageError(f"--baseline-gpus {baseline_gpus}: no run has so many GPUs; there are {there}")
    return ScalingReport(
        curves=curves_of(placed, baseline_gpus, allow_measured=allow_measured),
        unplaced=[entry for entry in entries if not num_gpus_of(entry)],
        tokens=tokens,
        baseline_gpus=baseline_gpus,
    )


ROW = (
    "workload", "table", "kind", "nodes", "num_gpus", "global_batch_size", "outcome", "num_runs", "tokens_per_second",
    "tokens_per_second_ci95_low", "tokens_per_second_ci95_high", "perfect_linear_tokens_per_second", "speed_up", "efficiency",
    "efficiency_ci95_low", "efficiency_ci95_high", "tokens_per_second_per_gpu", "time_to_train_s", "time_to_train_days",
    "published_perfect_linear_tokens_per_second", "published_speed_up", "stated_speed_up", "train_tokens", "train_days",
    "published_train_days", "stated_train_days", "flags", "changed", "cause", "sources",
)  # fmt: skip
"""Columns of the CSV and keys of a point; efficiency 1 is perfect, flags and sources are separated by "; " in the CSV."""


def row(curve: Curve, place: Place, tokens: int) -> dict[str, Any]:
    """Return one point, a value for each of ROW; missing is None."""
    point = place.point
    rate, gpus, found = point.tokens_per_second, point.num_gpus, point.entries[0].published
    low, high = point.interval or (None, None)
    efficiency_low, efficiency_high = place.efficiency_ci95 or (None, None)
    time_s = time_to_report_s(tokens, rate)
    train_tokens = found.train_tokens if found else None
    values = (
        curve.title, curve.table, curve.decision.kind.value, point.nodes, gpus, point.batch, point.outcome, point.num_counted,
        rate, low, high, place.perfect_linear, place.speed_up, place.efficiency, efficiency_low, efficiency_high,
        rate / gpus if rate and gpus else None, time_s, time_s / SECONDS_PER_DAY if time_s else None,
        _float(found.perfect_linear if found else None), _float(found.speed_up if found else None),
        _float(found.stated_speed_up if found else None), train_tokens,
        train_days(train_tokens, rate) if train_tokens and rate else None, _float(found.train_days if found else None),
        _float(found.stated_train_days if found else None), list(place.flags), list(place.changed), point.cause,
        [entry.source for entry in point.entries],
    )  # fmt: skip
    return dict(zip(ROW, values, strict=True))


def _float(printed: str | None) -> float | None:
    return float(printed) if printed else None
