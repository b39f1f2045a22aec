"""A comparison for people (terminal, markdown) and for programs (JSON)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nlp_bench.analysis.comparison import (
    Compared,
    Comparison,
    Difference,
    Side,
    difference_columns,
    difference_table,
    label,
)
from nlp_bench.analysis.contrast import MAX_EACH, USUAL_SCATTER, Gate, Method, Statistic, Verdict, Word
from nlp_bench.analysis.observation import digest_of
from nlp_bench.analysis.repeats import Pool, percentage, pool_lines
from nlp_bench.escape import escaped_markdown, inert
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.show.table import Column, as_markdown, as_text, json_text

_SMALLEST_P = 1e-4


def names(found: Comparison) -> tuple[str, list[str]]:
    """Return what all configurations of both sides have in common, and what each has besides; a single one needs no name."""
    parts = [label(pair.a).split(", ") for pair in found.compared]
    both = [*parts, *(label(pair.b).split(", ") for pair in found.compared)]
    common = [part for part in parts[0] if all(part in others for others in both)]
    if len(parts) == 1:
        return ", ".join(common), [""]
    return ", ".join(common), [", ".join(part for part in others if part not in common) for others in parts]


def cells(pair: Compared, name: str) -> tuple[str, ...]:
    """Return the row of one configuration, which is called `name`."""
    shown = pair.statistic
    ratio = shown.ratio if shown else None
    return (
        name,
        _rate(pair.a),
        _rate(pair.b),
        f"{shown.value:.4f}" if shown else "",
        f"{ratio.low:.4f} to {ratio.high:.4f}" if ratio else "",
        _p_value(shown) if shown else "",
        _verdict(shown) if shown else "without a number" if pair.a.runs else "",
    )


def _p_value(shown: Statistic) -> str:
    if shown.ratio is None or not shown.is_provable:
        return ""
    value = shown.ratio.p_value
    return f"{value:.4f}" if value >= _SMALLEST_P else f"< {_SMALLEST_P:.4f}"


def _rate(pool: Pool) -> str:
    if not pool.runs or pool.tokens_per_second is None:
        return "no number"
    found = pool.estimate
    is_known = found and found.interval()  # without one the scatter is as large as the number
    scatter = f" +-{percentage(found.half_width() / found.seconds_per_token, 1)}" if found and is_known else ""
    return f"{pool.tokens_per_second:.2f}{scatter} ({len(pool.runs)} run{'s' if len(pool.runs) > 1 else ''})"


def _verdict(shown: Statistic) -> str:
    if shown.verdict in {Verdict.FASTER, Verdict.SLOWER}:
        return f"{percentage(abs(shown.value - 1))} {shown.verdict.value}"
    return str(shown.verdict.value)


def notes(found: Comparison) -> list[str]:
    """Return what to know, one line each: verdicts in words, repeats, what has no partner, the gate.

    Of several configurations each stands above its own lines, which begin with two spaces.
    """
    lines: list[str] = []
    for pair, name in zip(found.compared, names(found)[1], strict=True):
        about = _about(pair, found)
        lines += about if len(found.compared) == 1 else [f"{name}:", *(f"  {line}" for line in about)]
    for name, side, only in (("A", found.a, found.only_a), ("B", found.b, found.only_b)):
        lines += [f"only in {name}: {label(pool)} ({len(pool.runs)} run(s))" for pool in only]
        lines += [f"{name}: {run.source}: {'; '.join(run.reasons)}" for run in side.unreadable]
    if found.has_vouched:
        lines.append("The logs do not both show what was trained; that it was the same is your word (--same-workload).")
    return lines + [_gate_line(found, gate, found.word(gate)) for gate in found.gates]


def _about(pair: Compared, found: Comparison) -> list[str]:
    lines = [_sentence(pair), _time_line(pair, found.tokens)] if pair.statistic else []
    lines += [f"{name}: {line}" for name, pool in (("A", pair.a), ("B", pair.b)) for line in _runs_lines(pool)]
    if pair.num_shared:
        lines.append(f"{pair.num_shared} run(s) of B are runs of A, whole or cut: the same run is on both sides")
    lines += [
        f"B is faster by more than {gate.percent:g} %: check that it did the same work before you believe it"
        for gate in found.gates
        if not gate.equivalence and gate.is_unexpected(pair.statistic)
    ]
    return lines


def _sentence(pair: Compared) -> str:
    shown = pair.statistic
    if shown is None or shown.ratio is None:
        return "no interval: the runs do not show how much they scatter, so nothing is said about the difference"
    percent = percentage(abs(shown.value - 1))
    hidden = max(shown.ratio.high / shown.value, shown.value / shown.ratio.low) - 1
    if shown.verdict is Verdict.NEEDS_REPEATS:
        differ = not shown.ratio.low <= 1 <= shown.ratio.high
        words = f"these two runs differ: B's is {percent} {'faster' if shown.value > 1 else 'slower'}"
        words = words if differ else "these two runs do not differ by more than their own scatter"
        return f"{words}. One run each proves nothing about the machines or settings: runs of the same differ too"
    rest = f"({len(pair.a.runs)} and {len(pair.b.runs)} runs{_by(shown)})"
    if shown.verdict is Verdict.NONE_FOUND:
        return f"no difference found {rest}; one of {_unseen(hidden)} would not be seen"
    return f"B is {percent} {shown.verdict.value} than A {rest}"


def _by(shown: Statistic) -> str:
    """Say which test it was where that is not Student's t on what the compared runs themselves differ by."""
    words = "; A and B may scatter differently" if shown.method in {Method.WIDER, Method.WELCH} else ""
    if shown.known is None:
        return words
    known = f"other runs of the machine, which differ by {percentage(shown.known.cv)} ({shown.known.degrees:g} degrees of freedom)"
    return f"{words}; with {known}" if shown.is_used else f"{words}; without {known}: these scatter more"


