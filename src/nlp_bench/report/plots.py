"""The plots of runs: throughput, loss and step times, of one run, of a few in one plot, of some side by side, or of many as sorted dots."""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nlp_bench.escape import end_of, ends_of, one_line
from nlp_bench.measure.curves import IN_WINDOW, Curve, Curves
from nlp_bench.measure.result import RunResult
from nlp_bench.show.chart import BEHIND, EXCLUDED, MAX_LEGEND, NUM_COLOURS, Band, Chart, Rule, Series, Shape
from nlp_bench.show.table import MAX_LABEL, label

PLOTS = {
    "throughput": "Throughput over iterations",
    "loss": "Training loss over iterations",
    "step-times": "Distribution of the time per iteration",
}
"""The plots of a run, in the order of the page: name of the files of `--output`, and what each shows."""
SHAPES: dict[str, Shape] = {
    "warm-up": "cross",
    "slow end": "plus",
    "fast start": "diamond",
    "implausibly fast": "diamond",
    "evaluation": "triangle",
    "checkpoint": "square",
}
"""Reason for which an interval does not count (`window.REASONS`) to its mark; any other is a cross."""
FEWER = "in each group of neighbours the lowest and the highest, so that the envelope is whole"
TOGETHER = "A flat line is a steady rate, the band its 95 % interval; single marks do not count."
MAX_TOGETHER, MAX_SIDE_BY_SIDE = 6, 12  # as many runs are drawn in one plot, and as many side by side
FAR_APART = 8  # from such a ratio of the highest to the lowest on, an axis is logarithmic
MAX_NAME = 50  # letters of the end of a path
MAX_GROUPS, OTHERS = 11, "others"  # as many groups of runs have a name of their own; the legend has room for one more
_GROUP_SHAPES: tuple[Shape, ...] = ("dot", "diamond", "triangle")
Drawn = Sequence[RunResult]
DATED_S = (1e9, 1e10)  # 2001 to 2286; a log that states no year has stamps of 2000 (logs/clean.py)


def subtitle(entries: Drawn) -> str:
    """Return model and GPUs that runs have in common, and their dates as their logs have them."""
    models, ranks = {entry.model or "" for entry in entries}, {_ranks(entry) for entry in entries}
    dates = sorted(filter(None, map(_date, entries)))
    parts = [*(models if len(models) == 1 else ()), *(ranks if len(ranks) == 1 else ()), *dates[:1]]
    last = f" to {dates[-1]}" if dates and dates[-1] != dates[0] else ""
    return ", ".join(filter(None, parts)) + last


def _ranks(entry: RunResult) -> str:
    if not entry.num_gpus:
        return ""
    is_cpu, gpu = entry.accelerator == "cpu", entry.given.gpu or entry.workload.value("gpu")
    if gpu and not is_cpu:
        return f"{entry.num_gpus:,} x {one_line(gpu)}"
    return f"{entry.num_gpus:,} {'CPU rank' if is_cpu else 'GPU'}{'s' if entry.num_gpus > 1 else ''}"


def _date(entry: RunResult) -> str:
    stamps = [entry.trace.first.stamp_s] if entry.trace else entry.records.column("stamp_s")[:1].tolist()
    known = [stamp for stamp in stamps if stamp is not None and DATED_S[0] < stamp < DATED_S[1]]
    return dt.datetime.fromtimestamp(known[0], dt.timezone.utc).date().isoformat() if known else ""


def drawable(entries: Iterable[RunResult]) -> list[RunResult]:
    """Return the entries that were measured. Few are drawn by their curves, which only the first `inputs.sources.MAX_DRAWN` logs have."""
    measured = [entry for entry in entries if entry.throughput]
    return measured if len(measured) > MAX_SIDE_BY_SIDE else [entry for entry in measured if entry.curves]


def throughput(entries: Drawn, max_points: int | None = None) -> Chart:
    """Return tokens per second over iterations, what does not count marked by its reason.

    The steady rate is a flat line over its window within its interval; one run's window is shaded.
    """
    is_one = len(entries) == 1
    bands: list[Band] = []
    rules: list[Rule] = []
    marks: list[Series] = []
    lines: list[Series] = []
    drawn: list[Curve] = []
    words: list[str] = []
    names = _names(entries)
    for colour, entry in enumerate(entries):
        measured, curves = entry.throughput, _curves(entry, max_points)
        if measured is None or curves is None:
            continue
        window = measured.window
        ends = float(window.first_iteration), float(window.last_iteration)
        steady = 1 if is_one else colour
        if is_one:
            bands.append(Band(name="steady window", low=ends[0], high=ends[1], colour=BEHIND))
        if entry.ci95:
            low, high = entry.ci95
            name = "95 % interval" if is_one else ""
            bands.append(Band(name=name, low=low, high=high, axis="y", span=ends, colour=steady))
        where = f"iterations {window.first_iteration} to {window.last_iteration}"
        words.append(f"steady rate {measured.steady:,.0f} tokens per second over {where}")
        drawn += curves.rates.values()
        name = "steady rate" if is_one else ""
        rules.append(Rule(name=name, value=measured.steady, span=ends, colour=steady))
        for why, curve in curves.rates.items():
            if why == IN_WINDOW:
                lines.append(_line(curve, "logged interval" if is_one else names[colour], colour))
            else:
                marks.append(_excluded(curve, why, EXCLUDED if is_one else colour, is_named=is_one))
    return Chart(
        key="throughput",
        title=PLOTS["throughput"],
        subtitle=subtitle(entries),
        description=f"Tokens per second of each logged interval; {'; '.join(words[:3])}.",
        x_label="iteration",
        y_label="tokens per second",
        series=[*lines, *marks],
        bands=bands,
        rules=rules,
        y_from=0.0,
        log_axes=_log_axes(entries),
        note=" ".join(filter(None, ("" if is_one else TOGETHER, _fewer(drawn)))),
    )


