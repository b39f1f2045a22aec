"""A controller that is away for a moment while a job begins: the job asks again; what srun cannot do is said by its name."""

from pathlib import Path

import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.launch.end.ending import decide
from nlp_bench.launch.nodes.rendezvous import addresses
from nlp_bench.launch.scheduler import slurm
from nlp_bench.outcome import Outcome

AWAY = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
SRUN = "srun: error: Unable to confirm allocation for job 30: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def run() -> Run:
    return resolve(Request(model="tiny", system="slurm-sandbox", data_path="mock"), ask_scheduler=False)


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller that does not answer once."""
    answer = 'if [[ $2 == hostnames ]]; then printf "n1\\nn2\\n"; exit; fi\n'
    answer += f'if mkdir "{tmp_path}/asked" 2> /dev/null; then echo "{AWAY}" >&2; exit 1; fi\n'
    answer += 'for name in n1 n2; do echo "NodeName=$name Arch=x NodeAddr=10.0.0.${name#n} Port=1"; done\n'
    (tmp_path / "scontrol").write_text(f"#!/bin/bash\n{answer}")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("NLP_BENCH_NODES", raising=False)
    return tmp_path / "asked"


def test_the_addresses_are_asked_for_again(run: Run, scontrol: Path) -> None:
    assert addresses(run) == ["10.0.0.1", "10.0.0.2"]
    assert scontrol.is_dir()


def test_a_controller_that_stays_away_ends_the_job_with_its_words(
    run: Run, scontrol: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "PATIENCE_S", 0)
    with pytest.raises(slurm.SilentError, match="Unable to contact slurm controller"):
        addresses(run)
    assert scontrol.is_dir()


def test_ranks_that_srun_could_not_start(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.err").write_text(f"nlp-bench: begin of job 30\n{SRUN}\n")
    (tmp_path / "job.out").write_text("Submitted batch job 30\n")
    ending = decide(run, tmp_path, exit_status=1)
    assert ending.outcome is Outcome.FAILED
    assert ending.reasons == [
        "Slurm's controller did not answer srun, which started no rank, exit status 1, last iteration none"
    ]
    assert ending.evidence == SRUN


@pytest.mark.parametrize("why", ["Communication connection failure", "Socket timed out on send/recv operation"])
def test_a_node_that_takes_no_task_is_lost(run: Run, tmp_path: Path, why: str) -> None:
    """Seen on a real Slurm, whose controller had not yet found out that the node's slurmd was dead."""
    line = f"srun: error: Task launch for StepId=80.0 failed on node n3: {why}"
    (tmp_path / "job.err").write_text(f"nlp-bench: begin of job 80\n{line}\nsrun: Job step aborted\n")
    (tmp_path / "job.out").write_text("Submitted batch job 80\n")
    ending = decide(run, tmp_path, exit_status=233)
    assert (ending.outcome, ending.evidence) == (Outcome.NODE_FAIL, line)
    (tmp_path / "job.err").write_text(line.replace(why, "Invalid job credential") + "\n")
    assert decide(run, tmp_path, exit_status=233).outcome is Outcome.FAILED
