"""Faults of a sixth round of fresh eyes: what the site around the tool does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.repeated import write_runs

from nlp_bench.cli.main import main
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.reader import OURS, _first_search


def test_a_gate_is_not_proven_by_a_side_of_which_runs_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write_runs(tmp_path / "a", *[65000 + 100 * number for number in range(5)])
    b = write_runs(tmp_path / "b", *[65000 + 100 * number for number in range(5)], seed=20)
    words = ["compare", str(a), str(b), "--gate", "3", "--strict", "--allow-measured"]
    assert main(words) == 0
    capsys.readouterr()
    (b / "run9.log").write_text("iteration 10/ 100 | elapsed time per iteration (ms): 5000.0 | lm loss: 2.0 |\n")
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "GATE NOT PROVEN: one run is not in it (B: " in said
    assert "run9.log), and may be slower; make it readable, or leave it out; --strict stops here" in said


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_does_not_fit_is_said_with_unbuffered_streams_too(tmp_path: Path, unbuffered: str) -> None:
    run = write_our_run(tmp_path / "run")
    words = (
        f"ulimit -f 8; exec {sys.executable} -m nlp_bench report {run} --format json --explain > {tmp_path}/cut.json"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    found = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 1
    assert "File too large" in found.stderr


def test_what_this_machine_lacks_is_never_said_of_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bundle = write_our_run(tmp_path / "run"), tmp_path / "evidence.tar.gz"
    assert main(["bundle", str(run), "--output", str(bundle)]) == 0
    words = f"ulimit -f 4; exec {sys.executable} -m nlp_bench verify {bundle}"
    found = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "cannot be unpacked in" in found.stderr
    assert "not a bundle" not in found.stderr

    def derive(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nlp_bench.evidence.verify.derive", derive)
    capsys.readouterr()
    assert main(["verify", str(bundle)]) == 1
    said = capsys.readouterr()
    assert "the memory is used up" in said.err
    assert "DIFFERS" not in said.out


def test_a_package_without_its_own_dialect_says_so_and_judges_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an interrupted copy: the file of the dialect is not there."""
    run = write_our_run(tmp_path / "run")
    others = tuple(dialect for dialect in all_dialects() if dialect.name != OURS)
    monkeypatch.setattr("nlp_bench.logs.reader.all_dialects", lambda: others)
    _first_search.cache_clear()
    assert main(["report", str(run)]) == 1
    said = "".join(capsys.readouterr())
    _first_search.cache_clear()
    assert f"the dialect {OURS} is missing in this nlp-bench: install it again" in said
    assert "INCOMPLETE" not in said
