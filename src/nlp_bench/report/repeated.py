"""Repeats in a report: several runs of one configuration as one measurement, with its own verdict."""

import math
from collections.abc import Sequence
from typing import Any

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.limit import NOT_PROVEN, why_not_proven, word_of
from nlp_bench.measure.repeats import Pool, digest_of, pool, pool_lines
from nlp_bench.outcome import Outcome


def repeats(entries: Sequence[RunEntry], *, allow_measured: bool = False) -> list[Pool]:
    """Return the configurations that were run more than once with a number; a copy that is given as a repeat is told too."""
    return [found for found in pool(entries, allow_measured=allow_measured) if len(found.runs) > 1 or found.copies]


def apart_line(entries: Sequence[RunEntry]) -> str | None:
    """Say that logs of one configuration are not pooled since they are MEASURED, None where there are none."""
    measured = [entry for entry in entries if entry.outcome is Outcome.MEASURED]
    number = sum(len(found.runs) for found in repeats(measured, allow_measured=True) if len(found.runs) > 1)
    words = "logs of one configuration are MEASURED, and so no repeats of each other; pool them with --allow-measured"
    return f"{number} {words}" if number else None


def repeat_lines(pools: Sequence[Pool], tokens: int, limit_s: float | None) -> list[str]:
    """Return what there is to know about each configuration that was repeated, its verdict last."""
    lines = []
    for found in pools:
        name = f"repeats of {found.runs[0].source}"
        lines += [f"{name}: {line}" for line in pool_lines(found)]
        lines.append(f"{name}: {_time_line(found, tokens, limit_s)}")
    return lines


def _time_line(found: Pool, tokens: int, limit_s: float | None) -> str:
    interval_s = time_interval_s(found, tokens)
    rate = found.tokens_per_second
    words = f"{tokens:,} tokens take {tokens / rate:.2f} s" if rate else "no time"
    words += f" ({interval_s[0]:.2f} to {interval_s[1]:.2f} s, 95 % over runs)" if interval_s else ""
    if limit_s is None:
        return words
    why = why_open(found, tokens, limit_s)
    return f"{words}; limit of {limit_s:g} s: {word_over_runs(found, tokens, limit_s)}{f' ({why})' if why else ''}"


def word_over_runs(found: Pool, tokens: int, limit_s: float) -> str:
    """Return PASS, FAIL or NOT PROVEN for the runs as one measurement."""
    return NOT_PROVEN if why_open(found, tokens, limit_s) else word_of(time_interval_s(found, tokens), limit_s)


def why_open(found: Pool, tokens: int, limit_s: float) -> str | None:
    """Return why the runs prove nothing against `limit_s`, None where they do: what opens a run's verdict opens theirs."""
    interval_s = time_interval_s(found, tokens)
    if interval_s is None:
        return "no 95 % interval over runs"
    ends = [run.ending_seconds_per_token or run.seconds_per_token or 0.0 for run in found.runs]
    return why_not_proven(interval_s, limit_s, tokens * math.fsum(ends) / len(ends))


def time_interval_s(found: Pool, tokens: int) -> tuple[float, float] | None:
    """Return the 95 % interval over runs of the time in seconds, shortest first."""
    interval = found.over_runs.interval() if found.over_runs else None
    return (tokens / interval[1], tokens / interval[0]) if interval else None


def repeats_json(pools: Sequence[Pool], tokens: int, limit_s: float | None) -> list[dict[str, Any]]:
    """Return the objects of `repeats` in nlp-bench/report/1."""
    return [_to_json(found, tokens, limit_s) for found in pools]


def _to_json(found: Pool, tokens: int, limit_s: float | None) -> dict[str, Any]:
    interval = found.over_runs.interval() if found.over_runs else None
    interval_s = time_interval_s(found, tokens)
    record: dict[str, Any] = {
        "configuration": digest_of(found.identity),
        "sources": [run.source for run in found.runs],
        "without_number": [run.source for run in found.without_number],
        "copies": [run.source for run in found.copies],
        "tokens_per_second": {"mean": found.tokens_per_second, "ci95": list(interval) if interval else None},
        "time_to_report_s": {
            "mean": tokens / found.tokens_per_second if found.tokens_per_second else None,
            "ci95": list(interval_s) if interval_s else None,
        },
        "run_to_run_cv": found.run_to_run_cv,
        "within_run_cv": found.within_run_cv,
        "num_more_runs": found.more_runs(),
        "outliers": [run.source for run in found.outliers],
    }
    if limit_s is None:
        return record
    why = why_open(found, tokens, limit_s)
    return {**record, "limit": word_over_runs(found, tokens, limit_s), "limit_reasons": [why] if why else []}
