"""Whatever is changed in a bundle is caught, and named with its place."""

import errno
import gzip
import hashlib
import json
import operator
import random
import re
import shutil
from functools import reduce
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.ours import Bundle, sealed_again
from support.published import published_log

from nlp_bench.errors import UsageError
from nlp_bench.evidence.derive import differences
from nlp_bench.evidence.hashes import changes, line_digests
from nlp_bench.evidence.make import made_talk, made_text
from nlp_bench.evidence.verify import Demands, Verification, verification_text, verify


def changed(path: Path, pattern: str, replacement: str) -> int:
    """Change the first match in a file and return the number of its line."""
    text = path.read_text()
    found = re.search(pattern, text)
    assert found
    path.write_text(text[: found.start()] + found.expand(replacement) + text[found.end() :])
    return text.count("\n", 0, found.start()) + 1


def test_a_forger_who_makes_all_hashes_fit_is_caught_by_the_log(bundle: Bundle) -> None:
    made = bundle()
    line = changed(made.path / "runs/001/job.out", r"(\(s\): 5\.3)5", r"\g<1>0")
    sealed_again(made.path)
    found = verify(made.path)
    assert found.faults == []
    assert found.differences
    (said,) = found.contradictions
    assert f"line {line}" in said
    assert verify(made.path, Demands(digest=made.digest)).faults[0].startswith("the digest is")
    assert "5.3051 s, but samples per second 17.927 means 5.3551 s and tokens per second 36714 means 5.3551 s" in said


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "said"),
    [
        ("report/report.json", r'("steady": 36361)\.\d+', r"\1.99", r"runs\[0\]\.tokens_per_second\.steady: bundle says 36361.99, the log"),
        ("runs/001/result.json", r'("reference": 34063)\.\d+', r"\g<1>.5", r"run\.tokens_per_second\.reference: bundle says 34063.5"),
        ("report/report.txt", "550 s", "540 s", r"line 3: bundle says '[^']*540 s[^']*', the log gives '[^']*550 s"),
        ("manifest.json", r'("outcome": "VAL)ID"', r'\1UE"', r"runs/001\[0\]\.outcome: bundle says \"VALUE\", the log gives \"VALID\""),
        ("manifest.json", r'("tokens": )20000000', r"\g<1>10000000", r"tokens: bundle says 20000000, the log gives 10000000"),
        ("runs/001/run.json", r'("sequence_length": )2048', r"\g<1>4096", r"sequence_length: bundle says 2048, the log gives 4096"),
        ("runs/001/outcome.json", "VALID", "FAILED", r'runs\[0\]\.outcome: bundle says "VALID", the log gives "FAILED"'),
    ],
)  # fmt: skip
def test_a_number_that_no_log_gives(folder: Path, file: str, pattern: str, replacement: str, said: str) -> None:
    changed(folder / file, pattern, replacement)
    sealed_again(folder)
    found = verify(folder)
    assert found.faults == []
    assert re.search(said, "\n".join(s for part in found.differences.values() for s in part)), found.differences


def test_missing_extra_and_swapped_files_are_named(folder: Path) -> None:
    (folder / "runs/001/outcome.json").unlink()
    (folder / "runs/001/extra.txt").touch()
    (folder / "SHA256SUMS").write_text("nothing\n")
    found = verify(folder).faults
    assert "runs/001/outcome.json is missing" in found
    assert "'runs/001/extra.txt' is not of this bundle: manifest.json does not list it" in found
    assert any("SHA256SUMS does not say the same" in fault or "manifest.json was changed" in fault for fault in found)


def test_inserted_and_removed_lines_are_told_apart_and_cut(folder: Path) -> None:
    log = folder / "runs/001/job.out"
    lines = log.read_text().splitlines(keepends=True)
    for first, behind, new, said in (
        (1, 1, ["a new line\n"], " line 2 was inserted; it reads: a new line"),
        (3, 4, [], ": 1 line was removed in front of line 4"),
        (1, 1, ["x" * 1000 + "\n", "y\n"], f" lines 2 to 3 were inserted; it reads: {'x' * 397}..."),
        (0, 2, [], ": 2 lines were removed in front of line 1"),
    ):
        log.write_text("".join([*lines[:first], *new, *lines[behind:]]))
        assert f"runs/001/job.out{said}" in verify(folder).faults


