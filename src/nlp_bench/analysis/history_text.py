"""Rows and trends of the history as tables, CSV, JSON and plots."""

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from nlp_bench.analysis.history import COLUMNS, SHORT, Row
from nlp_bench.analysis.repeats import percentage
from nlp_bench.analysis.trend import Trend
from nlp_bench.escape import end_of, one_line
from nlp_bench.show import table as tables
from nlp_bench.show.chart import LIMIT, Chart, Rule, Series, empty, plot_files

SCHEMA = "nlp-bench/history/1"
TREND_SCHEMA = "nlp-bench/trend/1"
MAX_SOURCE = 40
MAX_PANELS, MAX_TICKS = 8, 5
_RIGHT = frozenset(
    {
        "id",
        "tokens/s",
        "95 % interval",
        "time s",
        "runs",
        "failed",
        "levels",
        "level tokens/s",
        "latest",
        "against level",
    }
)


def table(lines: Sequence[dict[str, str]]) -> str:
    """Return lines, whose keys are the headings, as a table; nothing for no line."""
    if not lines:
        return ""
    columns = (
        tables.Column(heading=name, cells=tuple(line[name] for line in lines), is_text=name not in _RIGHT)
        for name in lines[0]
    )
    return "\n".join(tables.as_text(list(columns))) + "\n"


def listed(rows: Iterable[Row]) -> str:
    """Return one line per run."""
    return table([_listed(row) for row in rows])


def _listed(row: Row) -> dict[str, str]:
    interval = "" if row.ci95_low is None or row.ci95_high is None else f"{row.ci95_low:.0f}-{row.ci95_high:.0f}"
    return {
        "id": str(row.id),
        "ended": row.ended,
        "configuration": row.identity,
        "what": name_of(row),
        "outcome": row.outcome,
        "tokens/s": _fixed(row.tokens_per_second_steady),
        "95 % interval": interval,
        "time s": _fixed(row.time_to_report_s),
        "name": one_line(row.name),
        "source": end_of(one_line(row.source), MAX_SOURCE),
    }


def name_of(row: Row) -> str:
    """Return model, machine and ranks in a few words."""
    ranks = f"{row.num_gpus} {'CPU' if row.accelerator == 'cpu' else 'GPUs'}" if row.num_gpus else None
    return one_line(", ".join(word for word in (row.model, row.system, ranks) if word)) or "not stated"


def _fixed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def trend_text(trends: Sequence[Trend]) -> str:
    """Return a line per configuration, then a line per flag."""
    lines = [_trend(trend) for trend in trends]
    flags = [f"{trend.rows[0].identity}: {flag.sentence()}" for trend in trends for flag in trend.flags]
    return table(lines) + ("\n" + "\n".join(flags) + "\n" if flags else "\nno run leaves its level\n" if lines else "")


def _trend(trend: Trend) -> dict[str, str]:
    level, latest = trend.levels[-1], trend.rows[-1]
    change = (latest.tokens_per_second_steady or 0.0) / level.mean - 1
    scatter = f" +-{percentage(level.cv, 1)}" if level.cv is not None else ""
    return {
        "configuration": latest.identity,
        "what": name_of(latest),
        "runs": str(len(trend.rows)),
        "failed": str(trend.num_failed),
        "from": trend.rows[0].ended[:10],
        "to": latest.ended[:10],
        "levels": str(len(trend.levels)),
        "level tokens/s": f"{level.mean:.2f}{scatter}",
        "latest": _fixed(latest.tokens_per_second_steady),
        "against level": f"{100 * change:+.2f} %",
    }


def trend_json(trends: Sequence[Trend]) -> str:
    """Return the record of nlp-bench/trend/1."""
    record = {
        "schema": TREND_SCHEMA,
        "configurations": [
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
        ],
    }
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def as_csv(rows: Iterable[Row]) -> str:
    """Return all columns but the two JSON texts, with full precision; missing is an empty cell."""
    return tables.as_csv(SHORT, [{name: getattr(row, name) for name in SHORT} for row in rows])


def as_json(rows: Iterable[Row]) -> str:
    """Return the record of nlp-bench/history/1: every column, `settings` and `entry` as objects."""
    return json.dumps({"schema": SCHEMA, "runs": [_object(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n"


def _object(row: Row) -> dict[str, Any]:
    texts = {name: json.loads(getattr(row, name)) for name in ("settings", "entry")}
    return {name: value for name, value in {**asdict(row), **texts}.items() if name in COLUMNS}


def shown(row: Row) -> str:
    """Return everything about one run, a line per fact."""
    facts = [(name, getattr(row, name)) for name in SHORT if getattr(row, name) not in {None, ""}]
    settings = [(name, f"{value}  ({source})") for name, (value, source) in json.loads(row.settings).items()]
    reasons = [("reason", reason) for reason in json.loads(row.entry).get("reasons", ())]
    width = max(len(name) for name, _ in facts + settings)
    lines = [f"{name.ljust(width)}  {one_line(value)}" for name, value in facts]
    lines += ["", "workload, configuration, machine:"] if settings else []
    lines += [f"{name.ljust(width)}  {one_line(value)}" for name, value in settings]
    return "\n".join([*lines, *([""] if reasons else []), *(f"reason: {one_line(text)}" for _, text in reasons)]) + "\n"


def write_trend(trends: list[Trend], rows: list[Row], folder: Path) -> list[Path]:
    """Write trend.json, trend.csv trend.svg and, by matplotlib, trend.png; return their paths."""
    from nlp_bench.files import write_bytes  # noqa: PLC0415  # only --output needs it

    found = {"trend.json": trend_json(trends).encode(), "trend.csv": as_csv(rows).encode()}
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
    title = f"{rows[-1].identity}: {name_of(rows[-1])}, {len(rows)} runs"
    bars = [None if row.ci95_low is None or row.ci95_high is None else (row.ci95_low, row.ci95_high) for row in rows]
    ticks = np.unique(np.linspace(rows[0].ended_s, rows[-1].ended_s, MAX_TICKS))
    levels = [(level, (level.rows[0].ended_s, level.rows[-1].ended_s)) for level in trend.levels]
    return Chart(
        key="trend",
        title=title,
        description=f"Tokens per second over time: {title}.",
        x_label="",
        y_label="tokens/s",
        series=[
            _points(rows, errors=bars),
            *([_points(flagged, shape="circle", colour=LIMIT)] if flagged else []),
        ],
        rules=[Rule(value=level.mean, span=span, colour=1) for level, span in levels],
        x_ticks=ticks.tolist(),
        x_names=[dt.datetime.fromtimestamp(tick, dt.timezone.utc).date().isoformat() for tick in ticks],
    )


def _points(rows: Sequence[Row], **how: Any) -> Series:
    rates = [row.tokens_per_second_steady or 0.0 for row in rows]
    return Series(xs=[row.ended_s for row in rows], ys=rates, style="points", **how)
