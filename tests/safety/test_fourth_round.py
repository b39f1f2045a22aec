"""Faults that a fourth round of fresh eyes thought of."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log

from nlp_bench.cli.main import main
from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.evidence import make
from nlp_bench.evidence.collect import Collected
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import verify
from nlp_bench.rules.file import forget


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "--identity", "", "x.tar.gz"], "--identity: it is empty; give a value, or leave the option out"),
        (["report", "--gpu", "", "x.log"], "--gpu: it is empty"),
        (["check", "--model", "13", "--sbatch-arg=--"], "--sbatch-arg: -- is no value"),
        (["check", "--model", "LOOP"], "loop.toml: Too many levels of symbolic links"),
        (["plan", "--model", "13", "--system", "LOOP"], "loop.toml: Too many levels of symbolic links"),
        (["bundle", "--output", "-", "x.log"], "--output: - is no name of a file or folder, nor standard output here"),
        (["plan", "--model", "13", "--output", "-"], "--output: - is no name of a file or folder"),
        (["data", "prepare", "x.log", "--output", "-"], "--output: - is no name of a file or folder"),
        (["history", "list", "--file", "PIPE"], "is no regular file; name one"),
    ],
)
def test_a_value_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x.log").write_text(published_log())
    found = {"LOOP": str(tmp_path / "loop.toml"), "PIPE": str(tmp_path / "pipe"), "x.log": str(tmp_path / "x.log")}
    assert main([found.get(word, word) for word in words]) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_a_history_that_is_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = write_our_run(tmp_path / "run")
    assert main(["history", "add", "--file", str(tmp_path / "pipe"), str(run)]) != 0
    assert "is no regular file; name one" in capsys.readouterr().err


def test_plots_do_not_depend_on_somebodys_style(tmp_path: Path) -> None:
    """Jupyter exports MPLBACKEND; a matplotlibrc of the current folder may be anybody's, or a pipe."""
    run = write_our_run(tmp_path / "run")
    made = []
    for name, backend in (("plain", None), ("odd", "module://no_such_backend")):
        folder = tmp_path / name
        folder.mkdir()
        if backend:
            os.mkfifo(folder / "matplotlibrc")
        words = [sys.executable, "-P", "-m", "nlp_bench", "report", str(run), "--output", "out"]
        environment = {**os.environ, **({"MPLBACKEND": backend} if backend else {})}
        subprocess.run(words, cwd=folder, env=environment, check=True, timeout=120, capture_output=True)
        made.append((folder / "out/throughput.png").read_bytes())
    assert made[0] == made[1]


LAX = """schema = "nlp-bench/rules/1"
title = "mine"
default = true
models = ["175"]

[rules.finite-loss]
check = "finite-loss"
why = "mine"
"""


@pytest.fixture
def other_rules() -> Iterator[None]:
    """Rules of a folder are read once in a process: other tests read their own again."""
    yield
    forget()


@pytest.mark.usefixtures("other_rules")
def test_a_bundle_is_not_judged_by_rules_that_it_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is derived in its own folder, where a benchmark/ of the sender's would be found before the shipped one."""
    run = write_our_run(tmp_path / "run")
    (tmp_path / "lax.toml").write_text(LAX)
    monkeypatch.chdir(tmp_path)
    honest = make_bundle([str(run)], tmp_path / "honest", Options(rules="jupiter-nlp"), with_ranks=False, force=False)
    original = make.add_rules

    def forged(collected: Collected, options: Options) -> Options:
        collected.add(tmp_path / "lax.toml", "benchmark/rules/jupiter-nlp.toml")
        return original(collected, options)

    monkeypatch.setattr(make, "add_rules", forged)
    made = make_bundle([str(run)], tmp_path / "forged", Options(rules="jupiter-nlp"), with_ranks=False, force=False)
    said = [(one / "report/report.txt").read_text() for one in (honest.path, made.path)]
    assert said[0] == said[1]
    assert verify(made.path).is_verified


@pytest.mark.usefixtures("other_rules")
def test_rules_that_are_not_the_shipped_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_our_run(tmp_path / "run")
    (tmp_path / "benchmark/rules").mkdir(parents=True)
    (tmp_path / "benchmark/rules/jupiter-nlp.toml").write_text(LAX)
    monkeypatch.chdir(tmp_path)
    main(["report", str(run), "--rules", "jupiter-nlp"])
    assert (
        f"rules jupiter-nlp are those of {tmp_path}/benchmark/rules/jupiter-nlp.toml, not the ones"
        in capsys.readouterr().err
    )


def test_what_of_a_folder_is_not_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(published_log())
    (tmp_path / "gone.log").symlink_to("/scratch/purged/gone.log")
    os.mkfifo(tmp_path / "p.log")
    words = ["report", str(tmp_path), "--sequence-length", "2048", "--format", "json"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["runs"]) == 1
    assert f"passed over: {tmp_path}/gone.log is a link to nothing" in printed.err
    assert f"passed over: {tmp_path}/p.log is no regular file" in printed.err


def test_a_log_that_may_not_be_looked_at_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that may be read, but not entered, as another user sees it."""
    (tmp_path / "b").mkdir()
    for name in ("a.log", "b/slow.log"):
        (tmp_path / name).write_text(published_log())
    stat = Path.stat

    def closed(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", closed)
    assert main(["report", str(tmp_path), "--sequence-length", "2048"]) == 1
    assert f"cannot read {tmp_path}/b/slow.log: Permission denied" in capsys.readouterr().out


def test_what_a_bundle_derived_is_no_log_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(published_log())
    made = make_bundle(
        [str(tmp_path / "a.log")], tmp_path / "made", Options(sequence_length=2048), with_ranks=False, force=False
    )
    assert main(["report", str(made.path), "--sequence-length", "2048", "--format", "json"]) == 0
    assert [Path(one["source"]).name for one in json.loads(capsys.readouterr().out)["runs"]] == ["a.log"]


def test_data_files_of_another_user_in_the_current_folder_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standing in /tmp is enough to meet a benchmark/systems/local.toml that exports LD_PRELOAD."""
    (tmp_path / "benchmark/models").mkdir(parents=True)
    (tmp_path / "benchmark/models/mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NLP_BENCH_ROOT", raising=False)
    assert "mine" in catalog.names("models")
    if os.geteuid() == 0:
        os.chown(tmp_path / "benchmark", 65534, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 4711)
    catalog._is_trusted.cache_clear()
    assert "mine" not in catalog.names("models")
    assert f"{tmp_path}/benchmark belongs to another user: what lies there is passed over" in capsys.readouterr().err
