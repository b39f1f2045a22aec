"""How far a training is, from the end of its log alone: a log of a gigabyte is looked at every few seconds."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.files import age_s
from nlp_bench.last_start import ATTEMPT, STARTED

TAIL_BYTES = 64 << 10
SURE_S = 60.0
"""Silence from which the clock of the file server is asked, which may be another than ours."""
LINE = re.compile(
    rb"iteration +(\d+)/ *\d+ \|.*?elapsed time per iteration \((s|ms)\): *([0-9.]+(?:[eE][-+]?\d+)?) *\|"
)
"""Our trainer's line, or Megatron-LM's with its milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The last whole line of one log."""

    iteration: int
    """The last iteration that is logged."""
    total_iterations: int
    """Those that run.json asks for."""
    tokens_per_second: float
    """Rate of the last interval, as logged."""
    left_s: float
    """Seconds until the last iteration, at that rate."""
    silent_s: float
    """Seconds since the log has grown."""
    stall_limit_s: float
    """Silence from which the run looks stalled, by run.json's limits and this interval's length, as the launcher counts it."""

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
    found = LINE.findall(text)
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
            interval_s, has_pauses=iteration >= run.training.iterations or "--save" in run.tuning.train_args
        ),
    )
