"""The runs of the history for people and for programs: each with its state as baseline and what was decided on it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nlp_bench.analysis.baseline import Judged, State
from nlp_bench.analysis.row import SHORT, Row, table
from nlp_bench.escape import end_of, one_line
from nlp_bench.show.table import as_csv, interval, number

_MAX_SOURCE = 40


def listed(runs: Sequence[Judged]) -> str:
    """Return one line per run, then one per decision."""
    lines = [
        {
            "id": str(row.id),
            "ended": row.ended,
            "configuration": row.identity,
            "what": row.what,
            "outcome": row.outcome,
            "baseline": run.state.value,
            "tokens/s": number(row.tokens_per_second_steady),
            "95 % interval": interval(row.ci95, digits=0),
            "time s": number(row.time_to_report_s),
            "name": one_line(row.name),
            "source": end_of(one_line(row.source), _MAX_SOURCE),
        }
        for run in runs
        for row in [run.row]
    ]
    said = [f"run {run.row.id} {one_line(made.sentence)}" for run in runs for made in run.decisions]
    return table(lines) + "".join(f"\n{line}" for line in said) + ("\n" if said else "")


def rows_csv(rows: Iterable[Row], states: Mapping[int, State]) -> str:
    """Return all columns but the two JSON texts, with full precision, and the state of each run; missing is an empty cell."""
    lines: list[dict[str, Any]] = [
        {name: getattr(row, name) for name in SHORT} | {"baseline": states[row.id].value} for row in rows
    ]
    return as_csv((*SHORT, "baseline"), lines)


def runs_csv(runs: Sequence[Judged]) -> str:
    """Return the same of judged runs."""
    return rows_csv([run.row for run in runs], {run.row.id: run.state for run in runs})


def rows_json(runs: Iterable[Judged]) -> str:
    """Return the record of nlp-bench/history/1: every column, `settings` and `entry` as objects, the state and the decisions."""
    rows = [
        {
            **asdict(run.row),
            **{name: json.loads(getattr(run.row, name)) for name in ("settings", "entry")},
            "baseline": run.state.value,
            "decisions": [asdict(made) for made in run.decisions],
        }
        for run in runs
    ]
    return json.dumps({"schema": "nlp-bench/history/1", "runs": rows}, indent=1, ensure_ascii=False) + "\n"


def shown(run: Judged) -> str:
    """Return everything about one run, a line per fact."""
    row = run.row
    facts = [(name, getattr(row, name)) for name in SHORT if getattr(row, name) not in {None, ""}]
    facts += [("baseline", run.state.value), *(("decision", made.sentence) for made in run.decisions)]
    settings = [(name, f"{value}  ({source})") for name, (value, source) in json.loads(row.settings).items()]
    reasons = [f"reason: {one_line(reason)}" for reason in json.loads(row.entry).get("reasons", ())]
    width = max(len(name) for name, _ in facts + settings)
    lines = [f"{name.ljust(width)}  {one_line(value)}" for name, value in facts + settings]
    lines[len(facts) : len(facts)] = ["", "workload, configuration, machine:"] if settings else []
    return "\n".join([*lines, *([""] if reasons else []), *reasons]) + "\n"
