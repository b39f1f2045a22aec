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
from nlp_bench.analysis.repeats import Pool, pool_lines
from nlp_bench.escape import escaped_markdown, inert
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.show.table import Column, as_markdown, as_text, columns_of, json_text, percentage

_SMALLEST_P = 1e-4
_MOST_STOPPED = 3  # logs that were ended before their last iteration, of each side, are named


def _columns(found: Comparison) -> list[Column]:
    rows = []
    for pair in found.compared:
        shown, ratio = pair.statistic, pair.statistic.ratio if pair.statistic else None
        p_value = ratio.p_value if shown and ratio and shown.is_provable else None
        least = f"{_SMALLEST_P:.4f}"
        rows.append(
            [
                *([("configuration", pair.name)] if len(found.compared) > 1 else []),
                ("A tokens/s", _rate(pair.a)),
                ("B tokens/s", _rate(pair.b)),
                ("B/A", f"{shown.value:.4f}" if shown else ""),
                ("95 % interval", f"{ratio.low:.4f} to {ratio.high:.4f}" if ratio else ""),
                ("p", "" if p_value is None else f"{p_value:.4f}" if p_value >= _SMALLEST_P else f"< {least}"),
                ("B is", _verdict(shown) if shown else "without a number" if pair.a.runs else ""),
            ]
        )
    return columns_of(rows, {"configuration", "B is"})


def _rate(pool: Pool) -> str:
    if pool.tokens_per_second is None:
        return "no number"
    found = pool.estimate
    is_known = found and found.interval()  # without one the scatter is as large as the number
    scatter = f" +-{percentage(found.half_width() / found.seconds_per_token, 1)}" if found and is_known else ""
    return f"{pool.tokens_per_second:.2f}{scatter} ({len(pool.runs)} run{'s' if len(pool.runs) > 1 else ''})"


def _verdict(shown: Statistic) -> str:
    is_other = shown.verdict in {Verdict.FASTER, Verdict.SLOWER}
    return f"{percentage(abs(shown.value - 1)) if is_other else ''} {shown.verdict.value}".lstrip()


def _notes(found: Comparison) -> list[str]:
    """Return the remarks, one line each: verdicts in words, repeats, what has no partner, the gate.

    With several configurations each is named above its own lines, which begin with two spaces.
    """
    lines: list[str] = []
    for pair in found.compared:
        about = list(_about(pair, found))
        lines += about if len(found.compared) == 1 else [f"{pair.name}:", *(f"  {line}" for line in about)]
    for name, side, only in (("A", found.a, found.only_a), ("B", found.b, found.only_b)):
        lines += [f"only in {name}: {label(pool)} ({len(pool.runs)} run(s))" for pool in only]
        lines += [f"{name}: {run.source}: {'; '.join(run.reasons)}" for run in side.unreadable]
    if found.has_vouched:
        lines.append("The logs do not both show what was trained; that it was the same is your word (--same-workload).")
    return lines + [_gate_line(found, gate) for gate in found.gates]


def _about(pair: Compared, found: Comparison) -> Iterator[str]:
    if pair.statistic:
        yield _sentence(pair, pair.statistic)
        a, b = (time_to_report_s(found.tokens, pool.tokens_per_second) or 0.0 for pool in (pair.a, pair.b))
        yield f"time for {found.tokens:,} tokens: A {a:.2f} s, B {b:.2f} s"
    for name, pool in (("A", pair.a), ("B", pair.b)):
        failed = [] if pool.runs else [f"{run.source}: {run.outcome.value}" for run in pool.without_number]
        stopped = [f"{run.source} is {run.outcome.value}: {run.stopped}" for run in pool.runs if run.stopped]
        more = [f"{len(stopped) - _MOST_STOPPED} more stopped early"] if len(stopped) > _MOST_STOPPED else []
        yield from (
            f"{name}: {line}" for line in (*pool.doubts, *pool_lines(pool), *stopped[:_MOST_STOPPED], *more, *failed)
        )
    if pair.num_shared:
        yield f"{pair.num_shared} run(s) of B are runs of A, whole or cut: the same run is on both sides"
    for gate in found.gates:
        if not gate.equivalence and gate.is_unexpected(pair.statistic):
            yield f"B is faster by more than {gate.percent:g} %: check that it did the same work before you believe it"


