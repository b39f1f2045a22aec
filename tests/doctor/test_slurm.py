"""The checks against a real Slurm, and the test of nodes on its virtual nodes: one slowed, one down, one that died unnoticed."""

import functools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes import NLP_BENCH, ROOT, execute, surroundings, until
from support.sandbox import Sandbox, sandbox

pytestmark = pytest.mark.slurm
SLOW = """
import itertools, os, time
slower = 3 if os.environ.get("SLURMD_NODENAME") == "{name}" else 1
looks = itertools.count()
time.thread_time = lambda: next(looks) * slower * 0.05
"""
"""A clock by which each timed call takes 50 ms, on one node 150 ms: the nodes share this machine, whose load would decide."""
DOCTOR = (*NLP_BENCH, "doctor", "--data-path", "mock")
NODES = [f"node{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Sandbox]:
    """A private Slurm of 5 nodes."""
    with sandbox(len(NODES)) as started:
        yield started


def environment(slurm: Sandbox) -> dict[str, str]:
    return surroundings(SLURM_CONF=slurm.environment["SLURM_CONF"])


Doctor = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def doctor(slurm: Sandbox, tmp_path: Path) -> Doctor:
    """doctor(words...): its exit code, its JSON and what it said meanwhile."""

    def call(*words: str) -> tuple[int, dict[str, Any], str]:
        command = [*DOCTOR, "--format", "json", *words]
        done = execute(*command, cwd=tmp_path, env=environment(slurm), timeout=900)
        assert done.returncode in {0, 1}, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    return call


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found["checks"]}


def update(slurm: Sandbox, nodes: str, state: str, *words: str) -> None:
    slurm("scontrol", "update", f"nodename={nodes}", f"state={state}", *words)


def rest(slurm: Sandbox, name: str) -> None:
    """Wait until no job, not even one that is completing, holds the node.

    scontrol is asked: when two jobs of a node end within one second, sinfo may call it mixed until the next job comes.
    """
    node = functools.partial(slurm, "scontrol", "show", "node", name, "--oneliner")
    jobs = functools.partial(slurm, "squeue", "--all", "--states=all", "--format=%i %T %r %N %k")
    # Slurm ends what is left of a job after KillWait (30 s), on a busy machine later
    until(lambda: " State=IDLE " in node(), 180, lambda: node() + jobs())


def test_a_slurm_that_is_well(doctor: Doctor) -> None:
    code, found, _ = doctor("--checks", "system,slurm,partition,job,names")
    assert code == 0, found
    assert found["system"] == "slurm-sandbox"  # recognised by its cluster's name
    assert {one["status"] for one in found["checks"]} == {"ok"}
    assert "nodes node[1-2] in partition booster" in by_name(found)["job"]["evidence"][0]


@pytest.mark.parametrize(
    ("words", "check", "says"),
    [
        (["--gres", "tpu:4"], "job", "Invalid generic resource (gres)"),
        (["--queue", "nope"], "partition", "no partition 'nope'"),
        (["--queue", "nope"], "job", "invalid partition specified: nope"),
    ],
)
def test_what_sbatch_would_refuse_is_known_before(doctor: Doctor, words: list[str], check: str, says: str) -> None:
    code, found, _ = doctor("--checks", check, *words)
    assert code == 1
    assert by_name(found)[check]["status"] == "failed"
    assert says in by_name(found)[check]["summary"]
    assert by_name(found)[check]["remedy"]


def test_a_job_that_waits_for_drained_nodes_is_not_refused(doctor: Doctor, slurm: Sandbox) -> None:
    """A maintenance: `sbatch --test-only` finds no nodes, `sbatch` takes the job."""
    update(slurm, ",".join(NODES), "drain", "reason=maintenance")
    try:
        code, found, _ = doctor("--checks", "job")
    finally:
        update(slurm, ",".join(NODES), "resume")
        for node in NODES:
            rest(slurm, node)
    assert (code, by_name(found)["job"]["status"]) == (0, "warning")
    assert "0 of 5 nodes are up" in by_name(found)["job"]["summary"]


