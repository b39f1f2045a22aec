"""The command as a person calls it."""

from collections.abc import Callable

import pytest

from nlp_bench.cli.main import main


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: object) -> tuple[int, str, str]:
        code = main(["report", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
