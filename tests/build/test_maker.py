"""Builds: once per key, wiped when a build died, found by the launcher, and Apex compiled where it is asked for."""

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.command import Cli
from support.processes import execute
from support.users import ANNA, ROOT, as_user, open_folder

from nlp_bench.build import build_environment, maker, verify
from nlp_bench.build.environment import RECORD, Apex, Extras, Machine, build_warning, folder_name, this_machine
from nlp_bench.build.maker import make_build
from nlp_bench.build.providers import check_installed
from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError, UsageError

__all__ = ["open_folder"]

GPU = Machine(nlp_bench="1", python="cpython-311", torch="2.6.0", megatron_core="0.16.1", cuda="12.4", arch="9.0")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NLP_BENCH_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(maker, "_python", lambda _: 0)  # importing torch again and again proves nothing here
    monkeypatch.setattr(maker.verify, "verify", lambda _site, _log: [])  # the same
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.slow
def test_a_real_build_here_and_a_second_one_in_a_moment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nlp_bench", "build"]
    environment = os.environ | {"NLP_BENCH_BUILD_DIR": str(tmp_path)}
    first = execute(*command, check=True, timeout=300, env=environment)
    assert "dataset helper: already there\n" in first.stdout
    assert "Apex: skipped (no --apex; torch's fused AdamW" in first.stdout
    assert re.findall(r"^torch +(.+?) +\d\.\de-\d\d  ok$", first.stdout, re.MULTILINE) == list(verify.KERNELS["torch"])
    folder = Path(first.stdout.splitlines()[-1])
    made = (folder / "build.json").stat().st_mtime_ns
    assert execute(*command, check=True, timeout=300, env=environment).stdout == first.stdout
    assert (folder / "build.json").stat().st_mtime_ns == made  # found, not made again
    assert json.loads((folder / "build.json").read_text())["schema"] == "nlp-bench/build/1"


def test_the_key_changes_with_machine_and_apex() -> None:
    apex = Apex(source="there", commit="1")
    machines = {folder_name(GPU, Extras()), folder_name(this_machine("8.0"), Extras())}
    names = {folder_name(GPU, Extras(apex=apex)), folder_name(GPU, Extras(transformer_engine="transformer_engine"))}
    assert len(machines | names) == 4