def _unseen(hidden: float) -> str:
    return f"less than about {percentage(hidden, 1)}" if hidden < 1 else f"less than a factor of {1 + hidden:.3g}"


def _time_line(pair: Compared, tokens: int) -> str:
    times = [time_to_report_s(tokens, pool.tokens_per_second) or 0.0 for pool in (pair.a, pair.b)]
    return f"time for {tokens:,} tokens: A {times[0]:.2f} s, B {times[1]:.2f} s"


def _runs_lines(pool: Pool) -> list[str]:
    failed = [] if pool.runs else [f"{run.source}: {run.outcome.value}" for run in pool.without_number]
    return [*pool_lines(pool), *failed]


def _gate_line(found: Comparison, gate: Gate, word: Word) -> str:
    own = zip(found.compared, names(found)[1], strict=True)
    lost = [name for pair, name in own if pair.a.runs and not pair.b.runs]
    of = f" for {'; '.join(lost[:3])}{f' and {len(lost) - 3} more' if len(lost) > 3 else ''}" if any(lost) else ""
    by = f"by more than {gate.percent:g} %"
    meaning = {
        Word.PASS: f"it is proven that B is not slower than A {by}",
        Word.FAIL: f"B has no number{of}" if lost else f"it is proven that B is slower than A {by}",
        Word.EQUIVALENT: f"it is proven that neither is slower than the other {by}",
        Word.NOT_EQUIVALENT: f"B has no number{of}" if lost else f"it is proven that one is slower than the other {by}",
        Word.NOT_PROVEN: _why_open(found, gate),
    }
    name = "EQUIVALENCE" if gate.equivalence and word is Word.NOT_PROVEN else "" if gate.equivalence else "GATE"
    stops = "; --strict stops here" if gate.stops(word) and word is Word.NOT_PROVEN else ""
    return f"{f'{name} {word.value}'.strip()}: {meaning[word]}{stops}"


def _why_open(found: Comparison, gate: Gate) -> str:
    """Say why a gate is not proven, and how many runs would decide it."""
    if any(pair.num_shared for pair in found.compared):
        return "a run that is on both sides says nothing about a difference; leave it out of one of them"
    unsure = [
        pair.statistic for pair in found.compared if pair.statistic and gate.word(pair.statistic) is Word.NOT_PROVEN
    ]
    if not unsure:
        return f"{len(found.only_a)} configuration(s) of A were not measured again"
    numbers = [gate.runs_each(shown) for shown in unsure]
    most = max((number for number in numbers if number), default=0)
    enough = f"more than {MAX_EACH}" if None in numbers else f"about {most}"
    scatters = [shown.scatter for shown in unsure if shown.scatter]
    if len(scatters) < len(unsure):
        return f"one run each proves nothing; {enough} of each would decide where runs differ by {percentage(USUAL_SCATTER, 0)}, which nobody knows here"
    which = "one is slower than the other" if gate.equivalence else "B is slower"
    return f"the runs do not show whether {which} by more than {gate.percent:g} %; {enough} of each would, if they scatter as these do"


def legend(found: Comparison) -> list[str]:
    """Return what the columns mean."""
    number = sum(1 for pair in found.compared if pair.statistic)
    lines = [
        "tokens/s: the steady rate; of several runs the mean with its 95 % interval over runs, of one run within that run.",
        "B/A: rate of B / rate of A; B is faster or slower only where the whole interval is, and it is known what runs differ by.",
    ]
    if number > 1:
        lines.append(
            f"The intervals of B/A hold together at 95 %: each is one at {percentage(1 - 0.05 / number)} (Bonferroni)."
        )
    return lines


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
