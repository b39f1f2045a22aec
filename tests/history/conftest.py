"""A history of its own for each test."""

from pathlib import Path

import pytest
from support.command import Cli


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "h.sqlite3")


@pytest.fixture
def history(cli: Cli, file: str) -> Cli:
    """history(words...): what `nlp-bench history` says to them, with this file."""
    return lambda *words, code=0: cli("history", *words, "--file", file, code=code)
