"""What runs of the history differ by - iterations, runs, nodes, days - and how many runs of how many iterations to buy."""

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.history.row import Row
from nlp_bench.history.text import name_of, table
from nlp_bench.measure.variance import (
    PLANNED_RUNS,
    Component,
    Cost,
    Level,
    Purchase,
    RunMean,
    Unknown,
    components,
    plan,
)

SCHEMA = "nlp-bench/variance/1"
START_UP_S = 120.0
"""Seconds of a job before its first iteration, where nobody says them."""
_WORDS = {
    Unknown.ONE: "cannot be told: all runs share one",
    Unknown.NOT_RECORDED: "cannot be told: not recorded for every run",
    Unknown.TOO_FEW: "cannot be told: one run only",
    Unknown.ENTANGLED: "cannot be told apart from the others",
}
_NAMES = {Level.ITERATION: "iteration", Level.RUN: "run", Level.NODES: "set of nodes", Level.DAY: "day"}


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One configuration."""

    rows: tuple[Row, ...]
    """Its runs that have a number with a standard error, in the order of time."""
    found: tuple[Component, ...]
    """What they differ by."""
    cost: Cost
    """What a run costs."""
    within: float
    """The half width that is wanted, as a share."""
    of_one_day: tuple[Purchase, ...]
    """What would do where all runs are of one day and on the same nodes."""
    of_own_days: tuple[Purchase, ...]
    """What would do where each has its own; empty too where neither nodes nor days could be told."""


def analyse(rows: Iterable[Row], *, within: float, start_up_s: float) -> list[Analysis]:
    """Return an analysis per configuration that has a number with a standard error; `rows` need all columns, in the order of time."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.tokens_per_second_steady and row.standard_error and row.degrees:
            groups.setdefault(row.identity, []).append(row)
    return [_analysis(group, within, start_up_s) for group in groups.values()]


def _analysis(rows: Sequence[Row], within: float, start_up_s: float) -> Analysis:
    entries = [json.loads(row.entry) for row in rows]
    found = components([_run(row, entry) for row, entry in zip(rows, entries, strict=True)])
    cost = Cost(
        start_up_s=start_up_s,
        warm_up_iterations=statistics.median(_window(entry)[0] - 1 for entry in entries),
        seconds_per_iteration=statistics.median(_seconds(row, entry) for row, entry in zip(rows, entries, strict=True)),
        num_gpus=rows[0].num_gpus,
    )
    is_placed = any(one.variance is not None and not {Level.RUN, Level.ITERATION} & set(one.levels) for one in found)
    own = plan(found, within, cost, of_one_day=False) if is_placed else []
    same = plan(found, within, cost, of_one_day=True)
    return Analysis(
        rows=tuple(rows), found=found, cost=cost, within=within, of_one_day=tuple(same), of_own_days=tuple(own)
    )


def _run(row: Row, entry: Mapping[str, Any]) -> RunMean:
    seconds = 1 / (row.tokens_per_second_steady or 1.0)
    nodes = (entry.get("machine") or {}).get("nodes")
    first, last = _window(entry)
    return RunMean(
        log_time=math.log(seconds),
        error=(row.standard_error or 0.0) / seconds,
        degrees=row.degrees or 0.0,
        iterations=last - first + 1,
        nodes=" ".join(sorted(map(str, nodes))) if nodes else None,
        day=row.ended[:10],
    )