def loss(entries: Drawn, max_points: int | None = None) -> Chart | None:
    """Return the training loss over iterations, None where no log has one."""
    found = [(colour, c.loss) for colour, e in enumerate(entries) if (c := _curves(e, max_points)) and c.loss]
    if not found:
        return None
    names = [""] if len(entries) == 1 else _names(entries)
    ends = ", ".join(f"{c.ys[0]:.4g} to {c.ys[-1]:.4g}" for _, c in found[:3])
    return Chart(
        key="loss",
        title=PLOTS["loss"],
        subtitle=subtitle(entries),
        description=f"Training loss from the first to the last logged iteration: {ends}.",
        x_label="iteration",
        y_label="lm loss",
        series=[_line(curve, names[colour], colour) for colour, curve in found],
        note=_fewer([curve for _, curve in found]),
    )


def step_times(entries: Drawn, max_points: int | None = None) -> Chart | None:
    """Return the distribution of the times of the window with median and 95th percentile, None where no log has times."""
    series, rules, words = [], [], []
    is_one = len(entries) == 1
    names = ["records of the window"] if is_one else _names(entries)
    for colour, entry in enumerate(entries):
        curves, measured = _curves(entry, max_points), entry.throughput
        times = measured.seconds_per_iteration if measured else None
        if curves is None or curves.step_times is None or times is None:
            continue
        xs, ys = curves.step_times.xs.tolist(), (100 * curves.step_times.ys).tolist()
        series.append(Series(name=names[colour], xs=[xs[0], *xs], ys=[0.0, *ys], style="step", colour=colour))
        words.append(f"median {times.median:.4g} s, 95th percentile {times.p95:.4g} s")
        if is_one:
            rules.append(Rule(name=f"median {times.median:.4g} s", value=times.median, axis="x", colour=1))
            p95 = f"p95 {times.p95:.4g} s"
            rules.append(Rule(name=p95, value=times.p95, axis="x", colour=2, is_dashed=True))
    if not series:
        return None
    return Chart(
        key="step-times",
        title=PLOTS["step-times"],
        subtitle=subtitle(entries),
        description=f"Share of the steady window's records that are as fast or faster: {'; '.join(words[:3])}.",
        x_label="seconds per iteration",
        y_label="records as fast or faster, %",
        series=series,
        rules=rules,
        y_from=0.0,
        y_to=100.0,
        note="A steep line is an even pace; a long foot to the right are slow iterations.",
    )


CHARTS: tuple[Callable[..., Chart | None], ...] = (throughput, loss, step_times)  # what draws each of PLOTS


def _log_axes(entries: Drawn) -> str:
    """Return the axes of throughput on which a few runs lie so far apart that all but one would be flat."""
    windows = [entry.throughput.window for entry in entries if entry.throughput]
    axes = (("x", [window.last_iteration for window in windows]), ("y", [entry.steady or 0.0 for entry in entries]))
    is_positive = all(window.first_iteration > 0 for window in windows)
    return "".join(name for name, ends in axes if is_positive and max(ends) > FAR_APART * min(ends))


_Value = tuple[float, tuple[float, float] | None, RunResult]
"""What a run has of a quantity: the value, the ends of its bar, and the run."""


def _rate_of(entry: RunResult) -> tuple[float, tuple[float, float] | None] | None:
    return (entry.steady, entry.ci95) if entry.steady else None


def _loss_of(entry: RunResult) -> tuple[float, None] | None:
    losses = entry.curves.loss.ys if entry.curves and entry.curves.loss else entry.records.column("lm_loss")
    return (float(losses[-1]), None) if np.isfinite(losses[-1:]).any() else None


def _times_of(entry: RunResult) -> tuple[float, tuple[float, float]] | None:
    times = entry.throughput.seconds_per_iteration if entry.throughput else None
    return (times.median, (times.median, times.p95)) if times else None


_DOTS: dict[Callable[..., Chart | None], tuple[str, str, str, Callable[[RunResult], Any]]] = {
    throughput: ("Steady rate of {} runs", "tokens per second", "Bars: 95 % intervals.", _rate_of),
    loss: ("Last training loss of {} runs", "lm loss", "", _loss_of),
    step_times: (
        "Time per iteration of {} runs",
        "seconds per iteration",
        "Dots: medians; bars: up to the 95th percentile.",
        _times_of,
    ),
}
"""What is drawn of each of many runs: title, label of the y axis, what the bars are, and the value of a run with the ends of its bar (None
where it has none)."""


