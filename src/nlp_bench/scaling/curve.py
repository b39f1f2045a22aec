"""One curve: speed-up and efficiency of every point over the baseline, with what to know about each.

speed-up = rate / rate of the baseline; efficiency = speed-up / (GPUs / GPUs of the baseline); perfect linear = rate of the
baseline * GPUs / GPUs of the baseline. Under weak scaling the same formulas hold, since rates count tokens and not iterations.
Intervals are those of the ratio of two estimates (`estimate.ratio_of`); the baseline itself has none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.estimate import ratio_of
from nlp_bench.measure.workload import heading
from nlp_bench.scaling.check import published_notes
from nlp_bench.scaling.kind import Decision, Kind, decide, misnamed
from nlp_bench.scaling.point import Point, points_of, varying_in
from nlp_bench.scaling.workloads import device_of, says_model, title, workload_key

TOLERANCE = 0.02
"""Without an interval, an efficiency above 1 + this is called super-linear."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One point of a curve."""

    point: Point
    """Its runs."""
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
    """What was trained where."""
    table: str | None
    """The file of a published curve."""
    decision: Decision
    """Strong or weak, and why."""
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
    entries: Iterable[RunEntry], baseline_gpus: int | None = None, *, allow_measured: bool = False
) -> list[Curve]:
    """Return the curves of all runs whose GPUs are known, in the order of their first runs."""
    groups: dict[object, list[RunEntry]] = {}
    for entry in entries:
        groups.setdefault(workload_key(entry), []).append(entry)
    return [_curve(group, baseline_gpus, allow_measured=allow_measured) for group in groups.values()]


def _curve(entries: Sequence[RunEntry], baseline_gpus: int | None, *, allow_measured: bool) -> Curve:
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
