"""The command as a person calls it."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nlp_bench.cli.main import main

Capture = pytest.CaptureFixture[str]  # of the standard streams


class Terminal(io.StringIO):
    """A stream that says that a person reads it."""

    def isatty(self) -> bool:
        return True


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def flat(self) -> str:
        """Standard output in one line: lines are broken where they are long."""
        return " ".join(self.out.split())

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Done]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys: Capture) -> Cli:
    """Return what nlp-bench says to these words, and see that it ends with `code` (None: with any)."""

    def run(*words: object, code: int | None = 0) -> Done:
        capsys.readouterr()
        found = Done(main([*map(str, words)]), *capsys.readouterr())
        assert code in {None, found.code}, found
        return found

    return run


@pytest.fixture
def report(cli: Cli) -> Cli:
    return lambda *words, code=None: cli("report", *words, code=code)
