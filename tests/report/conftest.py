"""A log to report on."""

from pathlib import Path

import pytest
from support.published import published_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of somebody else: the five published lines."""
    path = tmp_path / "job.log"
    path.write_text(published_log())
    return path
