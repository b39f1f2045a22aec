"""How the speed of one configuration developed: its level, runs that leave it, and where it changed for good.

What a level is, and where one ends: levels.py; which runs are accepted: baseline.py.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nlp_bench.analysis.baseline import Decision, State, begins, states
from nlp_bench.analysis.levels import Flag, Level, parted
from nlp_bench.analysis.listing import rows_csv
from nlp_bench.analysis.repeats import Identity, Pool, apart_words, digest_of, grouped, identity_of, is_known, nearest
from nlp_bench.analysis.row import Row, table
from nlp_bench.analysis.store import command
from nlp_bench.escape import one_line, some
from nlp_bench.immutable import immutable
from nlp_bench.show.chart import LIMIT, Chart, Rule, Series, empty, plot_files
from nlp_bench.show.table import json_text, number, percentage

_MAX_IDS = 10  # runs that a sentence names


@immutable
class Trend:
    """One configuration over time."""

    rows: tuple[Row, ...]  # its valid runs in the order of time, at least one
    levels: tuple[Level, ...]
    flags: tuple[Flag, ...]
    num_failed: int  # runs without a number
    every: tuple[Row, ...]  # these and those without a number
    decisions: Sequence[Decision]
    measured: bool  # whether the baseline may hold MEASURED runs, too

    @cached_property
    def states(self) -> Mapping[int, State]:
        """Of each run, also those without a number, whether it is accepted."""
        return states(self.every, self.decisions, measured=self.measured)

    @property
    def accepted(self) -> list[Decision]:
        """Where a baseline begins by a person's word."""
        return [decision for _, decision in begins(self.rows, self.decisions)]

    @property
    def baseline(self) -> list[Row]:
        """The accepted runs."""
        return [row for row in self.rows if self.states[row.id] is State.ACCEPTED]


def trends(rows: Iterable[Row], decisions: Sequence[Decision] = (), *, measured: bool = False) -> list[Trend]:
    """Return one trend per configuration that has a number, the one with the latest run last; `rows` are in the order of time, without copies.

    With `measured` the baseline may hold MEASURED runs, too.
    """
    groups = grouped(rows, lambda row: row.identity)
    found = [trend for group in groups for trend in _trend(group, decisions, measured=measured)]
    return sorted(found, key=lambda trend: trend.rows[-1].ended_s)


def _trend(group: list[Row], decisions: Sequence[Decision], *, measured: bool) -> Iterator[Trend]:
    rows = [row for row in group if row.tokens_per_second_steady]
    if not rows:
        return
    bounds = [0, *(at for at, _ in begins(rows, decisions) if at), len(rows)]
    levels: list[Level] = []
    flags: list[Flag] = []
    for first, end in pairwise(bounds):
        of_part, left = parted(rows[first:end])
        if levels:
            flags.append(Flag.of(of_part[0], levels[-1], rows[first]))
        levels += of_part
        flags += left
    yield Trend(
        rows=tuple(rows),
        levels=tuple(levels),
        flags=tuple(flags),
        num_failed=len(group) - len(rows),
        every=tuple(group),
        decisions=decisions,
        measured=measured,
    )


def trend_text(trends: Sequence[Trend], file: Path) -> str:
    """Return a line per configuration of the history at `file`, then a line per flag."""
    flags = [f"{trend.rows[0].identity}: {flag.sentence()}" for trend in trends for flag in trend.flags]
    flags += [
        f"{trend.rows[0].identity}: run {one.run} {one_line(one.sentence)}"
        for trend in trends
        for one in trend.accepted
    ]
    ends = [f"{trend.rows[0].identity}: {text}" for trend in trends for text in _end_lines(trend.rows)]
    below = "\n" + "\n".join([*(flags or ["no run leaves its level"]), *ends, *_nearest_lines(trends, file)]) + "\n"
    return table([_line(trend) for trend in trends]) + (below if trends else "")


_ALARM = {
    State.SLOWER: "is slower than the accepted level",
    State.FAILED_GATE: "failed its gate",
    State.NOT_VALID: "has no valid number",
}
"""What is said of the latest run in a state with which the trend's gate stops."""


def gate_lines(trends: Sequence[Trend], rows: Sequence[Row], file: Path) -> list[str]:
    """Return why the trend's gate stops, a line per configuration whose latest run is slower and not accepted, or has no number; empty where none is."""
    lines = []
    latest = max(rows, key=lambda row: (row.ended_s, row.id), default=None)
    for trend in trends:
        *_, last = trend.states
        state = trend.states[last]
        if state in _ALARM:
            again = command(f"history accept {last}", file)
            runs = some([row.id for row in trend.baseline], _MAX_IDS)
            more = f"; the baseline is run {runs}; if this speed is right from now on: {again}"
            what = f"run {last} {_ALARM[state]}{'' if state is State.NOT_VALID else more}"
            lines.append(f"{trend.rows[0].identity}: {what}")
    placed = {number for trend in trends for number in trend.states}
    if latest is None:
        lines.append("there is no run to judge")
    elif latest.id not in placed:
        see = command(f"history show {latest.id}", file)
        lines.append(f"run {latest.id}, the latest one, is {latest.outcome} and has no number; see: {see}")
    return lines


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
            "baseline": [row.id for row in trend.baseline],
            "latest": [*trend.states.values()][-1].value,
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

    found = {"trend.json": trend_json(trends).encode(), "trend.csv": rows_csv(rows, _states(trends, rows)).encode()}
    found |= plot_files(*(trend_charts(trends) or [empty("trend", "no valid run")]), columns=1)
    for name, content in found.items():
        write_bytes(folder / name, content)
    return [folder / name for name in found]


def _states(trends: Sequence[Trend], rows: Sequence[Row]) -> dict[int, State]:
    found = {row.id: State.NOT_VALID for row in rows}
    for trend in trends:
        found |= trend.states
    return found


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
