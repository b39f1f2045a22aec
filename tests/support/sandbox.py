"""The private Slurm of tests/slurm/cluster.sh with further lines of configuration."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.processes import until

SCRIPT = Path(__file__).resolve().parents[1] / "slurm/cluster.sh"
START_S = 600  # for nine nodes to come up on a machine that is busy with other things; mostly it takes five seconds


class Sandbox:
    """A running Slurm: its commands, with a bound on each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH", "NLP_BENCH_SYS"))
        } | {"SLURM_CONF": str(folder / "slurm.conf")}

    def __call__(self, *words: str, timeout_s: float = 60) -> str:
        done = self.ask(*words, timeout_s=timeout_s)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def ask(self, *words: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def controller(self) -> int:
        return int((self.folder / "slurmctld.pid").read_text())

    def node_daemon(self, node: str) -> int:
        return int((self.folder / f"slurmd-{node}.pid").read_text())

    def start_controller(self) -> None:
        """Start slurmctld again, from the state that it had saved, and wait until it answers."""
        self("slurmctld", "-f", str(self.folder / "slurm.conf"))
        self.until(lambda: "is UP" in self.ask("scontrol", "ping").stdout, "answer of the new slurmctld")

    def stop_controller(self, number: signal.Signals) -> None:
        """End slurmctld by this signal and wait until it is gone."""
        pid = self.controller()
        os.kill(pid, number)
        self.until(lambda: not Path(f"/proc/{pid}").exists(), f"end of slurmctld by {number.name}")

    def start_node(self, node: str) -> None:
        """Start a node's slurmd again; the node comes back by itself (ReturnToService=2)."""
        self("slurmd", "-N", node, "-f", str(self.folder / "slurm.conf"))

    @staticmethod
    def until(condition: Callable[[], object], what: str, bound_s: float = 60) -> None:
        until(condition, bound_s, lambda: f"no {what} within {bound_s} s")


@contextlib.contextmanager
def _outlived(folder: Path) -> Iterator[None]:
    """Let a process of its own stop the Slurm in `folder`, should this one be killed."""
    script = 'while kill -0 "$1" 2> /dev/null; do sleep 2; done; bash "$2" stop "$3"; rm -rf -- "$3"'
    words = ["bash", "-c", script, "bash", str(os.getpid()), str(SCRIPT), str(folder)]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as guard:  # fmt: skip
        try:
            yield
        finally:
            guard.kill()


@contextlib.contextmanager
def sandbox(nodes: int, lines: str = "") -> Iterator[Sandbox]:
    """Start a Slurm of `nodes` virtual nodes, `lines` in its slurm.conf; stop exactly its processes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nlpb-"))  # short: a socket's path has at most 107 characters
    further = folder / "lines"
    further.write_text(lines)
    try:
        start = ["bash", str(SCRIPT), "start", str(folder), str(nodes), str(further)]
        subprocess.run(start, check=True, timeout=START_S, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        with _outlived(folder):
            yield Sandbox(folder)
    finally:
        subprocess.run(["bash", str(SCRIPT), "stop", str(folder)], check=False, timeout=START_S)
        shutil.rmtree(folder, ignore_errors=True)


def own_reasons(record: dict[str, Any]) -> list[str]:
    """Return the reasons of an outcome.json but for its neighbours': jobs of a test may run beside each other on the same nodes."""
    reasons = zip(record["reasons"], record.get("codes", record["reasons"]), strict=True)
    return [text for text, code in reasons if code != "shared-nodes"]