@pytest.mark.usefixtures("here")
def test_nothing_depends_on_where_a_bundle_lies(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundle()
    shutil.copytree(made.path, "m")
    monkeypatch.setenv("NLP_BENCH_RULES", "nowhere.toml")
    assert verify(Path("m")).is_verified
    monkeypatch.chdir("m")
    assert verify(Path()).is_verified


def test_another_program_is_told(folder: Path) -> None:
    changed(folder / "manifest.json", r'("version": ")[^"]+', r"\g<1>9.9")
    sealed_again(folder)
    found = verify(folder)
    assert found.is_verified
    assert any(remark.startswith("made by nlp-bench 9.9") for remark in found.remarks)


def lacking(folder: Path, *fields: str, commit: str | None = None) -> Verification:
    """Verify the bundle after its report and its result have lost these fields, as one of another `commit`, its hashes made to fit."""
    for name, at in (("report/report.json", ("runs", 0)), ("runs/001/result.json", ("run",))):
        record = json.loads((folder / name).read_text())
        for field in fields:
            *above, last = field.split(".")
            del reduce(operator.getitem, (*at, *above), record)[last]
        (folder / name).write_text(json.dumps(record))
    if commit:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["nlp_bench"]["commit"] = commit
        (folder / "manifest.json").write_text(json.dumps(manifest))
    sealed_again(folder)
    return verify(folder)


LOGGED = "workload.logged.global_batch_size"


def test_settings_that_the_code_of_an_older_bundle_did_not_read_are_named(folder: Path) -> None:
    before = verify(folder).num_fields
    found = lacking(folder, LOGGED, commit="abc")
    assert found.is_verified, found.differences
    assert (found.added, found.num_fields) == (["global_batch_size"], before - 1)
    said = next(remark for remark in found.remarks if "(commit abc), verified by" in remark)
    assert said.endswith("; it lacks logged settings that its commit may not read: global_batch_size")


def test_a_bundle_of_this_commit_lacks_no_setting(folder: Path) -> None:
    (said,) = lacking(folder, LOGGED).differences["report/report.json"]
    assert said == "runs[0].workload.logged.global_batch_size: bundle says nothing, the log gives 96"


@pytest.mark.parametrize(
    "field",
    ["outcome", "reasons", "contradictions", "tokens_per_second.ci95", "sustained", "steady_state.drift", "supplied",
     "seals", "rules", "workload.logged", "workload.asked", "workload.asked.global_batch_size", "efficiency.why_not"],
)  # fmt: skip
def test_no_other_field_goes_by_naming_another_commit(folder: Path, field: str) -> None:
    found = lacking(folder, field, commit="abc")
    assert (found.is_verified, found.added) == (False, [])
    assert f"runs[0].{field}: bundle says nothing, the log gives" in found.differences["report/report.json"][0]


def test_a_contradicted_setting_stays_a_difference_of_another_commit(folder: Path) -> None:
    changed(folder / "report/report.json", r'("logged": \{[^}]*"global_batch_size": )96', r"\g<1>48")
    (said,) = lacking(folder, commit="abc").differences["report/report.json"]
    assert said == "runs[0].workload.logged.global_batch_size: bundle says 48, the log gives 96"


def test_what_the_maker_chose_stands_beside_the_number(bundle: Bundle, tmp_path: Path) -> None:
    assert "  options    time for 20,000,000 tokens\n" in verification_text(verify(bundle().path))
    (tmp_path / "train.log").write_text(published_log())
    made = bundle("other", tmp_path / "train.log", tokens=10_000_000, sequence_length=4096, limit_s=600.0)
    said = (
        "time for 10,000,000 tokens, not the usual 20,000,000; limit 600 s; "
        "said by its maker where a log does not: sequence length 4096"
    )
    found = verify(made.path)
    assert f"  options    {said}\n" in verification_text(found)
    assert f"  options    {said}\n" in made_text(made)
    assert found.to_json()["options"]["sequence_length"] == 4096


def test_tables_of_another_program_are_told(folder: Path) -> None:
    with (folder / "data/accelerators.toml").open("a") as stream:
        stream.write("# another\n")
    (folder / "data/rules/jupiter-nlp.toml").unlink()
    sealed = json.loads((folder / "manifest.json").read_text())
    sealed["files"] = [file for file in sealed["files"] if "jupiter-nlp.toml" not in file["path"]]
    (folder / "manifest.json").write_text(json.dumps(sealed))
    (folder / "lines/data/rules/jupiter-nlp.toml").unlink()
    sealed_again(folder)
    found = verify(folder)
    assert found.is_verified, found.faults
    told = [remark.split()[0] for remark in found.remarks if "is not as in this nlp-bench" in remark]
    assert told == ["data/accelerators.toml", "data/rules/jupiter-nlp.toml"]


def test_a_log_that_is_missing_or_packed_is_named(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(published_log())
    folder = bundle("log", tmp_path / "train.log", sequence_length=2048).path
    log = folder / "logs/001/train.log"
    log.write_bytes(gzip.compress(log.read_bytes()))
    packed = verify(folder)
    (said,) = packed.differences["logs"]
    assert said == "logs/001/train.log is compressed; a bundle holds plain logs, nothing was derived"
    assert packed.num_fields == packed.num_lines == 0
    log.unlink()
    assert verify(folder).differences == {"logs": ["logs/001/train.log cannot be read: no number can be derived"]}


def test_a_run_that_never_started_is_bundled_and_verified_without_a_log(bundle: Bundle, our_run: Path) -> None:
    (our_run / "job.out").unlink()
    (our_run / "outcome.json").write_text(json.dumps({"schema": "nlp-bench/outcome/1", "outcome": "FAILED"}))
    found = verify(bundle().path)
    assert found.is_verified, found.differences
    assert [numbers["outcome"] for run in found.runs for numbers in run["numbers"]] == ["FAILED"]


def test_reports_that_are_shorter_missing_or_no_json(folder: Path) -> None:
    text = folder / "report/report.txt"
    lines = text.read_text().splitlines(keepends=True)
    text.write_text("".join(lines[:-1]))
    said = verify(folder).differences["report/report.txt"]
    assert said == [f"has {len(lines) - 1} lines, the log gives {len(lines)}"]
    text.unlink()
    (folder / "report/report.json").unlink()
    (folder / "runs/001/result.json").write_text("{")
    said = verify(folder).differences
    assert said["report/report.json"] == ["is missing"]
    assert said["report/report.txt"] == ["cannot be read"]
    (sentence,) = said["runs/001/result.json"]
    assert sentence.startswith("is not JSON: Expecting property name")


def test_of_many_faults_a_hundred_are_named(folder: Path) -> None:
    for number in range(120):
        (folder / f"extra{number}").touch()
    faults = verify(folder).faults
    assert len(faults) == 101
    assert faults[-1] == "and 20 more"


def test_of_many_changed_lines_twenty_are_named(folder: Path) -> None:
    path = folder / "data/accelerators.toml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(f"#{line}" if number % 2 else line for number, line in enumerate(lines)))
    faults = [fault for fault in verify(folder).faults if "accelerators" in fault]
    assert len(faults) == 1 + 20 + 1
    assert faults[-1] == f"data/accelerators.toml: {len(lines) // 2 - 20} more stretches of lines are not as they were"
    path.write_text("".join(f"#{line}" if number % 2 and number < 40 else line for number, line in enumerate(lines)))
    faults = [fault for fault in verify(folder).faults if "accelerators" in fault]
    assert len(faults) == 1 + 20
    (folder / "lines/data/accelerators.toml").write_text("forged\n")  # digests that are not as recorded tell nothing
    changes = [fault.split(":")[0] for fault in verify(folder).faults if "accelerators" in fault]
    assert changes == [f"{name}data/accelerators.toml was changed" for name in ("", "lines/")]


def test_line_ends_that_a_checkout_changed_are_the_cause_that_is_named(folder: Path) -> None:
    log = folder / "runs/001/job.out"
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    (fault,) = verify(folder).faults
    assert fault.startswith("runs/001/job.out was changed: it has other line ends (git with core.autocrlf,"), fault
    changed(log, r"(\(s\): 5\.3)5", r"\g<1>0")
    assert "runs/001/job.out was changed: its SHA-256 is not that of manifest.json" in verify(folder).faults


def test_sums_that_do_not_say_the_same(folder: Path) -> None:
    sums = folder / "SHA256SUMS"
    text = sums.read_text()
    sums.write_text(text.replace("  runs/001/run.json", "  runs/001/RUN.json"))
    assert verify(folder).faults == ["SHA256SUMS does not say the same as manifest.json of runs/001/RUN.json"]
    sums.write_text(text + text.splitlines()[0] + "\n")  # a line twice
    assert verify(folder).faults == ["SHA256SUMS does not say the same as manifest.json"]
    sums.write_text(re.sub(r"^\w{64}(?=  manifest.json)", "0" * 64, text, flags=re.MULTILINE))
    assert verify(folder).faults == ["manifest.json was changed: its SHA-256 is not that of SHA256SUMS"]
    sums.unlink()
    assert verify(folder).faults == ["SHA256SUMS is missing"]


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EIO, "Input/output error", "a file")
    monkeypatch.setattr("nlp_bench.evidence.hashes.sha256_of", Mock(side_effect=error))
    with pytest.raises(UsageError, match=r"cannot read .*: Input/output error"):
        verify(folder)


def test_what_is_no_fault_of_a_log_is_remarked(bundle: Bundle, tmp_path: Path) -> None:
    starts = [(step, 1.0) for step in range(1, 9)] + [(step, 2.0) for step in range(1, 13)]
    lines = [
        f" iteration {step}/ 12 | elapsed time per iteration (s): {s} | global batch size: 8 |" for step, s in starts
    ]
    (tmp_path / "train.log").write_text("\n".join([*lines, ""]))
    found = verify(bundle("restarted", tmp_path / "train.log", sequence_length=2048).path)
    assert found.contradictions == []
    said = str(found.remarks).count("logs/001/train.log: another start of this training")
    assert said == 1, found.remarks


def test_what_was_made_without_a_number(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(published_log())
    (tmp_path / "evidence.sig").touch()
    made = bundle("evidence", tmp_path / "train.log")
    found = verify(made.path)
    assert (found.is_verified, found.runs[0]["numbers"][0]["outcome"]) == (True, "REFUSED")
    assert made_text(made).splitlines()[2] == f"  logs/001/train.log ({tmp_path}/train.log): REFUSED"
    said = list(made_talk(made))
    assert said[-1] == "1 of 1 run(s) have no number: the bundle proves how they ended"
    assert said[-2] == f"{tmp_path}/evidence.sig is the signature of an earlier bundle; make it anew with --sign"


def test_few_differences_of_a_file_are_all_named(folder: Path) -> None:
    for name, number in (("report/report.json", "36361.58"), ("runs/001/result.json", "34063.43")):
        path = folder / name
        path.write_text(path.read_text().replace(number, "1", 1))
    text = verification_text(verify(folder))
    assert "  numbers    runs/001/result.json does not follow from the logs:\n    run." in text
    assert "likewise" not in text


@pytest.mark.parametrize("counts", ["", " consumed samples: {} | global batch size: 96 |"])
def test_lines_that_state_their_time_once_are_told(bundle: Bundle, tmp_path: Path, counts: str) -> None:
    lines = [
        f" iteration {10 * n}/ 50 | elapsed time per iteration (s): {5.3 + n % 3 / 100} |{counts.format(960 * n)}"
        for n in range(1, 6)
    ]
    (tmp_path / "train.log").write_text("\n".join([*lines, "exiting program at iteration 50", ""]))
    made = bundle("once", tmp_path / "train.log", sequence_length=2048, global_batch_size=96)
    found = verify(made.path)
    assert found.num_lines == 0
    told = [remark for remark in found.remarks if "state their time once only" in remark]
    assert [remark.split(":")[0] for remark in told] == ["logs/001/train.log"]
    assert "log lines" not in verification_text(found)


def edited(folder: Path, before: str, after: str) -> list[tuple[str, int, int]] | None:
    path = folder / "log"
    path.write_text(before)
    recorded = line_digests(path)
    path.write_text(after)
    return changes(path, recorded)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("a\nb\nc\nd\n", []),
        ("a\nX\nc\nd\n", [("changed", 2, 1)]),
        ("X\nb\nc\nY\n", [("changed", 1, 1), ("changed", 4, 1)]),
        ("a\nb\nX\nc\nd\n", [("inserted", 3, 1)]),
        ("a\nd\n", [("removed", 2, 2)]),
        ("a\nb\nc\nd\ne\n", [("inserted", 5, 1)]),
        ("", [("removed", 1, 4)]),
        ("a\nb\nc\nd", [("changed", 4, 1)]),
        ("a\nX\nc\n", [("changed", 2, 1), ("removed", 4, 1)]),
    ],
)
def test_changed_inserted_and_removed_lines(tmp_path: Path, after: str, expected: list[object]) -> None:
    assert edited(tmp_path, "a\nb\nc\nd\n", after) == expected


