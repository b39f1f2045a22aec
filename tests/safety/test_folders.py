"""What a folder that somebody named may hold: links out of it, folders without end, folders of others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log

OPTIONS = ("--sequence-length", "2048", "--num-gpus", "384")


def nlp_bench(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "nlp_bench", *words], capture_output=True, text=True, check=False, timeout=60, cwd=cwd
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


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


def test_a_link_to_a_folder_elsewhere_is_passed_over_and_said(named: Path) -> None:
    done = nlp_bench("report", str(named), *OPTIONS, "--format", "json")
    assert sources(done, named) == ["c.log", "deep/a.log"]
    assert (
        f"passed over: {named}/out is a link to {named.parent}/elsewhere, outside {named}; name it to have it read"
        in done.stderr
    )
    assert "inside" not in done.stderr
    direct = nlp_bench("report", str(named / "out"), *OPTIONS, "--format", "json")
    assert sources(direct, named) == ["out/b.log", "out/c.log"]


def test_a_run_elsewhere_enters_neither_a_bundle_nor_what_is_followed(tmp_path: Path) -> None:
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


def test_the_links_of_a_step_of_jube_are_followed_within_its_run(tmp_path: Path) -> None:
    train = write_our_run(tmp_path / "bench/000000/000003_train/work")
    step = tmp_path / "bench/000000/000004_measure/work"
    step.mkdir(parents=True)
    (step / "train").symlink_to("../../000003_train/work")
    words = ("report", str(step), "--format", "json")
    assert nlp_bench(*words).returncode == 2  # no run of JUBE: nothing says that the link belongs to it
    (train.parents[1] / "configuration.xml").touch()
    done = nlp_bench(*words)
    assert (sources(done, step), done.stderr) == (["train"], "")


def test_folders_in_folders_without_end_are_bounded_and_the_rest_is_read(tmp_path: Path) -> None:
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
