"""Long trainings on a real Slurm: a chain of two jobs on one node, then two nodes, and one loss curve."""

import json
import re
from pathlib import Path

import pytest
from support.jube import Jube

pytestmark = [pytest.mark.slurm, pytest.mark.torchrun]
TINY = (
    "--model tiny --iterations 12 --log-interval 1 --data-path mock --gpus-per-node 1 --tp 1 --pp 1 --micro-batch-size 1 "
    "--global-batch-size 2 --nhidden 64 --sequence-length 64"
)


def losses(run_dir: Path) -> list[tuple[int, float]]:
    log = (run_dir / "job.out").read_text()
    found = re.findall(r"iteration\s+(\d+)/\s*12 .*?lm loss: (\S+) ", log)
    return [(int(iteration), float(loss)) for iteration, loss in found]


def outcome(run_dir: Path) -> str:
    return str(json.loads((run_dir / "outcome.json").read_text())["outcome"])


def test_two_jobs_then_two_nodes_continue_one_loss_curve(slurm_jube: Jube) -> None:
    nlp_bench = str(slurm_jube.checkout / "benchmark/env/nlp-bench")
    alone, first, second = (slurm_jube.folder / name for name in ("in one go", "one node", "two nodes"))
    words = ("submit", *TINY.split(), "--timelimit", "00:05:00")
    slurm_jube(nlp_bench, *words, "--nodes", "1", "--run-dir", str(alone), "--no-follow")

    printed = slurm_jube(
        nlp_bench, *words, "--nodes", "1", "--run-dir", str(first), "--chain", "2", "--exit-interval", "4"
    )
    assert len(re.findall(r"^Submitted batch job \d+$", printed, re.MULTILINE)) == 2
    slurm_jube(nlp_bench, "sync", "--wait", "--poll", "1", str(first), str(alone), timeout_s=200)
    assert outcome(first) == "INCOMPLETE"
    assert "1 will go on" in (first / "job.out").read_text()
    slurm_jube(nlp_bench, "measure", str(first))
    assert json.loads((first / "result.json").read_text())["run"]["tokens_per_second"]["reference"] is None

    load = ("--load", str(first / "checkpoints"))
    slurm_jube(nlp_bench, *words, "--nodes", "2", "--run-dir", str(second), "--chain", "2", *load)
    slurm_jube(nlp_bench, "sync", "--wait", "--poll", "1", str(second), timeout_s=200)
    assert outcome(second) == "VALID"
    slurm_jube(nlp_bench, "measure", str(second))
    assert json.loads((second / "result.json").read_text())["run"]["tokens_per_second"]["reference"] > 0
    assert (
        len(re.findall("Submitted batch job", (second / "job.out").read_text())) == 1
    )  # nothing was left for the other one

    whole = losses(alone)
    parts = losses(first) + losses(second)
    assert [iteration for iteration, _ in parts] == list(range(1, 13))
    assert [loss for _, loss in parts] == pytest.approx([loss for _, loss in whole], abs=1e-4)
