"""How the run of a log ended: VALID where the log shows it, MEASURED where it does not, no number where an error ended it."""

import gzip
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.megatron_log import line
from support.reported import Reported
from support.texts import written

OPTIONS = ("--sequence-length", "2048", "--num-gpus", "8", "--limit", "1000")
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    raise RuntimeError("x")\n'


def lines(
    numbers: Iterable[int],
    *,
    total: int = 40,
    skipped: Callable[[int], int] = lambda _: 0,
    loss: str = "lm loss",
    more_s: float = 0,
) -> str:
    def facts(i: int) -> dict[str, float]:
        return {"samples": 96 * i, "s": 5 + 0.01 * (i * 7 % 5) + more_s, "loss": 9 - 0.01 * i, "skipped": skipped(i)}

    return "".join(line(i, total, **facts(i), batch=96, nan=0) for i in numbers).replace("lm loss", loss)


def facts(run: dict[str, Any]) -> tuple[str, str, bool, str]:
    has_number = run["tokens_per_second"]["steady"] is not None
    return run["outcome"], run["ending"]["shown"], has_number, run["limit"]


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
    "LSF": ("Exited with exit code 1.\n", "FAILED", "exit code 1"),
    "GitHub's runner": ("2026-11-20T10:05:00.1234567Z ##[error]Process completed with exit code 1.\n", "FAILED", "exit code 1"),
    "GitLab's": ("ERROR: Job failed: exit code 1\n", "FAILED", "exit code 1"),
    "Airflow": ("[2026-11-20, 10:05:00 UTC] {subprocess.py:97} INFO - Command exited with return code 1\n", "FAILED", "return code 1"),
    "a full disk": ("OSError: [Errno 28] No space left on device: '/scratch/ckpt'\n", "FAILED", "No space left"),
}  # fmt: skip


@pytest.mark.parametrize("name", CRASHES)
def test_a_log_that_ends_in_an_error_has_no_number(reported: Reported, name: str) -> None:
    text, outcome, evidence = CRASHES[name]
    run = reported(lines(range(1, 25)) + text, *OPTIONS)
    assert facts(run) == (outcome, "crashed", False, "NOT PROVEN")
    assert "iteration 24 of 40" in run["reasons"][0]
    assert evidence in run["reasons"][0]
    assert run["ending"]["line"] > 24
    assert evidence in run["ending"]["evidence"]


@pytest.mark.parametrize("name", CRASHES)
def test_an_error_behind_the_last_iteration_is_only_told(reported: Reported, report: Cli, name: str) -> None:
    text, _, evidence = CRASHES[name]
    run = reported(lines(range(1, 41)) + text, *OPTIONS)
    assert facts(run) == ("VALID", "ended", True, "PASS")
    out = report(run["source"], *OPTIONS, "--explain").out
    *_, said = [line for line in out.splitlines() if ", after the last iteration: " in line]
    assert evidence in said


@pytest.mark.parametrize("name", CRASHES)
def test_an_error_after_which_the_training_goes_on_is_none(reported: Reported, name: str) -> None:
    text = lines(range(1, 20)) + CRASHES[name][0] + lines(range(20, 41))
    assert facts(reported(text, *OPTIONS)) == ("VALID", "ended", True, "PASS")


def test_a_program_that_failed_before_its_first_iteration_is_refused_with_its_error(reported: Reported) -> None:
    run = reported("loading\n" + TRACE + "FileNotFoundError: vocab.json\n")
    assert (run["outcome"], run["reasons"][1]) == ("REFUSED", "line 5: FileNotFoundError: vocab.json")


SIGTERM = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15\n"
NOTICE = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00{} ***\n"
DONE = "[after training is done] datetime: 2026-11-20\n"
CRASH = CRASHES["an exception"][0]
DUMP = "------------------------ arguments ------------------------\n  seq_length ........ 2048\n"
ALL, FIRST, LAST = lines(range(1, 41)), lines(range(1, 25)), lines(range(31, 41))
AGAIN = lines(range(21, 41), more_s=0.002)
TITAN = "".join(
    f"[rank0]:2026-01-01 10:00:{i:02d},000 - root - INFO - step: {i:2d}  loss: {9 - 0.1 * i:8.4f}  "
    f"memory: 40.00GiB(50.00%)  tps: {4000 + i % 3:,}  mfu: 20.00%\n"
    for i in range(1, 21)
)
PACKED = gzip.compress(("x" * 50 + "\n").encode() * 2000 + ALL.encode() + b"\n" * 100_000, mtime=0)
SAYS_MORE = "the log stops at iteration 24 of 40, and line "
LOADED = (
    " successfully loaded checkpoint from /scratch/ckpt [ t 0, p 0 ] at iteration 30\n",
    "INFO - Loading the checkpoint from ./outputs/checkpoint/step-30.\n",
    "Restored all states from the checkpoint at /scratch/last.ckpt\n",
    "Resuming training from out\n",
    "  Continuing training from global step 30\n",
)
HARMLESS = (
    "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + TRACE + "RuntimeError: closed\n",
    "Exception in thread Thread-5:\n" + TRACE + "BrokenPipeError: [Errno 32] Broken pipe\n",
    "UserWarning: this may end in CUDA out of memory; an Error is likely\n",
    "[WARNING] failed to load the Exception hook\n",
    "node1:7:9 [2] NCCL INFO comm 0x1 rank 15 nranks 16 - Init COMPLETE\n",
)


