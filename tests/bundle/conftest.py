"""Bundles of small runs."""

from pathlib import Path

import pytest
from support.ours import Bundle, write_our_run

from nlp_bench.evidence.make import Made, make_bundle
from nlp_bench.evidence.manifest import Options


@pytest.fixture
def our_run(tmp_path: Path) -> Path:
    """A finished run of ours whose lines hold all fields that the trainer prints."""
    return write_our_run(tmp_path / "run")


@pytest.fixture
def bundle(our_run: Path, tmp_path: Path) -> Bundle:
    """Make a bundle of the run, or of other paths."""

    def make(name: str = "evidence", *paths: Path, **options: object) -> Made:
        words = [str(path) for path in paths] or [str(our_run)]
        return make_bundle(words, tmp_path / name, Options(**options), with_ranks=False, force=False)  # type: ignore[arg-type]

    return make
