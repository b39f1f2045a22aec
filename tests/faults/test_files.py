"""Disks that are full or can only be read, mounted for real in a namespace of their own, and runs in a folder on them."""

import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import execute, gone, surroundings

import nlp_bench
from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.scheduler import local
from nlp_bench.launch.submission import Submission

pytestmark = pytest.mark.slow

Stub = Callable[..., Run]
NLP_BENCH = f'"{sys.executable}" -m nlp_bench'


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[str], str]:
    """Run a shell script in a folder on a small disk that is there for it alone; return what it printed, stderr too."""

    def run(script: str, *, path: str = "") -> str:
        disk = tmp_path / "disk"
        disk.mkdir(exist_ok=True)
        whole = f'mount -t tmpfs -o size=1m none "{disk}" && cd "{disk}" && {{ {script}\n}}'
        words = ["unshare", "-rm", "bash", "-c"]
        if not shutil.which("unshare") or subprocess.run([*words, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode:  # fmt: skip
            pytest.skip("no mount may be made here")
        environment = surroundings(PATH=f"{path}{os.environ['PATH']}")
        done = subprocess.run(
            [*words, whole], env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return run


def test_the_disk_fills_up_while_a_run_trains(on_disk: Callable[[str], str], stub_run: Stub, tmp_path: Path) -> None:
    """The training goes to its end, its last lines have no room: a word, no number, and nothing waits."""
    record = stub_run("fill", launcher="local").write(tmp_path)
    said = on_disk(
        f'{NLP_BENCH} submit --run "{record}" --run-dir run; echo "submit: $?"; ls -A run | grep part; rm run/filling\n'
        f'{NLP_BENCH} sync run; {NLP_BENCH} measure run; echo "measure: $?"; cp run/* "{tmp_path}" 2> /dev/null'
    )
    assert "submit: 1" in said, said
    assert "run/outcome.json: No space left on device; the file system is full: make room" in said
    assert ".part" not in said
    outcome = json.loads((tmp_path / "outcome.json").read_text())["outcome"]
    assert outcome in {"INCOMPLETE", "FAILED", "UNKNOWN"}, said
    metrics = (tmp_path / "metrics.txt").read_text()
    assert f"outcome: {outcome}" in metrics
    assert "tokens_per_second" not in metrics


def test_a_run_whose_record_has_no_room_is_ended(
    stub_run: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its process in submit.json nobody would keep a training's time limit."""

    def full(submission: Submission, _: Path) -> None:
        if submission.script_pid:
            raise NlpBenchError("cannot write submit.json: No space left on device")

    monkeypatch.setattr(Submission, "write", full)
    script = tmp_path / "submit.job"
    script.write_text("sleep 1000\n")
    handle = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    with pytest.raises(NlpBenchError, match="No space left"):
        local.train(stub_run("ok", launcher="local"), script, chain=1, lock=handle)
    os.close(handle)
    assert gone(str(script))


@pytest.mark.parametrize("launcher", ["slurm", "local"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_submitted(
    on_disk: Callable[..., str], stub_run: Stub, tmp_path: Path, launcher: str
) -> None:
    record = stub_run("ok", launcher=launcher).write(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sbatch", "squeue", "scontrol"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} >> "{tmp_path}/asked"\nexit 1\n')
        (tools / name).chmod(0o755)
    submit = f'{NLP_BENCH} submit --run "{record}" --no-follow --run-dir'
    said = on_disk(
        f"mkdir there; head -c 2M /dev/zero > fill 2> /dev/null\n{submit} there; echo full: $?\nrm fill; mount -o remount,ro .\n"
        f"{submit} there; echo there: $?; {submit} new; echo new: $?; {submit} there/under; echo under: $?; ls -A there",
        path=f"{tools}:",
    )
    refused = [line.removesuffix(": 2") for line in said.splitlines() if line.endswith(": 2")]
    assert refused == ["full", "there", "new", "under"], said
    assert "--run-dir: there is not writable: No space left on device; the file system is full: make room" in said
    assert (
        "--run-dir: there is not writable: Read-only file system; the file system can only be read here: name a folder"
        in said
    )
    assert (
        "--run-dir: cannot create new: Read-only file system; the file system can only be read here: name a folder of another one; or name another folder"
        in said
    )
    assert not (tmp_path / "asked").exists()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, without bytecode."""
    folder = tmp_path_factory.mktemp("a checkout") / "nlp_bench"
    return shutil.copytree(Path(nlp_bench.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("cli/main", "--version"),
        ("cli/parser", "report --help"),
        ("logs/dialects/megatron", "report a.out b.out"),
        ("launch/scheduler/slurm", "doctor --system juwels-booster --checks slurm"),
    ],
)
def test_bytecode_that_a_full_disk_has_cut_is_named(package: Path, tmp_path: Path, module: str, words: str) -> None:
    """Python cuts it without a word, and every later command ended in a traceback, or blamed the log."""
    for name in ("a.out", "b.out"):
        (tmp_path / name).write_text("iteration 1/ 2 | elapsed time per iteration (ms): 1.0 | global batch size: 1 |\n")
    variables = surroundings(PYTHONPATH=str(package.parent), PYTHONPYCACHEPREFIX="", PYTHONDONTWRITEBYTECODE="")
    code = "import sys; from nlp_bench.cli.main import main; sys.exit(main())"  # of the script that pip makes
    door = [sys.executable, "-c", code, *words.split()]
    source = package / f"{module}.py"
    file = source.parent / f"__pycache__/{source.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(source), str(file), doraise=True)
    os.truncate(file, 4096)
    for command in (door, [sys.executable, str(package / "__main__.py"), *words.split()]):
        done = execute(*command, cwd=tmp_path, env=variables)
        said = done.stdout + done.stderr
        assert (done.returncode, f"{file} was cut short when it was written" in said) == (1, True), said
        assert not re.search("Traceback|please report|REFUSED", said)
    (remedy,) = re.findall("with room: (find .* -delete)", said)
    execute("sh", "-c", remedy, check=True)
    assert "was cut short" not in str(execute(*door, cwd=tmp_path, env=variables))
    assert (
        package / f"__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    ).stat().st_size < 4096  # nor can it be cut
