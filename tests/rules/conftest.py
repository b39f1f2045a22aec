"""Folders of finished runs on the reference machine."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.published import OUTCOME
from support.ruled_run import COMMIT, STEPS, Make, asked, log_of

from nlp_bench.config.origin import Origin
from nlp_bench.rules.file import forget


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """Write the folder of a run of ours; keywords are those of `log_of`, and `choices` of the request."""

    def make(
        model: str = "175",
        *,
        log: str | None = None,
        log_model: str | None = None,
        choices: dict[str, object] | None = None,
        outcome: dict[str, object] | None = None,
        commit: str = COMMIT,
        **told: object,
    ) -> Path:
        run = asked(model, **(choices or {}))
        run = replace(run, nlp_bench=Origin(version="0.1.0", commit=commit))
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        folder.mkdir()
        run.write(folder)
        steps = run.training.iterations // run.training.log_interval
        # The smaller model is on fewer nodes: its iterations take longer.
        told.setdefault("seconds", [(4 if model == "13" else 1) * one for one in STEPS[:steps]])
        (folder / "outcome.json").write_text(json.dumps({**OUTCOME, **(outcome or {})}))
        other = asked(log_model) if log_model else run
        (folder / "job.out").write_text(log or log_of(other, **told))  # type: ignore[arg-type]
        return folder

    return make


@pytest.fixture(autouse=True)
def read_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test read its own files, whatever the shell asks for; rules of a folder are read once in a process."""
    monkeypatch.delenv("NLP_BENCH_RULES", raising=False)
    forget()
    yield
    forget()
