"""A run folder of ours: only a whole, sound, finished run carries a number."""

import gzip
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Cli
from support.megatron_log import line
from support.ours import seal_run, write_our_run
from support.published import change_record, write_run
from support.timed import Timer

from nlp_bench.cli import runs
from nlp_bench.errors import NlpBenchError
from nlp_bench.measure.folder import measure_folder, metrics_text
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.seal import read_sealed_log


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run of ours with the five published lines; change a file to change the story."""
    return write_run(tmp_path / "run")


def outcome_of(folder: Path) -> tuple[str, str]:
    entry = measure_folder(folder, "job.out").entry
    assert entry.has_number == (entry.outcome is Outcome.VALID)
    return entry.outcome.value, "; ".join(entry.reason_texts)


@pytest.mark.slow
def test_every_strict_prefix_of_the_log_is_incomplete(run_dir: Path, each_case: Timer) -> None:
    content = (run_dir / "job.out").read_bytes()
    last = content.rindex(b"\n", 0, -1)  # its lines are alike: of those before the last, some of the places are enough
    for length in (*range(0, last, 7), *range(last, len(content))):
        (run_dir / "job.out").write_bytes(content[:length])
        with each_case():
            outcome, reason = outcome_of(run_dir)
        assert (outcome, "of 50" in reason) == ("INCOMPLETE", True), length


def replaced(old: str, new: str, count: int = 0) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text, count=count)


@pytest.mark.parametrize(
    ("change_log", "outcome", "reason"),
    [
        (str, "VALID", ""),
        (replaced(r"8\.110270E\+00", "nan"), "INVALID", "lm loss is nan at iteration 50 (line 5)"),
        (replaced(r"8\.861832E\+00", "inf"), "INVALID", "lm loss is inf at iteration 20 (line 2)"),
        (replaced("number of nan iterations:   0", "number of nan iterations:   2"), "INVALID", "2 NaN iteration(s)"),
        (replaced("global batch size:    96", "global batch size:    48"), "INVALID", "run.json asks for 96"),
        (replaced("lm loss:", "some loss:"), "INVALID", "no line of the log has a loss"),
        (replaced(r"5\.3247", "5.32[rank1]47"), "INCOMPLETE", "iteration 40 of 50"),
        (replaced(r"5\.3551", "5.35[rank1]51"), "VALID", "4 of 5 expected lines are whole"),
        (replaced(r"iteration \(s\): [\d.]+", "iteration (s): 0.0000"), "INVALID", ""),
        (replaced(r"(iteration \(s\): [\d.]+)(?=\d \|)", r"\1[rank1]", 3), "INVALID",
         "3 of 5 training lines (60.0 %) have no time that can be read"),
        (lambda text: text + "".join(text.replace("7.2310", "7.2311").splitlines(keepends=True)[:2]), "INCOMPLETE", ""),  # the last start is judged
    ],
)  # fmt: skip
def test_what_the_log_says_against_a_valid_outcome(
    run_dir: Path, change_log: Callable[[str], str], outcome: str, reason: str
) -> None:
    path = run_dir / "job.out"
    path.write_text(change_log(path.read_text()))
    found = outcome_of(run_dir)
    assert (found[0], reason in found[1]) == (outcome, True)


def test_other_records_against_a_valid_outcome(run_dir: Path) -> None:
    change_record(run_dir, "outcome.json", exit_status=1)
    found = outcome_of(run_dir)
    assert (found[0], "exit status 1" in found[1]) == ("FAILED", True)
    change_record(run_dir, "outcome.json", exit_status=0)
    (run_dir / "job.out").unlink()
    assert outcome_of(run_dir) == ("INCOMPLETE", "there is no job.out")


@pytest.mark.parametrize("word", [word.value for word in Outcome if not word.has_number])
def test_any_other_end_has_no_number_however_good_the_log(run_dir: Path, cli: Cli, word: str) -> None:
    change_record(run_dir, "outcome.json", outcome=word, reasons=["it\nended"])
    assert outcome_of(run_dir) == (word, "it ended")
    cli("measure", run_dir)
    run = json.loads((run_dir / "result.json").read_text())["run"]
    assert set(run["tokens_per_second"].values()) == {None}
    assert set(run["time_to_report_s"].values()) == {None}
    assert set(run["seconds_per_iteration"].values()) == {None}
    assert (run["window"], run["tokens_per_second_per_gpu"]) == (None, None)
    text = (run_dir / "metrics.txt").read_text()
    assert f"outcome: {word}\nreason: it ended\n" in text
    assert not re.search(r"^(tokens|time_to|ci95|avg_tflops|seconds|window|last_loss)", text, re.MULTILINE)


@pytest.mark.parametrize("words", [["--load", "checkpoints"], ["--load=checkpoints"]])
@pytest.mark.parametrize(("missing", "remarks"), [((), []), ((1030, 1040), ["8 of 10 expected lines are whole"])])
@pytest.mark.parametrize(("first", "iterations"), [(1010, 1100), (1010, 1095), (1007, 1096)])
def test_a_run_that_goes_on_owes_the_lines_from_its_checkpoint_on(
    run_dir: Path, missing: tuple[int, ...], remarks: list[str], first: int, iterations: int, words: list[str]
) -> None:
    training = {"iterations": iterations, "log_interval": 10}
    change_record(run_dir, "run.json", training=training, tuning={"train_args": words})
    numbers = [number for number in (first, *range(1020, 1100, 10), iterations) if number not in missing]
    log = [line(n, iterations, s=9 if n == first else 5.3 + n % 3 / 100, batch=96, loss=9 - n / 1000) for n in numbers]
    (run_dir / "job.out").write_text("".join(log))
    entry = measure_folder(run_dir, "job.out").entry
    assert entry.outcome is Outcome.VALID
    assert [one for one in entry.reason_texts if "expected lines" in one] == remarks
    excluded = entry.throughput.window.to_json()["excluded"]
    assert excluded == [{"iterations": [1001, first], "why": "warm-up"}]
    change_record(run_dir, "run.json", tuning={})
    expected = -(-iterations // 10)
    assert f"{len(numbers)} of {expected} expected lines are whole" in measure_folder(run_dir, "x").entry.reason_texts


def test_what_cannot_be_measured(run_dir: Path, cli: Cli) -> None:
    assert "none is no folder" in cli("measure", run_dir / "none", code=2).err
    (run_dir / "outcome.json").unlink()
    assert f"nlp-bench sync {run_dir}" in cli("measure", run_dir, code=1).err


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("run.json", {"batch__sequence_length": 0}, "batch.sequence_length is 0"),
        ("run.json", {"training__iterations": "50"}, "training.iterations is '50'"),
        ("run.json", {"schema": "nlp-bench/run/9"}, "newer"),
        ("outcome.json", {"outcome": "GREAT"}, "outcome is 'GREAT'"),
    ],
)
def test_records_that_cannot_be_read_name_the_field(
    run_dir: Path, name: str, changes: dict[str, object], text: str
) -> None:
    change_record(run_dir, name, **changes)
    with pytest.raises(NlpBenchError, match=re.escape(text)):
        measure_folder(run_dir, "job.out")


def test_metrics_tell_the_time_limit_and_what_the_job_took(run_dir: Path, cli: Cli) -> None:
    """The published tables' Job_Time is the limit: whole quarters of an hour beside runs of minutes."""

    def times() -> list[str]:
        cli("measure", run_dir, "--metrics", run_dir / "m.txt")
        return [line for line in (run_dir / "m.txt").read_text().splitlines() if line.startswith("job_")]

    record = {"schema": "nlp-bench/ended/1", "exit_status": 0, "signal": "", "job_id": "4711", "restarts": 0}
    (run_dir / "ended.json").write_text(json.dumps(record))  # as an earlier version wrote it
    assert times() == ["job_id: 4711", "job_time: 00:45:00"]
    (run_dir / "ended.json").write_text(json.dumps(record | {"elapsed_s": 754}))
    assert times() == ["job_id: 4711", "job_time: 00:45:00", "job_elapsed: 00:12:34"]
    for other in ({"elapsed_s": 754, "job_id": "4710"}, {"elapsed_s": -3576}):  # of another job; the clock was set back
        (run_dir / "ended.json").write_text(json.dumps(record | other))
        assert times() == ["job_id: 4711", "job_time: 00:45:00"]


