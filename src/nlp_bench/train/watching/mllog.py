"""`:::MLLOG` events while the training runs, in the form of mlcommons/logging (mlperf_logging/mllog/mllog.py).

Keys are its constants; `tracked_stats` with `train_step_time` and `reduced_train_loss` is what NVIDIA/mlperf-common's callbacks
add. They are no MLPerf submission: nothing is evaluated and no target is reached.
"""

import json
import math
import time
from typing import Any

from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.startup import STARTUP, now_s
from nlp_bench.train.watching.watcher import Ending, Say, Scalars, Watcher

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
FILE = "nlp_bench/train/watching/mllog.py"


class MlLog(Watcher):
    """Prints one line per event into the log."""

    def __init__(self, settings: Settings, layout: Layout, platform: str, say: Say) -> None:
        """Print what is known before the first iteration; `platform` names the accelerator."""
        self._say, self._batch = say, layout.global_batch_size
        self._has_begun = False
        init_s = time.time() - (now_s() - STARTUP.started_s)
        self._print("init_start", START, time_s=init_s)
        for key, value in (_submission(settings, platform) | _settings(settings, layout)).items():
            self._print(key, POINT, value)

    def before(self, iteration: int) -> None:
        """Start the run with its first iteration."""
        if not self._has_begun:
            self._has_begun = True
            samples = (iteration - 1) * self._batch
            self._print("init_stop", END)
            self._print("run_start", START)
            self._print("block_start", START, samples_count=samples)

    def interval(self, interval: Interval, scalars: Scalars) -> None:  # noqa: ARG002
        """Print the seconds per iteration and the loss."""
        stats = {"train_step_time": interval.elapsed_s}
        if interval.loss is not None and math.isfinite(interval.loss):  # JSON has no other numbers
            stats["reduced_train_loss"] = interval.loss
        where = {"step": interval.iteration, "samples_count": interval.consumed_samples}
        self._print("tracked_stats", POINT, stats, time_s=interval.unix_time_s, **where)

    def end(self, ending: Ending) -> None:
        """End the run."""
        samples = ending.iteration * self._batch
        self._print("block_stop", END, samples_count=samples)
        self._print("run_stop", END, status="aborted" if ending.code else "success", samples_count=samples)

    def _print(self, key: str, kind: str, value: Any = None, *, time_s: float | None = None, **metadata: Any) -> None:
        event = {
            "namespace": "",
            "time_ms": round((time.time() if time_s is None else time_s) * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": FILE, "lineno": 0, **metadata},
        }
        self._say(f":::MLLOG {json.dumps(event, allow_nan=False)}")


def _submission(settings: Settings, platform: str) -> dict[str, Any]:
    return {
        "submission_benchmark": f"nlp_bench_{settings.model_family}",
        "submission_org": "unknown",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": platform,
    }


def _settings(settings: Settings, layout: Layout) -> dict[str, Any]:
    return {
        "global_batch_size": layout.global_batch_size,
        "max_sequence_length": settings.seq_length,
        "gradient_accumulation_steps": layout.num_microbatches,
        "seed": settings.seed,
        "opt_name": settings.optimizer,
        "opt_base_learning_rate": settings.lr,
        "opt_end_learning_rate": settings.min_lr,
        "opt_adamw_beta_1": settings.adam_beta1,
        "opt_adamw_beta_2": settings.adam_beta2,
        "opt_adamw_epsilon": settings.adam_eps,
        "opt_adamw_weight_decay": settings.weight_decay,
        "opt_gradient_clip_norm": settings.clip_grad,
    }