@pytest.mark.parametrize(
    ("content", "outcome", "shown", "limit", "reason"),
    [
        (ALL, "VALID", "ended", "PASS", None),
        (FIRST, "MEASURED", "stops-early", "PASS", "the log stops at iteration 24 of 40"),
        *((FIRST + text, "MEASURED", "stops-early", "PASS", "stops at iteration 24 of 40") for text in HARMLESS),
        (FIRST + "[exiting program at iteration 24] datetime: 2026-01-01 00:00:00 \n", "VALID", "ended", "PASS", None),
        (FIRST + "exiting program after receiving SIGTERM.\n", "MEASURED", "ended-from-outside", "PASS", ""),
        (FIRST + NOTICE.format(" DUE TO TIME LIMIT") + TRACE + SIGTERM, "MEASURED", "ended-from-outside", "PASS", "(TIMEOUT)"),
        (FIRST + TRACE + SIGTERM + NOTICE.format(" DUE TO TIME LIMIT"), "MEASURED", "ended-from-outside", "PASS", "(TIMEOUT)"),
        (FIRST + NOTICE.format(" DUE TO PREEMPTION"), "MEASURED", "ended-from-outside", "PASS", "(PREEMPTED)"),
        (FIRST + NOTICE.format(""), "MEASURED", "ended-from-outside", "PASS", "(CANCELLED)"),
        (FIRST + TRACE + "KeyboardInterrupt\n", "MEASURED", "ended-from-outside", "PASS", "(CANCELLED)"),
        (FIRST + "airflow.exceptions.AirflowTaskTimeout: Timeout, PID: 4711\n", "MEASURED", "ended-from-outside", "PASS", "(TIMEOUT)"),
        (FIRST + "=>> PBS: job killed: walltime 3617 exceeded limit 3600\n", "MEASURED", "ended-from-outside", "PASS", "(TIMEOUT)"),
        *((FIRST + text, "OUT_OF_MEMORY", "crashed", "NOT PROVEN", "") for text in (
            "=>> PBS: job killed: mem job total 4323312 kb exceeded limit 3145728 kb\n", "=>> PBS: job killed: vmem 530579456kb exceeded limit 524288000kb\n",
            "Cgroup mem limit exceeded: oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=7,uid=1000\n", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n",
        )),
        (NOTICE.format(" DUE TO TIME LIMIT") + FIRST, "MEASURED", "stops-early", "PASS", "stops at iteration 24 of 40"),
        *((text, "MEASURED", "stops-early", "PASS", "stops at iteration 24 of 40") for text in (
            DUMP + CRASH + DUMP + FIRST, lines(range(1, 20)) + CRASH + lines(range(1, 25), more_s=0.002),
            lines(range(1, 20)) + CRASH + LOADED[0] + lines(range(20, 25)),
        )),
        # Its last lines were lost, or taken out: the slow ones, perhaps.
        (FIRST + " training finished: 40 iterations\n", "MEASURED", "contradicted", "NOT PROVEN", SAYS_MORE),
        (FIRST + DONE, "MEASURED", "contradicted", "NOT PROVEN", SAYS_MORE),
        (ALL + DONE, "VALID", "ended", "PASS", None),
        # Several starts are one training, whose end is that of the last one.
        *((DUMP + lines(range(1, 31)) + CRASH + text, "VALID", "ended", "PASS", "2 attempts, finished at iteration 40; the longest is measured (iterations 1 to 30, ") for text in (
            AGAIN, AGAIN + DONE, lines(range(28, 41), more_s=0.002) + DONE, DUMP + LOADED[0] + LAST,
        )),
        (lines(range(1, 31)) + CRASH + lines(range(21, 31), more_s=0.002), "MEASURED", "stops-early", "PASS", "2 attempts of this training in the log"),
        (lines(range(1, 31)) + CRASH + lines(range(21, 26), more_s=0.002), "MEASURED", "stops-early", "PASS", "the log stops at iteration 25 of 40"),
        (ALL + DONE + AGAIN[:-1].rpartition("\n")[0] + "\n", "VALID", "ended", "PASS", "2 attempts, finished at iteration 40"),
        (DUMP + FIRST + CRASH + DUMP + LAST, "MEASURED", "excerpt", "PASS", "iterations 25 to 30 are in none of the 2 attempts"),
        (lines(range(1, 31)) + CRASH + re.sub(r"lm loss: \S+", "lm loss: NAN", AGAIN), "INVALID", "ended", "NOT PROVEN", "lm loss is nan at iteration 21"),
        (lines(range(1, 31)) + CRASH + lines(range(21, 31), more_s=0.002) + CRASH, "FAILED", "crashed", "NOT PROVEN", ""),
        # Lines that name no end: only the program's word shows it.
        (TITAN, "MEASURED", "end-unknown", "PASS", "iteration 20, and does not say where the training ends"),
        (TITAN + "[rank0]:2026-01-01 10:01:00,000 - root - INFO - Training completed\n", "VALID", "ended", "PASS", None),
        (lines(range(1, 41), loss="some value"), "MEASURED", "no-loss", "PASS", "the log shows no loss of a training"),
        (LAST, "MEASURED", "excerpt", "PASS", "begins at iteration 31"),
        (DUMP + LAST, "MEASURED", "excerpt", "PASS", "without those before it or a checkpoint that was loaded"),  # the middle was cut out
        *((DUMP + text + LAST, "VALID", "ended", "PASS", None) for text in LOADED),
        (lines(range(43680, 43700), total=311541) + CRASH, "MEASURED", "crashed", "NOT PROVEN", "an excerpt of a run that failed"),
        (PACKED[:-12], "MEASURED", "damaged", "PASS", "could not be read whole"),
        (lines(range(1, 41), skipped=lambda _: 1), "INVALID", "contradicted", "NOT PROVEN", "skipped the update of the weights"),
        (lines(range(1, 41), skipped=lambda i: int(i != 17)), "INVALID", "contradicted", "NOT PROVEN", "skipped the update of the weights"),
        (lines(range(1, 41), skipped=lambda i: i % 2), "MEASURED", "contradicted", "NOT PROVEN", "skipped the update of the weights"),
        (lines(range(1, 41), skipped=lambda i: int(i < 6)), "VALID", "ended", "PASS", None),  # the search for the loss scale
    ],
)  # fmt: skip
def test_how_a_log_ends(
    reported: Reported, tmp_path: Path, content: str | bytes, outcome: str, shown: str, limit: str, reason: str | None
) -> None:
    run = reported(written(tmp_path, content, "a.log.gz" if isinstance(content, bytes) else "a.log"), *OPTIONS)
    assert facts(run) == (outcome, shown, outcome in {"VALID", "MEASURED"}, limit)
    assert run["reasons"] == [] if reason is None else reason in "; ".join(run["reasons"])


