"""Sites put wrappers around Slurm's commands: what they print beside the answer is never read as a node, a state or a job."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sandbox import Sandbox
from support.shims import shim

from faults import stand_in
from nlp_bench.config import scheduler
from nlp_bench.config.run import Run
from nlp_bench.doctor.scheduler import partition_nodes
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import once
from nlp_bench.launch.nodes.torchrun import addresses
from nlp_bench.launch.scheduler.slurm import Slurm

Stub = Callable[..., Run]
asking = Slurm()
pytestmark = [pytest.mark.slurm]
ASKING = ("scontrol", "squeue", "sinfo", "sacct")
BANNERS = {
    "words": "Welcome to the cluster\nmaintenance on Monday",
    "a box": "+-------+\n| NOTE | 2026 | down |\n+-------+",
    "numbers": "17 users\n1 1 nlp-bench:0\n1",
    "fields": "JobId JobState=DOWN Reason=Cooling Comment=x NodeList=none\nNext: NodeName=node1 NodeAddr=10.9.9.9 State=DOWN",
    "tables": "PartitionName State\n booster DOWN\n99|FAILED|1:0",
    "a module": "Loading slurm/22.05\n  Loading requirement: munge/0.5\n\nInactive Modules:\n  1) gcc\n",
    "a title": "\x1b]0;slurm\x07\x1b[1;33mnotice:\x1b[0m quota 90%\r",
}
PIPES = {
    "colours": "sed $'s/^/\\e[32m/; s/$/\\e[0m/; s/nlp/\\e[1mn\\e[22mlp/'",
    "line ends of Windows": "sed 's/$/\\r/'",
}
SILENT = {
    "nothing": "exit 0",
    "a banner alone": "echo 'Please use the web portal'; exit 0",
    "a status lost": "echo 'command not found'; exit 0",
}


@pytest.fixture
def wrapped(slurm: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a wrapper around each command that asks, in this process."""
    for name in ("SLURM_CONF", "PYTHONPATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1,3]")
    monkeypatch.delenv("NLP_BENCH_NODES", raising=False)
    monkeypatch.setattr(scheduler, "PATIENCE_S", 0)
    path = os.environ["PATH"]

    def wrap(before: str = "", after: str = "") -> None:
        monkeypatch.setenv("PATH", path)
        for name in ASKING:
            shim(tmp_path / "tools", name, before, after)
        monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{path}")

    return wrap


def answers(run: Run, job: str, gone: str) -> dict[str, object]:
    """Return all that is asked of Slurm, but what changes from second to second."""
    shown = asking.query(job)
    return {
        "job": shown and (shown.word, shown.node_name, shown.comment, shown.work_dir),
        "ended": (ended := asking.query(gone)) and (ended.state.name, ended.exit_code, ended.source),
        "queued": asking.is_queued(job),
        "jobs": asking.jobs(ended=False),
        "nodes": addresses(run),
        "partition": [(node.name, node.address) for node in partition_nodes("booster")],
        "cluster": asking.detect(),
        "limits": asking.check_limits(run),
    }


def two_nodes(stub_run: Stub) -> Run:
    return stub_run("other 0")


@pytest.fixture
def job(slurm: Sandbox, tmp_path: Path) -> str:
    """A job that runs, in a folder of its own."""
    words = f"sbatch --parsable --mem=100 --comment=nlp-bench:77|x --chdir={tmp_path} --output=/dev/null".split()
    number = slurm(*words, "--wrap=sleep 300").strip()
    slurm.until(lambda: "JobState=RUNNING" in slurm("scontrol", "show", "job", number), "start of the job")
    return number


