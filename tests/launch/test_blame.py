"""Who was first: what the ends of the logs say of a rank, a node, a meeting, and of a crash behind the work."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import Cli
from support.following import iterations, offline

from nlp_bench.cli import runs
from nlp_bench.cli.main import main
from nlp_bench.config.run import Run
from nlp_bench.launch.end.advice import advice
from nlp_bench.launch.end.ending import decide, write_ending
from nlp_bench.launch.end.log_facts import gather
from nlp_bench.launch.nodes.supervise import Ranks
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

DONE = "[default0]: training finished: 40 iterations\n"
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
{others}Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_19:18:30
  host      : node1
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: 7)
"""
OTHER = """\
[1]:
  time      : 2026-11-20_19:18:30
  host      : node1
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: 8)
"""
ALONE = SUMMARY.format(others="", rank=0, local=0, code=1)
ORDER = "nlp-bench: ranks ended in the order {}; the first at 2026-11-20T19:18:{:02d}.000000+00:00\n"


@pytest.fixture(scope="module")
def run() -> Run:
    return offline("tiny", "local", data_path="mock")


def write(folder: Path, err: str, *, last: int = 20, end: str = "") -> Path:
    (folder / "job.out").write_text(iterations(last) + end)
    (folder / "job.err").write_text(err)
    return folder


def test_the_rank_that_ended_first_is_blamed_not_the_one_that_torchrun_saw_first(tmp_path: Path) -> None:
    """As seen on real ranks: both failed within one second, and torchrun named the peer."""
    errors = (
        "[default0]:RuntimeError: connection reset by peer\n[default1]:torch.OutOfMemoryError: CUDA out of memory\n"
    )
    summary = SUMMARY.format(others=OTHER.format(rank=1, local=1, code=1), rank=0, local=0, code=1)
    found = gather(write(tmp_path, errors + summary + ORDER.format("1 (+0.00 s), 0 (+0.02 s)", 30)), Slurm())
    assert found.error == "torch.OutOfMemoryError: CUDA out of memory; rank 1 exitcode 1"
    assert found.cause is None


def test_a_rank_that_left_without_an_error_is_named(run: Run, tmp_path: Path) -> None:
    err = ALONE + ORDER.format("3 (+0.00 s), 0 (+0.90 s)", 31)
    ending = decide(run, write(tmp_path, err), exit_status=1)
    assert ending.texts[0].startswith("rank 3 ended first, without an error of its own")
    assert ending.reasons[0].code == "early-exit"


def failing(order: str, *ranks: tuple[int, int, int, str]) -> str:
    """Return job.err of ranks (rank, local rank, exit code, error) that failed within a second."""
    blocks = [OTHER.format(rank=rank, local=local, code=code) for rank, local, code, _ in ranks[1:]]
    rank, local, code, _ = ranks[0]
    errors = "".join(f"[default{local}]:{error}\n" for _, local, _, error in ranks if error)
    return errors + SUMMARY.format(others="".join(blocks), rank=rank, local=local, code=code) + order


CLOSED = "RuntimeError: Connection closed by peer [127.0.0.1]:1"
AT_ONCE = ORDER.format("0 (+0.00 s), 1 (+0.00 s)", 30).replace("\n", "; within one look: 0 1\n")
PEER_FIRST = ORDER.format("0 (+0.00 s), 1 (+0.01 s)", 30)


@pytest.mark.parametrize("order", [AT_ONCE, PEER_FIRST], ids=["in one look", "the peer first"])
@pytest.mark.parametrize(
    ("peer", "culprit", "error"),
    [
        ((0, 0, 1, CLOSED), (1, 1, -9, ""), "rank 1 exitcode -9"),
        ((0, 0, 1, CLOSED), (1, 1, 1, "ValueError: no such key"), "ValueError: no such key; rank 1 exitcode 1"),
        ((0, 0, -15, ""), (1, 1, 1, "ValueError: no such key"), "ValueError: no such key; rank 1 exitcode 1"),
        ((0, 0, -6, "DistBackendError: remote process exited"), (1, 1, 5, ""), "rank 1 exitcode 5"),
    ],
)
def test_a_rank_that_lost_its_peer_is_not_blamed(
    tmp_path: Path, order: str, peer: tuple[int, int, int, str], culprit: tuple[int, int, int, str], error: str
) -> None:
    """A process closes its connections before it has ended: its peer may be gone sooner, or be found in the same look."""
    found = gather(write(tmp_path, failing(order, peer, culprit)), Slurm())
    assert error in str(found.error)
    assert found.cause == (Reason("killed", "killed by signal 9 (rank 1)") if culprit[2] == -9 else None)


