"""Builds: once per key, wiped when a build died, found by the launcher, and Apex compiled where it is asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nlp_bench.build import build_environment, items
from nlp_bench.build.key import Apex, Machine, folder_name, this_machine
from nlp_bench.build.maker import make_build
from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError, UsageError

GPU = Machine(nlp_bench="1", python="cpython-311", torch="2.6.0", megatron_core="0.16.1", cuda="12.4", arch="9.0")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NLP_BENCH_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(items, "_python", lambda _: 0)  # importing torch again and again proves nothing here
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def test_a_real_build_here_and_a_second_one_in_a_moment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nlp_bench", "build"]
    environment = os.environ | {"NLP_BENCH_BUILD_DIR": str(tmp_path)}
    first = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90, env=environment)
    assert "dataset helper: already there\n" in first.stdout
    assert "Apex: skipped (no --apex; torch's fused AdamW" in first.stdout
    start = time.monotonic()
    second = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90, env=environment)
    assert time.monotonic() - start < 2
    assert second.stdout == first.stdout
    folder = Path(first.stdout.splitlines()[-1])
    assert json.loads((folder / "build.json").read_text())["schema"] == "nlp-bench/build/1"


def test_the_key_changes_with_machine_and_apex() -> None:
    apex = Apex(source="there", commit="1")
    names = {folder_name(GPU, None), folder_name(GPU, apex), folder_name(this_machine("8.0"), None)}
    assert len(names) == 3


def test_a_build_that_died_is_wiped(built: Path) -> None:
    folder = built / folder_name(this_machine(), None)
    folder.mkdir()
    (folder / "half").touch()
    assert main(["build"]) == 0
    assert [path.name for path in folder.iterdir()] == ["build.json"]


def test_a_killed_build_lets_the_next_one_in(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from nlp_bench.build import maker; from nlp_bench.build.key import this_machine\n"
        "maker.dataset_helper = lambda folder: (print('locked', flush=True), time.sleep(60))\n"
        "maker.make_build(Path(sys.argv[1]), this_machine(), None, print)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "locked\n"
        dying.send_signal(signal.SIGKILL)
    environment = os.environ | {"NLP_BENCH_BUILD_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "nlp_bench", "build"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=90, env=environment).returncode == 0


def test_the_launcher_gets_nothing_where_nothing_was_compiled(built: Path) -> None:
    assert build_environment(built) == {}
    assert main(["build"]) == 0
    assert build_environment(built) == {}


def test_the_launcher_gets_the_caches_of_a_finished_build(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert main(["build"]) == 0
    folder = built / folder_name(this_machine(), None)
    for name in ("inductor", "site-packages"):
        (folder / name).mkdir()
    expected = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "PYTHONPATH": str(folder / "site-packages")}
    assert build_environment(built) == expected
    (folder / "build.json").unlink()
    assert build_environment(built) == {}


@pytest.fixture
def apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apex:
    """A git repository that installs as Apex does, and an nvcc: CUDA's compiler is the one thing not to be had here."""
    source = tmp_path / "an apex"
    source.mkdir()
    (source / "setup.py").write_text(
        "import os, sys, setuptools\n"
        "sys.argv[:] = [word for word in sys.argv if word not in ('--cpp_ext', '--cuda_ext')]\n"
        "assert os.environ['APEX_CUDA_EXT'] == '1'\n"
        "open('apex.py', 'w').write('ARCH = %r' % os.environ['TORCH_CUDA_ARCH_LIST'])\n"
        "setuptools.setup(name='apex', version='0.1', py_modules=['apex'])\n"
    )
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "nvcc", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Apex(source=str(source), commit=commit)


def test_apex_is_compiled_for_the_architecture_into_its_own_folder(tmp_path: Path, apex: Apex) -> None:
    said = items.apex_extensions(tmp_path, GPU, apex)
    assert said == f"built (commit {apex.commit[:12]} for architecture 9.0)"
    assert (tmp_path / "site-packages" / "apex.py").read_text() == "ARCH = '9.0'"


def test_a_failing_apex_names_the_log_and_leaves_no_manifest(built: Path, apex: Apex) -> None:
    with pytest.raises(NlpBenchError, match=r"git ended with status \d+; the whole log is .*apex.log"):
        make_build(built, GPU, Apex(source=apex.source, commit="0" * 40), print)
    assert not list(built.glob("*/build.json"))


def test_apex_without_a_gpu_or_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Apex(source="there", commit="1")
    assert items.apex_extensions(tmp_path, this_machine("cpu"), wanted).startswith("skipped (no GPU and no --arch")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NlpBenchError, match="apex: nvcc is not on PATH"):
        items.apex_extensions(tmp_path, GPU, wanted)


def test_operators_without_a_compiler_are_skipped_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert "THE TRAINER WILL RUN UNFUSED" in items.elementwise_operators(tmp_path, GPU)


def test_a_wrong_architecture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--arch", "sm_90"]) == UsageError.exit_code
    assert "arch: 'sm_90' is not a compute capability like 9.0" in capsys.readouterr().err
