"""Writes the numbers of each interval for TensorBoard, Weights & Biases and as MLPerf's events.

TensorBoard's files are written by tensorboardX, which needs only protobuf, while the package tensorboard needs grpcio and a server, and by
its synchronous writer: the public SummaryWriter passes events to a thread through a queue of ten; if that thread dies of a full disk, the
eleventh event blocks the training for ever. It also rewrites tags (`lm loss` becomes `lm_loss`).
`:::MLLOG` events have the format of mlcommons/logging (mlperf_logging/mllog/mllog.py). Keys are its constants; `tracked_stats` with
`train_step_time` and `reduced_train_loss` are those of NVIDIA/mlperf-common's callbacks. They are no MLPerf submission: nothing is
evaluated and no target is reached.
"""

import contextlib
import json
import math
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench.clock import unix_s
from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval, tera_per_gpu
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.startup import STARTUP, now_s
from nlp_bench.train.watching.watchers import Say, Scalars, TrainingEnd, Watcher

VS_SAMPLES = ("lm loss", "learning-rate", "batch-size", "loss-scale", "grad-norm")  # also plotted by samples


def scalars_of(interval: Interval) -> Scalars:
    """Return the numbers of the log line by the tags of Megatron-LM (megatron/training/training.py, training_log).

    `tokens-per-second` is our own, and `throughput` is the log line's `model TFLOP/s/GPU`. Loss and gradient norm are left out where
    they are None.
    """
    rate = interval.global_batch_size * interval.sequence_length / interval.elapsed_s
    known = {
        "lm loss": interval.loss,
        "learning-rate": interval.learning_rate,
        "batch-size": float(interval.global_batch_size),
        "loss-scale": interval.loss_scale,
        "grad-norm": interval.grad_norm,
        "iteration-time": interval.elapsed_s,
        "throughput": tera_per_gpu(interval.model_flops, interval),
        "tokens-per-second": rate,
        "mem-max-allocated-bytes": float(interval.peak_bytes),
    }
    return {tag: value for tag, value in known.items() if value is not None}


FLUSH_S = 30.0  # seconds between two flushes to disk; TensorBoard itself reloads every 30 s


class TensorBoard(Watcher):
    """Writes the scalars of log lines; an error is reported once and does not end the training."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._folder, self._every = str(settings.tensorboard_dir), settings.tensorboard_log_interval
        self._say, self._flushed_s = say, time.monotonic()
        self._writer: Any = None
        try:
            self._open()
        except ImportError:
            say(" > TensorBoard: nothing is written, the package is missing; pip install tensorboardX")
        except OSError as error:
            self._give_up(error)
        else:
            say(f" > TensorBoard: events in {self._folder}")

    def _open(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # noqa: PLC0415  # an optional package
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboardX.proto.summary_pb2 import Summary  # noqa: PLC0415

        Path(self._folder).mkdir(parents=True, exist_ok=True)
        self._event, self._summary = Event, Summary
        self._writer = EventsWriter(str(Path(self._folder, "events")))

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        if self._writer is None or interval.iteration % self._every:
            return
        over_samples = {f"{tag} vs samples": scalars[tag] for tag in VS_SAMPLES if tag in scalars}
        try:
            self._write(interval.unix_time_s, interval.iteration, scalars)
            self._write(interval.unix_time_s, interval.consumed_samples, over_samples)
            if time.monotonic() - self._flushed_s > FLUSH_S:
                self._writer.flush()
                self._flushed_s = time.monotonic()
        except OSError as error:
            self._give_up(error)

    def _write(self, unix_time_s: float, step: int, scalars: Scalars) -> None:
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.write_event(self._event(wall_time=unix_time_s, step=step, summary=self._summary(value=values)))

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._say(
            f" > TensorBoard: nothing more is written on {socket.gethostname()}: {self._folder}: {error.strerror}; the "
            "training goes on"
        )

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer = None


class WeightsBiases(Watcher):
    """One run of Weights & Biases; account, server and mode (WANDB_MODE) are set by the environment."""

    def __init__(self, settings: Settings, layout: Layout, say: Say) -> None:
        """Start the run; raises NlpBenchError where that fails."""
        import wandb  # noqa: PLC0415  # an optional package; settings/rules.py checks that it is installed

        self._code = 1  # of a training that does not end regularly
        try:
            self._run: Any = wandb.init(
                project=settings.wandb_project,
                name=settings.wandb_exp_name,
                dir=settings.wandb_save_dir,
                config=asdict(settings) | asdict(layout),
                settings=wandb.Settings(console="off", quiet=True),  # else it captures stdout and prints to the log
            )
        except Exception as error:
            raise NlpBenchError(
                f"wandb_project: Weights & Biases cannot start: {error}; log in with `wandb login`, set WANDB_MODE=offline to "
                "write files only, or leave --wandb-project out"
            ) from error
        say(f" > Weights & Biases: {self._run.url or f'offline, files in {self._run.dir}'}")

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        # wandb's own process sends it
        self._run.log({**scalars, "samples vs steps": interval.consumed_samples}, step=interval.iteration)

    def end(self, ending: TrainingEnd) -> None:
        self._code = ending.code

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a lost connection must not fail the training
            self._run.finish(exit_code=self._code)


POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
FILE = "nlp_bench/train/watching/writers.py"


class MlLog(Watcher):
    """Prints MLPerf's events, one line each, into the log."""

    def __init__(self, settings: Settings, layout: Layout, platform: str, say: Say) -> None:
        """Print the settings before the first iteration; `platform` names the accelerator."""
        self._say, self._batch = say, layout.global_batch_size
        self._has_begun = False
        init_s = unix_s() - (now_s() - STARTUP.started_s)
        self._print("init_start", START, time_s=init_s)
        known = {
            "submission_benchmark": f"nlp_bench_{settings.model_family}",
            "submission_org": "unknown",
            "submission_division": "open",
            "submission_status": "research",
            "submission_platform": platform,
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
        for key, value in known.items():
            self._print(key, POINT, value)

    def before(self, iteration: int) -> None:
        if not self._has_begun:
            self._has_begun = True
            samples = (iteration - 1) * self._batch
            self._print("init_stop", END)
            self._print("run_start", START)
            self._print("block_start", START, samples_count=samples)

    def interval(self, interval: Interval, scalars: Scalars) -> None:  # noqa: ARG002
        stats = {"train_step_time": interval.elapsed_s}
        if interval.loss is not None and math.isfinite(interval.loss):  # JSON has neither NaN nor infinity
            stats["reduced_train_loss"] = interval.loss
        where = {"step": interval.iteration, "samples_count": interval.consumed_samples}
        self._print("tracked_stats", POINT, stats, time_s=interval.unix_time_s, **where)

    def end(self, ending: TrainingEnd) -> None:
        samples = ending.iteration * self._batch
        self._print("block_stop", END, samples_count=samples)
        self._print("run_stop", END, status="aborted" if ending.code else "success", samples_count=samples)

    def _print(self, key: str, kind: str, value: Any = None, *, time_s: float | None = None, **metadata: Any) -> None:
        event = {
            "namespace": "",
            "time_ms": round((unix_s() if time_s is None else time_s) * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": FILE, "lineno": 0, **metadata},
        }
        self._say(f":::MLLOG {json.dumps(event, allow_nan=False)}")
