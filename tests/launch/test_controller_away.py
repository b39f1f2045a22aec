"""A controller that is away for a moment while a job begins: the job asks again; what srun cannot do is said by its name."""

from pathlib import Path

import pytest
from support.following import program

from nlp_bench.config import scheduler
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job, SilentError, State
from nlp_bench.launch.end.advice import AGAIN, remedy_of
from nlp_bench.launch.end.ending import decide
from nlp_bench.launch.follow.sync import sync_script
from nlp_bench.launch.nodes.torchrun import addresses
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

AWAY = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
NO_ANSWER = "Slurm's controller did not answer srun"
SRUN = "srun: error: Unable to confirm allocation for job 30: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller that does not answer once."""
    answer = 'if [[ $2 == hostnames ]]; then printf "%s\\n" ${3//,/ }; exit; fi\n'
    answer += f'if mkdir "{tmp_path}/asked" 2> /dev/null; then echo "{AWAY}" >&2; exit 1; fi\n'
    answer += 'for name in n1 n2; do echo "NodeName=$name Arch=x NodeAddr=10.0.0.${name#n} Port=1"; done\n'
    program(tmp_path, "scontrol", answer)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("NLP_BENCH_NODES", raising=False)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1,n2")
    return tmp_path / "asked"


@pytest.mark.slow
def test_the_addresses_are_asked_for_again(run: Run, scontrol: Path) -> None:
    assert addresses(run) == ["10.0.0.1", "10.0.0.2"]
    assert scontrol.is_dir()


def test_a_controller_that_stays_away_ends_the_job_with_its_words(
    run: Run, scontrol: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "PATIENCE_S", 0)
    with pytest.raises(SilentError, match="Unable to contact slurm controller"):
        addresses(run)
    assert scontrol.is_dir()


def begun(folder: Path, job: int, *lines: str) -> None:
    """Write the logs of a job that has begun, with these lines behind that in job.err."""
    (folder / "job.err").write_text("".join(f"{line}\n" for line in (f"nlp-bench: begin of job {job}", *lines)))
    (folder / "job.out").write_text(f"Submitted batch job {job}\n")


@pytest.mark.parametrize(
    "line", [SRUN, "srun: error: Unable to confirm allocation for job 30: Socket timed out on send/recv operation"]
)
def test_ranks_that_srun_could_not_start(run: Run, tmp_path: Path, line: str) -> None:
    """The controller is away, or it hangs: both were seen on a real Slurm."""
    begun(tmp_path, 30, line)
    ending = decide(run, tmp_path, exit_status=1)
    assert (ending.outcome, ending.evidence) == (Outcome.FAILED, line)
    assert ending.texts == [f"{NO_ANSWER}, which started no rank, exit status 1, last iteration none"]


FORGOTTEN = "srun: error: Unable to confirm allocation for job 7: Invalid job id specified"
PENDING = FORGOTTEN.replace("Invalid job id specified", "Job is pending execution")
NO_STEP = FORGOTTEN.replace("confirm allocation", "create step")
UNKNOWN_JOB = "Slurm's controller no longer knew the job (mostly it was killed, and lost it), so srun started no rank"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (FORGOTTEN, UNKNOWN_JOB),
        (NO_STEP, UNKNOWN_JOB),
        (PENDING, UNKNOWN_JOB.replace("the job", "that the job was running")),
        (NO_STEP.replace("Invalid job id specified", "Unexpected message received"), "srun started no rank: Unexpected message received"),
        ("srun: error: Slurm job 7 has expired", "srun started no rank: Slurm job 7 has expired"),
    ],
)  # fmt: skip
def test_a_step_that_srun_could_not_create_has_its_cause(run: Run, tmp_path: Path, line: str, cause: str) -> None:
    """Seen on a real Slurm: a job that had begun in the seconds that a killed controller had not saved, the third with its number given to
    another job that waits."""
    begun(tmp_path, 7, line, "srun: Check SLURM_JOB_ID")
    ending = decide(run, tmp_path, exit_status=1, job=Job(state=State.GONE))
    assert (ending.outcome, ending.evidence) == (Outcome.FAILED, line)
    code = "controller" if "controller" in cause else "no-step"
    assert ending.reasons == (Reason(code, f"{cause}, exit status 1, last iteration none"),)


def test_a_job_that_a_controller_has_ended_is_simply_submitted_again() -> None:
    """Nothing of the run is to be mended, as the remedy of other failures has it."""
    text, *commands = remedy_of(Outcome.FAILED, [Reason("controller", UNKNOWN_JOB)])
    assert "not the run's fault" in text
    assert commands[0] == AGAIN


def test_a_start_whose_job_waits_again_decides_nothing_where_slurm_is_silent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has the job in its queue, says srun; that it does not answer a moment later changes nothing of it."""
    run.write(tmp_path)
    begun(tmp_path, 7, PENDING)
    program(tmp_path, "scontrol", f"echo '{AWAY}' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert sync_script(tmp_path, exit_status=1) == (None, "Slurm has put the job back into its queue")
    assert not (tmp_path / "outcome.json").exists()


@pytest.mark.parametrize(
    "why",
    [
        "Communication connection failure",
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received",
    ],
)
def test_a_node_that_takes_no_task_is_lost(run: Run, tmp_path: Path, why: str) -> None:
    """Seen on a real Slurm, whose controller had not yet found out that the node's slurmd was dead, or died over the question."""
    line = f"srun: error: Task launch for StepId=80.0 failed on node n3: {why}"
    begun(tmp_path, 80, line, "srun: Job step aborted")
    ending = decide(run, tmp_path, exit_status=233)
    assert (ending.outcome, ending.evidence) == (Outcome.NODE_FAIL, line)
    (tmp_path / "job.err").write_text(line.replace(why, "Invalid job credential") + "\n")
    assert decide(run, tmp_path, exit_status=233).outcome is Outcome.FAILED
