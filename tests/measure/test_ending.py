"""How the run of a log ended: VALID where the log shows it, MEASURED where it does not, no number where an error ended it."""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nlp_bench.cli.main import main

LIMIT_S = 1000.0
Call = Callable[..., tuple[int, dict[str, Any]]]
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    raise RuntimeError("x")\n'


def lines(
    numbers: Iterable[int],
    *,
    total: int = 40,
    skipped: Callable[[int], int] = lambda _: 0,
    loss: str = "lm loss",
    more_s: float = 0,
) -> str:
    return "".join(
        f" iteration {i:8d}/{total:8d} | consumed samples: {96 * i:12d} | elapsed time per iteration (s): {5 + 0.01 * (i * 7 % 5) + more_s:.4f} | "
        f"global batch size:    96 | {loss}: {9 - 0.01 * i:.6E} | number of skipped iterations: {skipped(i)} | "
        f"number of nan iterations:   0 |\n"
        for i in numbers
    )  # fmt: skip


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(content: str | bytes, name: str = "a.log") -> tuple[int, dict[str, Any]]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        options = ("--sequence-length", "2048", "--num-gpus", "8", "--limit", str(LIMIT_S), "--format", "json")
        code = main(["report", str(path), *options])
        (found,) = json.loads(capsys.readouterr().out)["runs"]
        return code, found

    return run


def facts(found: tuple[int, dict[str, Any]]) -> tuple[int, str, str, bool, str]:
    code, run = found
    has_number = run["tokens_per_second"]["steady"] is not None
    return code, run["outcome"], run["ending"]["shown"], has_number, run["limit"]


def test_a_log_of_all_its_iterations_is_valid(report: Call) -> None:
    code, run = report(lines(range(1, 41)))
    assert facts((code, run)) == (0, "VALID", "ended", True, "PASS")
    assert run["reasons"] == []


def test_a_log_that_stops_early_is_measured_and_says_where(report: Call) -> None:
    code, run = report(lines(range(1, 25)))
    assert facts((code, run)) == (0, "MEASURED", "stops-early", True, "PASS")
    assert run["reasons"] == ["the log stops at iteration 24 of 40"]


CRASHES = {
    "an exception": (TRACE + "RuntimeError: shape mismatch\n", "FAILED", "RuntimeError: shape mismatch"),
    "an exception of a rank": ("[rank3]: " + TRACE.replace("\n", "\n[rank3]: ") + "KeyError: 'x'\n", "FAILED", "KeyError"),
    "a traceback cut off": (TRACE, "FAILED", "Traceback"),
    "a CUDA error": ("what():  CUDA error: an illegal memory access was encountered\n", "FAILED", "illegal memory access"),
    "no memory": (TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "OUT_OF_MEMORY", "2.00 GiB"),
    "no host memory": ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n", "OUT_OF_MEMORY", "oom_kill"),
    "a failure, told more exactly below": (
        "srun: error: n1: task 3: Exited with exit code 1\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n",
        "OUT_OF_MEMORY", "oom_kill",
    ),
    "NCCL's watchdog": (
        "[rank1]:[E ProcessGroupNCCL.cpp:552] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n",
        "FAILED", "Watchdog",
    ),
    "torchrun": ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n", "FAILED", "ChildFailedError"),
    "srun": (
        "srun: error: n1: tasks 0-3: Exited with exit code 1\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n",
        "FAILED", "exit code 1",
    ),
    "a signal": ("srun: error: n1: task 0: Segmentation fault (core dumped)\n", "FAILED", "Segmentation"),
    "DeepSpeed's launcher": ("[ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = 1\n", "FAILED", "return code"),
    "a node": (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
        "NODE_FAIL", "NODE FAILURE",
    ),
    "ROCm": ("Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.\n", "FAILED", "Memory access"),
    "glibc": ("double free or corruption (!prev)\n", "FAILED", "double free"),
    "bash": ("Killed\n", "FAILED", "Killed"),
    "Open MPI": ("[n1:123] *** Process received signal ***\n", "FAILED", "received signal"),
    "NCCL": ("[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384\n", "FAILED", "NCCL error"),
    "torchrun's status": ("E1123 api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 12) of binary: python\n", "FAILED", "exitcode"),
    "the kernel": ("Out of memory: Killed process 1234 (python)\n", "OUT_OF_MEMORY", "Killed process"),
    "a full disk": ("OSError: [Errno 28] No space left on device: '/scratch/ckpt'\n", "FAILED", "No space left"),
}  # fmt: skip