def test_a_loss_that_is_no_number_is_kept_as_a_word(run_dir: Path, cli: Cli) -> None:
    path = run_dir / "job.out"
    path.write_text(path.read_text().replace("8.110270E+00", "nan"))
    cli("measure", run_dir)
    assert json.loads((run_dir / "result.json").read_text())["samples"][4]["lm_loss"] == "nan"


def test_an_entry_cannot_carry_a_number_that_it_must_not(run_dir: Path) -> None:
    throughput = measure_folder(run_dir, "job.out").entry.throughput
    with pytest.raises(ValueError, match="carries a number"):
        RunResult(source="x", outcome=Outcome.FAILED, throughput=throughput)


def test_changed_parameters_and_switches_are_said(run_dir: Path) -> None:
    tuning = {"kernels": "torch", "overlap_grad_reduce": True, "recompute_modules": ["mlp"], "trainer": "nlp-bench"}
    change_record(run_dir, "run.json", tuning=tuning, deviations=["num_layers 96 -> 4"])
    found = measure_folder(run_dir, "job.out")
    assert found.entry.reason_texts == ("not the benchmark as defined: num_layers 96 -> 4",)
    lines = metrics_text(found).splitlines()
    assert "tuning: kernels=torch overlap_grad_reduce recompute_modules=mlp" in lines
    first, *_, last = re.findall(r"lm loss: (\S+)", (run_dir / "job.out").read_text())
    assert {f"first_loss: {first}", f"last_loss: {last}"} <= set(lines)


