"""sdist and wheel as a user gets them: complete, pure, and working in a clean environment, in a folder that has nothing of a checkout."""

import os
import re
import shutil
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.following import program
from support.pages import check_page
from support.processes import ROOT, execute

from nlp_bench.evidence.archive import EXTRACT_FILTER

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/install.md"
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
CLEAN = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG", "OMP_WAIT_POLICY") if name in os.environ}


def tracked() -> list[str]:
    listed = execute("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def built(hook: str, source: Path, folder: Path, **variables: str) -> Path:
    """Call a hook of setuptools as pip does, in `source`, and return what it made."""
    folder.mkdir(exist_ok=True)
    done = execute(sys.executable, "-c", BUILD, hook, folder, cwd=source, env=CLEAN | variables)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of this checkout; nothing is written into it."""
    folder = tmp_path_factory.mktemp("sdist")
    for name in tracked():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "source" / name)
    return built("build_sdist", folder / "source", folder / "dist")


@pytest.fixture(scope="module")
def source(sdist: Path) -> Path:
    """What is in the source archive, unpacked."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, **EXTRACT_FILTER)  # noqa: S202  # our own
    return sdist.parent / sdist.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return built("build_wheel", source, source.parent / "wheel", NLP_BENCH_SCANNER="0")


def environment(folder: Path, wheel: Path, packages: Path) -> Path:
    """Make an environment with the wheel and nothing else but the packages that lie in `packages`; return its nlp-bench."""
    execute(sys.executable, "-m", "venv", "--without-pip", folder, check=True)
    python = folder / "bin/python"
    site = execute(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))", check=True)
    Path(site.stdout.strip(), "packages.pth").write_text(f"{packages}\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    execute(*pip, "--no-deps", "--no-index", "--ignore-installed", wheel, check=True, env=CLEAN)
    return folder / "bin/nlp-bench"


def needs_of(requirements: list[str]) -> list[str]:
    """Names of the packages that are required here without an extra."""
    return [
        re.split(r"[ <>=!~;\[(]", need)[0]
        for need in requirements
        if "extra ==" not in need and not ("python_version <" in need and sys.version_info >= (3, 11))
    ]


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has its dependencies and no extra."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "packages").mkdir()
    needs = needs_of(metadata_of(wheel).get_all("Requires-Dist", []))
    for name in needs:  # and what these need in turn
        found = distribution(name)
        needs += [one for one in needs_of(found.requires or []) if one not in needs]
        for top in {path.parts[0] for path in found.files or ()} - {".."}:
            target = folder / "packages" / top
            if not target.exists():
                target.symlink_to(found.locate_file(top))
    return environment(folder / "env", wheel, folder / "packages")


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has the extras too."""
    here = next(Path(path) for path in sys.path if Path(path, "torch").is_dir())
    return environment(tmp_path_factory.mktemp("full") / "env", wheel, here)


def test_the_source_archive_holds_the_checkout(source: Path) -> None:
    assert [name for name in tracked() if not (source / name).is_file()] == []


def test_a_second_wheel_holds_nothing_of_the_first(source: Path, tmp_path: Path) -> None:
    """setuptools leaves build/lib as it was: a private system file that had been removed went out with the next wheel."""
    checkout = Path(shutil.copytree(source, tmp_path / "checkout"))
    private, module = checkout / "benchmark/systems/private-site.toml", checkout / "src/nlp_bench/__init__.py"
    before = module.read_text()
    shutil.copy(checkout / "benchmark/systems/dgx-h100.toml", private)
    module.write_text(f"{before}NEW = 1\n")
    built("build_wheel", checkout, tmp_path / "first")
    private.unlink()
    module.write_text(before)
    os.utime(module, (1e9, 1e9))
    with zipfile.ZipFile(built("build_wheel", checkout, tmp_path / "second")) as archive:
        assert not [name for name in archive.namelist() if "private-site" in name]
        assert archive.read("nlp_bench/__init__.py").decode() == before


def test_the_wheel_is_pure_whole_and_says_what_it_is(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shipped, apart = ("benchmark/", "jube/"), ("benchmark/perf/", "benchmark/parity/")
    wanted = [name for name in tracked() if name.startswith(shipped) and not name.startswith(apart)]
    assert [name for name in wanted if f"nlp_bench/shipped/{name}" not in names] == []
    metadata = metadata_of(wheel)
    assert not [name for name in names if name.endswith(".so") or "perf/" in name or "parity/" in name]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    versions = [one.rpartition(" ")[2] for one in metadata.get_all("Classifier", []) if "Python :: 3." in one]
    assert versions == ["3.10", "3.11", "3.12", "3.13"]


def test_the_scanner_is_compiled_where_there_is_a_compiler(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "source")
    wheel = built("build_wheel", tmp_path / "source", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        assert "nlp_bench/logs/_scan.abi3.so" in archive.namelist()
    assert "cp310-abi3-linux" in wheel.name
    wheel = built("build_wheel", tmp_path / "source", tmp_path / "without", CC="/nowhere/cc")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "_scan." in name]


def call(command: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "home").mkdir(parents=True, exist_ok=True)
    done = execute(command, *words, cwd=folder, env=CLEAN | {"NLP_BENCH_HOME": str(folder / "home")}, timeout=200)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("data prepare text.jsonl --output data --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt", "train"),
        ("data", "train"),
        ("rehearse --model tiny --system juwels-booster --nodes 1 --tp 1 --pp 1", "train"),
        ("plan calibrate --output constants.toml", "train"),
        ("submit --system local", "train"),
        ("plan --model 13 --system juwels-booster --nodes 8 --plot plan.png", "report"),
    ],
)  # fmt: skip
def test_a_missing_package_is_two_lines_that_name_the_extra(bare: Path, tmp_path: Path, words: str, extra: str) -> None:
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    done = call(bare, tmp_path, *words.split())
    assert done.returncode in {1, 2}
    lines = done.stderr.strip().splitlines()
    assert lines[-2:][0].startswith("nlp-bench: error: ")  # of `submit` one line holds both
    assert f"pip install 'nlp-bench[{extra}]'" in lines[-1]


def test_doctor_names_commands_that_exist_here(bare: Path, tmp_path: Path) -> None:
    done = call(bare, tmp_path, "doctor")
    assert "benchmark/env" not in done.stdout
    assert "pip install 'nlp-bench[train]'" in done.stdout


def test_the_scanner_can_be_compiled_later(bare: Path, tmp_path: Path) -> None:
    made = Path(call(bare, tmp_path, "build", "--scanner").stdout.strip())
    assert made.is_relative_to(bare.parents[1])
    assert made.is_file()
    made.unlink()


def test_init_refuses_what_it_must_not_touch(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    for words, said in (
        (["full"], "is not empty"),
        (["full/mine.txt"], "is a file"),
        (["a,b"], "JUBE takes in no path"),
        (["b", "--system", "../up"], "is no name of a file"),
        (["b", "--system", "new", "--like", "dgx"], "did you mean dgx-"),
        (["b", "--like", "dgx-a100"], "--like"),
    ):
        done = call(bare, tmp_path, "init", *words)
        assert done.returncode == 2
        assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "home"]  # which `call` makes


@pytest.mark.jube
def test_the_page_shows_what_an_installed_wheel_does(
    bare: Path, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "empty"
    for name in (".tools", "home"):
        (folder / name).mkdir(parents=True)
    needs_all = f'case $1 in init | rehearse | measure) exec "{full}" "$@" ;; esac'
    program(folder / ".tools", "nlp-bench", f'{needs_all}\nexec "{bare}" "$@"')
    for name in os.environ:
        if name.startswith(("NLP_BENCH", "PYTHONPATH", "SLURM")) and name != "NLP_BENCH_WRITE_DOCS":
            monkeypatch.delenv(name)
    check_page(PAGE, folder, 15, NLP_BENCH_HOME=str(folder / "home"), NLP_BENCH_SYSTEM="local")