@pytest.mark.parametrize("order", [AT_ONCE, PEER_FIRST], ids=["in one look", "the peer first"])
@pytest.mark.parametrize(
    ("error", "blamed"), [("Connection reset by peer", "rank 1 ended first"), ("no such key", "None")]
)
def test_of_ranks_that_ended_at_once_the_others_error_decides(
    tmp_path: Path, error: str, blamed: str, order: str
) -> None:
    """As seen on a loaded machine: the launcher found both gone, or first the one that had lost its peer."""
    err = f"[default0]:RuntimeError: {error}\n" + ALONE
    assert str(gather(write(tmp_path, err + order), Slurm()).cause).startswith(blamed)


def test_a_rank_that_used_up_its_cpu_time_says_so(run: Run, tmp_path: Path) -> None:
    ending = decide(run, write(tmp_path, failing("", (0, 0, -24, ""))), exit_status=1)
    assert ending.reasons[0].code == "cpu-time"
    assert "`ulimit -t`" in advice(ending, tmp_path).remedy


def test_memory_that_is_a_file_is_named_for_a_bus_error(run: Run, tmp_path: Path) -> None:
    ending = decide(run, write(tmp_path, failing("", (0, 0, -7, ""))), exit_status=1)
    assert ending.reasons[0].code == "bus-error"
    assert "--shm-size" in advice(ending, tmp_path).remedy


NO_PYXIS = "srun: unrecognized option '--container-image=/a.sqsh'"
SYSTEM = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error (run with NCCL_DEBUG=INFO for details)"


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (f"{SYSTEM}\nLast error:\nCall to ibv_reg_mr failed", f"{SYSTEM}; Call to ibv_reg_mr failed"),
        (f"[rank1]: {SYSTEM}\n[rank1]: Last error:\n[rank1]: no room", f"{SYSTEM}; no room"),
        ("libgomp: Thread creation failed: Resource temporarily unavailable",) * 2,
        (f'{NO_PYXIS}\nTry "srun --help" for more information', NO_PYXIS),
    ],
)
def test_what_a_library_says_is_the_evidence(tmp_path: Path, errors: str, said: str) -> None:
    peer = (0, 0, -15, "Last error:\n[default0]:remote process exited")
    own = (1, 1, 1, errors.replace("\n", "\n[default1]:"))
    assert gather(write(tmp_path, failing("", own, peer)), Slurm()).error == f"{said}; rank 1 exitcode 1"


def test_the_order_of_another_node_does_not_hide_the_rank_that_nobody_saw(tmp_path: Path) -> None:
    """Rank 1 left before the launcher of its node had seen it, which says nothing then; those of the other node lost it."""
    first = failing("", (1, 1, 5, ""))
    other = failing(ORDER.format("2 (+0.00 s), 3 (+0.01 s)", 30), (2, 0, 1, CLOSED), (3, 1, 1, CLOSED))
    for err in (first + other, other + first):
        found = gather(write(tmp_path, err), Slurm())
        assert "rank 1 exitcode 5" in str(found.error)
        assert found.cause is None