@pytest.mark.parametrize("name", CRASHES)
def test_a_log_that_ends_in_an_error_has_no_number(report: Call, name: str) -> None:
    text, outcome, evidence = CRASHES[name]
    code, run = report(lines(range(1, 25)) + text)
    assert facts((code, run)) == (1, outcome, "crashed", False, "NOT PROVEN")
    assert "iteration 24 of 40" in run["reasons"][0]
    assert evidence in run["reasons"][0]
    assert run["ending"]["line"] > 24
    assert evidence in run["ending"]["evidence"]


SIGTERM = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15\n"
NOTICE = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00{} ***\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (NOTICE.format(" DUE TO TIME LIMIT") + TRACE + SIGTERM, "TIMEOUT"),
        (TRACE + SIGTERM + NOTICE.format(" DUE TO TIME LIMIT"), "TIMEOUT"),
        (NOTICE.format(" DUE TO PREEMPTION"), "PREEMPTED"),
        (NOTICE.format(""), "CANCELLED"),
        (TRACE + "KeyboardInterrupt\n", "CANCELLED"),
        ("=>> PBS: job killed: walltime 3617 exceeded limit 3600\n", "TIMEOUT"),
    ],
)
def test_an_end_from_outside_says_nothing_against_what_ran_before(report: Call, text: str, word: str) -> None:
    code, run = report(lines(range(1, 25)) + text)
    assert facts((code, run)) == (0, "MEASURED", "ended-from-outside", True, "PASS")
    assert f"({word})" in run["reasons"][0]


