"""A test of nodes without nodes: who meets whom, who is unlike the others, what is said of them."""

import errno
import fcntl
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.command import Cli
from support.examining import Make, Program
from support.processes import execute

from nlp_bench.doctor import nodes as test_of_nodes
from nlp_bench.doctor.nodes import Choice, End, choose, prepare, vendor_tests
from nlp_bench.doctor.rates import partner, rounds
from nlp_bench.doctor.scheduler import Node, node_of
from nlp_bench.doctor.verdict import spread_of, text, verdict
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.scheduler.slurm_answers import MARK


@pytest.mark.parametrize("size", range(2, 14))
def test_everybody_meets_everybody_once(size: int) -> None:
    met = []
    for number in range(rounds(size)):
        mates = [partner(rank, number, size) for rank in range(size)]
        for rank, mate in enumerate(mates):
            assert mate != rank
            assert mate is None or mates[mate] == rank
        assert mates.count(None) == size % 2
        met += [(rank, mate) for rank, mate in enumerate(mates) if mate is not None and rank < mate]
    assert len(met) == len(set(met)) == size * (size - 1) // 2


def test_one_slow_node_is_named_and_does_not_hide_behind_itself() -> None:
    found = spread_of({"node1": 100.0, "node2": 101.0, "node3": 99.0, "node4": 60.0}, 0.05)
    limit = pytest.approx(99.5 - 3.5 * 1.4826 * 1.0)
    assert found == {"median": 99.5, "mad": 1.0, "limit": limit, "slow": ["node4"]}


def test_a_difference_that_does_not_matter_is_not_named() -> None:
    rates = {f"node{i}": 100.0 + 0.001 * i for i in range(10)} | {"node10": 97.0}  # 1000 MAD away, and 3 %
    assert spread_of(rates, 0.05)["slow"] == []
    assert spread_of(rates, 0.01)["slow"] == ["node10"]


def test_two_nodes_cannot_say_who_is_wrong() -> None:
    assert spread_of({"a": 1.0, "b": 100.0}, 0.05)["limit"] is None
    assert spread_of({}, 0.05)["median"] is None


def node(name: str, gemm: list[float], *, link: float = 20.0, clock_s: float = 1000.0, **fields: Any) -> dict[str, Any]:
    memory = {"rate": 3000.0}
    devices = [{"device": f"cuda:{i}", "gemm": {"rate": rate}, "memory": memory} for i, rate in enumerate(gemm)]
    pairs = [{"with": 1, "gb_per_s": link}, {"with": 2, "gb_per_s": 1.0}]
    return {
        "node": name, "step": "finished", "devices": devices, "errors": {}, "checks": [], "vendor": [],
        "exchange": {"clock_s": clock_s, "pairs": pairs, "all_reduce_bus_gb_per_s": 30.0},
    } | fields  # fmt: skip


