"""Names that cannot be resolved, or not in time."""

import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from support.examining import Make, Program, finding

from nlp_bench.doctor import scheduler
from nlp_bench.doctor.place import Place
from nlp_bench.doctor.scheduler import Node
from nlp_bench.launch.scheduler.slurm_answers import MARK
from nlp_bench.programs import Answer

SLURM = Answer(code=0, out="ClusterName = c\n")
KNOWN = {"login1": "10.0.0.1", "n1i": "10.1.0.1", "n2i": "10.1.0.2"}


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the resolver knows; the node is login1, the run's nodes are n1 and n2."""
    known = dict(KNOWN)

    def answer(name: str, *_: Any, **__: Any) -> list[Any]:
        if not known.get(name):
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    nodes = [Node(name=name, address=name, state="IDLE", reason="") for name in ("n1", "n2")]
    monkeypatch.setattr(scheduler, "run_nodes", lambda _: nodes)
    return known


@pytest.fixture
def booster(place: Make) -> Place:
    return place("juwels-booster", "13")  # its nodes' fast addresses are their names and an i


@pytest.mark.parametrize(
    ("changed", "variables", "status", "says"),
    [
        ({}, {}, "ok", ["3 name(s) resolved", "n1i: 10.1.0.1"]),
        ({"n2i": ""}, {}, "failed", ["cannot be resolved: n2i", "master_addr_suffix"]),
        ({"login1": ""}, {}, "warning", []),
        # as Debian's installer writes it
        ({"login1": "127.0.1.1"}, {"SLURM_JOB_ID": "7"}, "warning", ["would be told to meet at themselves"]),
    ],
    ids=["all are known", "one is unknown", "the own name is unknown", "the own name means this node alone"],
)
def test_names(
    booster: Place,
    network: dict[str, str],
    changed: dict[str, str],
    variables: dict[str, str],
    status: str,
    says: list[str],
) -> None:
    network |= changed
    found = finding("names", replace(booster, variables=variables))
    assert found.status == status
    assert all(words in str(found) for words in says)


@pytest.mark.parametrize("queue", ["a", "a,b"])
def test_the_nodes_are_those_of_all_partitions_of_the_run(program: Program, place: Make, queue: str) -> None:
    program("sinfo", f"test $3 = {queue} && echo '{MARK}n1'")
    program("scontrol", "echo 'NodeName=n1 NodeAddr=localhost State=IDLE'")
    assert "2 name(s) resolved" in finding("names", place("slurm-sandbox", queue=queue, slurm=SLURM)).summary


@pytest.mark.parametrize(
    ("state", "status", "says"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", "ok", "; 1 powered down: their addresses come when Slurm starts them"),
        ("MIXED+CLOUD+POWERING_UP", "ok", "; 1 powered down"),
        ("IDLE+CLOUD", "failed", "cannot be resolved: n2.invalid"),
        ("IDLE+POWERED_DOWN", "failed", "cannot be resolved: n2.invalid"),  # of this site: its address is known
    ],
)
def test_a_node_of_a_cloud_before_it_is_up(program: Program, place: Make, state: str, status: str, says: str) -> None:
    program("sinfo", f"echo '{MARK}n1'; echo '{MARK}n2'")
    lines = ("NodeName=n1 NodeAddr=localhost State=IDLE+CLOUD", f"NodeName=n2 NodeAddr=n2.invalid State={state}")
    program("scontrol", "\n".join(f"echo '{line}'" for line in lines))
    names = finding("names", place("slurm-sandbox", queue="a", slurm=SLURM))
    assert (names.status, says in names.summary) == (status, True), names


def test_nodes_of_a_cloud_that_slurm_hides(program: Program, place: Make) -> None:
    program("sinfo", f"echo '{MARK}'")
    program("scontrol", "echo 'PartitionName=a State=UP MaxTime=UNLIMITED MaxNodes=UNLIMITED TotalNodes=8'")
    partition = finding("partition", place("slurm-sandbox", queue="a", slurm=SLURM))
    assert partition.status == "warning", partition
    assert "Slurm hides powered-down nodes of a cloud (PrivateData=cloud shows them)" in partition.summary


@pytest.mark.slow
@pytest.mark.usefixtures("network")
def test_a_resolver_that_says_nothing(booster: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "WITHIN_S", 3.0)
    answer, never = socket.getaddrinfo, threading.Event()

    def slow(name: str, *words: Any, **options: Any) -> Any:
        if name == "n1i":
            never.wait(30)
        return answer(name, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begin = time.monotonic()
    found = finding("names", booster)
    assert time.monotonic() - begin < 20  # it did not wait for the resolver
    never.set()
    assert (found.status, found.summary) == ("failed", "cannot be resolved within 3 s: n1i")