def test_a_training_that_crashed_once_and_was_resumed_is_one_that_finished(reported: Reported, report: Cli) -> None:
    """It crashes at iteration 120, goes on from the checkpoint of iteration 100, and ends at 200."""
    loaded = " successfully loaded checkpoint from /scratch/ckpt [ t 0, p 0 ] at iteration 100\n"
    first, second = lines(range(1, 121), total=200), lines(range(101, 201), total=200, more_s=0.002)
    run = reported(DUMP + first + CRASH + DUMP + loaded + second + DONE, *OPTIONS)
    assert facts(run) == ("VALID", "ended", True, "PASS")
    assert run["window"]["last_iteration"] == 120
    out = report(run["source"], *OPTIONS).out
    assert "2 attempts, finished at iteration 200; the longest is measured (iterations 1 to 120, from line 3)" in out
    assert "stops at" not in out


@pytest.mark.parametrize(
    ("notice", "limit", "sustained", "words"),
    [
        ("2026-01-01T12:30:00 DUE TO TIME LIMIT", "NOT PROVEN", "NOT PROVEN", "2 h 26 min passed after its last line"),
        ("2026-01-01T12:30:00", "NOT PROVEN", "NOT PROVEN", "2 h 26 min passed after its last line"),
        ("2026-01-01T07:30:00 DUE TO TIME LIMIT", "NOT PROVEN", "NOT PROVEN", "26 min passed after its last line"),
        ("2026-01-01T10:04:40 DUE TO TIME LIMIT", "PASS", "PASS", ""),
        ("2026-01-01T12:04:20 DUE TO TIME LIMIT", "PASS", "PASS", ""),
    ],
    ids=["a hang", "a hang that a person ended", "in another zone", "none", "none, or two hours"],
)  # fmt: skip
def test_a_hang_before_the_end_from_outside_keeps_no_limit(
    reported: Reported, notice: str, limit: str, sustained: str, words: str
) -> None:
    text = "".join(
        f"[2026-01-01 10:{6 * i // 60:02d}:{6 * i % 60:02d}] {one}"
        for i, one in enumerate(lines(range(1, 41), total=400, more_s=1).splitlines(keepends=True), 1)
    )
    text += f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {notice} ***\n"
    run = reported(text, *OPTIONS[:-1], "1500")
    assert (run["limit"], run["verdict"]["sustained"]) == (limit, sustained)
    assert words in run["reasons"][0]
    assert ("passed after" in run["reasons"][0]) is bool(words)
