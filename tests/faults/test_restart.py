"""A restart inside the job, by the real torchrun: two attempts in one log, the last one is measured, and both files say so."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, surroundings

from nlp_bench.config.run import Run

pytestmark = [pytest.mark.torchrun]


def test_the_last_attempt_is_measured_and_both_are_told(rank_run: Callable[..., Run], tmp_path: Path) -> None:
    """Our launcher gives torchrun no restart; here a hook in torchrun's own process does (ranks/sitecustomize.py)."""
    run_dir = tmp_path / "run"

    def nlp_bench(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [*NLP_BENCH, *words]
        return subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=False, timeout=180)

    record = rank_run("once").write(tmp_path)
    done = nlp_bench("submit", "--run", str(record), "--run-dir", str(run_dir))
    assert done.stdout.startswith("VALID"), (run_dir / "job.err").read_text()
    log = (run_dir / "job.out").read_text()
    assert re.findall(r"iteration +(\d+)/", log) == ["1", "2", "1", "2", "3", "4"]
    assert "only this time" in (run_dir / "job.err").read_text()
    outcome = json.loads((run_dir / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["sources"]["log"]["starts"], outcome["attempt"]) == ("VALID", 2, 1)
    assert nlp_bench("measure", str(run_dir)).returncode == 0
    result = json.loads((run_dir / "result.json").read_text())["run"]
    assert (result["outcome"], result["num_records"]) == ("VALID", 4)
    assert "2 attempts, finished at iteration 4; the last is measured" in result["reasons"]
    assert result["seconds_per_iteration"]["mean"] == pytest.approx(0.11)  # the first start's are 0.1 s
    alone = tmp_path / "alone.log"
    alone.write_text(log)
    for path, words in ((run_dir, []), (alone, ["--sequence-length", "256"])):  # as ours, and as anybody's log
        (entry,) = json.loads(nlp_bench("report", str(path), *words, "--format", "json").stdout)["runs"]
        assert entry["seconds_per_iteration"]["mean"] == pytest.approx(0.11), path
        assert any("2 attempts" in reason for reason in entry["reasons"]), (path, entry["reasons"])
