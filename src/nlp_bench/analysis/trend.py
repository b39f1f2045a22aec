"""How the speed of one configuration developed: its level, runs that leave it, and where it changed for good.

Single runs: a control chart with individual values (Shewhart 1931; Montgomery, Introduction to Statistical Quality Control, chapter 6). A
run deviates when it lies beyond the mean of the level so far by more than a further run may, at 0.27 % (the classical three standard
deviations), by Student's t because a level is short at first. MIN_LEVEL of them in a row on one side are a new level.
Small changes that stay: after each run the split of the level so far that parts it best is tested by Student's t (the change-point
model with unknown parameters: Hawkins, Qiu and Kang 2003, doi:10.1080/00224065.2003.11980233, a CUSUM that needs no known level), on
times that are clipped to CLIP robust standard deviations around their median, so that tails are no change (Huber 1964), with an error that
allows for autocorrelation.
Error rates and power of both, next to EWMA and CUSUM charts: `tests/compare/calibration.py`, docs/compare.md.
"""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.analysis.repeats import Identity, Pool, apart_words, digest_of, grouped, identity_of, is_known, nearest
from nlp_bench.analysis.row import Row, rows_csv, table
from nlp_bench.analysis.store import command
from nlp_bench.escape import some
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import student_t
from nlp_bench.measure.series import scatter_around
from nlp_bench.show.chart import LIMIT, Chart, Rule, Series, empty, plot_files
from nlp_bench.show.table import json_text, number, percentage

ALPHA = 0.0027
MIN_RUNS = 3  # runs of a level from which on a further one is tested against it
MIN_LEVEL = 5  # runs that make a new level: machines of two speeds have some in a row at one of them
SPLIT_ALPHA = 2e-4  # of each split: a false level in 3 of 100 series of 60 runs
CLIP = 2.0
_MAX_IDS = 10  # runs that a sentence names
_LONG = 200  # runs from which Student's t is near its limit, and a change further back would have been seen


class Kind(Enum):
    """What a flag says about a run."""

    DROP = "drop"
    RISE = "rise"
    NEW_LEVEL = "new level"


@immutable
class Flag:
    """A run that is not like those before it."""

    row: Row
    kind: Kind  # one run by itself (or the latest), or the first of a new level
    change: float  # its rate, of a new level the level's, / the rate of the level before - 1
    num_before: int  # runs of the level that it left

    def sentence(self) -> str:
        """Return it in words."""
        where = f"{percentage(abs(self.change))} {'below' if self.change < 0 else 'above'} the level of the {self.num_before} runs before it"
        what = "a new level begins, " if self.kind is Kind.NEW_LEVEL else ""
        return f"run {self.row.id} ({self.row.ended}): {what}{where}"


