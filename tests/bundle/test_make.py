"""What lies in a bundle, and that the same input gives the same bytes."""

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from unittest import mock

import pytest
from support.command import Cli
from support.native import put
from support.ours import Bundle, bundled
from support.processes import execute
from support.published import published_log

from nlp_bench import __version__
from nlp_bench.cli.main import main
from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.evidence.verify import Demands, verify


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_bundle_holds_logs_records_report_and_hashes(bundle: Bundle, our_run: Path, tmp_path: Path) -> None:
    (our_run / "machine").mkdir()
    (our_run / "machine/node1.json").write_text('{"schema": "nlp-bench/machine/1"}\n')
    (our_run / "checkpoint.bin").write_bytes(b"\0" * 100)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/private.txt").write_text("not of this run")
    (our_run / "elsewhere").symlink_to(tmp_path / "other")
    made = bundle()
    run = {f"runs/001/{name}" for name in ("job.out", "run.json", "outcome.json", "result.json", "machine/node1.json")}
    found = names(made.path)
    assert run | {"manifest.json", "SHA256SUMS", "report/report.json", "report/report.txt"} <= found
    assert {f"lines/{name}" for name in run} <= found
    assert not any("checkpoint" in name or "private" in name for name in found)
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["schema"] == "nlp-bench/bundle/1"
    assert [file["path"] for file in manifest["files"]] == sorted(found - {"manifest.json", "SHA256SUMS"})
    assert manifest["runs"][0]["numbers"][0]["tokens_per_second"]["steady"] == pytest.approx(36361.6, rel=1e-4)
    assert manifest["derived_by"] == "nlp-bench report runs/001 --tokens 20000000"
    assert made.digest == hashlib.sha256((made.path / "manifest.json").read_bytes()).hexdigest()
    execute("sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS", cwd=made.path, check=True)


@pytest.mark.usefixtures("here")
def test_a_bundle_that_lies_among_the_logs_is_none(cli: Cli) -> None:
    Path("a.log").write_text(published_log())
    made = []
    for _ in range(2):  # the second one finds the first
        assert main(["bundle", ".", "--sequence-length", "2048", "--force"]) == 0
        made.append(Path("evidence.tar.gz").read_bytes())
    assert made[0] == made[1]
    said = cli("report", ".", "--sequence-length", "2048", "--format", "csv").err
    assert ".: 1 binary file(s) are passed over: evidence.tar.gz" in said


