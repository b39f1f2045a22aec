"""The tag rehearse with the real JUBE: the whole workflow without a job, a Slurm or a GPU, and a table of its own."""

import csv
import subprocess

import pytest
from support.jube import Jube
from support.pages import ROOT, check_block

pytestmark = [pytest.mark.jube]


@pytest.fixture
def laptop(jube: Jube) -> Jube:
    """A machine on which no Slurm answers and no GPU is seen."""
    jube.environment["SLURM_CONF"] = "nowhere/slurm.conf"
    jube.environment["CUDA_VISIBLE_DEVICES"] = ""
    return jube


def rows(jube: Jube) -> list[dict[str, str]]:
    printed = jube("jube", "result", "-a", str(jube.runs), "--id", "last")
    assert "Predicted_Report_Time_s" in printed
    assert "time_to_report_in_seconds" not in printed
    assert "Tokens/sec" not in printed
    path = next(jube.runs.rglob("result/rehearsal_csv.dat"))
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_175b_job_of_96_nodes_on_this_machine(laptop: Jube) -> None:
    laptop.run("175", "rehearse")
    assert laptop.status() == "FINISHED", laptop.log()
    (row,) = rows(laptop)
    assert row["Rehearsal"] == "done", laptop.log()
    assert (row["system"], row["Nodes"], row["Tensor_Parallel"]) == ("juwels-booster", "96", "8")
    assert row["Fits"] in {"yes", "tight", "no"}
    assert 0 < float(row["Rehearsed_Peak_GiB"]) <= float(row["Predicted_Memory_GiB"]) * 1.1
    assert float(row["Predicted_low90_s"]) < float(row["Predicted_Report_Time_s"]) < float(row["Predicted_high90_s"])
    check_block(ROOT / "docs/bids.md", "row", (laptop.run_dir() / "metrics.txt").read_text())
    no_job(laptop)


def no_job(jube: Jube) -> None:
    """Nothing was submitted, nothing looks like a run, and the marker says so."""
    assert not list(jube.runs.rglob("submit.json"))
    assert not list(jube.runs.rglob("outcome.json"))
    assert not list(jube.runs.rglob("job.out"))
    assert "no job was submitted" in (jube.run_dir() / "ready").read_text()
    nlp_bench = str(jube.checkout / "benchmark/env/nlp-bench")
    done = subprocess.run(
        [nlp_bench, "report", str(jube.runs)], env=jube.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "VALID" not in done.stdout


def test_one_command_with_a_sweep_of_tiny(laptop: Jube) -> None:
    """One row for each point; repeats, which would all say the same, are left out, and there is nothing to report."""
    laptop.set(nhidden="64", sequence_length="64", micro_batch_size="1,2", repeats="3")
    done = subprocess.run(
        ["bash", str(laptop.checkout / "benchmark/run.sh"), "tiny", "rehearse"],
        cwd=laptop.folder, env=laptop.environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Rehearsed_Peak_GiB" in done.stdout
    assert not (laptop.checkout / "reports").exists()
    laptop.runs = laptop.checkout / "benchmark/jube/nlp_benchmark_run"
    found = sorted(rows(laptop), key=lambda row: row["Micro_Batch"])
    assert [(row["Micro_Batch"], row["Rehearsal"]) for row in found] == [("1", "done"), ("2", "done")], laptop.log()
    less, more = (float(row["Rehearsed_Peak_GiB"]) for row in found)
    assert 0 < less <= more
    assert {row["Predicted_Report_Time_s"] for row in found} == {""}
    assert all("CPU" in row["Note"] for row in found)


def test_bad_tags_are_refused(laptop: Jube) -> None:
    laptop.run("175", "local", "rehearse")
    assert laptop.status() == "ERROR"
    said = next(laptop.runs.rglob("*_check/work/stderr")).read_text()
    assert "local launcher has this machine only" in said
