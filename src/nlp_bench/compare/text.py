"""A comparison for people (terminal, markdown) and for programs (JSON)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nlp_bench.compare.comparison import Compared, Comparison, difference_columns, difference_table, label
from nlp_bench.compare.differences import Difference
from nlp_bench.compare.gate import Gate, Word
from nlp_bench.compare.sentences import cells, legend, names, notes
from nlp_bench.compare.side import Side
from nlp_bench.measure.observation import digest_of
from nlp_bench.measure.repeats import Pool, pool_lines
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.show.escape import escaped_markdown, inert
from nlp_bench.show.grid import Column, as_markdown, as_text, json_text

SCHEMA = "nlp-bench/compare/1"
HEADINGS = ("configuration", "A tokens/s", "B tokens/s", "B/A", "95 % interval", "p", "B is")
_LEFT = frozenset({"configuration", "B is"})


def table(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    common, columns = _columns(found)
    sides = [f"A  {found.a.label}", f"B  {found.b.label}", *([f"   {common}"] if common else [])]
    parts = [[inert(line) for line in sides], as_text(columns)]
    for which, changed in _changes(found):
        parts.append([f"What differs{which}, and may:", difference_table(changed)])
    parts += [notes(found), legend(found)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _columns(found: Comparison) -> tuple[str, list[Column]]:
    """Return what all configurations have in common, and the table; a single one needs no column for its name."""
    common, own = names(found)
    rows = [cells(pair, name) for pair, name in zip(found.compared, own, strict=True)]
    columns = [
        Column(heading=heading, cells=tuple(row[index] for row in rows), is_text=heading in _LEFT)
        for index, heading in enumerate(HEADINGS)
    ]
    return common, columns if len(rows) > 1 else columns[1:]


def _changes(found: Comparison) -> Iterator[tuple[str, Sequence[Difference]]]:
    for pair, name in zip(found.compared, names(found)[1], strict=True):
        changed = (*pair.differences.free, *pair.differences.machine)
        if changed:
            yield (f" ({name})" if name else "", changed)


def markdown(found: Comparison) -> str:
    """Return the comparison in GitHub's markdown."""
    common, columns = _columns(found)
    head = f"**A** {escaped_markdown(found.a.label)}, **B** {escaped_markdown(found.b.label)}"
    lines = [head, *(["", escaped_markdown(common)] if common else []), "", *as_markdown(columns)]
    for which, changed in _changes(found):
        lines += ["", f"What differs{escaped_markdown(which)}, and may:", "", *as_markdown(difference_columns(changed))]
    lines += ["", *(_bullet(note) for note in notes(found))]
    return "\n".join([*lines, "", *legend(found)]) + "\n"


def _bullet(note: str) -> str:
    text = note.lstrip(" ")
    return f"{' ' * (len(note) - len(text))}- {escaped_markdown(text)}"


def record(found: Comparison) -> dict[str, Any]:
    """Return the record of nlp-bench/compare/1."""
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "tokens": found.tokens,
        "a": _side(found.a),
        "b": _side(found.b),
        "workload_vouched_for": found.has_vouched,
        "comparisons": [_compared(pair, found) for pair in found.compared],
        "only_a": [_pool(pool, found.tokens) for pool in found.only_a],
        "only_b": [_pool(pool, found.tokens) for pool in found.only_b],
        "gate": None,
        "equivalence": None,
    }
    for gate in found.gates:
        made[_key(gate)] = {"percent": gate.percent, "strict": gate.strict, "verdict": found.word(gate).value}
    return made


def as_json(found: Comparison) -> str:
    """Return the record as indented JSON."""
    return json_text(record(found))


def _key(gate: Gate) -> str:
    return "equivalence" if gate.equivalence else "gate"


def _side(side: Side) -> dict[str, Any]:
    unreadable = [{"source": run.source, "reasons": list(run.reasons)} for run in side.unreadable]
    return {"label": side.label, "unreadable": unreadable}


def _compared(pair: Compared, found: Comparison) -> dict[str, Any]:
    shown, differences = pair.statistic, pair.differences
    record: dict[str, Any] = {
        "configuration": label(pair.a),
        "a": _pool(pair.a, found.tokens),
        "b": _pool(pair.b, found.tokens),
        "ratio": None,
        "differences": {
            kind: [row.to_json() for row in getattr(differences, kind)] for kind in ("free", "machine", "not_shown")
        },
    }
    if shown:
        ratio = shown.ratio
        record["ratio"] = {
            "value": shown.value,
            "low": ratio.low if ratio else None,
            "high": ratio.high if ratio else None,
            "level": shown.level,
            "p_value": ratio.p_value if ratio and shown.is_provable else None,
            "verdict": shown.verdict.value,
            "basis": shown.basis.value,
            "method": shown.method.value,
            "run_to_run_cv": shown.scatter.cv if shown.scatter else None,
            "degrees_of_freedom": shown.scatter.degrees if shown.scatter else None,
            "other_runs": {
                "run_to_run_cv": shown.known.cv,
                "degrees_of_freedom": shown.known.degrees,
                "used": shown.is_used,
            }
            if shown.known
            else None,
        }
    for gate in found.gates:
        word = gate.word(shown) if pair.a.runs else None
        record[_key(gate)] = word.value if word else None
        open_yet = shown if word is Word.NOT_PROVEN else None
        record[f"{_key(gate)}_num_runs_each"] = gate.runs_each(open_yet) if open_yet else None
        if not gate.equivalence:
            record["unexpectedly_fast"] = gate.is_unexpected(shown)
    return record


def _pool(pool: Pool, tokens: int) -> dict[str, Any]:
    interval = pool.estimate.interval() if pool.estimate else None
    return {
        "identity": digest_of(pool.identity),
        "runs": [run.source for run in pool.runs],
        "without_number": [{"source": run.source, "outcome": run.outcome.value} for run in pool.without_number],
        "copies": [run.source for run in pool.copies],
        "tokens_per_second": pool.tokens_per_second,
        "ci95": list(interval) if interval else None,
        "time_to_report_s": time_to_report_s(tokens, pool.tokens_per_second),
        "run_to_run_cv": pool.run_to_run_cv,
        "within_run_cv": pool.within_run_cv,
        "outliers": [run.source for run in pool.outliers],
        "remarks": pool_lines(pool),
    }


FORMATS: dict[str, Callable[[Comparison], str]] = {"table": table, "json": as_json, "markdown": markdown}