@pytest.mark.parametrize("with_ranks", [False, True])
def test_which_files_of_a_run_go_along(bundle: Bundle, our_run: Path, with_ranks: bool) -> None:
    taken = {"machine/ranks/a.json", "a/b/c/d/deep.json", "ready", "job.err", *["ranks/0/rank.out"][:with_ranks]}
    left = ("a/b/c/d/e/deeper.json", "snapshot/site.toml", ".hidden/a.json", ".hidden.json", "metrics.txt")
    others = ("ranks/0/rank.out", "machine/metrics.txt", "machine/ready", "machine/result.json", "odd name.json")
    for name in (*taken, *left, *others):
        put(our_run, name, "{}\n")
    os.mkfifo(our_run / "pipe.out")  # opening it would wait for ever
    made = bundle("e", with_ranks=with_ranks)
    found = {name.removeprefix("runs/001/") for name in names(made.path) if name.startswith("runs/001/")}
    first = {"job.out", "run.json", "outcome.json", "result.json", "machine/metrics.txt", "machine/result.json"}
    assert found == first | taken
    assert "runs/001: left out for its name: odd name.json" in made.remarks
    assert verify(made.path).is_verified


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", *words]
    return execute(*command, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "code.py").write_text("a = 1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        git(folder, *words)
    monkeypatch.setattr("nlp_bench.config.catalog.checkout", lambda: folder)
    return folder


def test_a_bundle_says_which_nlp_bench_made_it(bundle: Bundle, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    clean = bundle("clean")
    software = {"version": __version__, "commit": commit, "patch": None, "untracked": None}
    assert clean.manifest.nlp_bench == software
    assert not (clean.path / "software").exists()
    (checkout / "code.py").write_text("a = 2\nHF_TOKEN = 'hf_abcdefghijklmnopqrstuvwx'\n")
    (checkout / "new.py").touch()
    changed = bundle("changed")
    patch, untracked = "software/uncommitted.patch", "software/untracked.txt"
    assert changed.manifest.nlp_bench == software | {"patch": patch, "untracked": untracked}
    assert "+a = 2\n" in (changed.path / patch).read_text()
    assert "abcdefghij" not in (changed.path / patch).read_text()
    assert (changed.path / untracked).read_text() == "new.py\n"
    assert f"nlp-bench's checkout has uncommitted changes: {patch}" in changed.remarks
    assert [found["file"] for found in changed.manifest.redactions] == [patch]
    found = verify(changed.path)
    assert found.is_verified
    assert not [remark for remark in found.remarks if remark.startswith("made by")]
    monkeypatch.setattr("nlp_bench.evidence.collect.MAX_PATCH_BYTES", 10)
    large = bundle("large")
    assert large.manifest.nlp_bench["patch"] is None
    assert any("above 16 MiB: left out" in remark for remark in large.remarks)
    git(checkout, "commit", "-q", "-a", "-m", "two")
    assert any(f"(commit {commit}), verified by" in remark for remark in verify(clean.path).remarks)


def test_a_mac_makes_the_same_bundle(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads logs there has less of the system than Linux offers."""
    made = bundle("a")
    for name in ("O_PATH", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    assert bundle("b").digest == made.digest


@pytest.mark.parametrize("folder", [None, "no checkout"])
def test_without_a_checkout_no_commit_is_known(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    monkeypatch.setattr("nlp_bench.config.catalog.checkout", lambda: tmp_path / folder if folder else None)
    made = bundle()
    assert made.manifest.nlp_bench == {"version": __version__, "commit": None, "patch": None, "untracked": None}
    assert "nlp-bench was not run from a git checkout: no commit is known" in made.remarks
    assert "runs/001 was made by nlp-bench at commit abc, the bundle at one that is not known" in made.remarks


@pytest.mark.usefixtures("checkout")
def test_a_git_that_cannot_be_started_is_said(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit of processes that is reached: it is a checkout all the same."""
    busy = BlockingIOError(11, "Resource temporarily unavailable")
    monkeypatch.setattr(subprocess, "Popen", mock.Mock(side_effect=busy))
    assert "git does not start: Resource temporarily unavailable: no commit is known" in bundle().remarks


def test_the_folder_above_an_unpacked_bundle_is_bundled_as_it_is_reported(bundle: Bundle, here: Path, cli: Cli) -> None:
    (here / "sent").mkdir()
    bundle("sent/evidence")
    for words in ("report sent", "bundle sent --output again", "verify again"):
        cli(*words.split())


def test_a_run_of_another_commit_is_told(bundle: Bundle, our_run: Path, checkout: Path) -> None:
    commit, run = git(checkout, "rev-parse", "HEAD"), json.loads((our_run / "run.json").read_text())
    for made_by, is_told in ((f"{commit}+changes", False), ("abc", True), (None, False)):
        (our_run / "run.json").write_text(json.dumps(run | {"nlp_bench": {"version": "1", "commit": made_by}}))
        remarks = bundle(f"e{made_by}").remarks
        told = f"runs/001 was made by nlp-bench at commit {made_by}, the bundle at {commit}"
        assert (told in remarks) == is_told, remarks


def test_an_unreadable_run_names_its_file_by_the_manifest(bundle: Bundle, our_run: Path, tmp_path: Path) -> None:
    """Whatever is said of a bundle is the same wherever it lies, also what refuses to be measured."""
    (our_run / "run.json").write_text("no JSON")
    made = bundle("moved")
    (entry,) = made.entries
    assert not any(str(tmp_path) in str(reason) for reason in entry.reasons)
    assert str(entry.reasons[0]).startswith("runs/001/run.json is not JSON")
    shutil.copytree(made.path, tmp_path / "elsewhere" / "m")
    assert verify(tmp_path / "elsewhere" / "m").is_verified


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.zst"])
def test_the_same_input_gives_the_same_bytes(bundle: Bundle, suffix: str, our_run: Path) -> None:
    one = bundle(f"one{suffix}")
    (our_run / "job.out").touch()
    other = bundle(f"other{suffix}")
    assert one.path.read_bytes() == other.path.read_bytes()
    assert verify(one.path, Demands(digest=other.digest)).is_verified


def test_an_archive_has_no_owner_and_one_top_folder(bundle: Bundle) -> None:
    made = bundle("evidence.tar.gz")
    with tarfile.open(made.path) as tar:
        members = tar.getmembers()
    assert {(m.uid, m.gid, m.uname, m.mode, m.mtime) for m in members} == {(0, 0, "", 0o644, 315532800)}
    assert {m.name.split("/")[0] for m in members} == {"evidence"}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_logs_of_others_packed_and_from_a_pipe(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = published_log().rstrip("\n")
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(cut.encode()))
    packed = bundle("packed", tmp_path / "train.log.gz", sequence_length=2048)
    assert (packed.path / "logs/001/train.log").read_text() == cut  # no line end is made up
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(published_log().encode())))
    piped = bundle("piped", Path("-"), sequence_length=2048)
    for made in (packed, piped):
        found = verify(made.path)
        assert found.is_verified, found
        assert found.runs[0]["numbers"][0]["tokens_per_second"]["steady"] == pytest.approx(36361.59, rel=1e-6)


def test_a_log_with_a_long_name_is_verified(bundle: Bundle, tmp_path: Path) -> None:
    log = tmp_path / f"job.{'n' * 75}.out"  # a dot where the name is cut
    log.write_text(published_log())
    assert verify(bundle("evidence", log, sequence_length=2048).path).is_verified


def test_a_step_of_jubes_that_failed_before_its_run_is_left_out(bundle: Bundle, our_run: Path, tmp_path: Path) -> None:
    (tmp_path / "jube/000000_check/work").mkdir(parents=True)
    (tmp_path / "jube/000000_check/work/stderr").write_text("nlp-bench: error: model: no such\n")
    for name in ("configuration.xml", "000000_check/error"):
        (tmp_path / "jube" / name).touch()
    made = bundle("evidence", our_run, tmp_path / "jube")
    why = "JUBE's step failed, and what follows it was not run: model: no such"
    assert f"left out: {tmp_path}/jube/000000_check: {why}" in made.remarks


def test_a_damaged_packed_log_is_bundled_as_far_as_it_could_be_read(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "träin 1.log.gz").write_bytes(gzip.compress(published_log().encode())[:-200])
    made = bundle("packed", tmp_path / "träin 1.log.gz", sequence_length=2048)
    (remark,) = (one for one in made.remarks if one.startswith("logs/001/tr_in_1.log: "))
    assert "the compressed stream is cut" in remark
    assert remark.endswith("what could be read is in the bundle")


def test_rules_and_limit_go_along(bundle: Bundle, tmp_path: Path) -> None:
    text = 'schema = "nlp-bench/rules/1"\ntitle = "mine"\nextends = "jupiter-nlp"\nmodels = ["175"]\n'
    (tmp_path / "mine.toml").write_text(text)
    made = bundle("with_rules", rules=str(tmp_path / "mine.toml"), limit_s=560.0)
    assert made.manifest.options.rules == "rules/mine.toml"
    assert (made.path / "rules/mine.toml").is_file()
    found = verify(made.path)
    assert found.is_verified, found.differences
    assert "limit" in json.loads((made.path / "report/report.json").read_text())["runs"][0]


def test_rules_that_name_other_files_by_paths_go_along(bundle: Bundle, tmp_path: Path) -> None:
    """They were copied alone: the bundle was refused, for the file that they extend could not be read."""
    shutil.copy(catalog.find("models", "175"), tmp_path / "ours.toml")
    head = 'schema = "nlp-bench/rules/1"\n'
    (tmp_path / "centre.toml").write_text(f'{head}extends = "jupiter-nlp"\nmodels = ["ours.toml"]\n')
    (tmp_path / "tender").mkdir()
    (tmp_path / "tender/mine.toml").write_text(f'{head}extends = "../centre.toml"\n')
    made = bundle("with_paths", rules=str(tmp_path / "tender/mine.toml"))
    assert made.manifest.options.rules == "rules/tender/mine.toml"
    assert {"tender/mine.toml", "centre.toml", "ours.toml"} <= names(made.path / "rules")
    found = verify(made.path)
    assert found.is_verified, found.differences
    (tmp_path / "tender/mine.toml").write_text(f'{head}extends = "{tmp_path}/centre.toml"\n')
    said = r"centre.toml cannot go into the bundle as it is named; let the rules name files by relative paths"
    with pytest.raises(UsageError, match=said):
        bundle("absolute", rules=str(tmp_path / "tender/mine.toml"))


def test_rules_that_only_the_maker_has_by_their_name_are_verified(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said DIFFERS: rules: 'centre' is not a file of benchmark/rules, though they lie in the bundle."""
    (tmp_path / "home/rules").mkdir(parents=True)
    (tmp_path / "home/rules/centre.toml").write_text('schema = "nlp-bench/rules/1"\nextends = "jupiter-nlp"\n')
    monkeypatch.setenv("NLP_BENCH_HOME", str(tmp_path / "home"))
    made = bundle("by_name", rules="centre")
    monkeypatch.setenv("NLP_BENCH_HOME", str(tmp_path))
    found = verify(made.path)
    assert found.is_verified, found.differences
    assert any(note.startswith("data/rules/centre.toml is of the bundle's maker") for note in found.remarks)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("evidence.zip", r"write \.tar, \.tar\.gz"),
        ("nowhere/e.tar", "there is no folder"),
        ("full", "exists and is no empty folder"),
        ("there.tar", "exists; name another file"),
    ],
)
def test_outputs_that_cannot_be(bundle: Bundle, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "there.tar").touch()
    before = names(tmp_path)
    with pytest.raises(UsageError, match=message):
        bundle(output)
    assert names(tmp_path) == before


def test_a_folder_that_cannot_be_removed_does_not_unmake_the_bundle(
    our_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """On NFS while a scanner has one of its files open: the archive was there, and "nothing was left there" was said of it."""
    refused = OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    monkeypatch.setattr(os, "rmdir", mock.Mock(side_effect=refused))
    said = cli("bundle", our_run, "--output", tmp_path / "e.tar").out
    assert verify(tmp_path / "e.tar").digest in said


def test_nothing_is_left_where_there_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(UsageError, match="no run folder and no training log"):
        bundled(tmp_path / "e.tar", tmp_path)
    assert names(tmp_path) == {"notes.txt"}


def test_the_command_line_prints_the_line_for_the_bid(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    with (our_run / "job.err").open("w") as stream:
        stream.write("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n")
    archive = str(tmp_path / "evidence.tar.zst")
    printed = cli("bundle", our_run, "--output", archive)
    digest = printed.out.split("SHA-256 of manifest.json: ")[1].strip()
    assert "blacked out: runs/001/job.err line 1: Hugging Face token" in printed.err
    assert "abcdefghij" not in printed.out + printed.err
    assert "VERIFIED" in cli("verify", archive, "--digest", digest).out
    said = "this is another bundle, or it was made anew, or that is the hash of the archive; the digest is that of manifest.json"
    assert said in cli("verify", archive, "--digest", "0" * 64, code=1).out
    assert cli("verify", archive, "--format", "json").json["schema"] == "nlp-bench/verification/1"
    assert "is not a bundle: there is no manifest.json" in cli("verify", our_run, code=2).err


def test_the_folder_around_a_manifest_is_named(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    cli("bundle", our_run, "--output", tmp_path / "my bundle")
    said = cli("verify", tmp_path / "my bundle/manifest.json", code=2).err
    assert f"verify the folder around it: nlp-bench verify '{tmp_path / 'my bundle'}'" in said


@pytest.mark.usefixtures("here")
def test_a_bid_sheet_is_neither_evidence_nor_a_bundle(cli: Cli) -> None:
    Path("bid.json").write_text(json.dumps({"schema": "nlp-bench/bid/1"}))
    for command, what in (("bundle", "no evidence but"), ("verify", "not a bundle but")):
        said = cli(command, "bid.json", code=2).err
        assert f"bid.json is {what} a record of nlp-bench (nlp-bench/bid/1)" in said
        assert "a bid is predicted: give the logs of a run that proves it" in said
    assert not Path("evidence.tar.gz").exists()