def test_one_slow_one_down_both_named(doctor: Doctor, slurm: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(SLOW.format(name="node3"))
    system = (ROOT / "benchmark/systems/slurm-sandbox.toml").read_text()
    system = system.replace("[environment]", f'[environment]\nPYTHONPATH = "{tmp_path}/slow"')
    (tmp_path / "slow.toml").write_text(system)
    update(slurm, "node2", "drain", "reason=a bad cable")
    try:
        words = ["--system", tmp_path / "slow.toml", "--nodes", "all", "--output", tmp_path / "out"]
        code, found, _ = doctor(*map(str, words), "--wait", "800", "--join", "600")
        _, at_rest, _ = doctor("--checks", "partition")
    finally:
        update(slurm, "node2", "resume")
        rest(slurm, "node2")
    assert code == 1
    rows = {row["node"]: row for row in found["nodes"]["nodes"]}
    assert sorted(rows) == NODES
    assert "not tested" in rows["node2"]["faults"][0]
    assert "a bad cable" in rows["node2"]["faults"][0]
    assert any("gemm" in fault and "3.0 times slower than the median" in fault for fault in rows["node3"]["faults"])
    assert not any("gemm" in fault for name in ("node1", "node4", "node5") for fault in rows[name]["faults"])
    for name in ("node1", "node4", "node5"):
        assert rows[name]["gemm_tflops"] == pytest.approx([3 * rows["node3"]["gemm_tflops"][0]])
    assert all(rows[name]["link_gb_per_s"] > 0 for name in ("node1", "node3", "node4", "node5"))
    assert found["nodes"]["tested"] == 4
    assert by_name(at_rest)["partition"]["status"] == "warning"
    assert "node2: IDLE+DRAIN (a bad cable)" in by_name(at_rest)["partition"]["evidence"]


def test_a_node_that_died_unnoticed_is_named_the_others_tested(doctor: Doctor, slurm: Sandbox, tmp_path: Path) -> None:
    """Slurm takes it for idle: the step cannot be started there, and the others must not fall with it."""
    rest(slurm, "node5")
    os.kill(slurm.node_daemon("node5"), signal.SIGKILL)
    try:
        words = ["--nodes", "node[4-5]", "--output", str(tmp_path / "out"), "--join", "3", "--wait", "150"]
        code, found, said = doctor(*words)
    finally:
        update(slurm, "node5", "down", "reason=killed by a test")  # frees the job that waits for it
        slurm.start_node("node5")
    assert code == 1
    rows = {row["node"]: row for row in found["nodes"]["nodes"]}
    assert rows["node5"]["is_silent"]
    assert found["nodes"]["bad"] == ["node4", "node5"]
    assert rows["node5"]["faults"] == ["did not answer: it left no record"]
    assert rows["node4"]["faults"] == ["exchange: no other node came"]
    assert rows["node4"]["gemm_tflops"][0] > 0
    assert "Submitted batch job" in said


def test_no_job_is_left_of_a_doctor_that_is_stopped(slurm: Sandbox, tmp_path: Path) -> None:
    command = [*DOCTOR, "--system", "slurm-sandbox", "--nodes", "1", "--output", str(tmp_path / "out")]
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment(slurm), **streams) as process:
        said = next(line for line in process.stderr if "Submitted batch job " in line)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 143
    job = functools.partial(slurm, "scontrol", "show", "job", said.split()[-1], "--oneliner")
    until(lambda: " JobState=CANCELLED " in job(), 60, job)
    for node in NODES:
        rest(slurm, node)


def test_inside_an_allocation(slurm: Sandbox, tmp_path: Path) -> None:
    words = [*DOCTOR, "--nodes", "all", "--format", "json", "--output", str(tmp_path / "out")]
    command = ["salloc", "--quiet", "--nodes=2", "--nodelist=node1,node2", "--ntasks-per-node=1", *words]
    done = execute(*command, env=environment(slurm), timeout=200)
    found = json.loads(done.stdout)
    assert found["nodes"]["tested"] == 2, done.stderr
    assert "Submitted" not in done.stderr
    assert all(row["link_gb_per_s"] > 0 for row in found["nodes"]["nodes"])
    assert found["nodes"]["spread"]["gemm"]["limit"] is None  # two cannot say who is wrong
    assert done.returncode == (1 if found["nodes"]["bad"] else 0)
