"""The chain of evidence of a real run: whatever is changed afterwards, the link that broke is named."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.ours import bundled
from support.processes import NLP_BENCH, execute, surroundings

from nlp_bench import marker, seal
from nlp_bench.evidence.verify import Demands, verification_text, verify
from nlp_bench.launch.submission import Submission
from nlp_bench.measure.contradiction import Code, Weight
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.seal import Link, State

pytestmark = pytest.mark.torchrun
NONCE = "tender-7/3f2a"


def nlp_bench(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [*NLP_BENCH, *words]
    return execute(*command, env=surroundings(), timeout=180)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run by torchrun on this machine, with a nonce."""
    run_dir = tmp_path_factory.mktemp("sealed") / "run"
    words = "--model tiny --system local --launcher local --data-path mock --gpus-per-node 1 --iterations 24 --log-interval 2 --nhidden 64"
    done = nlp_bench("submit", *words.split(), "--nonce", NONCE, "--run-dir", str(run_dir))
    assert done.stdout.startswith("VALID"), done.stdout + done.stderr
    return run_dir


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run", ignore=shutil.ignore_patterns("ranks", "tensorboard"))
    return tmp_path / "run"


def broken(folder: Path) -> list[Link]:
    """Return the links that a measurement names, and see that a run with such a link has no number."""
    entry = measure_folder(folder, "run").entry
    found = [finding.link for finding in entry.seals if finding.state is State.BROKEN]
    assert (entry.outcome, entry.throughput is None) == ((Outcome.INVALID, True) if found else (Outcome.VALID, False))
    return found


def end_again(folder: Path) -> None:
    """Do what a forger does who knows outcome.json and its marker: make their hashes fit."""
    path = folder / "outcome.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sealed": seal.at_end(folder)}))
    marker.write_marker(folder)


def close_again(folder: Path) -> None:
    """Make the closing line fit the lines before it, as another run does, or a forger who knows it, too."""
    (part,) = seal.sealed_log_of(folder / "job.out").parts
    edit(folder / "job.out", r"seal: closed; .*", part.seal.closing_line().removeprefix(" > "))


def edit(path: Path, pattern: str, replacement: Any, count: int = 0) -> None:
    text = path.read_text()
    changed = re.sub(pattern, replacement, text, count=count, flags=re.MULTILINE)
    assert changed != text
    path.write_text(changed)


def halved(folder: Path) -> None:
    """Halve every time, and double every rate, so that no line contradicts itself or the clock."""
    log = folder / "job.out"
    first = float(re.findall(r"unix time: ([\d.]+)", log.read_text())[0])
    edit(log, r"(?<=unix time: )[\d.]+", lambda found: f"{first + (float(found[0]) - first) / 2:.3f}")
    edit(log, r"(?<=\(s\): )[\d.]+", lambda found: f"{float(found[0]) / 2:.4f}")
    for name in ("samples per second", "tokens per second", "TFLOPs", "model TFLOP/s/GPU"):
        edit(log, rf"(?<= {name}: )[\d.]+", lambda found: f"{float(found[0]) * 2:.3f}")


def test_every_link_of_a_run_holds(run: Path) -> None:
    assert broken(run) == []
    submitted, ran = (json.loads((run / name).read_text())["nlp_bench"] for name in ("run.json", "environment.json"))
    assert submitted == ran
    assert re.fullmatch("[0-9a-f]{64}", ran["code_sha256"])
    assert [f.state for f in seal.check(run, is_valid=True)] == [State.HOLDS] * len(Link)
    log = (run / "job.out").read_text()
    lines = log.splitlines()
    assert lines[next(i for i, line in enumerate(lines) if "seal: closed" in line) + 1].endswith("iterations")
    assert f"nonce {NONCE}" in log
    for old in (r"Submitted batch job\s+\d+", r"TFLOPs:\s+[\d.]+", r"elapsed time per iteration \(s\):\s+[\d.]+", r"iteration\s+\d+/\s*\d+"):  # fmt: skip
        assert not [line for line in lines if "seal:" in line and re.search(old, line)]


