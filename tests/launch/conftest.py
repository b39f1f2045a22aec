"""A resolved run, a Slurm of programs; nodes as Linux describes them in /sys, and a stand-in of NVIDIA's library that says where GPUs are."""

from pathlib import Path

import pytest
from support.following import Says, Site, sandbox_run
from support.native import compiled, put

from nlp_bench.config import scheduler
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job, State
from nlp_bench.launch import folder, once
from nlp_bench.launch.scheduler import slurm

SOURCE = Path(__file__).with_name("fake_gpus.c")


@pytest.fixture(scope="session")
def run() -> Run:
    return sandbox_run()


@pytest.fixture
def run_dir(run: Run, tmp_path: Path) -> Path:
    """The folder of `run`, which nobody has submitted."""
    made = tmp_path / "run"
    made.mkdir()
    run.write(made)
    return made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A Slurm of programs on PATH, which is asked without a pause."""
    made = Site(tmp_path / "tools")
    monkeypatch.setenv("PATH", str(made.tools), prepend=":")
    for module, name in ((scheduler, "PATIENCE_S"), (once, "SETTLE_S"), (once, "LOOK_S")):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(folder, "preflight", lambda *_: None)
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_CLUSTERS", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Let Slurm say this of any job: GONE is one that it no longer knows, None no answer."""

    def say(state: str | None, **facts: object) -> None:
        def query(_: slurm.Slurm, job_id: str, **__: object) -> Job | None:
            if state in {None, "GONE"}:
                return Job(state=State.GONE, job_id=job_id) if state else None
            return slurm.job(str(state), job_id=job_id, **facts)  # type: ignore[arg-type]

        monkeypatch.setattr(slurm.Slurm, "query", query)

    return say


@pytest.fixture(scope="session")
def gpu_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(SOURCE, tmp_path_factory.mktemp("gpus"))


@pytest.fixture
def dgx_a100(tmp_path: Path) -> Path:
    """The root of a DGX A100: 2 sockets of 64 cores, 4 NUMA nodes each, GPUs at nodes 3, 3, 1, 1, 7, 7, 5, 5."""
    root = tmp_path / "dgx"
    for cpu in range(256):
        core = cpu % 128
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{core},{core + 128}\n")
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{core // 64}\n")
    for node in range(8):
        first = 16 * node
        put(root, f"sys/devices/system/node/node{node}/cpulist", f"{first}-{first + 15},{first + 128}-{first + 143}\n")
    places = zip(("07", "0f", "47", "4e", "87", "90", "b7", "bd"), (3, 3, 1, 1, 7, 7, 5, 5), strict=True)
    for bus, node in places:
        put(root, f"sys/bus/pci/devices/0000:{bus}:00.0/numa_node", f"{node}\n")
    return root