class Level:
    """Neighbouring runs of about one speed: mean and deviation while it grows (Welford 1962, doi:10.1080/00401706.1962.10490022)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []  # in the order of time, without the single ones that left it
        self.seconds, self.squares, self.within = 0.0, 0.0, 0.0

    @property
    def mean(self) -> float:
        """Tokens per second: the inverse of the mean time per token."""
        return 1 / self.seconds

    @property
    def cv(self) -> float | None:
        """Sample standard deviation of the time per token / mean; None for one run."""
        number = len(self.rows)
        return math.sqrt(self.squares / (number - 1)) / self.seconds if number > 1 else None

    def take(self, row: Row) -> Flag | None:
        """Add `row`, or return how it leaves the level."""
        value, number = _seconds(row), len(self.rows)
        if number >= MIN_RUNS:
            # Runs whose digits are rounded to one value scatter at least as each does within.
            variance = max(self.squares / (number - 1), self.within / number)
            factor = student_t(1 - ALPHA / 2, min(number, _LONG) - 1)
            bound = factor * math.sqrt(variance * (1 + 1 / number))
            if abs(value - self.seconds) > max(bound, 1e-9 * self.seconds):
                change = self.seconds / value - 1
                return Flag(row=row, kind=Kind.DROP if change < 0 else Kind.RISE, change=change, num_before=number)
        self.rows.append(row)
        change = value - self.seconds
        self.seconds += change / len(self.rows)
        self.squares += change * (value - self.seconds)
        self.within += (row.standard_error or 0.0) ** 2
        return None


@immutable
class Trend:
    """One configuration over time."""

    rows: tuple[Row, ...]  # its valid runs in the order of time, at least one
    levels: tuple[Level, ...]
    flags: tuple[Flag, ...]
    num_failed: int  # runs without a number


def _seconds(row: Row) -> float:
    return 1 / (row.tokens_per_second_steady or math.nan)


def trends(rows: Iterable[Row]) -> list[Trend]:
    """Return one trend per configuration that has a number, the one with the latest run last; `rows` are in the order of time."""
    found = [trend for group in grouped(rows, lambda row: row.identity) for trend in _trend(group)]
    return sorted(found, key=lambda trend: trend.rows[-1].ended_s)


def _trend(group: list[Row]) -> Iterator[Trend]:
    rows = [row for row in group if row.tokens_per_second_steady]
    if not rows:
        return
    levels: list[Level] = []
    flags: list[Flag] = []
    rest = rows
    while rest:
        change = _change(rest)
        level = Level()
        left = [flag for row in rest[:change] if (flag := level.take(row))]
        if levels:
            moved, num_before = level.mean / levels[-1].mean - 1, len(levels[-1].rows)
            flags.append(Flag(row=rest[0], kind=Kind.NEW_LEVEL, change=moved, num_before=num_before))
        levels.append(level)
        flags += left
        rest = rest[change:]
    yield Trend(rows=tuple(rows), levels=tuple(levels), flags=tuple(flags), num_failed=len(group) - len(rows))


def _change(rows: list[Row]) -> int:
    """Return the index of the first run of the next level, the number of `rows` where all are of one."""
    level, kinds = Level(), list[Kind | None]()
    seconds = np.array([_seconds(row) for row in rows])
    for count, row in enumerate(rows, start=1):
        flag = level.take(row)
        kinds.append(flag.kind if flag else None)
        if flag and kinds[-MIN_LEVEL:] == [flag.kind] * MIN_LEVEL:
            return count - MIN_LEVEL
        start = max(0, count - _LONG)
        split = _split(seconds[start:count])
        if split:
            return start + split
    return len(rows)


def _split(seconds: NDArray[np.float64]) -> int | None:
    """Return where `seconds` change to another level, None where they do not or are too few to tell."""
    number = len(seconds)
    if number < 2 * MIN_LEVEL:
        return None
    middle = np.median(seconds)
    # The correction for few values is that of the normal distribution (Croux and Rousseeuw 1992).
    robust = 1.4826 * float(np.median(np.abs(seconds - middle))) * number / (number - 0.8)
    clipped = np.clip(seconds - middle, -CLIP * robust, CLIP * robust)
    left = np.arange(MIN_LEVEL, number - MIN_LEVEL + 1)
    sums = np.cumsum(clipped)
    between = (sums[left - 1] - left * sums[-1] / number) ** 2 * number / (left * (number - left))
    best = int(np.argmax(between))
    at = int(left[best])
    scatter = scatter_around(np.concatenate([part - part.mean() for part in (clipped[:at], clipped[at:])]), 2)
    within = scatter.variance * number / scatter.num_effective
    # Where most times are the same to the last digit they are rounded, and say nothing about small changes.
    is_other = robust > 0 and float(between[best]) > student_t(1 - SPLIT_ALPHA / 2, number - 2) ** 2 * within
    if not is_other:
        return None
    # Where it is: the least absolute deviations from the medians of both parts, on the times as they are.
    nearer = np.abs(seconds - np.median(seconds[:at])) - np.abs(seconds - np.median(seconds[at:]))
    return MIN_RUNS + int(np.argmin(np.cumsum(nearer)[MIN_RUNS - 1 : -1]))


def trend_text(trends: Sequence[Trend], file: Path) -> str:
    """Return a line per configuration of the history at `file`, then a line per flag."""
    flags = [f"{trend.rows[0].identity}: {flag.sentence()}" for trend in trends for flag in trend.flags]
    ends = [f"{trend.rows[0].identity}: {text}" for trend in trends for text in _end_lines(trend.rows)]
    below = "\n" + "\n".join([*(flags or ["no run leaves its level"]), *ends, *_nearest_lines(trends, file)]) + "\n"
    return table([_line(trend) for trend in trends]) + (below if trends else "")


def _end_lines(rows: Sequence[Row]) -> list[str]:
    """Name the runs that end at a slower speed than the one that counts, in a sentence; empty where none does."""
    runs = [(row, row.observation()) for row in rows]
    slow = [row.id for row, run in runs if run.ending_seconds_per_token is not None]
    lines = Pool(runs=tuple(run for _, run in runs)).end_lines
    return [f"run {some(slow, _MAX_IDS)}: {line}" for line in lines]


def _nearest_lines(trends: Sequence[Trend], file: Path) -> Iterator[str]:
    """Yield a line for each configuration that differs from an earlier one in nothing but what one of them does not state: a program that prints more arguments."""
    before: list[Identity] = []
    found = (trend.rows[-1].observation().settings for trend in trends)
    for own in map(identity_of, filter(is_known, found)):
        if near := nearest(own, reversed(before), agreeing=True):
            one, two = digest_of(near), digest_of(own)
            see = command(f"compare history:{one} history:{two}", file)
            yield f"{two}: what sets it apart from {one} is {apart_words(near, own)}; see: {see}"
        before.append(own)


def _line(trend: Trend) -> dict[str, str]:
    level, latest = trend.levels[-1], trend.rows[-1]
    change = (latest.tokens_per_second_steady or 0.0) / level.mean - 1
    return {
        "configuration": latest.identity,
        "what": latest.what,
        "runs": str(len(trend.rows)),
        "failed": str(trend.num_failed),
        "from": trend.rows[0].ended[:10],
        "to": latest.ended[:10],
        "levels": str(len(trend.levels)),
        "level tokens/s": f"{level.mean:.2f}" + (f" +-{percentage(level.cv, 1)}" if level.cv is not None else ""),
        "latest": number(latest.tokens_per_second_steady),
        "against level": f"{100 * change:+.2f} %",
    }


def trend_json(trends: Sequence[Trend]) -> str:
    """Return the record of nlp-bench/trend/1."""
    configurations = [
        {
            "identity": trend.rows[0].identity,
            "runs": [row.id for row in trend.rows],
            "num_failed": trend.num_failed,
            "levels": [
                {"runs": [row.id for row in level.rows], "tokens_per_second": level.mean, "cv": level.cv}
                for level in trend.levels
            ],
            "flags": [
                {"run": flag.row.id, "kind": flag.kind.value, "change": flag.change, "num_before": flag.num_before}
                for flag in trend.flags
            ],
        }
        for trend in trends
    ]
    return json_text({"schema": "nlp-bench/trend/1", "configurations": configurations})


MAX_PANELS, MAX_TICKS = 8, 5


def write_trend(trends: list[Trend], rows: list[Row], folder: Path) -> list[Path]:
    """Write trend.json, trend.csv and, by matplotlib, trend.svg and trend.png; return their paths."""
    from nlp_bench.files import write_bytes  # noqa: PLC0415  # only --output needs it

    found = {"trend.json": trend_json(trends).encode(), "trend.csv": rows_csv(rows).encode()}
    found |= plot_files(*(trend_charts(trends) or [empty("trend", "no valid run")]), columns=1)
    for name, content in found.items():
        write_bytes(folder / name, content)
    return [folder / name for name in found]


def trend_charts(trends: Sequence[Trend]) -> list[Chart]:
    """Return one plot for each of the latest MAX_PANELS configurations: rates over time with intervals, levels and flags."""
    drawn = trends[-MAX_PANELS:]
    more = f" {len(trends) - len(drawn)} more are in the table." if len(trends) > len(drawn) else ""
    note = f"Points: runs with the 95 % interval within each; line: level; circles: beyond the level.{more}"
    return [replace(_trend_chart(trend), note=note if trend is trends[-1] else "") for trend in drawn]


def _trend_chart(trend: Trend) -> Chart:
    rows, flagged = trend.rows, [flag.row for flag in trend.flags]
    title = f"{rows[-1].identity}: {rows[-1].what}, {len(rows)} runs"
    ticks = np.unique(np.linspace(rows[0].ended_s, rows[-1].ended_s, MAX_TICKS))
    form = "%F" if ticks[-1] - ticks[0] > MAX_TICKS * 86400 else "%F %R"  # each label once
    levels = [(level, (level.rows[0].ended_s, level.rows[-1].ended_s)) for level in trend.levels]
    return Chart(
        key="trend",
        title=title,
        description=f"Tokens per second over time: {title}.",
        x_label="",
        y_label="tokens/s",
        series=[
            _points(rows, errors=[row.ci95 for row in rows]),
            *([_points(flagged, shape="circle", colour=LIMIT)] if flagged else []),
        ],
        rules=[Rule(value=level.mean, span=span, colour=1) for level, span in levels],
        x_ticks=ticks.tolist(),
        x_names=[dt.datetime.fromtimestamp(tick, dt.timezone.utc).strftime(form) for tick in ticks],
    )


def _points(rows: Sequence[Row], **how: Any) -> Series:
    rates = [row.tokens_per_second_steady or 0.0 for row in rows]
    return Series(xs=[row.ended_s for row in rows], ys=rates, style="points", **how)