def many(make: Callable[..., Chart | None], entries: Drawn) -> Chart | None:
    """Return one dot per run in the place of `make`'s lines, by groups of one model or dialect, each sorted; None for none.

    The axis is logarithmic where the runs lie far apart; outliers, which would flatten the rest, are counted in the note and not drawn.
    """
    heading, y_label, bars, value_of = _DOTS[make]
    found = sorted(((*value, entry) for entry in entries if (value := value_of(entry))), key=lambda each: each[0])
    if not found:
        return None
    drawn, apart = _apart(found)
    by_model = all(entry.model for *_, entry in drawn)
    sizes = Counter((entry.model if by_model else entry.dialect) or "unknown" for *_, entry in drawn)
    named = {name for name, _ in sizes.most_common(MAX_GROUPS)} if len(sizes) > MAX_LEGEND else set(sizes)
    groups: dict[str, list[_Value]] = {}
    for each in drawn:
        name = (each[2].model if by_model else each[2].dialect) or "unknown"
        groups.setdefault(name if name in named else OTHERS, []).append(each)
    title = heading.format(len(found))
    ends = f"Lowest: {_named(found[0])}; highest: {_named(found[-1])}."
    far = f"Far from the others and not drawn: {len(apart)}." if apart else ""
    group = f" by {'model' if by_model else 'dialect'}, then" if len(groups) > 1 else ""
    return Chart(
        key=[*PLOTS][CHARTS.index(make)],
        title=title,
        subtitle=subtitle(entries),
        description=f"{title}. {ends}",
        x_label=f"runs, sorted{group} by value",
        y_label=y_label,
        series=list(_dotted(groups)),
        log_axes="y" if 0 < FAR_APART * drawn[0][0] < drawn[-1][0] else "",
        note=" ".join(filter(None, (bars, ends, far, "report.csv has all of them."))),
    )


def _apart(found: list[_Value]) -> tuple[list[_Value], list[_Value]]:
    """Return what is drawn, and the outliers: further than a factor FAR_APART from the middle 96 %."""
    few = min(max(1, len(found) // 50), len(found) - 1)
    low, high = found[few][0] / FAR_APART, found[-1 - few][0] * FAR_APART
    drawn = [each for each in found if low <= each[0] <= high]
    return (drawn, [each for each in found if not low <= each[0] <= high]) if low > 0 else (found, [])


def _named(each: _Value) -> str:
    return f"{label(each[0])} ({end_of(each[2].source, MAX_NAME)})"


def _dotted(groups: Mapping[str, list[_Value]]) -> Iterator[Series]:
    """Yield each group as dots with bars, in the order of their medians."""
    first = 1
    for index, (name, values) in enumerate(sorted(groups.items(), key=lambda group: group[1][len(group[1]) // 2][0])):
        yield Series(
            name=f"{name} ({len(values)})" if len(groups) > 1 else "",
            xs=list(range(first, first + len(values))),
            ys=[value for value, *_ in values],
            errors=[bar for _, bar, _ in values],
            style="points",
            shape=_GROUP_SHAPES[index // NUM_COLOURS % len(_GROUP_SHAPES)],
            colour=index % NUM_COLOURS,
        )
        first += len(values)


def in_files(make: Callable[..., Chart | None], entries: Drawn) -> list[Chart]:
    """Return what a file shows: few runs in one plot, some side by side, many as dots."""
    if len(entries) <= MAX_TOGETHER:
        found = [make(entries)]
    elif len(entries) <= MAX_SIDE_BY_SIDE:
        named = zip(_names(entries), entries, strict=True)
        found = [replace(chart, title=name, note="") for name, entry in named if (chart := make([entry]))]
    else:
        found = [many(make, entries)]
    return [chart for chart in found if chart]


def _names(entries: Drawn) -> list[str]:
    return ends_of([entry.source for entry in entries], MAX_LABEL)


def _curves(entry: RunResult, max_points: int | None) -> Curves | None:
    return entry.curves.fewer(max_points) if entry.curves and max_points else entry.curves


def _line(curve: Curve, name: str, colour: int) -> Series:
    return Series(name=name, xs=curve.xs.tolist(), ys=curve.ys.tolist(), colour=colour)


def _excluded(curve: Curve, why: str, colour: int, *, is_named: bool) -> Series:
    name = f"{why} ({curve.num_all}), does not count" if is_named else ""
    shape = SHAPES.get(why, "cross")
    return Series(name=name, xs=curve.xs.tolist(), ys=curve.ys.tolist(), style="points", shape=shape, colour=colour)


def _fewer(curves: Sequence[Curve]) -> str:
    drawn, there = sum(len(curve.xs) for curve in curves), sum(curve.num_all for curve in curves)
    return f"{drawn} of {there} logged intervals are drawn: {FEWER}." if drawn < there else ""
