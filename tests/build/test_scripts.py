"""The scripts of the environment, and what init writes."""

import os
import re
import resource
import stat
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import ROOT, execute

from nlp_bench.cli.main import main
from nlp_bench.config import catalog
from nlp_bench.errors import UsageError


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["benchmark/env/nlp-bench", "--version"],
        ["-c", "source benchmark/env/activate.bash --system local"],
        ["benchmark/run.sh", "--help"],
        ["src/compile_build.sh", "--system", "local", "--no-such-option"],
    ],
)
def test_scripts_work_with_a_cdpath_and_with_a_cd_that_prints(words: list[str]) -> None:
    """`cd` prints the folder that it finds by CDPATH, and takes one of another place first; a user's own lists what is there."""
    ways = []
    for further in ({}, {"CDPATH": ".:..", "BASH_FUNC_cd%%": '() { builtin cd "$@" && ls; }'}):
        variables = {**os.environ, **further}
        done = execute("bash", *words, cwd=ROOT, env=variables, timeout=120)
        ways.append((done.returncode, done.stdout, done.stderr))
    assert ways[1] == ways[0]


@pytest.mark.parametrize("words", [["--model", "13"], ["13", "--nodes", "4"]])
def test_an_option_for_run_sh_is_refused_before_anything_is_set_up(words: list[str]) -> None:
    """`check` took it for its own, and minutes later JUBE said that --tag had no argument."""
    done = execute("bash", "benchmark/run.sh", *words, cwd=ROOT, timeout=60)
    option = next(word for word in words if word.startswith("-"))
    said = f"error: {option}: run.sh takes tags, no options: bash benchmark/run.sh 13; with options: nlp-bench submit"
    assert (done.returncode, said in done.stderr, done.stdout) == (2, True, "")
    assert len(done.stderr.splitlines()) == 1  # and nothing behind it


def test_no_script_looks_a_folder_up_by_cdpath_or_a_users_cd() -> None:
    tracked = execute("git", "ls-files", cwd=ROOT, check=True).stdout.split("\n")
    scripts = [ROOT / name for name in tracked if name.endswith((".sh", ".bash", "env/nlp-bench"))]
    assert scripts
    other = re.compile(r"\$\((?!CDPATH='' builtin )[^)]*\bcd ")
    assert not [path for path in scripts if other.search(path.read_text(encoding="utf-8"))]


def test_a_clone_from_windows_keeps_the_line_ends_of_the_scripts() -> None:
    """With core.autocrlf=true git wrote CR LF, at which bash stops."""
    ends = execute("git", "check-attr", "text", "eol", "--", "benchmark/run.sh", cwd=ROOT, check=True).stdout
    assert ends == "benchmark/run.sh: text: auto\nbenchmark/run.sh: eol: lf\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that was installed, with one file of more than 64 KiB among those that `init` copies."""
    shipped = tmp_path / "package" / "shipped"
    shipped.mkdir(parents=True)
    (shipped / "large").write_bytes(bytes(200_000))
    monkeypatch.setattr(catalog, "checkout", lambda: None)
    monkeypatch.setattr(catalog, "shipped", lambda: shipped)
    return tmp_path


def test_init_without_room_says_so_in_words(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        assert main(["init", str(installed / "bench")]) == UsageError.exit_code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written: File too large; name another" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o444, 0o664])
def test_what_init_writes_has_the_modes_of_new_files(installed: Path, mode: int) -> None:
    """An installation may be read-only (EasyBuild, Nix), or open to a group that is none of this user's."""
    scripts = installed / "package/shipped/benchmark/env"
    scripts.mkdir(parents=True)
    (scripts / "constraints.txt").write_text("")
    (scripts / "nlp-bench").write_text("#!/bin/bash\n")
    for path in (installed / "package").rglob("*"):
        path.chmod(mode | 0o111 if path.is_dir() else mode)
    before = os.umask(0o027)
    try:
        assert main(["init", str(installed / "bench")]) == 0
    finally:
        os.umask(before)
    made = [installed / "bench", *(installed / "bench").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} <= {0o640, 0o750}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("13", "--system: 13 is a model: as a tag of JUBE it would not mean the machine; take another name"),
        ("slurm", "--system: slurm is a tag of its own"),
        ("rehearse", "--system: rehearse is a tag of its own"),
        ("x.toml", "--system: x.toml: name the machine, without .toml: --system x"),
    ],
)
def test_a_machine_is_not_called_like_a_tag(installed: Path, cli: Cli, name: str, said: str) -> None:
    assert said in cli("init", installed / "bench", "--system", name, code=UsageError.exit_code).err
    assert not (installed / "bench").exists()