def test_no_value_of_metrics_holds_a_comma(tmp_path: Path, cli: Cli) -> None:
    """JUBE's csv does not quote: a job that may run in one of two partitions shifted the columns of its row."""
    folder = write_our_run(tmp_path / "run")
    change_record(folder, "run.json", launch__queue="dc-gpu,dc-gpu-devel")
    cli("measure", folder, code=None)
    text = (folder / "metrics.txt").read_text()
    assert "\nqueue: dc-gpu;dc-gpu-devel\n" in text
    assert "," not in text
    # One of the two, or another: after `scontrol update Partition=devel` of the waiting job.
    (folder / "environment.json").write_text('{"variables": {"SLURM_JOB_PARTITION": "devel"}}')
    cli("measure", folder, code=None)
    assert "\nqueue: devel\n" in (folder / "metrics.txt").read_text()


@pytest.mark.parametrize(
    ("label", "remedy"),
    [
        ("0: ", "; srun's labels (--label --unbuffered, of a wrapper perhaps) have cut lines: start srun without --unbuffered"),
        ("", ", or run it again"),
    ],
)  # fmt: skip
def test_lines_that_labels_of_srun_have_cut_name_them(tmp_path: Path, cli: Cli, label: str, remedy: str) -> None:
    """`run it again` gave the same each time."""
    run = write_our_run(tmp_path / "run")
    seal_run(run)
    lines = [line.removeprefix("[default3]:") for line in (run / "job.out").read_text().splitlines()]
    cut = "".join(f"{label}[default3]:{line}\n" for line in lines).replace("t3]: iter", f"\n{label}t3]: iter", 2)
    (run / "job.out").write_text(cut)
    said = cli("measure", run)
    assert said.out.startswith("outcome: INVALID\n")
    hint = f"printed and hashed at its end; compare them with what each rank printed (ranks/ beside it){remedy}; "
    assert hint in said.err


