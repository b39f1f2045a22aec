"""Bundles of what is missing, goes on, changes while it is read, or was forged."""

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from unittest.mock import Mock

import pytest
from support.command import Cli
from support.ours import bundled, seal_run, sealed_again, write_our_run
from support.processes import NLP_BENCH, execute
from support.published import published_log, write_run
from support.users import ANNA, ROOT, as_user, open_folder, run_as

from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError
from nlp_bench.evidence import collect
from nlp_bench.evidence.verify import verify
from nlp_bench.logs.source import Source

__all__ = ["open_folder"]


def test_a_bundle_says_which_links_it_leaves_out_and_has_the_log(tmp_path: Path) -> None:
    run = write_our_run(tmp_path / "run")
    (tmp_path / "elsewhere.err").write_text("what went wrong\n")
    (run / "job.err").unlink(missing_ok=True)
    (run / "job.err").symlink_to(tmp_path / "elsewhere.err")
    made = bundled(tmp_path / "evidence", run)
    assert "runs/001: left out: job.err, a link; a bundle holds files only" in made.remarks
    (run / "job.out").rename(tmp_path / "job.out")
    (run / "job.out").symlink_to(tmp_path / "job.out")
    said = r"job\.out is a link, and a bundle holds files only; put the log itself there"
    with pytest.raises(UsageError, match=said):
        bundled(tmp_path / "another", run)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("report/report.json", '{\n "schema"', '{\n "runs": [],\n "schema"', "'runs' stands twice in one object"),
        ("manifest.json", '{\n "schema"', '{\n "praise": 1,\n "schema"', "praise: no manifest has this key"),
        ("manifest.json", "nlp-bench report", "nlp-bench trust", "derived_by: it is not what the rest of the manifest"),
        ("manifest.json", "", "", ""),
    ],
)
def test_words_that_nobody_holds_against_the_log_differ(folder: Path, name: str, old: str, new: str, said: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    sealed_again(folder)
    found = verify(folder)
    assert not found.faults
    assert found.is_verified == (not said)
    assert said in " ".join(found.differences.get(name, ()))


def test_a_manifest_with_a_key_twice_or_wrong_sizes_is_no_good_one(folder: Path) -> None:
    sealed_again(folder, sizes=1)
    assert any("report/report.json has " in fault for fault in verify(folder).faults)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"runs"', '"runs": [], "runs"', 1))
    with pytest.raises(UsageError, match=r"manifest\.json is not the manifest .*'runs' stands twice"):
        verify(folder)


def test_a_bundle_of_a_run_that_goes_on_proves_no_end(tmp_path: Path, cli: Cli) -> None:
    folder = write_our_run(tmp_path / "run")
    (folder / "outcome.json").unlink()
    talk = cli("bundle", folder, "--output", tmp_path / "evidence").err
    assert "1 of 1 run(s) have not ended, or left no record of it" in talk
    assert "proves how they ended" not in talk


def test_an_earlier_bundle_below_a_run_is_left_out_and_reported_once(tmp_path: Path, cli: Cli) -> None:
    folder = write_our_run(tmp_path / "run")
    assert main(["bundle", str(folder), "--output", str(folder / "first")]) == 0
    assert "a bundle that was made before" in cli("bundle", folder, "--output", tmp_path / "second").err
    assert not list(tmp_path.glob("second/runs/*/first"))
    assert len(json.loads((tmp_path / "second/manifest.json").read_text())["runs"]) == 1
    assert [run["outcome"] for run in cli("report", tmp_path / "second", "--format", "json").json["runs"]] == ["VALID"]


@pytest.mark.slow
def test_what_a_machine_lacks_is_said_of_no_bundle(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run, bundle = write_our_run(tmp_path / "run"), tmp_path / "evidence.tar.gz"
    assert main(["bundle", str(run), "--output", str(bundle)]) == 0
    found = execute("bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *NLP_BENCH, "verify", bundle)
    assert found.returncode == 1
    assert "cannot be unpacked in" in found.stderr
    assert "not a bundle" not in found.stderr
    monkeypatch.setattr("nlp_bench.evidence.verify.derive", Mock(side_effect=MemoryError))
    said = cli("verify", bundle, code=1)
    assert "the memory is used up" in said.err
    assert "DIFFERS" not in said.out


Change = Callable[[Path], object]


def rewrite(path: Path) -> None:
    """Write other times over the log in place, as a job that begins anew does."""
    before = path.read_bytes()
    path.write_bytes(before.replace(b"(s): 7", b"(s): 3").replace(b"(s): 5", b"(s): 2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: os.truncate(path, 0), "the file was cut while it was read"),
        (rewrite, "the file was written anew in place while it was read"),
    ],
)
def test_a_log_that_changes_while_it_is_bundled_is_not_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, change: Change, said: str
) -> None:
    """logrotate's copytruncate; half of the old lines and half of the new ones are a number that no run had."""
    log = tmp_path / "train.log"
    log.write_text(published_log() * 4000)
    original, changed = collect.redact, list[Path]()

    class _Changing:
        def __init__(self, source: BinaryIO) -> None:
            self.source = source

        def read(self, size: int) -> bytes:
            block = self.source.read(size)
            if not changed:
                changed.append(log)
                change(log)
            return block

    monkeypatch.setattr(collect, "redact", lambda source, target: original(_Changing(source), target))
    found = cli("bundle", log, "--sequence-length", "2048", "--output", tmp_path / "e.tar.gz", code=1).err
    assert f"cannot bundle {log}: {said}" in found
    assert "then repeat" in found
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


def test_a_packed_log_that_changes_is_not_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(gzip.compress(published_log().encode()))
    original = collect.open_log

    @contextmanager
    def cut(path: str) -> Iterator[Source]:
        with original(path) as source:
            os.truncate(path, 100)
            yield source

    monkeypatch.setattr(collect, "open_log", cut)
    said = cli("bundle", log, "--sequence-length", "2048", "--output", tmp_path / "e.tar.gz", code=1).err
    assert f"cannot bundle {log}: the file was cut while it was read" in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.log.gz"]


@pytest.mark.slow
def test_a_bundle_is_made_and_verified_from_a_current_folder_that_may_not_be_entered(open_folder: Path) -> None:
    """As after sudo -u in root's home: every path of the command line is absolute."""
    run = write_run(open_folder / "run")
    seal_run(run)
    for name, mode in (("closed", 0o700), ("open", 0o777)):
        (open_folder / name).mkdir()
        (open_folder / name).chmod(mode)
    made = str(open_folder / "open/e.tar.gz")
    for words in (["bundle", str(run), "--output", made], ["verify", made]):
        variables = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "HOME": "/nowhere"}
        command = [*as_user(ANNA), sys.executable, "-P", "-m", "nlp_bench", *words]
        done = execute(*command, cwd=open_folder / "closed", timeout=100, env=variables)
        assert done.returncode == 0, done.stderr
        assert "steady 36361.59 tokens/s" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o700, 0o744])
def test_a_closed_folder_of_a_run_is_what_cannot_be_read(open_folder: Path, mode: int) -> None:
    """It was said that the bundle could not be written."""
    run = write_run(open_folder / "run")
    seal_run(run)
    for name, rights in (("run/machine", mode), ("mine", 0o777)):
        (open_folder / name).mkdir()
        (open_folder / name / "node1.json").touch()
        (open_folder / name).chmod(rights)
    done = run_as(ANNA, open_folder, "bundle", "run", "--output", "mine/e.tar.gz")
    said = "nlp-bench: error: cannot read run/machine: Permission denied; a bundle holds all of a run or nothing\n"
    assert (done.returncode, done.stderr) == (1, said)
