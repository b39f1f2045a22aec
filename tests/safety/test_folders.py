"""What a folder that somebody named may hold: links out of it, folders without end, folders of others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli
from support.forked_commands import Nlp, nlp_bench
from support.ours import bundled, write_our_run
from support.processes import execute
from support.published import published_log
from support.repeated import write_log

__all__ = ["nlp_bench"]
OPTIONS = ("--sequence-length", "2048", "--num-gpus", "384", "--format", "json")
LEARN = ("plan", "--model", "tiny", "--system", "local", "--nodes", "1", "--learn")


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
    done = nlp_bench("report", str(named), *OPTIONS)
    assert sources(done, named) == ["c.log", "deep/a.log"]
    said = f"{named}/out is a link to {named.parent}/elsewhere, outside {named}; name it to have it read"
    assert f"passed over: {said}" in done.stderr
    assert "inside" not in done.stderr
    direct = nlp_bench("report", str(named / "out"), *OPTIONS)
    assert sources(direct, named) == ["out/b.log", "out/c.log"]


def test_a_run_elsewhere_enters_neither_a_bundle_nor_what_is_followed(nlp_bench: Nlp, tmp_path: Path) -> None:
    own, other = write_our_run(tmp_path / "mine/run"), write_our_run(tmp_path / "other/run")
    (own.parent / "theirs").symlink_to(other.parent)
    for folder in (own, other):
        (folder / "submit.json").write_text("{}")
    packed = nlp_bench("bundle", "mine", "--output", "made", cwd=tmp_path)
    assert "theirs is a link to" in packed.stderr
    assert [path.name for path in (tmp_path / "made/runs").iterdir()] == ["001"], packed.stderr
    for words in (("sync", "mine"), ("watch", "mine", "--once"), (*LEARN, "mine")):
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
    done = nlp_bench("report", str(tmp_path), *OPTIONS)
    assert (done.returncode, sources(done, tmp_path)) == (0, ["a.log"])
    assert "n lies more than 64 folders deep" in done.stderr
    run = write_our_run(tmp_path / "run")
    (run / "submit.json").write_text("{}")
    assert f"{run}: VALID" in nlp_bench("sync", str(tmp_path)).stdout
    (tmp_path / "manifest.json").write_text("{}")
    assert "more than 64 deep; a bundle has none" in nlp_bench("verify", str(tmp_path)).stderr
    prepare = ("data", "prepare", str(tmp_path), "--output", "x", "--vocab-file", "x")
    for words in (prepare, (*LEARN, str(tmp_path))):
        assert nlp_bench(*words).returncode > 0, words
    subprocess.run(["rm", "-rf", str(tmp_path / "n")], check=True)  # too deep for pytest, which would fail to tidy up


def test_logs_beside_run_folders_are_named(tmp_path: Path, report: Cli) -> None:
    write_our_run(tmp_path / "all/run")
    for name in ("slurm-1.out", "train.log.gz"):
        (tmp_path / "all" / name).write_text(published_log())
    said = f"passed over: {tmp_path}/all/slurm-1.out and 1 more: logs beside run folders; name it"
    assert said in report(tmp_path / "all").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nowhere", "DIR nowhere does not exist; give a run folder"),
        ("purged", "purged is a link to /nowhere/runs, which does not exist: make that, or remove the link"),
        (". --while-pid 0", "--while-pid: "),
    ],
)
def test_watch_names_what_cannot_be_watched(here: Path, cli: Cli, words: str, said: str) -> None:
    (here / "purged").symlink_to("/nowhere/runs")
    assert said in cli("watch", *words.split(), code=2).err


@pytest.mark.slow
def test_a_report_replaces_nothing_of_others(tmp_path: Path, report: Cli) -> None:
    log, out = write_log(tmp_path / "a.log", 65000), tmp_path / "out"
    words, names = (log, "--scaling", "--output", out), ("report.csv", "loss.png", "scaling-efficiency.svg")
    out.mkdir()
    for name in names:
        (out / name).write_text("mine")
        assert f"{name} there is none of an earlier call and would be replaced" in report(*words, code=2).err
        assert [path.name for path in out.iterdir()] == [name]
        (out / name).unlink()
    for _ in range(2):
        report(*words, code=0)
    for name in names:
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(tmp_path / "precious")
        said = f"{name} there is a link and would be replaced; move it, or give another folder"
        assert said in report(*words, code=2).err
        (out / name).unlink()
    said = f"--output {log} cannot be written: it is a file; give a folder"
    assert said in report(log, "--output", log, code=2).err


def test_a_trend_replaces_nothing_of_others(tmp_path: Path, cli: Cli) -> None:
    file, out = ("--file", tmp_path / "h"), tmp_path / "out"
    cli("history", "add", write_log(tmp_path / "a.log", 65000), *file)
    words = ("history", "trend", *file, "--allow-measured", "--output", out)
    for _ in range(2):
        cli(*words)
    (out / "trend.json").write_text("{}")
    assert "would be replaced" in cli(*words, code=2).err


@pytest.mark.slow
def test_plots_do_not_depend_on_somebodys_style(tmp_path: Path, report: Cli) -> None:
    """Jupyter exports MPLBACKEND; a matplotlibrc of the current folder may be anybody's, or a pipe."""
    run = write_our_run(tmp_path / "run")
    report(run, "--output", tmp_path / "plain", code=0)
    (odd := tmp_path / "odd").mkdir()
    os.mkfifo(odd / "matplotlibrc")
    words = (sys.executable, "-P", "-m", "nlp_bench", "report", run, "--output", "out")
    environment = {**os.environ, "MPLBACKEND": "module://no_such_backend"}
    execute(*words, cwd=odd, env=environment, check=True, timeout=120)
    assert (odd / "out/throughput.png").read_bytes() == (tmp_path / "plain/throughput.png").read_bytes()


