"""Python, JUBE, the environment, the build and its locks."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from support.command import Cli
from support.examining import Make, Program, finding
from support.jube_versions import both_jubes
from support.processes import ROOT

from nlp_bench.build.environment import MANIFEST, SCHEMA, this_machine
from nlp_bench.config.system import Container
from nlp_bench.doctor import software
from nlp_bench.files import write_json
from nlp_bench.programs import Answer


@pytest.mark.parametrize(("version", "is_good"), [((3, 9), False), ((3, 10), True), ((3, 13), True), ((3, 14), False)])
def test_python(place: Make, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], is_good: bool) -> None:
    monkeypatch.setattr(software, "VERSION", version)
    found = finding("python", place())
    assert (found.status != "failed") == is_good
    assert is_good or "NLP_BENCH_PYTHON" in found.remedy


def test_a_run_that_cannot_be_is_checked_by_the_command_that_is_printed(tmp_path: Path, cli: Cli) -> None:
    own = shutil.copy(ROOT / "benchmark/systems/local.toml", tmp_path / "my machine.toml")
    said = cli("doctor", "--system", own, "--model", "175", "--checks", "system", code=1).out
    words = shlex.split(said.partition("next: nlp-bench ")[2])
    assert "parallel.nodes: 96 nodes, but the local launcher has this machine only" in cli(*words, code=2).err


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("echo 'JUBE, version 2.5.1'", "ok", "JUBE 2.5.1; the tests run the workflow with 2.5.1 and 2.7.1"),
        ("echo 'JUBE, version 2.7.1' >&2", "ok", "JUBE 2.7.1"),
        ("echo 'JUBE, version 2.6.2'", "warning", "run the workflow with 2.5.1 and 2.7.1, not with this one"),
        ("echo 'JUBE, version 2.8'", "warning", "JUBE 2.8; the tests run the workflow with "),
        ("echo hello", "warning", "says no version"),
        ("echo \"ModuleNotFoundError: No module named 'distutils'\" >&2; exit 1", "failed", "Python 3.11 or older"),
        ("echo boom >&2; exit 3", "failed", "boom"),
    ],
)
def test_jube(place: Make, program: Program, text: str, status: str, says: str) -> None:
    program("jube", text)
    found = finding("jube", place())
    assert found.status == status
    assert says in found.summary
    if "distutils" in text:
        assert "2.7.1 runs under Python 3.12 and 3.13" in found.remedy


@both_jubes
@pytest.mark.jube
def test_the_real_jube(place: Make) -> None:
    assert finding("jube", place()).status == "ok"


def newer_python() -> Path | None:
    """A Python that starts and has no distutils."""
    named = [shutil.which(name) for name in ("python3.13", "python3.12")]
    beside = sorted(Path(sys.base_prefix).parent.glob("3.1[234]*/bin/python3"))
    for path in [*filter(None, named), *beside]:
        done = subprocess.run(
            [path, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], capture_output=True, check=False
        )
        if done.returncode == 0:
            return Path(path)
    return None


@pytest.mark.jube
def test_the_real_jube_under_a_python_that_is_too_new(place: Make, program: Program) -> None:
    new, old = newer_python(), shutil.which("jube")
    package = Path("/usr/lib/python3/dist-packages")
    if new is None or old is None or not (package / "jube2").is_dir():
        pytest.skip("needs Python 3.12 or newer beside Debian's JUBE 2.5.1")
    program("jube", f'PYTHONPATH={package} exec {new} {old} "$@"')
    found = finding("jube", place())
    assert found.status == "failed"
    assert "needs Python 3.11 or older" in found.summary
    assert found.evidence == ("ModuleNotFoundError: No module named 'distutils'",)


def test_no_jube(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    found = finding("jube", place())
    assert (found.status, found.summary) == ("failed", "jube is not on PATH")


@pytest.mark.parametrize(
    ("runtime", "options", "said"),
    [
        ("pyxis", "--nodes", "failed: srun has no --container-image: pyxis, the container.runtime of the system file, is not installed"),
        ("pyxis", "--container-image", "warning: the container's image /gone.sqsh is not seen on this machine: the nodes need it there"),
        ("apptainer", "--nodes", "warning: the container's image /gone.sqsh is not seen on this machine"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start(place: Make, program: Program, runtime: str, options: str, said: str) -> None:
    """It was known behind the queue."""
    program("srun", f"echo '  {options}=x'")
    found = place("slurm-sandbox", slurm=Answer(code=0))
    assert found.system
    found = replace(found, system=replace(found.system, container=Container(image="/gone.sqsh", runtime=runtime)))
    told = software.environment(found)
    assert f"{told.status}: {told.summary}".startswith(said)


def test_an_environment_that_was_not_finished(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = tmp_path / "venv"
    monkeypatch.setenv("NLP_BENCH_VENV", str(venv))
    assert "no virtual environment" in finding("environment", place()).summary
    (venv / "bin").mkdir(parents=True)
    (venv / "pip.err").write_text("Collecting torch\nERROR: No matching distribution found for torch\n")
    found = finding("environment", place())
    assert (found.status, found.evidence) == ("failed", ("ERROR: No matching distribution found for torch",))
    assert "setup_venv.sh --system local" in found.remedy
    (venv / "nlp-bench.key").write_text("1")
    (venv / "bin/python").symlink_to(tmp_path / "a Python that was removed")
    assert "is gone" in finding("environment", place()).summary


@pytest.mark.slow
def test_versions_that_are_not_the_pinned_ones(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/nlp-bench.key").write_text("1")
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    assert finding("environment", place()).status in {"ok", "warning"}  # an oldest allowed Python has an older numpy
    monkeypatch.setattr(software, "installed_version", lambda name: {"torch": "1.0+cpu"}.get(name, "2.4.6"))
    found = finding("environment", place())
    assert found.status == "warning"
    assert "torch 1.0+cpu, pinned is " in found.summary
    monkeypatch.setattr(software, "installed_version", lambda name: None if name == "torch" else "1")
    assert finding("environment", place()).summary == "torch cannot be imported by this Python"


def test_an_environment_that_a_clean_up_of_the_scratch_took_files_of(
    place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "nlp-bench.key").touch()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    info = tmp_path / "numpy-2.4.6.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: numpy\nVersion: 2.4.6\n")
    (info / "RECORD").write_text("numpy/no_such_file.py,,\n")
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.Distribution.at(info))
    found = finding("environment", place())
    said = "are gone (numpy/no_such_file.py, for one): something cleans up this file system; rm -r "
    assert f"{said}{tmp_path}" in found.summary


def test_builds(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLP_BENCH_BUILD_DIR", str(tmp_path))
    assert "no finished build" in finding("build", place()).summary
    (tmp_path / "kernels-half").mkdir()
    assert finding("build", place()).evidence == ("never finished: kernels-half",)
    whole = tmp_path / "kernels-whole"
    whole.mkdir()
    record = {"schema": SCHEMA, "machine": vars(this_machine("cpu")), "verified": [{"kernel": "gelu", "passed": True}]}
    write_json(whole / MANIFEST, record | {"machine": {"torch": "0.1"}})
    assert "for other versions" in finding("build", place()).summary
    write_json(whole / MANIFEST, record)
    assert finding("build", place()).summary == "kernels-whole fits"
    write_json(whole / MANIFEST, record | {"verified": [{"kernel": "gelu", "passed": False}]})
    assert "gelu failed" in finding("build", place()).summary
    older = tmp_path / "kernels-zzz"  # another --apex of the same machine
    older.mkdir()
    write_json(older / MANIFEST, record)
    os.utime(older / MANIFEST, (0, 0))
    assert "gelu failed" in finding("build", place()).summary  # the ranks use the newest one


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold the lock in another process; give its number."""
    path.touch()
    code = f"import fcntl, sys; f = open({str(path)!r}); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def test_a_lock_that_is_held_and_one_that_is_not(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLP_BENCH_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    lock = tmp_path / "build/.kernels-1.lock"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (0, 0))  # from the first build of years ago: no time of who holds it now
    assert finding("locks", place()).status == "ok"
    with held(lock) as pid:
        found = finding("locks", place())
        assert found.status == "warning"
        assert found.summary.endswith(f" holds {lock}")
        if "process of another node" not in found.summary:  # some sandboxes hide /proc/locks
            assert f"process {pid} holds" in found.summary
            assert "import fcntl" in " ".join(found.evidence)
    assert finding("locks", place()).status == "ok"
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the check has kept nothing


def test_a_lock_that_torch_left(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    lock = tmp_path / "extensions/py311_cpu/fused/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert finding("locks", place()).status == "warning"
    os.utime(lock, (time.time() - 4000, time.time() - 4000))
    found = finding("locks", place())
    assert found.status == "failed"
    assert "every rank would wait" in found.summary
    assert found.remedy == f"rm {lock}"