def test_the_verdict_names_each_fault_at_its_node(tmp_path: Path) -> None:
    nodes = {
        "n1": node("n1", [700, 701, 702, 703]),
        "n2": node("n2", [700, 500, 702, 703]),
        "n3": node("n3", [700, 701, 702, 703], link=9.0, clock_s=1007.0),
        "n4": {},
        "n5": {"node": "n5", "step": "checks", "checks": [{"name": "gpus", "status": "failed", "summary": "3 of 4"}]},
        "n6": node("n6", [], devices=None, errors={"devices": "RuntimeError: torch sees no GPU on this node"}),
        "n7": node("n7", [699] * 4, vendor=[{"name": "dcgmi diag", "is_passed": False, "said": "PCIe | Fail"}]),
        "n8": node("n8", [700] * 4),
    }
    down = Node(name="n9", address="n9", state="DOWN*", reason="no power")
    found = verdict(Choice(names=tuple(nodes), number=8, down=(down,)), nodes, "cuda", folder=tmp_path, end=End())
    faults = {row["node"]: row["faults"] for row in found["nodes"]}
    assert faults["n1"] == faults["n8"] == []
    assert faults["n2"] == ["gemm: GPU 1 500 TFLOP/s, 1.4 times slower than the median 700"]
    assert faults["n3"] == [
        "link: 9 GB/s, 2.2 times slower than the median 20",
        "clock: +7.0 s from the median of the nodes",
    ]
    assert faults["n4"] == ["did not answer: it left no record"]
    assert faults["n5"] == ["did not finish: last step checks", "gpus: 3 of 4"]
    assert faults["n6"] == ["devices: RuntimeError: torch sees no GPU on this node"]
    assert faults["n7"] == ["dcgmi diag: PCIe | Fail"]
    assert faults["n9"] == ["not tested: DOWN* (no power)"]
    assert found["bad"] == ["n2", "n3", "n4", "n5", "n6", "n7", "n9"]
    assert (found["tested"], found["asked"]) == (7, 9)
    shown = text(found, End())
    assert "--exclude=n2,n3,n4,n5,n6,n7,n9" in shown
    assert "gemm: median 700 TFLOP/s" in shown
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("fields", "state", "reason", "is_down"),
    [
        ("Arch=x86_64 State=IDLE ThreadsPerCore=1 NodeAddr=10.0.0.1", "IDLE", "", False),
        ("State=MIXED+CLOUD", "MIXED+CLOUD", "", False),
        ("State=IDLE+CLOUD+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN", "", False),
        ("State=DOWN+CLOUD+POWERED_DOWN", "DOWN+CLOUD+POWERED_DOWN", "", True),
        ("State=IDLE+DRAIN+POWERING_DOWN", "IDLE+DRAIN+POWERING_DOWN", "", True),
        ("State=DOWN* Reason=Not responding [slurm@2026-11-20T10:00:00]", "DOWN*", "Not responding", True),
        ("State=IDLE+DRAIN Reason=bad cable [root@2026-11-20T10:00:00]", "IDLE+DRAIN", "bad cable", True),
        ("State=IDLE*+CLOUD", "IDLE*+CLOUD", "", True),  # the star is at the base state, before its flags
        ("State=IDLE+NOT_RESPONDING", "IDLE+NOT_RESPONDING", "", True),
    ],
)
def test_states_of_nodes(fields: str, state: str, reason: str, is_down: bool) -> None:
    found = node_of(f"NodeName=n1 {fields}")
    assert (found.name, found.state, found.reason, found.is_down) == ("n1", state, reason, is_down)


@pytest.mark.parametrize("word", ["0", "node1;reboot", "$(id)", "-N99", "node[1-3", ""])
def test_words_that_name_no_nodes(place: Make, word: str) -> None:
    with pytest.raises(UsageError, match="--nodes"):
        choose(place(), word)


def test_a_slurm_that_does_not_answer(place: Make) -> None:
    with pytest.raises(NlpBenchError, match="Slurm does not answer"):
        choose(place("juwels-booster", "13"), "all")


SLURM_OF_TWO = """case "$*" in
*config) echo "ClusterName = c" ;;
*partition*) echo "PartitionName=booster Default=YES State=UP MaxTime=UNLIMITED MaxNodes=UNLIMITED TotalNodes=2" ;;
*node*) echo "NodeName=n1 State=ALLOCATED"; echo "NodeName=n2 State=ALLOCATED" ;;
*job*) echo "JobId=2 JobState=%s RunTime=%s ExitCode=0:0 BatchHost=" ;;
esac"""


STILL = "job 2 was still PENDING (Resources) after 1 s; a longer --wait, or --nodes N"


@pytest.mark.parametrize(
    ("job", "ran", "says"),
    [
        ("PENDING Reason=Resources", "00:00:00", f"no node was tested: {STILL}"),
        ("CANCELLED Reason=None", "00:00:00", "no node was tested: job 2: CANCELLED"),
        ("CANCELLED Reason=None", "00:00:07", ""),
        ("RUNNING Reason=None", "00:00:00", ""),
    ],
)
def test_a_job_that_never_started_is_no_fault_of_the_nodes(
    program: Program, cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch, job: str, ran: str, says: str
) -> None:
    monkeypatch.setattr(test_of_nodes, "SETTLE_S", 0.0)
    monkeypatch.delenv("SLURM_CONF")
    program("scontrol", SLURM_OF_TWO % (job, ran))
    program("sinfo", f"echo '{MARK}n1'; echo '{MARK}n2'")
    program("sbatch", "echo 2")
    program("scancel", f"echo $* >> '{here}/cancelled'")
    words = ["doctor", "--system", "slurm-sandbox", "--data-path", "mock", "--nodes", "all", "--wait", "1", "--output"]
    said = cli(*words, here / "out", code=1)
    assert "2" in (here / "cancelled").read_text().split()
    bad = json.loads((here / "out/doctor.json").read_text())["nodes"]["bad"]
    if says:
        assert says in said.out
        assert bad == []
    assert ("did not answer" in said.out, "--exclude" in said.out, "tell the site" in said.out) == (not says,) * 3


