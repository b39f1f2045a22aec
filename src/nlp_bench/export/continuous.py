"""JSON for collectors of continuous benchmarking.

- github-action-benchmark: a list of `name`, `unit`, `value`, `range`, `extra` for its tools `customBiggerIsBetter` and
  `customSmallerIsBetter` (benchmark-action/github-action-benchmark, README).
- Bencher Metric Format: benchmark to measure to `value`, `lower_value`, `upper_value` (bencher.dev, reference/bencher-metric-format).
"""

from collections.abc import Sequence
from typing import Any

from nlp_bench.escape import one_line
from nlp_bench.export.subject import Subject
from nlp_bench.show.table import json_text

_LAYOUT = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "micro_batch_size": "mbs",
    "global_batch_size": "gbs",
}
"""Settings that distinguish the runs of a sweep, and their usual abbreviations."""


def bigger_is_better(subjects: Sequence[Subject]) -> str:
    """Return the rates, for `customBiggerIsBetter`."""
    named = zip(_names(subjects), subjects, strict=True)
    return json_text([_point(s, f"{n}: tokens per second", "tokens/s", s.rate[1], s.entry.ci95) for n, s in named])


def smaller_is_better(subjects: Sequence[Subject]) -> str:
    """Return the times, for `customSmallerIsBetter`."""
    named = zip(_names(subjects), subjects, strict=True)
    return json_text(
        [_point(s, f"{n}: time for {s.tokens} tokens", "s", s.time_s, s.entry.time_ci95_s(s.tokens)) for n, s in named]
    )


def bencher(subjects: Sequence[Subject]) -> str:
    """Return both measures of each run in the Bencher Metric Format."""
    record: dict[str, dict[str, Any]] = {}
    for name, subject in zip(_names(subjects), subjects, strict=True):
        record[name] = {
            "tokens-per-second": _metric(subject.rate[1], subject.entry.ci95),
            "time-to-report-s": _metric(subject.time_s, subject.entry.time_ci95_s(subject.tokens)),
        }
    return json_text(record)


def _metric(value: float, interval: tuple[float, float] | None) -> dict[str, float]:
    return {"value": value, **({"lower_value": interval[0], "upper_value": interval[1]} if interval else {})}


def _point(
    subject: Subject, what: str, unit: str, value: float, interval: tuple[float, float] | None
) -> dict[str, Any]:
    point: dict[str, Any] = {"name": f"{what} ({subject.rate[0]})", "unit": unit, "value": value}
    if interval:
        point["range"] = f"{interval[0]:.6g} to {interval[1]:.6g} (95 %)"
    return {**point, "extra": f"window: {subject.window or 'unknown'}\nsource: {one_line(subject.entry.source)}"}


def _names(subjects: Sequence[Subject]) -> list[str]:
    """Return names that are the same from run to run: model, system and size, else the path; repeats are numbered, so that none is lost."""
    names = []
    for subject in subjects:
        entry = subject.entry
        parts = (entry.model, subject.text("run.system.name"), entry.num_gpus)
        layout = [f"{short}{value}" for name, short in _LAYOUT.items() if (value := entry.workload.value(name))]
        names.append(one_line(" ".join(map(str, (*parts, *layout))) if all(parts) else entry.source))
    return [name if names.count(name) == 1 else f"{name} #{names[:i].count(name) + 1}" for i, name in enumerate(names)]
