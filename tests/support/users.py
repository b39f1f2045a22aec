"""Commands as another user: one without a passwd entry, a home or a variable, with groups of one's choice."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ANNA, BERT, GROUP = 20001, 20002, 20003  # two users whom nobody knows, and a group of both
OPEN = """set -e
# The interpreter may lie where others may not go (root's home): a namespace of its own opens the way for this command alone.
for place in "$1" "$2" "$3"; do
  above=$place closed=
  while [ "$above" != / ]; do above=$(dirname "$above"); [ $(($(stat -c 0%a "$above") & 1)) = 1 ] || closed=$above; done
  if [ "$closed" ]; then
    kept=$(mktemp -d); mount --bind "$place" "$kept"; mount -t tmpfs -o mode=755 none "$closed"
    mkdir -p "$place"; mount --bind "$kept" "$place"; umount "$kept"; rmdir "$kept"
  fi
done
shift 3; exec setpriv "$@"
"""


def as_user(uid: int, *groups: int, gid: int | None = None) -> list[str]:
    """Return the words before a command that make `uid` run it; skips where this process may not become another."""
    if os.getuid() or not shutil.which("setpriv") or not shutil.which("unshare"):
        pytest.skip("only root can become another user (with unshare and setpriv)")
    ids = [f"--reuid={uid}", f"--regid={gid or uid}"]
    ids += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    places = [sys.base_prefix, sys.prefix, str(ROOT)]
    words = ["unshare", "-m", "bash", "-c", OPEN, "bash", *places, *ids]
    if said := _refused(*words, sys.executable, "-c", ""):
        pytest.skip(f"no command can be run as another user here: {said}")
    return words


def on_tmpfs(folder: Path, options: str) -> list[str]:
    """Return the words before a command for which `folder` is a file system of its own, empty; skips where nothing can be mounted."""
    words = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o {options} none "$0" && exec "$@"', str(folder)]
    if not shutil.which("unshare") or _refused(*words, "true"):
        pytest.skip("nothing can be mounted here")
    return words


@functools.cache
def _refused(*words: str) -> str:
    """Return the end of what a command says that fails."""
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return (tried.stderr.strip()[-200:] or "it fails") if tried.returncode else ""


def run_as(
    uid: int, folder: Path, *words: str, groups: tuple[int, ...] = (GROUP,), umask: int = 0o022, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run nlp-bench in `folder` as a user without a home, with these variables alone."""
    done = subprocess.run(
        [*as_user(uid, *groups), sys.executable, "-m", "nlp_bench", *words], cwd=folder, umask=umask, capture_output=True, text=True,
        check=False, timeout=100, env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "HOME": "/nowhere"} | variables,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user may pass through; pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="nlpb-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