def _sentence(pair: Compared, shown: Statistic) -> str:
    if shown.ratio is None:
        return "no interval: the runs do not show how much they scatter, so nothing is said about the difference"
    percent = percentage(abs(shown.value - 1))
    if shown.verdict is Verdict.DOUBTED:
        words = f"by their numbers B is {percent} {'faster' if shown.value > 1 else 'slower'} than A"
        return f"{words}, but a log contradicts its own (below), and a contradicted number proves nothing"
    if shown.verdict is Verdict.NEEDS_REPEATS:
        words = f"these two runs differ: B's is {percent} {'faster' if shown.value > 1 else 'slower'}"
        if shown.ratio.low <= 1 <= shown.ratio.high:
            words = "these two runs do not differ by more than their own scatter"
        return f"{words}. One run each proves nothing about the machines or settings: runs of the same differ too"
    # Which test it was, where it is not Student's t on the scatter between the compared runs themselves.
    by = "; A and B may scatter differently" if shown.method in {Method.WIDER, Method.WELCH} else ""
    if known := shown.known:
        others = (
            f"other runs of the machine, which differ by {percentage(known.cv)} ({known.degrees:g} degrees of freedom)"
        )
        by += f"; with {others}" if shown.is_used else f"; without {others}: these scatter more"
    rest = f"({len(pair.a.runs)} and {len(pair.b.runs)} runs{by})"
    if shown.verdict is not Verdict.NONE_FOUND:
        return f"B is {percent} {shown.verdict.value} than A {rest}"
    hidden = max(shown.ratio.high / shown.value, shown.value / shown.ratio.low) - 1
    unseen = f"about {percentage(hidden, 1)}" if hidden < 1 else f"a factor of {1 + hidden:.3g}"
    return f"no difference found {rest}; one of less than {unseen} would not be seen"


def _gate_line(found: Comparison, gate: Gate) -> str:
    word, by = found.word(gate), f"by more than {gate.percent:g} %"
    lost = [pair.name for pair in found.compared if pair.a.runs and not pair.b.runs]
    of = f" for {'; '.join(lost[:3])}{f' and {len(lost) - 3} more' if len(lost) > 3 else ''}" if any(lost) else ""
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
    """Return why a gate is not proven, and how many runs would decide it."""
    if why := _why_nothing_proven(found):
        return why
    shown = [pair.statistic for pair in found.compared if pair.statistic]
    unsure = [one for one in shown if gate.word(one) is Word.NOT_PROVEN]
    if not unsure:
        return f"{len(found.only_a)} configuration(s) of A were not measured again"
    numbers = [gate.runs_each(one) for one in unsure]
    known = [number for number in numbers if number is not None]
    enough = f"about {max(known)}" if len(known) == len(numbers) else f"more than {MAX_EACH}"
    if any(one.scatter is None for one in unsure):
        return f"one run each proves nothing; {enough} of each would decide where runs differ by {percentage(USUAL_SCATTER, 0)}, which nobody knows here"
    which = "one is slower than the other" if gate.equivalence else "B is slower"
    return f"the runs do not show whether {which} by more than {gate.percent:g} %; {enough} of each would, if they scatter as these do"


def _why_nothing_proven(found: Comparison) -> str | None:
    """Return which runs prove nothing however many there are, None where none does."""
    if doubts := [text for pair in found.compared for pool in (pair.a, pair.b) for text in pool.doubts]:
        more = f"; and {len(doubts) - 1} more" if len(doubts) > 1 else ""
        return f"a contradicted number proves nothing: {doubts[0]}{more}"
    if any(pair.num_shared for pair in found.compared):
        return "a run that is on both sides says nothing about a difference; leave it out of one of them"
    if any(pool.is_too_alike for pair in found.compared for pool in (pair.a, pair.b)):
        return "runs that are no independent repeats prove nothing; give runs of their own jobs"
    if left := [(name, run) for name, side in (("A", found.a), ("B", found.b)) for run in side.unreadable]:
        (name, run), number = left[0], f"{len(left)} runs are" if len(left) > 1 else "one run is"
        return f"{number} not in it ({name}: {run.source}{', ...' if len(left) > 1 else ''}), and may be slower; make it readable, or leave it out"
    return None


def _legend(found: Comparison) -> list[str]:
    number = sum(1 for pair in found.compared if pair.statistic)
    lines = [
        "tokens/s: the steady rate; of several runs the mean with its 95 % interval over runs, of one run within that run.",
        "B/A: rate of B / rate of A; B is faster or slower only where the whole interval is, and it is known what runs differ by.",
    ]
    bonferroni = f"The intervals of B/A hold together at 95 %: each is one at {percentage(1 - 0.05 / max(number, 1))} (Bonferroni)."
    return [*lines, bonferroni] if number > 1 else lines


