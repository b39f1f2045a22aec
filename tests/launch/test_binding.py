"""A rank takes its CPUs and memory: real processes, their real affinity and memory policy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nlp_bench.config.system import Binding
from nlp_bench.errors import UsageError
from nlp_bench.machine.binding import VARIABLE

SRC = Path(__file__).resolve().parents[2] / "src"
MINE = sorted(os.sched_getaffinity(0))
SHOW = (
    "import os, re; print(sorted(os.sched_getaffinity(0))); print(open('/proc/self/numa_maps').readline().split()[1])"
)


def bound(plan: object, *command: str, local_rank: int = 0) -> "subprocess.CompletedProcess[str]":
    text = plan if isinstance(plan, str) else json.dumps(plan)
    return subprocess.run(
        [sys.executable, "-m", "nlp_bench.launch.nodes.bound", "--", *(command or (sys.executable, "-c", SHOW))],
        env={**os.environ, "PYTHONPATH": str(SRC), VARIABLE: text, "LOCAL_RANK": str(local_rank)},
        capture_output=True,
        text=True,
        check=False,
    )


def ranks(*cpus: str, memory: str = "local", nodes: tuple[int, ...] = (0,)) -> dict[str, object]:
    return {
        "mode": "unique_contiguous",
        "memory": memory,
        "ranks": [{"cpus": text, "nodes": list(nodes)} for text in cpus],
    }


@pytest.mark.parametrize("local_rank", [0, 1])
def test_each_rank_takes_its_own(local_rank: int) -> None:
    own = MINE[local_rank % len(MINE)]
    done = bound(ranks(str(MINE[0]), str(MINE[1 % len(MINE)])), local_rank=local_rank)
    assert done.stdout.splitlines()[0] == f" > binding: unique_contiguous, NUMA 0, CPUs {own} (1)"
    assert done.stdout.splitlines()[1] == f"[{own}]"
    assert done.stderr == ""


@pytest.mark.parametrize(("memory", "policy"), [("local", "default"), ("preferred", "prefer"), ("bind", "bind:0")])
def test_memory(memory: str, policy: str) -> None:
    done = bound(ranks(str(MINE[0]), memory=memory))
    line, _, found = done.stdout.splitlines()
    if "containers often forbid" in line:
        pytest.skip("set_mempolicy is forbidden here")
    assert found.startswith(policy)
    assert line.endswith("(1)" if memory == "local" else f", memory {memory}")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (ranks("4000"), "CPUs 4000 cannot be taken (Invalid argument"),
        ({"mode": "all", "memory": "local", "why": "4 rank(s) share CPUs 0"}, "nothing is bound: 4 rank(s) share CPUs 0"),
        ("{", "nothing is bound: NLP_BENCH_BINDING is '{' (JSONDecodeError"),
        ({"mode": "all", "memory": "local", "ranks": []}, "(IndexError"),
        ([], "(TypeError"),
        (ranks("x"), "'x' is no range of CPUs"),
        (ranks(str(MINE[0]), memory="bind", nodes=(1000,)), "memory bind of NUMA 1000 cannot be set"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_and_the_run_goes_on(plan: object, said: str) -> None:
    done = bound(plan)
    assert done.returncode == 0
    line = done.stdout.splitlines()[0]
    assert line.startswith(" > binding: WARNING: ")
    assert said in line
    assert f"nlp-bench:{line}" in done.stderr
    assert done.stdout.splitlines()[1].startswith("[")


def test_none_says_where_the_rank_is() -> None:
    assert bound({"mode": "none", "memory": "local"}).stdout.startswith(" > binding: none, CPUs ")


def test_without_a_launcher_nothing_is_said() -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"PYTHONPATH": str(SRC)}
    code = "from nlp_bench.machine.binding import bind_rank; import sys; print(bind_rank(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"


def test_the_status_is_that_of_the_command() -> None:
    assert bound({"mode": "none", "memory": "local"}, "false").returncode == 1
    gone = bound({"mode": "none", "memory": "local"}, "no-such-program")
    assert gone.returncode == 127
    assert "cannot start no-such-program: No such file" in gone.stderr


def test_no_command_is_a_usage_error() -> None:
    words = [sys.executable, "-m", "nlp_bench.launch.nodes.bound"]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"mode": "unique"}, "system.binding.mode: 'unique' is not one of auto, none, all, single"),
        ({"scope": "numa"}, "system.binding.scope: 'numa' is not one of node, socket"),
        ({"cores": "all"}, "system.binding.cores: 'all' is not one of all_logical, single_logical"),
        ({"memory": "near"}, "system.binding.memory: 'near' is not one of local, preferred, bind"),
        ({"min_cores": 0}, "system.binding.min_cores: 0 must be greater than 0"),
        ({"min_cores": 4, "max_cores": 2}, "max_cores = 2 is less than min_cores = 4"),
        ({"mode": "single", "min_cores": 2}, "mode single gives each rank one core, but min_cores = 2"),
    ],
)
def test_odd_wishes_are_refused(wish: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=r".*") as caught:
        Binding(**wish)  # type: ignore[arg-type]
    assert said in str(caught.value)
