"""Nodes that do not meet: the launcher of one node alone, with the real torchrun, ends in a bound and says why."""

import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, surroundings

from nlp_bench.config.run import Run
from nlp_bench.launch.end.ending import Ending, decide
from nlp_bench.outcome import Outcome

pytestmark = [pytest.mark.torchrun]


@pytest.fixture
def two_nodes(stub_run: Callable[..., Run]) -> Run:
    """A run of two nodes, whose second one never comes."""
    run = stub_run("ok")
    parallel = replace(run.parallel, nodes=2)
    return replace(run, parallel=parallel, batch=run.batch, limits=replace(run.limits, join_timeout_s=5.0))


def launch(run: Run, folder: Path, bound_s: float, **variables: str) -> Ending:
    """Launch this node's part of `run` as the job script does; return what is decided afterwards."""
    run.write(folder)
    environment = surroundings(**{"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", **variables})
    with (folder / "job.out").open("w") as out, (folder / "job.err").open("w") as err:
        done = subprocess.run(
            [*NLP_BENCH, "launch", str(folder)], env=environment, stdout=out, stderr=err,
            stdin=subprocess.DEVNULL, timeout=bound_s, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    return decide(run, folder, exit_status=done.returncode)


def test_a_name_without_an_address(two_nodes: Run, tmp_path: Path) -> None:
    ending = launch(two_nodes, tmp_path, 60, NLP_BENCH_NODES="nowhere.invalid 127.0.0.1", SLURM_NODEID="1")
    assert ending.outcome is Outcome.FAILED
    assert "rendezvous: " in ending.texts[0]
    assert "finds no address of node 'nowhere.invalid'" in ending.texts[0]


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_a_node_that_never_comes(two_nodes: Run, tmp_path: Path, backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    system = replace(two_nodes.system, network=replace(two_nodes.system.network, rendezvous=backend))
    run = replace(two_nodes, system=system)
    ending = launch(run, tmp_path, 60, NLP_BENCH_NODES="127.0.0.1 127.0.0.2", NLP_BENCH_PORT=str(port))
    assert ending.outcome is Outcome.FAILED, (tmp_path / "job.err").read_text()
    assert "rendezvous: the nodes did not meet" in ending.texts[0], (tmp_path / "job.err").read_text()


def test_a_port_that_is_taken(two_nodes: Run, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        ending = launch(two_nodes, tmp_path, 30, NLP_BENCH_NODES="127.0.0.1 127.0.0.2", NLP_BENCH_PORT=str(port))
    assert f"rendezvous: port {port} of " in ending.texts[0]
    assert f"is taken by process {os.getpid()}" in ending.texts[0]