def test_a_build_of_a_login_node_is_verified_where_there_is_a_gpu(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build again on a node with one` found the manifest, and verified nothing."""
    trial = verify.Trial(provider="torch", kernel="norm", difference=0.0, passed=True)
    verifying = Mock(return_value=[trial])
    monkeypatch.setattr(maker.verify, "verify", verifying)
    monkeypatch.setattr(maker, "compiler_gap", lambda: None)
    monkeypatch.setattr(maker, "_run", lambda *_: None)
    for sees_gpu in (False, True, True):
        monkeypatch.setattr(maker, "sees_gpu", Mock(return_value=sees_gpu))
        folder = make_build(built, GPU, Extras(), print)
    record = json.loads((folder / "build.json").read_text())
    assert [one["kernel"] for one in record["verified"]] == ["norm"]
    assert record["items"]["element-wise operators"] == "built"
    assert verifying.call_count == 1  # the third call finds it done


def test_a_build_that_died_is_wiped(built: Path) -> None:
    folder = built / folder_name(this_machine(), Extras())
    folder.mkdir()
    (folder / "half").touch()
    assert main(["build"]) == 0
    assert [path.name for path in folder.iterdir()] == ["build.json"]


def test_a_killed_build_lets_the_next_one_in(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from nlp_bench.build import maker\n"
        "from nlp_bench.build.environment import Extras, this_machine\n"
        "maker.dataset_helper = lambda folder: (print('locked', flush=True), time.sleep(60))\n"
        "maker.make_build(Path(sys.argv[1]), this_machine(), Extras(), print)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout.readline() == "locked\n"
        dying.send_signal(signal.SIGKILL)
    again = code.replace("maker.dataset_helper = ", "maker._verified = lambda *_: []; _ = ")
    done = subprocess.run([sys.executable, "-c", again, str(tmp_path)], capture_output=True, check=False, timeout=90)
    assert done.returncode == 0
    assert len(list(tmp_path.glob("*/build.json"))) == 1


def test_the_launcher_gets_the_caches_of_a_finished_build(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert build_environment(built) == {}
    assert main(["build"]) == 0
    assert build_environment(built) == {}  # nothing was compiled
    folder = built / folder_name(this_machine(), Extras())
    for name in ("inductor", "site-packages"):
        (folder / name).mkdir()
    expected = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "PYTHONPATH": str(folder / "site-packages")}
    assert build_environment(built) == expected
    (folder / "build.json").unlink()
    assert build_environment(built) == {}


@pytest.mark.usefixtures("built")
def test_a_colleague_gets_no_cache_of_kernels_that_may_only_be_read(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile raises for a cache that it cannot write: every rank died at the first kernel that is not in it."""
    monkeypatch.setenv("NLP_BENCH_BUILD_DIR", str(open_folder))
    assert main(["build"]) == 0
    (cache := open_folder / folder_name(this_machine(), Extras()) / "triton").mkdir()
    code = "from nlp_bench.build import build_environment as of; from pathlib import Path; print(*of(Path()).values())"
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for before, said in ((["env"], f"{cache}\n"), (as_user(ANNA), "\n")):
        words = [*before, sys.executable, "-c", code]
        done = execute(*words, cwd=open_folder, env=variables)
        assert done.stdout == said, done.stderr


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's compiler, the one thing not to be had here."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "nvcc", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def apex(tmp_path: Path, nvcc: None) -> Apex:  # noqa: ARG001
    """A git repository that installs as Apex does."""
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
    commit = execute(*git, "rev-parse", "HEAD", check=True).stdout.strip()
    return Apex(source=str(source), commit=commit)


@pytest.mark.slow
def test_apex_is_compiled_for_the_architecture_into_its_own_folder(tmp_path: Path, apex: Apex) -> None:
    said = maker.apex_extensions(tmp_path, GPU, apex)
    assert said == f"built (commit {apex.commit[:12]} for architecture 9.0)"
    assert (tmp_path / "site-packages" / "apex.py").read_text() == "ARCH = '9.0'"


def test_a_failing_apex_names_the_log_and_leaves_no_manifest(built: Path, apex: Apex) -> None:
    with pytest.raises(NlpBenchError, match=r"git ended with status \d+; the whole log is .*apex.log"):
        make_build(built, GPU, Extras(apex=Apex(source=apex.source, commit="0" * 40)), print)
    assert not list(built.glob("*/build.json"))


def wheel(folder: Path, name: str, version: str, needs: str = "") -> Path:
    """Write a package of one module in pip's own format: https://packaging.python.org/specifications/binary-distribution-format."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        text = "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", text)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_transformer_engine_comes_with_what_is_not_there_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel(tmp_path, "small_need", "3.0")
    wheel(tmp_path, "fake_engine", "2.0", "Requires-Dist: small-need\nRequires-Dist: numpy\n")
    said = maker.transformer_engine(tmp_path, GPU, "fake_engine==2.0")
    assert said == "built (fake_engine==2.0 for architecture 9.0)"
    assert {path.name for path in (tmp_path / "site-packages").glob("*.py")} == {"fake_engine.py", "small_need.py"}


def test_libraries_without_a_gpu_or_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert maker.transformer_engine(tmp_path, GPU, "").startswith("skipped (no --te")
    monkeypatch.setenv("PATH", str(tmp_path))
    for make, wanted, name in (
        (maker.apex_extensions, Apex(source="there", commit="1"), "apex"),
        (maker.transformer_engine, "it", "transformer engine"),
    ):
        assert make(tmp_path, this_machine("cpu"), wanted).startswith("skipped (no GPU and no --arch")
        with pytest.raises(NlpBenchError, match=f"{name}: nvcc is not on PATH"):
            make(tmp_path, GPU, wanted)


def test_a_kernel_that_takes_its_process_along_is_wrong_and_the_next_ones_are_still_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text(
        "import json, os, sys\n"
        "for name in sys.argv[2:]:\n"
        "    print(json.dumps({'kernel': name, 'starts': True}), flush=True)\n"
        "    if name == 'rotary':\n"
        "        os.abort()\n"
        "    print(json.dumps({'kernel': name, 'difference': 0.5, 'passed': name != 'norm', 'error': None}), flush=True)\n"
    )
    monkeypatch.setattr(verify, "MODULE", "dying")
    trials = verify.verify(tmp_path, tmp_path / "log", ["torch"])
    assert [trial.kernel for trial in trials] == list(verify.KERNELS["torch"])
    assert [trial.kernel for trial in trials if not trial.passed] == ["norm", "rotary"]
    lines = verify.table(trials)
    assert lines[1].split(maxsplit=3) == ["torch", "norm", "5.0e-01", "WRONG: switched off"]
    assert "WRONG: switched off (the process ended with status -6; see" in lines[4]


def test_a_job_is_told_what_was_switched_off(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = verify.Trial(provider="te", kernel="norm", difference=None, passed=False, error="RuntimeError: no")
    monkeypatch.setattr(maker.verify, "verify", lambda _site, _log: [wrong])
    assert main(["build"]) == 0
    environment = build_environment(built)
    assert json.loads(Path(environment[RECORD]).read_text())["verified"][0]["kernel"] == "norm"
    said = "WARNING: kernels gave wrong results in the build and are switched off: "
    assert str(build_warning(environment)).startswith(said)
    assert build_warning({}) is None


def test_operators_without_a_compiler_are_skipped_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert "a C compiler (install gcc): THE TRAINER WILL RUN UNFUSED" in maker.elementwise_operators(tmp_path, GPU)
    for named in ("", "icc-2021"):  # torch.compile was chosen for a name alone, and failed
        monkeypatch.setenv("CC", named)
        assert f"the C compiler that CC={named} names (or unset CC)" in maker.elementwise_operators(tmp_path, GPU)
    program(tmp_path / "gcc", "true")
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    assert "Python.h (install python3-dev): THE TRAINER" in maker.elementwise_operators(tmp_path, GPU)


def test_a_wrong_architecture_is_refused(tmp_path: Path, cli: Cli) -> None:
    said = cli("build", "--arch", "sm_90", code=UsageError.exit_code).err
    assert "arch: 'sm_90' is not a compute capability like 9.0" in said
    shipped = Path(__file__).parents[2] / "benchmark/systems/dgx-h100.toml"
    (tmp_path / "mine.toml").write_text(shipped.read_text(encoding="utf-8").replace('"9.0"', '"sm_90"'))
    said = cli("build", "--system", tmp_path / "mine.toml", code=UsageError.exit_code).err
    assert "system.gpu.compute_capability: 'sm_90' is not a compute capability like 9.0" in said


def test_a_folder_that_passes_for_transformer_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformer_engine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("importlib.metadata.version", Mock(side_effect=PackageNotFoundError))
    with pytest.raises(UsageError, match=r"kernels: .*transformer_engine is found as Transformer Engine but no such"):
        check_installed("auto", eight_bit=False)


def test_a_compiler_that_a_module_named_and_took_along_is_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of the package was said not to be writable."""
    monkeypatch.setattr("nlp_bench.build.scanner.OBJECT", tmp_path / "scan.so")
    monkeypatch.setenv("CC", "icc-2021 -O2")
    assert main(["build", "--scanner"]) == 2
    assert "CC=icc-2021 -O2: there is no icc-2021 on PATH" in capsys.readouterr().err
