"""Bundles of small runs."""

from pathlib import Path

import pytest
from support.ours import Bundle, bundled, write_our_run


@pytest.fixture
def our_run(tmp_path: Path) -> Path:
    return write_our_run(tmp_path / "run")


@pytest.fixture
def bundle(our_run: Path, tmp_path: Path) -> Bundle:
    return lambda name="evidence", *paths, **options: bundled(tmp_path / name, *(paths or [our_run]), **options)


@pytest.fixture
def folder(bundle: Bundle) -> Path:
    """The folder of a bundle of our run."""
    return bundle().path
