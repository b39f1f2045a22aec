"""The versions of JUBE that a test runs under: the one on PATH, and the newest release, installed once for all tests.

On Debian the first is 2.5.1. The second is not on PyPI: its archive lies beside the checkout, or NLP_BENCH_JUBE_ARCHIVE names it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from support.once import made_once

NEWEST = "2.7.1"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "jube" / f"JUBE-REL-{NEWEST}.tar.gz"
PROGRAMS = ("jube", "jube-autorun")
Test = TypeVar("Test", bound=Callable[..., None])


def both_jubes(test: Test) -> Test:
    """Let a test run under both: JUBE is chosen before its other fixtures copy the environment."""
    each = pytest.mark.parametrize("jube_version", ["on PATH", NEWEST], indirect=True)
    return pytest.mark.usefixtures("jube_version")(each(test))


def archive_of_newest() -> Path:
    return Path(os.environ.get("NLP_BENCH_JUBE_ARCHIVE") or BESIDE)


def is_newest_on_path() -> bool:
    said = subprocess.run(["jube", "--version"], capture_output=True, text=True, check=False)
    return f"version {NEWEST}" in said.stdout + said.stderr


@pytest.fixture(scope="session")
def newest_jube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for PATH that holds the newest JUBE and nothing else."""
    if is_newest_on_path():
        pytest.skip(f"the jube on PATH is {NEWEST}: there is no second one to run")
    archive = archive_of_newest()
    if not archive.is_file():
        pytest.skip(f"no archive of JUBE {NEWEST} at {archive}: set NLP_BENCH_JUBE_ARCHIVE to its path")

    def install(folder: Path) -> None:
        python = folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
        subprocess.run([*pip, "install", "-q", "PyYAML", str(archive)], check=True)
        (folder / "programs").mkdir()
        for name in PROGRAMS:
            (folder / "programs" / name).symlink_to(python.with_name(name))

    return made_once(tmp_path_factory, f"jube-{NEWEST}", install) / "programs"


@pytest.fixture
def jube_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == NEWEST:
        monkeypatch.setenv("PATH", f"{request.getfixturevalue('newest_jube')}:{os.environ['PATH']}")
        assert is_newest_on_path()


@pytest.fixture
def newer_jube(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the newest JUBE on PATH; where there is no archive of it, the test runs under the one that is there."""
    if archive_of_newest().is_file() and not is_newest_on_path():
        monkeypatch.setenv("PATH", f"{request.getfixturevalue('newest_jube')}:{os.environ['PATH']}")
        assert is_newest_on_path()
