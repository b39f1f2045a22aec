"""Records and run folders to measure."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.published import published_log, write_run

from nlp_bench.logs.record import LogRecord

Make = Callable[..., list[LogRecord]]


@pytest.fixture
def records() -> Make:
    """Make records of log interval `step` with the given seconds per iteration."""

    def make(*seconds: float | None, step: int = 1, start: int = 0, batch: int = 8) -> list[LogRecord]:
        return [
            LogRecord(iteration=start + step * n, total_iterations=10**6, elapsed_s=s, global_batch_size=batch)
            for n, s in enumerate(seconds, start=1)
        ]

    return make


@pytest.fixture
def published() -> str:
    """The text of the five published lines."""
    return published_log()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run of ours with the five published lines; change a file to change the story."""
    return write_run(tmp_path / "run")
