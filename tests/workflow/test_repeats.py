"""Repeats of one point under JUBE: each its own training in its own folder, one row each, one pool in the comparison."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.jube import SMALL, Jube
from support.jube_versions import both_jubes

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


@both_jubes
@pytest.mark.parametrize("repeats", ["0", "two", "101"])
def test_other_words_are_refused_before_anything_runs(jube: Jube, repeats: str) -> None:
    repeated(jube, repeats)
    jube.run("tiny", "local")
    assert jube.status() == "ERROR"
    said = next(jube.runs.rglob("*_check/work/stderr")).read_text()
    assert f"repeats: '{repeats}' is no whole number from 1 to 100" in said
    assert not folders(jube)


@pytest.mark.slurm
def test_each_repeat_is_a_job_of_its_own(slurm_jube: Jube) -> None:
    repeated(slurm_jube, "2")
    slurm_jube.run("tiny", "slurm")
    slurm_jube.continue_until_finished(bound_s=200)
    rows = slurm_jube.table()
    assert sorted((row["Repeat"], row["Outcome"]) for row in rows) == [("1", "VALID"), ("2", "VALID")]
    assert len({row["JobID"] for row in rows}) == 2
