"""Bundles of small runs."""

from pathlib import Path

import pytest
from support.ours import Bundle, bundled, write_our_run


@pytest.fixture
def our_run(tmp_path: Path) -> Path:
    """A finished run of ours whose lines hold all fields that the trainer prints."""
    return write_our_run(tmp_path / "run")


@pytest.fixture
def bundle(our_run: Path, tmp_path: Path) -> Bundle:
    """Make a bundle of the run, or of other paths."""

    return lambda name="evidence", *paths, **options: bundled(tmp_path / name, *(paths or [our_run]), **options)
