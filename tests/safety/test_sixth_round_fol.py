"""Faults of a sixth round, the site around the tool: what is read of a run, and how it is followed."""

import json
import shutil
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log, write_run

from nlp_bench.cli.main import main


def rows(capsys: pytest.CaptureFixture[str], *paths: Path) -> list[tuple[str, str]]:
    """Return outcome and reasons of each row of a report on `paths`."""
    capsys.readouterr()
    main(["report", *map(str, paths), "--sequence-length", "2048", "--format", "json"])
    runs = json.loads(capsys.readouterr().out)["runs"]
    return [(one["outcome"], "; ".join(one["reasons"])) for one in runs]


@pytest.mark.parametrize("record", ["outcome.json", "submit.json", "empty", "closed"])
def test_a_run_whose_run_json_is_not_seen_has_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    """Its log alone would give one, whatever outcome.json says of it."""
    run = write_run(tmp_path / "run", outcome="INVALID", reasons=["Slurm suspended the job for 60 s"])
    (run / "run.json").unlink()
    (run / "ranks").mkdir()
    (run / "ranks/rank0.log").write_text(published_log())
    if record == "submit.json":
        (run / "outcome.json").unlink()
        (run / "submit.json").write_text(json.dumps({"schema": "nlp-bench/submit/1"}, indent=1))
    elif record == "empty":
        (run / "outcome.json").write_text("")
    elif record == "closed":
        read = Path.open

        def lost(path: Path, *args: str, **options: int) -> object:
            if path.name == "outcome.json":
                raise OSError(116, "Stale file handle", str(path))
            return read(path, *args, **options)  # type: ignore[call-overload]

        monkeypatch.setattr(Path, "open", lost)
    for path in (run, tmp_path, run / "job.out"):
        ((outcome, why),) = rows(capsys, path)
        assert outcome == "UNKNOWN"
        assert "run.json is missing, or not seen from here yet" in why


def test_a_run_without_its_run_json_has_no_number_in_bundle_and_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", outcome="INVALID")
    (run / "run.json").unlink()
    bundle = tmp_path / "evidence.tar.gz"
    assert main(["bundle", str(run), "--output", str(bundle)]) == 0
    assert main(["verify", str(bundle)]) == 0
    printed = capsys.readouterr().out
    assert "runs/001 (" in printed
    assert ": UNKNOWN" in printed
    assert main(["history", "add", "--file", str(tmp_path / "h.db"), str(run)]) == 1
    assert not (tmp_path / "h.db").exists()


def test_logs_beside_somebody_elses_records_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of plain logs, and a log that is copied away from its run."""
    (tmp_path / "job.out").write_text(published_log())
    (tmp_path / "outcome.json").write_text('{"outcome": "fine"}')  # of another program
    run = write_our_run(tmp_path / "run")
    shutil.copy(run / "job.out", tmp_path / "copy.log")
    shutil.rmtree(run)
    for path in (tmp_path, tmp_path / "job.out"):
        assert {outcome for outcome, _ in rows(capsys, path)} <= {"MEASURED", "VALID"}
