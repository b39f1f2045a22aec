"""Repeats of one point under JUBE: each its own training in its own folder, one row each, one pool in the comparison."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.jube import SMALL, Jube

pytestmark = [pytest.mark.jube, pytest.mark.torchrun]


def repeated(jube: Jube, repeats: str) -> None:
    """Set `repeats` and a short run of one rank as a person does, in a copy of the checkout."""
    copy = jube.folder / "checkout"
    shutil.copytree(jube.checkout, copy, ignore=shutil.ignore_patterns("nlp_benchmark_run", "reports"))
    path = copy / "jube/parameters.yaml"
    text = path.read_text(encoding="utf-8")
    ones = ("micro_batch_size", "gas", "nodes", "gpus_per_node", "tp_size", "pp_size")
    for name, value in {"repeats": repeats, "iterations": "10", **SMALL, **dict.fromkeys(ones, "1")}.items():
        text, count = re.subn(rf'(name: {name}, _: )"[^"]*"', rf'\1"{value}"', text)
        assert count == 1
    path.write_text(text, encoding="utf-8")
    jube.checkout = copy
    jube.environment["NLP_BENCH_ROOT"] = str(copy)


def folders(jube: Jube) -> list[Path]:
    return sorted(path.parent for path in jube.runs.rglob("outcome.json") if not path.parent.is_symlink())


def test_each_repeat_is_a_training_of_its_own(jube: Jube) -> None:
    repeated(jube, "2")
    jube.run("tiny", "local")
    assert jube.status() == "FINISHED", jube.log()
    rows = jube.table()
    assert sorted(row["Repeat"] for row in rows) == ["1", "2"]
    assert {row["Outcome"] for row in rows} == {"VALID"}
    runs = {path.resolve() for path in folders(jube)}
    assert len(runs) == 2
    assert len({(run / "job.out").read_bytes() for run in runs}) == 2
    done = subprocess.run(
        [str(jube.checkout / "benchmark/env/nlp-bench"), "compare", str(jube.runs), str(jube.runs), "--format", "json"],
        cwd=jube.folder, env=jube.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["comparisons"]
    assert len(found["a"]["runs"]) == 2
    assert found["a"]["run_to_run_cv"] > 0


def test_other_words_are_refused_before_anything_runs(jube: Jube) -> None:
    repeated(jube, "0,two,101")  # each a point of its own
    jube.run("tiny", "local")
    assert jube.status() == "ERROR"
    said = sorted(path.read_text() for path in jube.runs.rglob("*_check/work/stderr"))
    assert len(said) == 3
    for words, repeats in zip(said, ("0", "101", "two"), strict=True):
        assert f"repeats: '{repeats}' is no whole number from 1 to 100" in words
    assert not folders(jube)


@pytest.mark.slurm
def test_each_repeat_is_a_job_of_its_own(slurm_jube: Jube) -> None:
    """The sandbox has too few nodes for them: they are told apart while they wait."""
    slurm_jube.set(repeats="2")
    slurm_jube.run("13")
    runs = [path.parent for path in slurm_jube.runs.rglob("submit.json") if not path.parent.is_symlink()]
    jobs = {json.loads((run / "submit.json").read_text())["job_id"] for run in runs}
    assert len(jobs) == 2
    slurm_jube("scancel", *jobs)
    slurm_jube(str(slurm_jube.checkout / "benchmark/env/nlp-bench"), "sync", str(slurm_jube.runs))
    slurm_jube.continue_until_finished(bound_s=60)
    rows = slurm_jube.table()
    assert {row["Nodes"] for row in rows} == {"8"}
    assert sorted((row["Repeat"], row["Outcome"]) for row in rows) == [("1", "CANCELLED"), ("2", "CANCELLED")]
    assert {row["JobID"] for row in rows} == jobs
