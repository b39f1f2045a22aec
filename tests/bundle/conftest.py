"""Bundles of small runs."""

import shutil
from pathlib import Path

import pytest
from support.ours import Bundle, bundled, write_our_run


@pytest.fixture
def our_run(tmp_path: Path) -> Path:
    return write_our_run(tmp_path / "run")


@pytest.fixture
def bundle(our_run: Path, tmp_path: Path) -> Bundle:
    return lambda name="evidence", *paths, **options: bundled(tmp_path / name, *(paths or [our_run]), **options)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made_once")
    return bundled(place / "evidence", write_our_run(place / "run")).path


@pytest.fixture
def folder(made_once: Path, tmp_path: Path) -> Path:
    """The folder of a bundle of our run, which a test may change."""
    return shutil.copytree(made_once, tmp_path / "evidence")
