"""Logs and run folders to report on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import report
from support.published import published_log, write_run

__all__ = ["report"]


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """Make a run folder of ours with the five published lines."""

    def make(folder: Path, outcome: str = "VALID", **more: object) -> Path:
        return write_run(folder, outcome=outcome, **more)

    return make


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of somebody else: the five published lines."""
    path = tmp_path / "job.log"
    path.write_text(published_log())
    return path
