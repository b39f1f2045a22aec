"""What is written of a measured run folder: result.json, and metrics.txt with a line `key: value` per column of the JUBE table.

result.json is the versioned record with the raw samples that every number can be recomputed from; JUBE reads metrics.txt by the pattern
`^key: (.*)$`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nlp_bench.config.values import clock
from nlp_bench.escape import one_line
from nlp_bench.measure.folder import FolderMeasurement
from nlp_bench.measure.judgement import plain_number
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import REPORT_TOKENS, Throughput, time_to_report_s
from nlp_bench.measure.workload import lookup

SCHEMA = "nlp-bench/result/1"
ENDED = ("outcome", "evidence", "exit_status", "job_id", "ended", "attempt", "attempts")
_IDENTITY = ("model", "system", "launch", "parallel", "batch", "training", "nlp_bench")


def result_record(measured: FolderMeasurement, tokens: int = REPORT_TOKENS) -> dict[str, Any]:
    """Return the record of nlp-bench/result/1.

    `run` is an object of nlp-bench/report/1, `identity` is copied from run.json, `ended` from outcome.json, and
    `samples` holds iteration, elapsed_s (seconds per iteration) and lm_loss of each believed line; a loss that is
    no finite number is the string "nan", "inf" or "-inf", because JSON has no such numbers.
    """
    return {
        "schema": SCHEMA,
        "tokens": tokens,
        "run": measured.entry.to_json(tokens),
        "identity": {key: measured.run[key] for key in _IDENTITY if key in measured.run},
        "ended": {key: measured.ended.get(key) for key in ENDED},
        "samples": [
            {"iteration": each.iteration, "elapsed_s": each.elapsed_s, "lm_loss": plain_number(each.lm_loss)}
            for each in measured.entry.records
        ],
    }


FROM_RUN = {
    "system": "system.name",
    "version": "system.version",
    "accelerator": "system.accelerator",
    "queue": "launch.queue",
    "job_time": "launch.timelimit",
    "model": "model.name",
    "model_size": "model.parameters_billion",
    "gpus_per_node": "parallel.gpus_per_node",
    "micro_batch_size": "batch.micro_batch_size",
    "gas": "batch.gradient_accumulation_steps",
    "nodes": "parallel.nodes",
    "batch_size": "batch.global_batch_size",
    "pipeline_parallel": "parallel.pipeline",
    "tensor_parallel": "parallel.tensor",
    "context_parallel": "parallel.context",
    "recompute": "training.recompute",
    "trainer": "tuning.trainer",
}
"""Key of the line to field of run.json."""

_ELSEWHERE = ("trainer", "megatron_lm_repo", "megatron_lm_commit", "num_layers_per_virtual_pipeline_stage")
"""Switches that have columns of their own, or need none."""


def metrics_text(measured: FolderMeasurement, tokens: int = REPORT_TOKENS, *, job_elapsed_s: int | None = None) -> str:
    """Return the lines of one run; a value that is unknown, or not allowed because the run is not VALID, has no line.

    `job_elapsed_s` is what the job (of a chain the last one) took.
    """
    entry = measured.entry
    values: dict[str, object] = {
        "outcome": entry.outcome.value,
        "reason": "; ".join(entry.reason_texts) or None,
        "job_id": measured.ended.get("job_id"),
        **{key: lookup(measured.run, dotted) for key, dotted in FROM_RUN.items()},
        "job_elapsed": clock(job_elapsed_s) if job_elapsed_s is not None else None,
        "iterations": entry.records[-1].iteration if entry.records else None,
        "virtual_pipeline": entry.workload.value("virtual_pipeline_model_parallel_size"),
        "tuning": switches(lookup(measured.run, "tuning")),
        **(_numbers(entry, entry.throughput, tokens) if entry.throughput else {}),
    }
    return metric_lines(values)


def metric_lines(values: Mapping[str, object]) -> str:
    """Return a line `key: value` for each value that is known, without commas: JUBE's csv does not quote."""
    known = {key: one_line(value) for key, value in values.items() if value not in (None, "")}
    return "".join(f"{key}: {text.replace(',', ';')}\n" for key, text in known.items())


def switches(tuning: object) -> str | None:
    """Return the switches that are on, `name` or `name=value`: in a sweep over one of them the rows differ here alone."""
    if not isinstance(tuning, dict):
        return None
    words = []
    for name, value in tuning.items():
        if name not in _ELSEWHERE and value not in (None, False, "", []):
            said = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(name if value is True else f"{name}={said}")
    return " ".join(words)


def _numbers(entry: RunResult, throughput: Throughput, tokens: int) -> dict[str, object]:
    losses = entry.records.column("lm_loss")[entry.records.has("lm_loss")]
    ends = {"first_loss": losses[0], "last_loss": losses[-1]} if len(losses) else {}
    low, high = entry.ci95 or (None, None)
    flops = entry.records.column("tflops")
    flops = flops[np.isfinite(flops)]
    window, times = throughput.window, throughput.seconds_per_iteration
    return {
        **{name: f"{loss:.6E}" for name, loss in ends.items()},
        # The old table's column is JUBE's mean over all lines, warm-up included.
        "avg_tflops_per_gpu": _fixed(float(flops.mean()) if len(flops) else None),
        "tokens_per_second": _fixed(entry.reference),
        "time_to_report_in_seconds": _fixed(time_to_report_s(tokens, entry.reference)),
        "tokens_per_second_steady": _fixed(entry.steady),
        "time_to_report_steady_in_seconds": _fixed(time_to_report_s(tokens, entry.steady)),
        "tokens_per_second_sustained": _fixed(entry.sustained),
        "time_to_report_sustained_in_seconds": _fixed(time_to_report_s(tokens, entry.sustained)),
        "ci95_low": _fixed(low),
        "ci95_high": _fixed(high),
        "tokens_per_second_per_gpu": _fixed(entry.tokens_per_second_per_gpu),
        "seconds_per_iteration_mean": _fixed(times.mean if times else None, 4),
        "window": f"{window.first_iteration}-{window.last_iteration}",
    }


def _fixed(value: float | None, digits: int = 2) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
