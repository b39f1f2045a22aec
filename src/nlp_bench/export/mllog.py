"""`:::MLLOG` events of one run, as mlcommons/logging reads them (mlperf_logging/mllog/mllog.py and compliance_checker/mlp_parser).

They carry the measurement in MLPerf's terms; they are no MLPerf submission: no target quality was reached, no evaluation ran.
Times count from the first logged iteration in milliseconds, so that the events do not depend on times of day.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.export.forms import Subject

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
_SETTINGS = {
    "seed": "seed",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "opt_name": "optimizer",
    "opt_base_learning_rate": "lr",
    "opt_end_learning_rate": "min_lr",
    "opt_adamw_beta_1": "adam_beta1",
    "opt_adamw_beta_2": "adam_beta2",
    "opt_adamw_epsilon": "adam_eps",
    "opt_adamw_weight_decay": "weight_decay",
    "opt_gradient_clip_norm": "clip_grad",
}
"""MLPerf's key to the name of the setting."""


def events_text(subject: Subject, submitter: str = "") -> str:
    """Return the lines of `result_N.txt`. Raises NlpBenchError for a log that states rates and no times."""
    return "".join(f":::MLLOG {json.dumps(event, allow_nan=False)}\n" for event in _events(subject, submitter))


def _event(time_s: float, kind: str, key: str, value: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "namespace": "",
        "time_ms": round(time_s * 1000),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "nlp_bench/export/mllog.py", "lineno": 0, **metadata},
    }


def _events(subject: Subject, submitter: str) -> Iterator[dict[str, Any]]:
    entry = subject.entry
    model = one_line(entry.model or subject.text("workload.model") or "unnamed")
    family = entry.workload.value("model_family") or "gpt"
    submission = {
        "submission_benchmark": f"nlp_bench_{family}_{model}",
        "submission_org": submitter or "unknown",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": subject.text("run.system.name", "workload.system") or "unknown",
    }
    yield from (_event(0, POINT, key, one_line(text)) for key, text in submission.items())
    settings: dict[str, Any] = {
        "global_batch_size": entry.global_batch_size,
        "max_sequence_length": entry.sequence_length,
        **{key: entry.workload.value(name) for key, name in _SETTINGS.items()},
    }
    for key, value in settings.items():
        if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
            yield _event(0, POINT, key, value)
    yield from _training(subject)


def _training(subject: Subject) -> Iterator[dict[str, Any]]:
    entry, measured = subject.entry, subject.entry.throughput
    if measured is None or not measured.sizes.has_times or not entry.global_batch_size:
        raise NlpBenchError(f"{entry.source}: MLLOG events need a time for each record and a batch; this log has none")
    now_s, samples, last = 0.0, 0, 0
    yield _event(0, START, "run_start", None)
    yield _event(0, START, "block_start", None, samples_count=0)
    spans = measured.spans
    for record, seconds, elapsed_s in zip(spans.records, spans.seconds.tolist(), spans.elapsed_s.tolist(), strict=True):
        now_s += seconds
        samples += (record.iteration - last) * (record.global_batch_size or entry.global_batch_size)
        samples, last = record.consumed_samples or samples, record.iteration
        stats = {"train_step_time": elapsed_s}
        if record.lm_loss is not None and math.isfinite(record.lm_loss):
            stats["reduced_train_loss"] = record.lm_loss
        yield _event(now_s, POINT, "tracked_stats", stats, step=record.iteration, samples_count=samples)
    yield _event(now_s, END, "block_stop", None, samples_count=samples)
    name, rate = subject.rate
    result = {f"tokens_per_second_{name}": rate, "time_to_report_s": subject.time_s, "tokens": subject.tokens}
    yield _event(now_s, POINT, "tracked_stats", result, samples_count=samples)
    yield _event(now_s, END, "run_stop", None, status="success", samples_count=samples)