def _window(entry: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first and the last counted iteration."""
    window = entry.get("window") or {}
    first, last = window.get("first_iteration"), window.get("last_iteration")
    return (int(first), int(last)) if first is not None and last is not None and first <= last else (1, 1)


def _seconds(row: Row, entry: Mapping[str, Any]) -> float:
    """Return the seconds of a steady iteration."""
    batch, sequence = entry.get("global_batch_size"), entry.get("sequence_length")
    return (batch or 1) * (sequence or 1) / (row.tokens_per_second_steady or 1.0)


def best(purchases: Sequence[Purchase]) -> Purchase | None:
    """Return the cheapest."""
    return min(purchases, key=lambda one: one.hours, default=None)


def as_text(analyses: Sequence[Analysis]) -> str:
    """Return the sources of scatter and the price list of each configuration."""
    return "\n".join(map(_text, analyses))


def _text(one: Analysis) -> str:
    first, last, cost = one.rows[0], one.rows[-1], one.cost
    head = f"{first.identity}: {name_of(last)}; {len(one.rows)} runs, {first.ended[:10]} to {last.ended[:10]}\n\n"
    wanted = f"+-{100 * one.within:g} %"
    start = f"each run takes {cost.start_up_s:g} s before its first iteration (--start-up), {cost.warm_up_iterations:g} uncounted iterations"
    lines = [f"\n{wanted} at 95 %; {start} and {cost.seconds_per_iteration:.4g} s per iteration\n\n"]
    if one.of_one_day or one.of_own_days:
        lines += [table(_prices(one)), "\n", *_advice(one)]
    else:
        known = any(Level.RUN in component.levels and component.variance is not None for component in one.found)
        why = "runs differ by too much" if known else "what runs differ by is not known; add a second one"
        lines.append(f"no number of runs up to {PLANNED_RUNS[-1]} is known to be enough: {why}\n")
    return head + table([_line(component) for component in one.found]) + "".join(lines)


def _line(component: Component) -> dict[str, str]:
    known = component.variance is not None
    return {
        "differs by": " and ".join(_NAMES[level] for level in component.levels),
        "of": str(component.num_members),
        "standard deviation": _percent(component.variance or 0.0) if known else "",
        "95 %": f"{_percent(component.low)} to {_percent(component.high)}" if known else "",
        "": _WORDS[component.why_unknown] if component.why_unknown else "",
    }


def _percent(variance: float) -> str:
    return "any" if math.isinf(variance) else f"{100 * math.sqrt(variance):.2f} %"


@dataclass(frozen=True, kw_only=True)
class _List:
    """One price list."""

    heading: str
    """Of its columns."""
    meaning: str
    """Which runs it is for."""
    prices: Mapping[int, Purchase]
    """By the number of runs."""


def _lists(one: Analysis) -> list[_List]:
    placed = [
        _NAMES[level]
        for component in one.found
        for level in component.levels
        if component.variance is not None and not {Level.RUN, Level.ITERATION} & set(component.levels)
    ]
    same, own = ({purchase.runs: purchase for purchase in part} for part in (one.of_one_day, one.of_own_days))
    if not placed:
        return [_List(heading="each", meaning="runs like these", prices=same)]
    words = " and ".join(placed)
    return [
        _List(
            heading=f"same {words}",
            meaning=f"all runs of one {words}, of which alone the number then speaks",
            prices=same,
        ),
        _List(heading=f"own {words}", meaning=f"each run of its own {words}", prices=own),
    ]


def _prices(one: Analysis) -> list[dict[str, str]]:
    unit = "GPU h" if one.cost.num_gpus else "hours"
    lines, lists = [], _lists(one)
    for runs in sorted({runs for part in lists for runs in part.prices}):
        cells = {"runs": str(runs)}
        for part in lists:
            price = part.prices.get(runs)
            cells[f"iterations, {part.heading}"] = str(price.iterations) if price else "-"
            cells[f"{unit}, {part.heading}"] = f"{price.hours:.3g}" if price else "-"
        lines.append(cells)
    return lines


def _advice(one: Analysis) -> list[str]:
    unit = "GPU hours" if one.cost.num_gpus else "hours"
    said = []
    for part in _lists(one):
        cheapest = best(list(part.prices.values()))
        answer = f"no number of runs up to {PLANNED_RUNS[-1]} is enough"
        if cheapest:
            answer = (
                f"{cheapest.runs} runs of {cheapest.iterations} iterations are cheapest, {cheapest.hours:.3g} {unit}"
            )
        said.append(f"{part.meaning}: {answer}\n")
    return said


def as_json(analyses: Sequence[Analysis]) -> str:
    """Return the record of nlp-bench/variance/1; variances are squared shares of the mean time per token, null where not known."""
    record = {"schema": SCHEMA, "configurations": list(map(_object, analyses))}
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def _object(one: Analysis) -> dict[str, Any]:
    return {
        "identity": one.rows[0].identity,
        "runs": [row.id for row in one.rows],
        "components": [
            {
                "levels": [level.value for level in component.levels],
                "num_members": component.num_members,
                "variance": component.variance,
                "low": component.low if component.variance is not None else None,
                "high": None if component.variance is None or math.isinf(component.high) else component.high,
                "why_unknown": component.why_unknown.name if component.why_unknown else None,
            }
            for component in one.found
        ],
        "within": one.within,
        "cost": vars(one.cost),
        "plans": [
            {"of_one_day": is_same, **vars(purchase)}
            for is_same, purchase in itertools.chain(
                ((True, p) for p in one.of_one_day), ((False, p) for p in one.of_own_days)
            )
        ],
    }
