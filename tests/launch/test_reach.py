"""Names and ports before torchrun is started, on this machine's own resolver and sockets."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from support.command import Cli
from support.following import sandbox_run

from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.nodes import torchrun
from nlp_bench.launch.nodes.torchrun import (
    FIRST_PORT,
    NUM_PORTS,
    Rendezvous,
    check_rendezvous,
    free_port,
    is_free,
    port_of,
)


def meeting(endpoint: str, *, node: int = 0) -> Rendezvous:
    return Rendezvous(endpoint=endpoint, node=node, local_address="127.0.0.1", job_id="7")


def test_a_name_without_an_address_is_named() -> None:
    with pytest.raises(
        NlpBenchError, match=r"rendezvous: \S+ finds no address of node 'node7.invalid': .*NodeAddr in slurm.conf"
    ):
        check_rendezvous(meeting("node7.invalid:20007", node=1))


def test_a_resolver_that_does_not_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "NAME_TIMEOUT_S", 0.2)
    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [is_over.wait(60)][1:])
    begin = time.monotonic()
    with pytest.raises(NlpBenchError, match=r"no answer within 0\.2 s"):
        check_rendezvous(meeting("node7:20007"))
    assert time.monotonic() - begin < 30
    is_over.set()


@pytest.fixture
def taken() -> int:
    server = socket.create_server(("", 0))
    yield server.getsockname()[1]  # type: ignore[misc]
    server.close()


def test_a_port_that_is_taken_names_its_owner(taken: int) -> None:
    with pytest.raises(NlpBenchError, match=rf"rendezvous: port {taken} of \S+ is taken by process {os.getpid()} \("):
        check_rendezvous(meeting(f"127.0.0.1:{taken}"))
    check_rendezvous(meeting(f"127.0.0.1:{taken}", node=1))  # the host's port is not this node's affair


def test_another_port_is_found(taken: int) -> None:
    found = free_port(taken, (1024, 60000))
    assert found != taken
    assert is_free(found)


def told(run_dir: Path, cli: Cli) -> int:
    return int(cli("launch", "--port", run_dir).out)


def test_the_job_script_is_told_a_free_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    sandbox_run().write(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "41234")
    port = told(tmp_path, cli)
    with socket.create_server(("", port)):
        other = told(tmp_path, cli)
    assert other != port
    assert {FIRST_PORT <= number < FIRST_PORT + NUM_PORTS for number in (port, other)} == {True}


def test_two_slurms_on_one_host_may_number_their_jobs_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Both look before either has started: a port that is free for both must not be the same one."""
    assert port_of("2", Path("a/run")) != port_of("2", Path("b/run"))
    sandbox_run().write(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    assert told(tmp_path, cli) == free_port(port_of("2", tmp_path.resolve()), (FIRST_PORT, NUM_PORTS))