def test_a_file_that_is_sealed_from_now_on_voids_no_earlier_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the number of every run before it: "submit.job is not what the run ended with; put the original back"."""
    monkeypatch.setitem(seal.AT_END, "submit.job", Link.RUN_AT_END)
    assert broken(run) == []
    assert State.MISSING in [found.state for found in seal.check(run, is_valid=True)]
    end_again(run)
    assert [found.state for found in seal.check(run, is_valid=True)] == [State.HOLDS] * (len(Link) + 1)
    edit(run / "submit.job", r"\Z", "# changed\n")
    assert broken(run) == [Link.RUN_AT_END]


@pytest.mark.parametrize("at", [0, 5, 11])
def test_a_changed_time_breaks_the_end_and_the_closing_line(run: Path, at: int) -> None:
    lines = (run / "job.out").read_text().splitlines(keepends=True)
    place = [number for number, line in enumerate(lines) if " iteration " in line and "elapsed" in line][at]
    lines[place] = re.sub(r"(\(s\): )\d+\.\d", r"\g<1>77.7", lines[place])
    (run / "job.out").write_text("".join(lines))
    assert broken(run) == [Link.CLOSING, Link.LOG_AT_END]
    end_again(run)
    assert broken(run) == [Link.CLOSING]


def test_halved_times_are_not_valid_unless_the_closing_line_is_made_anew(run: Path, tmp_path: Path) -> None:
    halved(run)
    end_again(run)
    assert broken(run) == [Link.CLOSING]
    made = bundled(tmp_path / "evidence", run)
    found = verify(made.path)
    assert not found.is_verified
    assert (found.faults, dict(found.differences)) == ([], {})
    assert "chain      is broken:\n    runs/001: job.out: the " in verification_text(found)
    # With the code at hand it can be done: docs/evidence.md says so.
    close_again(run)
    end_again(run)
    entry = measure_folder(run, "run").entry  # what it says against its digits is another matter than its links
    assert all(finding.state is State.HOLDS for finding in entry.seals)


def test_a_rate_with_too_few_digits_contradicts_nothing(run: Path) -> None:
    edit(run / "job.out", r"(?<=TFLOPs: )[\d.]+", "0.00")
    edit(run / "job.out", r"(?<=TFLOP/s/GPU: )[\d.]+", "0.00")
    close_again(run)
    end_again(run)
    assert broken(run) == []


def test_removed_and_added_lines(run: Path) -> None:
    text = (run / "job.out").read_text()
    (run / "job.out").write_text(re.sub(r"^.* iteration +4/.*\n", "", text, count=1, flags=re.MULTILINE))
    end_again(run)
    assert broken(run) == [Link.CLOSING]
    (run / "job.out").write_text(re.sub(r"^.*seal: closed.*\n", "", text, count=1, flags=re.MULTILINE))
    end_again(run)
    assert broken(run) == [Link.CLOSING]
    (run / "job.out").write_text(re.sub(r"^.*seal: (?:closed|opened).*\n", "", text, flags=re.MULTILINE))
    end_again(run)
    assert broken(run) == [Link.OPENING]
    record = next(line for line in text.splitlines() if " iteration " in line and "24/" in line)
    (run / "job.out").write_text(f"{text}{record}\n")
    end_again(run)
    assert broken(run) == [Link.CLOSING]


def test_job_out_may_grow_behind_the_end_but_not_by_iterations(run: Path) -> None:
    for words in ("slurmstepd: error: the epilogue was slow\n", "[default0]:bye\n"):
        with (run / "job.out").open("a") as log:
            log.write(words)
        assert broken(run) == []
    line = "[default1]: iteration       25/      25 | elapsed time per iteration (s): 0.0100 |\n"
    edit(run / "job.out", r"\Z", line, 1)
    assert set(broken(run)) == {Link.CLOSING, Link.LOG_AT_END}


@pytest.mark.parametrize("repaired", [0, 1, 2, 3])
def test_an_edited_run_json_is_named_however_much_is_repaired(run: Path, repaired: int) -> None:
    edit(run / "run.json", r'"sequence_length": \d+', '"sequence_length": 4096')
    expected = [Link.SUBMISSION, Link.OPENING, Link.RUN_AT_END]
    if repaired > 0:
        end_again(run)
        expected.remove(Link.RUN_AT_END)
    if repaired > 1:
        edit(run / "submit.json", r'"run_sha256": "\w+"', f'"run_sha256": "{seal.sha256_of(run / "run.json")}"')
        expected.remove(Link.SUBMISSION)
    if repaired > 2:
        edit(run / "job.out", r"run\.json SHA-256 \w+", f"run.json SHA-256 {seal.sha256_of(run / 'run.json')}")
        end_again(run)
        expected = [Link.CLOSING]
    assert broken(run) == expected


def test_the_log_of_another_run(run: Path) -> None:
    edit(run / "job.out", r"run\.json SHA-256 \w+; nonce \S+", f"run.json SHA-256 {'0' * 64}; nonce another")
    close_again(run)
    assert broken(run) == [Link.OPENING, Link.NONCE, Link.LOG_AT_END]
    for name in ("outcome.json", "ready"):
        (run / name).unlink()
    assert "VALID" in nlp_bench("sync", str(run)).stdout  # decided anew, by the log that lies there
    assert broken(run) == [Link.OPENING, Link.NONCE]


def test_what_others_print_in_between_and_torn_lines_change_nothing(run: Path) -> None:
    edit(run / "job.out", r"^(\[default\d\]:)( iteration +\d+/ +\d+ \| cons)(?=umed)", r"\1\2\1")
    words = "slurmstepd: a word\n[default0]:NCCL version 2.27\n\x1b[36m"
    edit(run / "job.out", r"^(?=.* iteration +6/)", words, 1)
    end_again(run)
    assert broken(run) == []


def test_no_word_between_the_trainers_lines_takes_an_iteration_out(run: Path) -> None:
    before = measure_folder(run, "run").entry.throughput
    words = "profiling iteration 12 on rank 0\nevaluating, validation loss\n"
    edit(run / "job.out", r"^(?=.* iteration +(?:8|12|20)/)", words)
    end_again(run)
    assert broken(run) == []
    after = measure_folder(run, "run").entry.throughput
    assert (after.steady, after.window.excluded) == (before.steady, before.window.excluded)
    (entry,) = measure_log(str(run / "job.out"), Overrides())
    assert {"profiler", "evaluation"}.isdisjoint(left.why for left in entry.throughput.window.excluded)


def test_a_line_torn_on_purpose_is_not_left_out_in_silence(run: Path) -> None:
    edit(run / "job.out", r"^(\[default\d\]:)( iter)(?=ation +12/)", r"\1\2\1")
    end_again(run)
    (found,) = [f for f in measure_folder(run, "run").entry.contradictions if f.code is Code.SEAL_VS_LINES]
    assert (found.weight, found.text[:15]) == (Weight.DOUBT, "1 of 12 lines o")


def test_a_bundle_says_what_is_sealed_and_holds_the_nonce(run: Path, tmp_path: Path) -> None:
    made = bundled(tmp_path / "evidence", run)
    found = verify(made.path, Demands(nonce=NONCE))
    assert found.is_verified, verification_text(found)
    assert "chain      runs/001: 6 link(s) hold\n" in verification_text(found)
    assert [one["state"] for one in found.to_json()["chain"]["runs/001"]] == ["holds"] * 6
    other = verify(made.path, Demands(nonce="another"))
    assert not other.is_verified
    assert list(other.broken_links) == [f"runs/001/job.out does not begin with the nonce another; it says {NONCE}"]


def test_blacked_out_files_are_said_not_to_be_sealed(run: Path, tmp_path: Path) -> None:
    with (run / "job.out").open("a") as log:
        log.write("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123\n")
    made = bundled(tmp_path / "evidence", run)
    found = verify(made.path)
    assert found.is_verified, verification_text(found)
    said = f"runs/001: 4 link(s) hold; blacked out: {Link.CLOSING.value}, {Link.LOG_AT_END.value}"
    assert said in verification_text(found)


def test_a_run_that_was_changed_while_it_waited_does_not_start(run: Path, tmp_path: Path) -> None:
    queued = tmp_path / "queued"
    queued.mkdir()
    shutil.copy(run / "run.json", queued)
    text = (run / "submit.job").read_text()
    (queued / "submit.job").write_text(text.replace(str(re.findall(r"^cd (.*)$", text, re.MULTILINE)[0]), str(queued)))
    Submission().write(queued)
    edit(queued / "run.json", r'"iterations": 24', '"iterations": 22')
    Submission().write(queued)  # further records of the same submission keep its seal
    script = ["bash", str(queued / "submit.job")]
    with (queued / "job.out").open("w") as out, (queued / "job.err").open("w") as err:
        assert subprocess.run(script, stdout=out, stderr=err, cwd=queued, check=False, timeout=120).returncode == 1
    outcome = json.loads((queued / "outcome.json").read_text())
    assert outcome["outcome"] == "FAILED"
    assert "run.json was changed after it was submitted" in outcome["evidence"]
    assert "nlp-bench submit --run" in outcome["evidence"]
    assert "Submitted batch job" not in (queued / "job.out").read_text()
    entry = measure_folder(queued, "run").entry
    assert (entry.outcome, entry.seals[0].state) == (Outcome.FAILED, State.BROKEN)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_log_without_its_folder_is_held_to_its_closing_line(run: Path, tmp_path: Path, suffix: str) -> None:
    def measured(words: bytes) -> RunResult:
        path = tmp_path / f"alone.log{suffix}"
        path.write_bytes(gzip.compress(words) if suffix else words)
        (entry,) = measure_log(str(path), Overrides())
        return entry

    text = (run / "job.out").read_bytes()
    assert [found for found in measured(text).contradictions if found.code is Code.SEAL_VS_LINES] == []
    assert measured(text).throughput is not None
    halved(run)
    entry = measured((run / "job.out").read_bytes())
    assert (entry.outcome, entry.throughput) == (Outcome.INVALID, None)
    assert (entry.contradictions[0].code, entry.contradictions[0].weight) == (Code.SEAL_VS_LINES, Weight.VOID)
    opened = measured(re.sub(rb"(?m)^.*seal: closed.*\n", b"", text)).contradictions
    assert [(found.code, found.weight) for found in opened] == [(Code.SEAL_VS_LINES, Weight.DOUBT)]
