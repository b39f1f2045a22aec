"""The sandbox itself: a port that another program takes in between, and daemons that died, disturb neither start nor stop."""

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.sandbox import SCRIPT, sandbox
from support.shims import shim

pytestmark = [pytest.mark.slurm]


def test_a_port_that_was_taken_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        once = f'if mkdir "{tmp_path}/asked" 2> /dev/null; then echo {port}; exit; fi'
        monkeypatch.setenv("PATH", shim(tmp_path / "bin", "python3", once))
        with sandbox(1) as slurm:
            assert (tmp_path / "asked").is_dir()
            assert f"SlurmctldPort={port}\n" not in (slurm.folder / "slurm.conf").read_text()
            assert "node1" in slurm("sinfo", "--noheader", "--Node")


def test_a_number_of_a_dead_daemon_is_not_killed(tmp_path: Path) -> None:
    """By now it is another program's."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        (tmp_path / "slurmd-node1.pid").write_text(f"{other.pid}\n")
        (tmp_path / "slurmctld.pid").write_text("999999999\n")
        subprocess.run(["bash", str(SCRIPT), "stop", str(tmp_path)], check=True, timeout=60)
        assert other.poll() is None
        other.kill()


def test_a_stopped_controller_is_ended(tmp_path: Path) -> None:
    """A test that fails may leave it so."""
    with sandbox(1) as slurm:
        pid = slurm.controller()
        slurm.stop_controller(signal.SIGKILL)
        slurm.start_controller()
        assert slurm.controller() != pid
        subprocess.run(["kill", "-STOP", str(slurm.controller())], check=True)
    assert not slurm.folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    shutil.rmtree(tmp_path)