@pytest.mark.parametrize("name", CRASHES)
def test_an_error_behind_the_last_iteration_is_only_told(
    report: Call, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _, evidence = CRASHES[name]
    assert facts(report(lines(range(1, 41)) + text)) == (0, "VALID", "ended", True, "PASS")
    main(["report", str(tmp_path / "a.log"), "--sequence-length", "2048"])
    (said,) = [line for line in capsys.readouterr().out.splitlines() if ", after the last iteration: " in line]
    assert evidence in said


@pytest.mark.parametrize(
    "word", [" training finished: 40 iterations\n", "[after training is done] datetime: 2026-11-20\n"]
)
def test_a_log_that_says_more_iterations_than_it_shows_proves_nothing(report: Call, word: str) -> None:
    """Its last lines were lost, or taken out: the slow ones, perhaps."""
    code, run = report(lines(range(1, 25)) + word)
    assert facts((code, run)) == (0, "MEASURED", "contradicted", True, "NOT PROVEN")
    assert "the log stops at iteration 24 of 40, and line " in run["reasons"][0]
    assert facts(report(lines(range(1, 41)) + word)) == (0, "VALID", "ended", True, "PASS")


def test_the_end_of_the_last_start_is_not_held_against_a_longer_start_before_it(report: Call) -> None:
    done = "[after training is done] datetime: 2026-11-20\n"
    text = lines(range(1, 31)) + CRASHES["an exception"][0] + lines(range(28, 41), more_s=0.002) + done
    code, run = report(text)
    assert facts((code, run)) == (0, "MEASURED", "stops-early", True, "PASS")
    assert run["reasons"][-1] == "the log stops at iteration 30 of 40"


@pytest.mark.parametrize("name", CRASHES)
def test_an_error_after_which_the_training_goes_on_is_none(report: Call, name: str) -> None:
    text = lines(range(1, 20)) + CRASHES[name][0] + lines(range(20, 41))
    assert facts(report(text)) == (0, "VALID", "ended", True, "PASS")


@pytest.mark.parametrize(
    "text",
    [
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + TRACE + "RuntimeError: closed\n",
        "Exception in thread Thread-5:\n" + TRACE + "BrokenPipeError: [Errno 32] Broken pipe\n",
        "UserWarning: this may end in CUDA out of memory; an Error is likely\n",
        "[WARNING] failed to load the Exception hook\n",
        "node1:7:9 [2] NCCL INFO comm 0x1 rank 15 nranks 16 - Init COMPLETE\n",
    ],
)
def test_harmless_words_end_nothing(report: Call, text: str) -> None:
    assert facts(report(lines(range(1, 25)) + text)) == (0, "MEASURED", "stops-early", True, "PASS")


def test_the_programs_own_word_that_it_is_done_is_an_end(report: Call) -> None:
    done = "[exiting program at iteration 24] datetime: 2026-01-01 00:00:00 \n"
    assert facts(report(lines(range(1, 25)) + done)) == (0, "VALID", "ended", True, "PASS")
    signalled = "exiting program after receiving SIGTERM.\n"
    assert facts(report(lines(range(1, 25)) + signalled))[1:3] == ("MEASURED", "ended-from-outside")


def test_where_the_lines_name_no_end_only_the_programs_word_shows_it(report: Call) -> None:
    titan = "".join(
        f"[rank0]:2026-01-01 10:00:{i:02d},000 - root - INFO - step: {i:2d}  loss: {9 - 0.1 * i:8.4f}  "
        f"memory: 40.00GiB(50.00%)  tps: {4000 + i % 3:,}  mfu: 20.00%\n"
        for i in range(1, 21)
    )
    code, run = report(titan)
    assert facts((code, run))[:4] == (0, "MEASURED", "end-unknown", True)
    assert "iteration 20, and does not say where the training ends" in run["reasons"][-1]
    done = "[rank0]:2026-01-01 10:01:00,000 - root - INFO - Training completed\n"
    assert facts(report(titan + done))[1:3] == ("VALID", "ended")


def test_a_log_without_a_loss_does_not_show_that_it_trained(report: Call) -> None:
    assert facts(report(lines(range(1, 41), loss="some value")))[:4] == (0, "MEASURED", "no-loss", True)


def test_the_last_lines_of_a_log_are_not_the_whole_of_it(report: Call) -> None:
    code, run = report(lines(range(31, 41)))
    assert facts((code, run))[:4] == (0, "MEASURED", "excerpt", True)
    assert "begins at iteration 31" in run["reasons"][-1]
    dump = "------------------------ arguments ------------------------\n  seq_length ........ 2048\n"
    assert facts(report(dump + lines(range(31, 41))))[1] == "VALID"  # a start that goes on from a checkpoint


def test_an_excerpt_that_ends_in_an_error_proves_nothing(report: Call) -> None:
    text = lines(range(43680, 43700), total=311541) + CRASHES["an exception"][0]
    code, run = report(text)
    assert facts((code, run)) == (0, "MEASURED", "crashed", True, "NOT PROVEN")
    assert "an excerpt of a run that failed" in run["verdict"]["reasons"][0]


def test_a_file_cut_in_the_middle_is_not_whole(report: Call) -> None:
    packed = gzip.compress(("x" * 50 + "\n").encode() * 2000 + lines(range(1, 41)).encode() + b"\n" * 100_000)
    code, run = report(packed[: len(packed) - 12], "a.log.gz")
    assert facts((code, run))[1:4] == ("MEASURED", "damaged", True)


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        (lambda _: 1, (1, "INVALID", "contradicted", False, "NOT PROVEN")),
        (lambda i: int(i != 17), (1, "INVALID", "contradicted", False, "NOT PROVEN")),
        (lambda i: i % 2, (0, "MEASURED", "contradicted", True, "NOT PROVEN")),
        (lambda i: int(i < 6), (0, "VALID", "ended", True, "PASS")),
    ],
    ids=["all", "all but one", "half", "the search for the loss scale"],
)
def test_a_log_that_skipped_its_updates_did_not_train(
    report: Call, skipped: Callable[[int], int], expected: tuple[object, ...]
) -> None:
    code, run = report(lines(range(1, 41), skipped=skipped))
    assert facts((code, run)) == expected
    assert ("skipped the update of the weights" in "".join(run["reasons"])) == (expected[1] != "VALID")


def test_a_training_that_went_on_after_a_crash_did_not_fail(report: Call) -> None:
    crash = CRASHES["an exception"][0]
    code, run = report(lines(range(1, 31)) + crash + lines(range(21, 41), more_s=0.002))
    assert facts((code, run))[:4] == (0, "MEASURED", "stops-early", True)
    assert facts(report(lines(range(1, 31)) + crash + lines(range(21, 31), more_s=0.002) + crash))[1:4] == (
        "FAILED",
        "crashed",
        False,
    )


def test_a_program_that_failed_before_its_first_iteration_is_refused_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("loading\n" + TRACE + "FileNotFoundError: vocab.json\n")
    assert main(["report", str(tmp_path / "a.log"), "--format", "json"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["outcome"], run["reasons"][1]) == ("REFUSED", "line 5: FileNotFoundError: vocab.json")


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "html"])
def test_every_format_shows_the_word(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    (tmp_path / "a.log").write_text(lines(range(1, 25)))
    assert main(["report", str(tmp_path / "a.log"), "--sequence-length", "2048", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "MEASURED" in out
    assert "stops at iteration 24 of 40" in out