def test_what_of_a_folder_is_not_read_is_said(tmp_path: Path, report: Cli) -> None:
    (tmp_path / "a.log").write_text(published_log())
    (tmp_path / "gone.log").symlink_to("/scratch/purged/gone.log")
    os.mkfifo(tmp_path / "p.log")
    done = report(tmp_path, *OPTIONS, code=0)
    assert len(done.json["runs"]) == 1
    assert f"passed over: {tmp_path}/gone.log is a link to nothing" in done.err
    assert f"passed over: {tmp_path}/p.log is no regular file" in done.err


def test_a_log_that_may_not_be_looked_at_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Cli) -> None:
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
    said = report(tmp_path, "--sequence-length", "2048", code=1).flat
    assert f"cannot read {tmp_path}/b/slow.log: Permission denied" in said


def test_what_a_bundle_derived_is_no_log_of_it(tmp_path: Path, report: Cli) -> None:
    (tmp_path / "a.log").write_text(published_log())
    made = bundled(tmp_path / "made", tmp_path / "a.log", sequence_length=2048)
    runs = report(made.path, *OPTIONS, code=0).json["runs"]
    assert [Path(one["source"]).name for one in runs] == ["a.log"]


def test_the_kernels_own_files_are_passed_over(report: Cli) -> None:
    """`report $SCRATCH/` where that is not set is `report /`: reading /proc came to no end."""
    assert "passed over: /proc: the kernel's own files, no logs" in report("/proc", code=2).err


def test_what_a_volume_keeps_at_its_root_is_passed_over(tmp_path: Path, nlp_bench: Nlp) -> None:
    """A user may not read it (mkfs.ext4 makes it so for root): each report of the volume ended with 1."""
    write_log(tmp_path / "a.log", 65000)
    (tmp_path / "lost+found").mkdir(mode=0)
    done = nlp_bench("report", str(tmp_path), "--format", "json")
    assert sources(done, tmp_path) == ["a.log"]
    assert f"passed over: {tmp_path}/lost+found: copies of folders, by the file system" in done.stderr