def test_a_digest_can_be_made_by_hand(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo")
    heading, first, last = line_digests(tmp_path / "log").split()[-3:]
    assert heading == "lines_per_digest=1"
    assert first == hashlib.sha256(b"one\n").hexdigest()[:8]
    assert last == hashlib.sha256(b"two").hexdigest()[:8]


def test_large_logs_have_a_digest_for_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.evidence.hashes.MAX_DIGESTS", 10)
    lines = [f"{n}\n" for n in range(1, 96)]
    after = [*lines]
    after[41] = "changed\n"
    assert edited(tmp_path, "".join(lines), "".join(after)) == [("changed", 41, 10)]
    (tmp_path / "log").write_text("\n".join("abcdefghijk"))  # eleven lines, ten line ends
    assert line_digests(tmp_path / "log").startswith("nlp-bench/lines/1 sha256/8 lines_per_digest=2\n")


def test_what_is_no_list_of_digests(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n")
    assert changes(tmp_path / "log", "") is None
    assert changes(tmp_path / "log", "nlp-bench/lines/1 sha256/8 lines_per_digest=0\n") is None


def test_many_changes_take_no_square_of_time(tmp_path: Path) -> None:
    dice = random.Random(1)  # noqa: S311  # the same noise each time
    before = "".join(f"{dice.random()}\n" for _ in range(60_000))
    after = "".join(f"{dice.random()}\n" for _ in range(59_999))
    assert edited(tmp_path, before, after) == [("changed", 1, 59_999)]


@pytest.mark.parametrize(
    ("stated", "derived", "expected"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, []),
        ({"a": 36361.59}, {"a": 36361.61}, ["a: bundle says 36361.59, the log gives 36361.61"]),
        ({"a": None}, {"a": 0}, ["a: bundle says null, the log gives 0"]),
        ({"a": True}, {"a": 1}, ["a: bundle says true, the log gives 1"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]: bundle says 2, the log gives 3"]),
        ({"a": [1]}, {"a": [1, 3]}, ["a: bundle has 1 entries, the log gives 2"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["b: bundle says 2, the log gives nothing"]),
        ({}, {"b": 2}, ["b: bundle says nothing, the log gives 2"]),
        ([], {}, [": bundle says [], the log gives {}"]),
        ({"a": 10**400}, {"a": 1.5}, [f"a: bundle says {str(10**400)[:157]}..., the log gives 1.5"]),
    ],
)
def test_differences_name_the_field_and_both_values(stated: object, derived: object, expected: list[str]) -> None:
    assert list(differences(stated, derived)) == expected
