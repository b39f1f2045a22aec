"""What `nlp-bench report` says of a log, as data: the fixture `reported`."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nlp_bench.cli.main import main

Reported = Callable[..., dict[str, Any]]


@pytest.fixture
def reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reported:
    """Return the first run in the JSON report of a log (its path, text or lines) with these options."""

    def of(log: Path | str | Iterable[str], *options: str) -> dict[str, Any]:
        path = log if isinstance(log, Path) else tmp_path / "some.log"
        if not isinstance(log, Path):
            path.write_bytes((log if isinstance(log, str) else "".join(f"{line}\n" for line in log)).encode())
        capsys.readouterr()
        status = main(["report", str(path), *options, "--format", "json"])
        runs = json.loads(capsys.readouterr().out)["runs"]
        rates = [run["tokens_per_second"] for run in runs]
        assert status == (0 if all(rate["steady"] or rate["reference"] for rate in rates) else 1)
        return dict(runs[0])

    return of