def test_what_a_wrapper_prints_is_not_read(
    slurm: Sandbox, stub_run: Stub, job: str, wrapped: Callable[..., None], tmp_path: Path
) -> None:
    run = two_nodes(stub_run)
    wrapped()
    plain = answers(run, job, "999999")
    assert plain["nodes"] == ["127.0.0.1", "127.0.0.1"]
    assert plain["job"] == ("RUNNING", plain["job"][1], "nlp-bench:77|x", str(tmp_path))  # type: ignore[index]
    assert (plain["queued"], (job, "nlp-bench:77|x", str(tmp_path)) in plain["jobs"]) == (True, True)  # type: ignore[operator]
    assert plain["ended"] == ("GONE", "", "scontrol")
    for name, text in BANNERS.items():
        (tmp_path / "banner").write_text(text + "\n")
        for before, after in (
            (f"cat {tmp_path}/banner", ""),
            ("", f"cat {tmp_path}/banner"),
            (f"cat {tmp_path}/banner >&2", ""),
        ):
            wrapped(before, after)
            assert answers(run, job, "999999") == plain, (name, before, after)
    for name, pipe in PIPES.items():
        wrapped(f"exec > >({pipe})")
        assert answers(run, job, "999999") == plain, name
    slurm("scancel", job)


@pytest.mark.parametrize("kind", SILENT)
def test_an_answer_without_the_mark_is_none(
    kind: str, stub_run: Stub, wrapped: Callable[..., None], tmp_path: Path
) -> None:
    """Nothing is known: not "no such job", not "no jobs", not "no nodes"."""
    run = two_nodes(stub_run)
    wrapped(SILENT[kind])
    assert asking.query("1") is None
    assert asking.is_queued("1") is None
    with pytest.raises(
        scheduler.SilentError,
        match=r"not in the form that it was asked for.*; put Slurm's own before /.*/squeue on PATH",
    ):
        asking.jobs(ended=True)
    with pytest.raises(scheduler.SilentError):
        once.active(asking, tmp_path)
    with pytest.raises(NlpBenchError, match=r"scontrol does not write out the nodes node\[1,3\]"):
        addresses(run)
    with pytest.raises(
        NlpBenchError, match=r"sinfo does not list partition booster: not in the form .* before /.*/sinfo on PATH"
    ):
        partition_nodes("booster")


def test_accounting_behind_a_wrapper(wrapped: Callable[..., None], tmp_path: Path) -> None:
    """The job is known to sacct alone; a wrapper's line with bars is no record, and one that is cut off no answer."""
    wrapped()
    table = "echo 'Welcome|all|of you'; printf 'JobID|State|ExitCode\\n7|CANCELLED by 1000|0:15\\n77|FAILED|1:0\\n'; echo 'a|b|c'"
    shim(tmp_path / "tools", "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    shim(tmp_path / "tools", "sacct", f"{table}; exit")
    found = asking.query("7")
    assert found
    assert (found.word, found.exit_code, found.source) == ("CANCELLED by 1000", "0:15", "sacct")
    shim(tmp_path / "tools", "sacct", "echo 'Welcome|all|of you'; exit")
    assert asking.query("7") is None


def test_a_run_behind_wrappers_ends_well(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """Submission, job and sync all ask through them; both nodes are the job's own.

    That of sbatch puts a command into the script, behind which Slurm reads no #SBATCH line: one node of another partition, another log.
    """
    (tmp_path / "banner").write_text("\n".join(BANNERS.values()) + "\n")
    edits = {
        "sbatch": f'sed \'1a export SITE=here\' "${{@: -1}}" > {tmp_path}/edited; set -- "${{@:1:$#-1}}" {tmp_path}/edited'
    }
    for name in (*ASKING, "sbatch", "srun", "scancel"):
        before = f"cat {tmp_path}/banner\n{edits.get(name, '')}"
        path = shim(tmp_path / "tools", name, before, f"cat {tmp_path}/banner")
    record = stub_run("ok", "--mem=200").write(tmp_path)
    words = stand_in.submit(record, tmp_path / "run")
    environment = {**slurm.environment, "PATH": path}
    command = [sys.executable, "-m", "nlp_bench"]
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    outcome = tmp_path / "run/outcome.json"
    slurm.until(outcome.exists, "outcome", bound_s=120)
    told = json.loads(outcome.read_text())
    assert (told["outcome"], told["sources"]["slurm"]["state"]) == ("VALID", "RUNNING"), told
