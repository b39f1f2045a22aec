"""result.json: the versioned record of one run, with the raw samples that every number can be recomputed from."""

import math
from typing import Any

from nlp_bench.logs.record import LogRecord
from nlp_bench.measure.folder import FolderMeasurement
from nlp_bench.measure.throughput import REPORT_TOKENS

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
        "samples": [_sample(record) for record in measured.entry.records],
    }


def _sample(record: LogRecord) -> dict[str, Any]:
    loss = record.lm_loss
    return {
        "iteration": record.iteration,
        "elapsed_s": record.elapsed_s,
        "lm_loss": loss if loss is None or math.isfinite(loss) else str(loss),
    }