def test_an_order_without_all_ranks_is_none() -> None:
    environment = {**os.environ, "RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE) as process:
        ranks, fewer = Ranks(os.getpid(), 1), Ranks(os.getpid(), 2)
        end = time.monotonic() + 30
        while not (ranks.handles and fewer.handles):  # until it has become the program
            assert time.monotonic() < end
            ranks.wait(0.05)
            fewer.wait(0.05)
        process.communicate(b"\n")
        ranks.wait(5)
        fewer.wait(5)
    assert str(ranks.order()).startswith("nlp-bench: ranks ended in the order 0 (+0.00 s)")
    assert fewer.order() is None


def test_of_several_nodes_the_earliest_counts(tmp_path: Path) -> None:
    err = ALONE + ORDER.format("0 (+0.00 s)", 33) + ORDER.format("5 (+0.00 s)", 32)
    assert str(gather(write(tmp_path, err), Slurm()).cause).startswith("rank 5 ended first")


def test_a_killed_rank_is_named_with_its_signal(run: Run, tmp_path: Path) -> None:
    err = SUMMARY.format(others=OTHER.format(rank=1, local=1, code=-9), rank=0, local=0, code=1)
    ending = decide(run, write(tmp_path, err + ORDER.format("1 (+0.00 s), 0 (+0.40 s)", 30)), exit_status=1)
    assert ending.texts == ["killed by signal 9 (rank 1), exit status 1, last iteration 20"]
    assert str(ending.evidence).endswith("killed by SIGKILL: mostly Linux, out of memory (dmesg tells)")  # no remedy


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. 1/2 clients joined.",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local address. code: -98, name: EADDRINUSE",
        "nlp-bench: error: rendezvous: node2 finds no address of node 'node1'",
    ],
)
def test_nodes_that_did_not_meet(run: Run, tmp_path: Path, line: str) -> None:
    (reason,) = decide(run, write(tmp_path, line + "\n", last=0), exit_status=1).reasons
    assert (reason.code, reason.text[:12]) == ("rendezvous", "rendezvous: ")


def test_agents_that_lose_each_other_at_the_end_had_met(run: Run, tmp_path: Path) -> None:
    lost = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n"
    for last, err in ((20, lost), (0, lost + ALONE)):
        ending = decide(run, write(tmp_path, err, last=last), exit_status=1)
        assert ending.texts[0].startswith("exit status 1, last iteration")


def test_sruns_word_on_a_node_comes_before_the_controllers(run: Run, tmp_path: Path) -> None:
    line = "srun: error: Node failure on node7"
    ending = decide(run, write(tmp_path, f"{line}\n[default0]:RuntimeError: connection reset\n"), exit_status=1)
    assert (ending.outcome, ending.evidence) == (Outcome.NODE_FAIL, line)


@pytest.mark.parametrize("end", [DONE, "[after training is done] datetime: 2026-11-20 19:18:30\n"])
def test_a_crash_behind_the_work_leaves_the_number(run: Run, tmp_path: Path, end: str) -> None:
    run.write(tmp_path)
    folder = write(tmp_path, "[default0]:RuntimeError: shutting down failed\n", last=40, end=end)
    ending = decide(run, folder, exit_status=3)
    assert ending.outcome is Outcome.VALID
    assert ending.texts == ["completed with errors: exit status 3 after the last iteration, when the training was done"]
    write_ending(folder, ending, exit_status=3, job_id=None)
    assert main(["measure", str(folder)]) == 0
    text = (folder / "metrics.txt").read_text()
    assert "outcome: VALID" in text
    assert "tokens_per_second: " in text
    assert "completed with errors: exit status 3" in text


@pytest.mark.parametrize(
    ("last", "end", "err", "outcome"),
    [
        (40, "", "", "FAILED"),  # the last line alone: what came behind it is not known
        (38, DONE, "", "FAILED"),
        (
            40,
            DONE,
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
            "TIMEOUT",
        ),
    ],
)
def test_no_other_end_is_a_finished_one(run: Run, tmp_path: Path, last: int, end: str, err: str, outcome: str) -> None:
    assert decide(run, write(tmp_path, err, last=last, end=end), exit_status=3).outcome.value == outcome


@pytest.mark.slow
def test_an_outcome_that_claims_to_be_done_is_not_believed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOG_WAIT_S", 0.5)
    run.write(tmp_path)
    folder = write(tmp_path, "", last=40, end=DONE)
    write_ending(folder, decide(run, folder, exit_status=3), exit_status=3, job_id=None)
    write(folder, "", last=40)
    assert main(["measure", str(folder)]) == 0
    assert "outcome: FAILED" in (folder / "metrics.txt").read_text()


def test_a_report_says_what_to_type(run: Run, tmp_path: Path, cli: Cli) -> None:
    run.write(tmp_path)
    stalled = "nlp-bench: error: stalled after iteration 20, silent for 400 s (limit 300 s); the run is ended"
    folder = write(tmp_path, f"{stalled}\n")
    write_ending(folder, decide(run, folder, exit_status=124), exit_status=124, job_id=None)
    said = cli("report", folder, code=1).err
    assert f"log: {folder}/job.out and {folder}/job.err; a rank hangs" in said
    assert f"next: tail -n 3 {folder}/ranks/*/*/*/stderr.log" in said
