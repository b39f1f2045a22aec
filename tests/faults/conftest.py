"""A private Slurm that can preempt, requeue and watch memory, and runs whose training is a stand-in (see stub/)."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.processes import CHECKOUT
from support.sandbox import Sandbox, sandbox

from faults import stand_in
from nlp_bench.config.run import Run

LINES = """\
KillWait=3
SlurmdTimeout=10
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=400
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=booster Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
PartitionName=fragile Nodes=node5 MaxTime=INFINITE State=UP
PartitionName=spare Nodes=node6,node9 MaxTime=INFINITE State=UP
PartitionName=cancelled Nodes=node7 PriorityTier=1 PreemptMode=CANCEL MaxTime=INFINITE State=UP
PartitionName=requeued Nodes=node8 PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=node7,node8 PriorityTier=10 MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="session")
def slurm() -> Iterator[Sandbox]:
    """A Slurm of 9 nodes, five of them for what ends a node's jobs."""
    with sandbox(9, LINES) as started:
        started.environment |= CHECKOUT
        yield started
        started("scancel", "--user", str(os.getuid()))


@pytest.fixture
def jube_slurm(slurm: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """That Slurm with the JUBE of this test on PATH (`newer_jube`)."""
    monkeypatch.setitem(slurm.environment, "PATH", os.environ["PATH"])
    return slurm


Stub = Callable[..., Run]
RANKS = Path(__file__).parent / "ranks"


@pytest.fixture
def rank_run() -> Stub:
    """Make a run of two ranks, here or on two nodes of Slurm, of the real torchrun, which fail as its `mode` says (ranks/sitecustomize.py)."""

    def make(
        mode: str, *, launcher: str = "local", timelimit: str = "00:05:00", iterations: int = 4, **limits: float
    ) -> Run:
        # A rank and torchrun hold 700 MB.
        run = stand_in.stub_run(mode, "--mem=1000", launcher=launcher, timelimit=timelimit)
        spread = {"nodes": 2, "gpus_per_node": 1} if launcher == "slurm" else {"gpus_per_node": 2}
        run = dataclasses.replace(run, parallel=dataclasses.replace(run.parallel, tensor=2, **spread))
        environment = {**run.system.environment, "PYTHONPATH": str(RANKS)}
        system = dataclasses.replace(run.system, environment=environment)
        training = dataclasses.replace(run.training, iterations=iterations)
        bounds = dataclasses.replace(run.limits, **limits)  # type: ignore[arg-type]
        return dataclasses.replace(run, system=system, training=training, limits=bounds)

    return make


@pytest.fixture
def stub_run() -> Stub:
    """Make a run whose training ends as its `mode` says; see stand_in."""
    return stand_in.stub_run


@pytest.fixture
def jube_file(tmp_path: Path) -> Callable[..., Path]:
    """Make JUBE's file for runs by name, each a point, in a folder with a run.json per name; `before` is a line of shell for one."""

    def make(*, before: dict[str, str] | None = None, **runs: Run) -> Path:
        return stand_in.jube_file(tmp_path, before=before, **runs)

    return make
