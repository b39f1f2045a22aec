"""Faults of the third round of fresh eyes, through the command line."""

import json
from pathlib import Path

import pytest
from support.published import published_log
from support.repeated import write_runs

from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError

DUMP = """------------------------ arguments ------------------------
  global_batch_size ............................... 96
  seq_length ...................................... 8192
  world_size ...................................... 4
-------------------- end of arguments ---------------------
"""


@pytest.mark.parametrize(("before", "behind", "length"), [("", DUMP, None), (DUMP, "", 8192)])
def test_the_settings_of_a_start_that_printed_no_line_are_not_those_of_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, behind: str, length: int | None
) -> None:
    path = tmp_path / "a.log"
    path.write_text(before + published_log() + behind)
    assert main(["report", str(path), "--format", "json"]) == (1 if length is None else 0)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["sequence_length"] == length


def test_a_size_against_the_logs_compares_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_runs(tmp_path / "a", 65000, 65600, 64700)
    after = write_runs(tmp_path / "b", 55000, 55600, 54700, seed=40)
    words = ["compare", str(before), str(after), "--gate", "3", "--same-workload"]
    assert main([*words, "--global-batch-size", "192"]) == UsageError.exit_code
    said = capsys.readouterr()
    assert "the option --global-batch-size 192 is used although the log says" in said.err
    assert "PASS" not in said.out
