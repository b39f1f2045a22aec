"""How far a training is and how well its speed is known, from its log: one of a gigabyte is looked at every few seconds."""

import math
import os
import time
from pathlib import Path

from nlp_bench.config.run import Run, value_of
from nlp_bench.files import age_s
from nlp_bench.immutable import immutable
from nlp_bench.last_start import ATTEMPT, STARTED, TIMED
from nlp_bench.measure.anytime import Bound, ConfidenceSequence, percent

TAIL_BYTES = 64 << 10
SURE_S = 60.0  # silence from which the clock of the file server is asked, which may be another than ours


@immutable
class Progress:
    """The last whole line of one log."""

    iteration: int  # the last iteration that is logged
    total_iterations: int  # those that run.json asks for
    tokens_per_second: float  # rate of the last interval, as logged
    left_s: float  # seconds until the last iteration, at that rate
    silent_s: float  # seconds since the log has grown
    stall_limit_s: float  # silence from which it looks stalled, as the launcher counts: by run.json and the interval

    @property
    def is_stalled(self) -> bool:
        """Whether the log is silent for longer than a stall takes."""
        return self.silent_s > self.stall_limit_s

    def text(self) -> str:
        """Return it for a person."""
        return f"iteration {self.iteration}/{self.total_iterations}, {self.tokens_per_second:.0f} tokens/s, {self.left_s:.0f} s left"


def progress(run: Run, log: Path) -> Progress | None:
    """Return how far the run is; None while its log has no whole line in its last TAIL_BYTES."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            text = stream.read(TAIL_BYTES)
            written = os.fstat(stream.fileno()).st_mtime  # of this file, whatever has its name by now
        silent_s = time.time() - written
        if not 0 <= silent_s <= SURE_S:
            silent_s = age_s(log)
    except OSError:
        return None
    text = text.rpartition(STARTED.encode())[2].rpartition(f"\n{ATTEMPT}".encode())[2]
    found = TIMED.findall(text)
    if not found:
        return None
    number, unit, word = found[-1]
    elapsed_s = float(word) / (1000 if unit == b"ms" else 1)
    if elapsed_s <= 0:
        return None
    iteration, interval_s = int(number), elapsed_s * run.training.log_interval
    tokens = run.batch.global_batch_size * run.batch.sequence_length
    return Progress(
        iteration=iteration,
        total_iterations=run.training.iterations,
        tokens_per_second=tokens / elapsed_s,
        left_s=max(0, run.training.iterations - iteration) * elapsed_s,
        silent_s=silent_s,
        stall_limit_s=run.limits.silence_s(
            interval_s,
            has_pauses=iteration >= run.training.iterations or value_of(run.tuning.train_args, "--save") is not None,
        ),
    )


class Growth:
    """When one log has grown, as its looks see it: the clock that dates its changes may be minutes off, as a node's on Lustre."""

    def __init__(self) -> None:
        self._size: int | None = None
        self._before_s = self._looked_s = -math.inf

    def silent_s(self, log: Path, dated_s: float) -> float:
        """Return the silence `dated_s` by the log's own time, but no more than the time since the last look that saw it shorter."""
        try:
            size = log.stat().st_size
        except OSError:
            return dated_s
        if size != self._size:
            self._size, self._before_s = size, self._looked_s
        self._looked_s = time.monotonic()
        return min(dated_s, self._looked_s - self._before_s)


BLOCK_BYTES = 1 << 20


class BoundTracker:
    """The bound on the mean time of one growing log, of which each look reads only what is new."""

    def __init__(self, run: Run, log: Path, until: str | None) -> None:
        """Want the mean time to the share `until`, or to that of run.json where it is None."""
        word = until or run.tuning.until
        self.ends_itself = run.tuning.until is not None
        self._log, self._log_interval = log, run.training.log_interval
        self._within = percent("--until", word) if word else None
        self._begin()

    def _begin(self) -> None:
        self._sequence = ConfidenceSequence(self._within, self._log_interval) if self._within else None
        self._read, self._rest = 0, b""

    def look(self) -> Bound | None:
        """Read what is new; return what is known of the mean time, None where nobody asked or the lines are too few."""
        if self._sequence is None:
            return None
        try:
            with self._log.open("rb") as stream:
                if stream.seek(0, 2) < self._read:  # written anew
                    self._begin()
                stream.seek(self._read)
                while block := stream.read(BLOCK_BYTES):
                    self._take(block)
        except OSError:
            return None
        return self._sequence.bound()

    def _take(self, block: bytes) -> None:
        self._read += len(block)
        whole, newline, self._rest = (self._rest + block).rpartition(b"\n")
        if not newline:
            self._rest = self._rest[-BLOCK_BYTES:]  # no line of ours is so long
            return
        for number, unit, word in TIMED.findall(whole):
            if self._sequence:
                self._sequence.add(int(number), float(word) / (1000 if unit == b"ms" else 1))