def table(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    sides = [f"A  {found.a.label}", f"B  {found.b.label}", *([f"   {found.common}"] if found.common else [])]
    parts = [[inert(line) for line in sides], as_text(_columns(found))]
    parts += [[f"What differs{which}, and may:", difference_table(changed)] for which, changed in _changes(found)]
    return "\n\n".join("\n".join(part) for part in (*parts, _notes(found), _legend(found)) if part) + "\n"


def _changes(found: Comparison) -> Iterator[tuple[str, Sequence[Difference]]]:
    for pair in found.compared:
        changed = (*pair.differences.free, *pair.differences.machine)
        if changed:
            yield (f" ({pair.name})" if pair.name else "", changed)


def _markdown(found: Comparison) -> str:
    head = f"**A** {escaped_markdown(found.a.label)}, **B** {escaped_markdown(found.b.label)}"
    lines = [head, *(["", escaped_markdown(found.common)] if found.common else []), "", *as_markdown(_columns(found))]
    for which, changed in _changes(found):
        lines += ["", f"What differs{escaped_markdown(which)}, and may:", "", *as_markdown(difference_columns(changed))]
    notes = [(note, note.lstrip(" ")) for note in _notes(found)]
    bullets = [f"{' ' * (len(note) - len(text))}- {escaped_markdown(text)}" for note, text in notes]
    return "\n".join([*lines, "", *bullets, "", *_legend(found)]) + "\n"


def record(found: Comparison) -> dict[str, Any]:
    """Return the record of nlp-bench/compare/1."""
    gates = {
        _key(gate): {"percent": gate.percent, "strict": gate.strict, "verdict": found.word(gate).value}
        for gate in found.gates
    }
    return {
        "schema": "nlp-bench/compare/1",
        "tokens": found.tokens,
        "a": _side(found.a),
        "b": _side(found.b),
        "workload_vouched_for": found.has_vouched,
        "comparisons": [_compared(pair, found) for pair in found.compared],
        "only_a": [_pool(pool, found.tokens) for pool in found.only_a],
        "only_b": [_pool(pool, found.tokens) for pool in found.only_b],
        "gate": gates.get("gate"),
        "equivalence": gates.get("equivalence"),
    }


def _key(gate: Gate) -> str:
    return "equivalence" if gate.equivalence else "gate"


def _side(side: Side) -> dict[str, Any]:
    unreadable = [{"source": run.source, "reasons": list(run.reasons)} for run in side.unreadable]
    return {"label": side.label, "unreadable": unreadable}


def _compared(pair: Compared, found: Comparison) -> dict[str, Any]:
    shown = pair.statistic
    record: dict[str, Any] = {
        "configuration": label(pair.a),
        "a": _pool(pair.a, found.tokens),
        "b": _pool(pair.b, found.tokens),
        "ratio": _ratio(shown) if shown else None,
        "differences": {
            kind: [row.to_json() for row in getattr(pair.differences, kind)]
            for kind in ("free", "machine", "not_shown")
        },
    }
    for gate in found.gates:
        word = gate.word(shown) if pair.a.runs else None
        record[_key(gate)] = word.value if word else None
        is_open = shown and word is Word.NOT_PROVEN and not shown.is_doubted
        record[f"{_key(gate)}_num_runs_each"] = gate.runs_each(shown) if shown and is_open else None
        if not gate.equivalence:
            record["unexpectedly_fast"] = gate.is_unexpected(shown)
    return record


def _ratio(shown: Statistic) -> dict[str, Any]:
    ratio, own, known = shown.ratio, shown.scatter, shown.known
    others = {"run_to_run_cv": known.cv, "degrees_of_freedom": known.degrees, "used": shown.is_used} if known else None
    return {
        "value": shown.value,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "level": shown.level,
        "p_value": ratio.p_value if ratio and shown.is_provable else None,
        "verdict": shown.verdict.value,
        "basis": shown.basis.value,
        "method": shown.method.value,
        "run_to_run_cv": own.cv if own else None,
        "degrees_of_freedom": own.degrees if own else None,
        "other_runs": others,
    }


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
        "doubts": [
            {"source": run.source, "outcome": run.outcome.value, "doubts": list(run.doubts)}
            for run in pool.runs
            if run.doubts
        ],
        "remarks": pool_lines(pool),
    }


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "table": table,
    "json": lambda found: json_text(record(found)),
    "markdown": _markdown,
}
