"""The row that JUBE reads of a rehearsal: no key of a measurement, and a failure is a row as well."""

import json
import sys
from pathlib import Path

import pytest
from support.command import Cli
from support.following import offline

from nlp_bench.launch.follow.sync import sync
from nlp_bench.launch.jube_rehearsal import rehearse, row
from nlp_bench.measure.folder import FROM_RUN

MEASURED = {"outcome", "tokens_per_second", "time_to_report_in_seconds", "job_id", "iterations", "job_time", "queue"}


def lines(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines())


def test_row_of_a_gpu_run() -> None:
    run = offline("175", "juwels-booster", num_virtual_stages_per_pipeline_rank=4)
    found = lines(
        row(
            run,
            {"fits": "yes", "ranks": [{"peak_bytes": 3 * 2**30, "needed_bytes": 5 * 2**30}, {"peak_bytes": 2**30}]},
            "done",
            "",
        )
    )
    assert not MEASURED & found.keys()
    assert found["rehearsal"] == "done"
    assert found["rehearsed_need_gib"] == "5.00"
    assert (found["fits"], found["rehearsed_peak_gib"], found["gpu_memory_gib"]) == ("yes", "3.00", "40")
    assert (
        float(found["predicted_low90_s"]) < float(found["predicted_report_time_s"]) < float(found["predicted_high90_s"])
    )
    assert (found["tensor_parallel"], found["virtual_pipeline"], found["nodes"]) == ("8", "4", "96")
    assert "num_virtual_stages_per_pipeline_rank=4" in found["tuning"]
    assert "()" not in found["tuning"]
    assert "reason" not in found
    assert not any("," in value for value in found.values())


def test_row_of_a_failure_and_of_a_cpu_run() -> None:
    run = offline("tiny", "local", gpus_per_node=1)
    found = lines(row(run, {}, "failed", "parallel: 3, which\ndoes not divide"))
    assert found["rehearsal"] == "failed"
    assert found["reason"].startswith("parallel: 3; which does not divide; no prediction: a CPU run")
    assert not any(name.startswith(("predicted", "rehearsed", "fits")) for name in found)
    assert found.keys() - set(FROM_RUN) == {"rehearsal", "tuning", "reason"}


def pretended(folder: Path, script: str) -> str:
    """Return a program that stands for `python -m nlp_bench rehearse --run FILE --output FOLDER`."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nfolder=$7\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "word", "said"),
    [
        (
            "echo 'nlp-bench: error: parallel: 3 does not divide 4' >&2; exit 2",
            "failed",
            "parallel: 3 does not divide 4",
        ),
        ("exit 139", "failed", "nlp-bench rehearse ended with exit status 139"),
        ("echo half > $folder/rehearsal.json; exit 1", "failed", "nlp-bench rehearse ended with exit status 1"),
        ('echo \'{"fits": "no", "ranks": []}\' > $folder/rehearsal.json; exit 1', "done", "fits: no"),
    ],
)
def test_however_it_ends_the_step_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, word: str, said: str
) -> None:
    run = offline("175", "juwels-booster")
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "rehearsal.json").write_text('{"fits": "yes"}')  # of an attempt that was interrupted
    monkeypatch.setattr(sys, "executable", pretended(tmp_path, script))
    assert rehearse(run, run.write(tmp_path), folder).startswith(f"rehearsal {word}")
    found = lines((folder / "metrics.txt").read_text())
    assert found["rehearsal"] == word
    assert said in found.get("reason", "") or said == f"fits: {found['fits']}"
    assert float(found["predicted_report_time_s"]) > 0
    assert (folder / "ready").read_text().startswith(f"rehearsal {word}: no job was submitted sha256:")
    assert sync(folder) == (None, "not submitted")
    assert (folder / "ready").exists()  # it stands for metrics.txt
    (folder / "metrics.txt").write_text("rehearsal: another\n")
    sync(folder)
    assert not (folder / "ready").exists()


@pytest.mark.parametrize("words", [[], ["--run", "run.json"], ["--run", "run.json", "--run-dir", ".", "--print"]])
def test_by_hand_it_is_another_command(words: list[str], cli: Cli) -> None:
    assert "by hand it is: nlp-bench rehearse" in cli("submit", "--rehearse", *words, code=2).err


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path, cli: Cli) -> None:
    run = offline("tiny", "local", gpus_per_node=1)
    (tmp_path / "outcome.json").write_text(json.dumps({"schema": "nlp-bench/outcome/1", "outcome": "VALID"}))
    path = run.write(tmp_path)
    assert "holds a finished run" in cli("submit", "--rehearse", "--run", path, "--run-dir", tmp_path, code=2).err
    assert not (tmp_path / "ready").exists()