def test_the_job_of_a_gpu_machine(place: Make, tmp_path: Path) -> None:
    booster = place("juwels-booster", "13")
    folder = prepare(booster, Choice(names=("n1", "n2"), number=2), tmp_path / "a test", join_s=60)
    script = (folder / "doctor.job").read_text()
    for option in ("--nodes=2", "--gres=gpu:4", "--nodelist=n1,n2", "--no-kill", "--time=00:10:00"):
        assert f"#SBATCH {option}" in script.splitlines()
    assert '--nodelist="$node" ' in script
    assert "@node@" not in script
    assert f"doctor --test-this-node '{folder}' < /dev/null &" in script
    with pytest.raises(UsageError, match="holds a test of nodes already"):
        prepare(booster, Choice(names=(), number=2), folder, join_s=60)
    with pytest.raises(UsageError, match="cannot create"):
        prepare(booster, Choice(names=(), number=2), Path("/proc/test"), join_s=60)
    with pytest.raises(UsageError, match="no model"):
        prepare(replace(booster, run=None, no_run="no model"), Choice(names=(), number=2), tmp_path / "b", join_s=60)


def test_the_job_script_is_content_for_shellcheck(place: Make, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    folder = prepare(place("juwels-booster", "13"), Choice(names=("n1",), number=1), tmp_path / "a'b c", join_s=60)
    done = execute("shellcheck", folder / "doctor.job")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_makers_tests(program: Program) -> None:
    assert vendor_tests(0) == []
    program("dcgmi", 'echo "| PCIe | Pass |"; echo "| Memory | Fail |"; exit 0')
    program("all_reduce_perf", 'test "$8" = 4 && echo "# Avg bus bandwidth    : 231.5"')
    dcgm, nccl = vendor_tests(4)
    assert dcgm == {"name": "dcgmi diag", "is_passed": False, "said": "| Memory | Fail |"}
    assert nccl == {"name": "all_reduce_perf", "is_passed": True, "said": "", "bus_gb_per_s": 231.5}
    program("all_reduce_perf", "echo no GPU >&2; exit 2")
    assert vendor_tests(4)[1] == {"name": "all_reduce_perf", "is_passed": False, "said": "no GPU", "bus_gb_per_s": None}


@pytest.mark.slow
def test_this_machine_without_slurm(tmp_path: Path, cli: Cli) -> None:
    """The real test of one node: checks, rates by torch, no exchange."""
    words = ["doctor", "--system", "local", "--nodes", "all", "--data-path", "mock", "--wait", "300", "--output"]
    said = cli(*words, tmp_path / "out", "--format", "json", code=None)
    found = said.json
    assert found == json.loads((tmp_path / "out/doctor.json").read_text())
    assert found["schema"] == "nlp-bench/doctor/1"
    (row,) = found["nodes"]["nodes"]
    assert said.code == (1 if row["faults"] else 0)
    if not any("devices" in fault for fault in row["faults"]):
        assert row["gemm_tflops"][0] > 0
        assert row["memory_gb_per_s"][0] > 0
    assert found["nodes"]["spread"]["gemm"]["limit"] is None


def test_a_file_system_without_locks_is_tested_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre mounted without `flock`: the nodes do not take turns then, and are not called faulty for it."""

    without = Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(fcntl, "flock", without)
    with test_of_nodes._turn(tmp_path):
        assert without.called  # it was asked, refused, and the node's turn came all the same
