"""What a folder that somebody named may hold: links out of it, folders without end, folders of others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.forked_commands import Nlp, nlp_bench
from support.ours import write_our_run
from support.published import published_log
from support.repeated import write_log

from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options

__all__ = ["nlp_bench"]
OPTIONS = ("--sequence-length", "2048", "--num-gpus", "384")


def sources(done: "subprocess.CompletedProcess[str]", below: Path) -> list[str]:
    return [str(Path(run["source"]).relative_to(below)) for run in json.loads(done.stdout)["runs"]]


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """Return a folder with one log, and links to a folder and a log elsewhere."""
    folder, elsewhere = tmp_path / "named", tmp_path / "elsewhere"
    for name in (folder / "deep", elsewhere):
        name.mkdir(parents=True)
    (folder / "deep/a.log").write_text(published_log())
    (elsewhere / "b.log").write_text(published_log() + "\n")
    (elsewhere / "c.log").write_text(published_log() + "\n\n")
    (folder / "out").symlink_to(elsewhere)
    (folder / "inside").symlink_to("deep")
    (folder / "c.log").symlink_to("../elsewhere/c.log")
    return folder


@pytest.mark.slow
def test_a_link_to_a_folder_elsewhere_is_passed_over_and_said(nlp_bench: Nlp, named: Path) -> None:
    done = nlp_bench("report", str(named), *OPTIONS, "--format", "json")
    assert sources(done, named) == ["c.log", "deep/a.log"]
    assert (
        f"passed over: {named}/out is a link to {named.parent}/elsewhere, outside {named}; name it to have it read"
        in done.stderr
    )
    assert "inside" not in done.stderr
    direct = nlp_bench("report", str(named / "out"), *OPTIONS, "--format", "json")
    assert sources(direct, named) == ["out/b.log", "out/c.log"]


def test_a_run_elsewhere_enters_neither_a_bundle_nor_what_is_followed(nlp_bench: Nlp, tmp_path: Path) -> None:
    own, other = write_our_run(tmp_path / "mine/run"), write_our_run(tmp_path / "other/run")
    (own.parent / "theirs").symlink_to(other.parent)
    for folder in (own, other):
        (folder / "submit.json").write_text("{}")
    packed = nlp_bench("bundle", "mine", "--output", "made", cwd=tmp_path)
    assert "theirs is a link to" in packed.stderr
    assert [path.name for path in (tmp_path / "made/runs").iterdir()] == ["001"], packed.stderr
    for words in (
        ("sync", "mine"),
        ("watch", "mine", "--once"),
        ("plan", "--learn", "mine", "--model", "tiny", "--system", "local", "--nodes", "1"),
    ):
        done = nlp_bench(*words, cwd=tmp_path)
        assert "theirs is a link to" in done.stderr, words
        assert str(other) not in done.stdout, words


def test_the_links_of_a_step_of_jube_are_followed_within_its_run(nlp_bench: Nlp, tmp_path: Path) -> None:
    train = write_our_run(tmp_path / "bench/000000/000003_train/work")
    step = tmp_path / "bench/000000/000004_measure/work"
    step.mkdir(parents=True)
    (step / "train").symlink_to("../../000003_train/work")
    words = ("report", str(step), "--format", "json")
    assert nlp_bench(*words).returncode == 2  # no run of JUBE: nothing says that the link belongs to it
    (train.parents[1] / "configuration.xml").touch()
    done = nlp_bench(*words)
    assert (sources(done, step), done.stderr) == (["train"], "")


def test_folders_in_folders_without_end_are_bounded_and_the_rest_is_read(nlp_bench: Nlp, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(published_log())
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1900):
            Path("n").mkdir()
            os.chdir("n")
    finally:
        os.chdir(here)
    done = nlp_bench("report", str(tmp_path), *OPTIONS, "--format", "json")
    assert (done.returncode, sources(done, tmp_path)) == (0, ["a.log"])
    assert "n lies more than 64 folders deep" in done.stderr
    run = write_our_run(tmp_path / "run")
    (run / "submit.json").write_text("{}")
    assert f"{run}: VALID" in nlp_bench("sync", str(tmp_path)).stdout
    (tmp_path / "manifest.json").write_text("{}")
    assert "more than 64 deep; a bundle has none" in nlp_bench("verify", str(tmp_path)).stderr
    for words in (
        ("data", "prepare", str(tmp_path), "--output", "x", "--vocab-file", "x"),
        ("plan", "--learn", str(tmp_path), "--model", "tiny", "--system", "local", "--nodes", "1"),
    ):
        assert nlp_bench(*words).returncode > 0, words
    subprocess.run(["rm", "-rf", str(tmp_path / "n")], check=True)  # too deep for pytest, which would fail to tidy up


def test_logs_beside_run_folders_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_our_run(tmp_path / "all/run")
    for name in ("slurm-1.out", "train.log.gz"):
        (tmp_path / "all" / name).write_text(published_log())
    main(["report", str(tmp_path / "all")])
    assert (
        f"passed over: {tmp_path}/all/slurm-1.out and 1 more: logs beside run folders; name it"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch", "nowhere"], "DIR nowhere does not exist; give a run folder"),
        (["watch", "{folder}/purged"], "purged is a link to /nowhere/runs, which does not exist: make that, or remove the link"),
        (["watch", ".", "--while-pid", "0"], "--while-pid: "),
    ],
)  # fmt: skip
def test_watch_names_what_cannot_be_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "purged").symlink_to("/nowhere/runs")
    words = [word.format(folder=tmp_path) for word in words]
    assert main(words) == UsageError.exit_code
    assert said in capsys.readouterr().err


Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_a_report_replaces_nothing_of_others(tmp_path: Path, capsys: Capture) -> None:
    log, out = write_log(tmp_path / "a.log", 65000), tmp_path / "out"
    words, names = (
        ["report", str(log), "--output", str(out), "--scaling"],
        ("report.csv", "loss.png", "scaling-efficiency.svg"),
    )
    out.mkdir()
    for name in names:
        (out / name).write_text("mine")
        assert main(words) == 2
        assert f"{name} there is none of an earlier call and would be replaced" in capsys.readouterr().err
        assert [path.name for path in out.iterdir()] == [name]
        (out / name).unlink()
    assert [main(words), main(words)] == [0, 0]
    for name in names:
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(tmp_path / "precious")
        assert main(words) == 2
        assert (
            f"{name} there is a link and would be replaced; move it, or give another folder" in capsys.readouterr().err
        )
        (out / name).unlink()
    assert main([*words[:3], str(log)]) == 2
    assert f"--output {log} cannot be written: it is a file; give a folder" in capsys.readouterr().err


def test_a_trend_replaces_nothing_of_others(tmp_path: Path, capsys: Capture) -> None:
    file, out = ["--file", str(tmp_path / "h")], tmp_path / "out"
    assert main(["history", "add", str(write_log(tmp_path / "a.log", 65000)), *file]) == 0
    words = ["history", "trend", *file, "--allow-measured", "--output", str(out)]
    assert [main(words), main(words)] == [0, 0]
    (out / "trend.json").write_text("{}")
    capsys.readouterr()
    assert main(words) == 2
    assert "would be replaced" in capsys.readouterr().err


@pytest.mark.slow
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


def test_the_kernels_own_files_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """`report $SCRATCH/` where that is not set is `report /`: reading /proc came to no end."""
    assert main(["report", "/proc"]) == 2
    assert "passed over: /proc: the kernel's own files, no logs" in capsys.readouterr().err


def test_what_a_volume_keeps_at_its_root_is_passed_over(tmp_path: Path, nlp_bench: Nlp) -> None:
    """A user may not read it (mkfs.ext4 makes it so for root): each report of the volume ended with 1."""
    write_log(tmp_path / "a.log", 65000)
    (tmp_path / "lost+found").mkdir(mode=0)
    done = nlp_bench("report", str(tmp_path), "--format", "json")
    assert [run["source"] for run in json.loads(done.stdout)["runs"]] == [str(tmp_path / "a.log")]
    assert f"passed over: {tmp_path}/lost+found: copies of folders, by the file system" in done.stderr
