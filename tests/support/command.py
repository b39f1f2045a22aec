"""The command as a person calls it."""

from collections.abc import Callable

import pytest

from nlp_bench.cli.main import main

Capture = pytest.CaptureFixture[str]  # of the standard streams


@pytest.fixture
def report(capsys: Capture) -> Callable[..., tuple[int, str, str]]:
    def run(*words: object) -> tuple[int, str, str]:
        code = main(["report", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