def test_lines_that_the_runtime_of_a_container_has_cut_name_it(tmp_path: Path, cli: Cli) -> None:
    """CRI-O writes what it read so far, be it a part of a line: an honest log was INVALID, and nothing said why."""
    run = write_our_run(tmp_path / "run")
    seal_run(run)
    lines = (run / "job.out").read_bytes().replace(b"[default3]:", b"").splitlines(keepends=True)
    stamp, whole = b"2026-11-28T01:00:00.5Z stdout", b"[default3]:" + b"[default3]:".join(lines)
    pieces = [whole[at : at + 1000] for at in range(0, len(whole), 1000)]
    cut = b"".join(
        b"%b %b %b\n" % (stamp, b"F" if line.endswith(b"\n") else b"P", line.rstrip(b"\n"))
        for piece in pieces
        for line in piece.splitlines(keepends=True)
    )
    (tmp_path / "0.log").write_bytes(cut)
    assert "are cut in parts, P" in " ".join(cli("report", tmp_path / "0.log", code=1).out.split())
    changed = read_sealed_log(cut.splitlines(keepends=True)).why_changed() or ""
    assert re.search(
        r"hashed at its end \(\d+ are cut in parts, P, by the container's runtime: `kubectl logs`, ", changed
    )


@pytest.mark.parametrize(("pattern", "first"), [("*.json", "run"), ("*", "run"), ("outcome.json", "outcome")])
def test_a_run_whose_records_were_packed_is_no_strangers_log(
    tmp_path: Path, cli: Cli, pattern: str, first: str
) -> None:
    """Of a run that timed out, whose records a cleaning job had packed, the log alone was VALID."""
    run = write_our_run(tmp_path / "run")
    seal_run(run)
    for path in [path for path in run.glob(pattern) if path.is_file()]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    for named in (run, next(run.glob("job.out*"))):
        said = cli("report", named, code=1)
        remedy = f"{first}.json was packed; unpack the records of the run and repeat: gunzip -k {run}/*.gz"
        assert remedy in said.flat + said.err
        assert "VALID" not in said.out


# The end of a log that another machine has written, which a network file system shows late.


@pytest.fixture
def cut(tmp_path: Path) -> bytes:
    """A VALID run whose job.out shows 700 bytes; return the rest."""
    seal_run(write_our_run(tmp_path / "run"))
    whole = (tmp_path / "run/job.out").read_bytes()
    (tmp_path / "run/job.out").write_bytes(whole[:700])
    return whole[700:]


@pytest.mark.slow
def test_measure_waits_for_the_end_of_the_log(cut: bytes, tmp_path: Path, cli: Cli) -> None:
    """Seen on NFS: JUBE's row stayed INVALID for ever, for a run that report called VALID a little later."""

    def show() -> None:
        time.sleep(1.5)
        with (tmp_path / "run/job.out").open("ab") as log:
            log.write(cut)

    thread = threading.Thread(target=show)
    thread.start()
    shown = cli("measure", tmp_path / "run")
    thread.join()
    assert shown.out.startswith("outcome: VALID\n")
    said = f"job.out has 700 of {700 + len(cut)} bytes; waiting up to 60 s for the rest to be seen from here"
    assert said in shown.err


def test_a_log_that_stays_cut_is_not_called_another_ones(
    cut: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(runs, "LOG_WAIT_S", 0.0)
    shown = cli("measure", tmp_path / "run")
    assert shown.out.startswith("outcome: INVALID\n")
    text = f"job.out has 700 of {700 + len(cut)} bytes: cut, or not wholly seen from here yet; repeat the same command"
    assert f"INVALID: the chain of evidence is broken: {text}; " in shown.err
    assert "remedy: put the original of the file that is named back, or repeat the command" in shown.err


def test_what_was_measured_before_a_log_was_purged_stays(tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    seal_run(write_our_run(run))
    cli("measure", run)
    result = (run / "result.json").read_bytes()
    (run / "job.out").unlink()
    shown = cli("measure", run)
    assert f"{run}/result.json stays: job.out, from which it was measured, is not there" in shown.err
    assert "outcome: INVALID\n" in shown.out
    assert (run / "result.json").read_bytes() == result
