"""TensorBoard's event files, through tensorboardX: it needs protobuf only, where the package tensorboard needs grpcio and a server.

Used is its synchronous writer. The public SummaryWriter hands events to a thread through a queue of ten; where that thread
dies of a full disk, the eleventh event waits for ever, and with it a training of thousands of ranks. It also rewrites tags
(`lm loss` becomes `lm_loss`).
"""

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.scalars import VS_SAMPLES
from nlp_bench.train.watching.watcher import Say, Scalars, Watcher

FLUSH_S = 30.0
"""Seconds between two syncs to disk; TensorBoard itself looks every 30 s."""


class TensorBoard(Watcher):
    """Writes the scalars of log lines; whatever goes wrong is said once and never ends the training."""

    def __init__(self, settings: Settings, say: Say) -> None:
        """Open a new event file in --tensorboard-dir."""
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
        """Write one event for the iteration and one for the samples."""
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
        """Bring the rest to disk."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer = None
