"""What a chain of jobs is made of: the trainer's words, the jobs' name, and when the run has ended."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.following import offline

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job
from nlp_bench.errors import UsageError
from nlp_bench.launch import chain
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.launch.chain import CheckpointRequest, resumed, with_checkpoints
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.train.arguments import parse
from nlp_bench.train.checkpoint.folder import LAST_FILE, clear, describe, publish, write_record
from nlp_bench.train.layout import Layout

RUN_DIR = Path("/runs/1")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path))
    return offline("tiny", "slurm-sandbox", timelimit="01:00:00")


def test_a_chain_shares_its_folder_and_its_name(run: Run) -> None:
    made = with_checkpoints(run, RUN_DIR, CheckpointRequest(chain=3))
    words = "--save /runs/1/checkpoints --load /runs/1/checkpoints --exit-duration-in-mins 54 --keep-checkpoints 2"
    assert " ".join(made.tuning.train_args) == words
    assert made.system.slurm.dependency == "singleton"
    assert made.launch.job_name != with_checkpoints(run, Path("/runs/2"), CheckpointRequest(chain=3)).launch.job_name


def test_one_job_goes_on_from_a_folder_that_must_hold_a_checkpoint(run: Run) -> None:
    made = with_checkpoints(run, RUN_DIR, CheckpointRequest(load=Path("/old"), exit_interval=5))
    assert made.tuning.train_args == ("--load", "/old", "--exit-interval", "5", "--exit-on-missing-checkpoint")
    assert made.system.slurm.dependency == run.system.slurm.dependency


ASKED = ["--model", "tiny", "--system", "local", "--gpus-per-node", "1", "--data-path", "mock", "--iterations", "4"]


def done(folder: Path) -> None:
    """Leave the last checkpoint of the training of ASKED there."""
    found = Request(model="tiny", system="local", gpus_per_node=1, data_path="mock", iterations=4)
    settings = parse(training_arguments(resolve(found, ask_scheduler=False)))
    path = clear(folder, 4)
    write_record(path, describe(settings, Layout.of(settings, 1), 4, 32))
    (path / LAST_FILE).write_text("{}")
    publish(folder, 4, None)


def test_a_training_that_is_done_is_refused_at_the_terminal(tmp_path: Path, cli: Cli) -> None:
    """However it is loaded: under JUBE only the words for the trainer can name it."""
    done(tmp_path)
    for command in (["check"], ["submit", "--run-dir", tmp_path / "run"]):
        said = cli(*command, *ASKED, "--train-args", f"--load {tmp_path}", code=2).err
        assert "iter_0000004 holds iteration 4 of 4; raise --iterations to go on" in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("full", "holds iter_0000004 of another training; name a new folder, or continue it with --load"),
        ("file/ck", "file is no folder"),
        ("link/ck", "gone, which is not there (purged?)"),
    ],
)
def test_a_folder_that_takes_no_checkpoints_is_refused_at_the_terminal(
    tmp_path: Path, cli: Cli, name: str, message: str
) -> None:
    done(tmp_path / "full")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "of_nodes").symlink_to("/only-on-the-nodes-of-this-test/scratch")
    new = ["submit", "--run-dir", tmp_path / "run"]
    for words in (["check", "--train-args", f"--save {tmp_path / name}"], [*new, "--save", tmp_path / name]):
        assert message in cli(*words, *ASKED, code=2).err
    assert not (tmp_path / "run").exists()
    cli("check", *ASKED, "--train-args", f"--save {tmp_path}/of_nodes/ck")


@pytest.mark.parametrize(
    ("timelimit", "minutes"), [("00:02:00", "1.0"), ("00:10:00", "8.0"), ("01:00:00", "54"), ("1-00:00:00", "1425")]
)
def test_a_job_stops_before_its_time_limit(run: Run, timelimit: str, minutes: str) -> None:
    changed = replace(run, launch=replace(run.launch, timelimit=timelimit))
    words = with_checkpoints(changed, RUN_DIR, CheckpointRequest(chain=2)).tuning.train_args
    assert words[words.index("--exit-duration-in-mins") + 1] == minutes


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ({"chain": 0}, "submit.chain: 0 must be greater than 0"),
        ({"save_interval": 5}, "--save-interval: nothing is saved; add --save FOLDER or --chain N"),
        ({"chain": 2, "save": Path("a"), "load": Path("b")}, "--load: b is not --save a"),
    ],
)
def test_options_that_contradict_each_other(checkpoints: dict[str, int | Path], message: str) -> None:
    with pytest.raises(UsageError) as error:
        CheckpointRequest(**checkpoints)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_words_of_its_own_are_not_said_twice(run: Run) -> None:
    twice = replace(run, tuning=replace(run.tuning, train_args=("--save", "/elsewhere")))
    with pytest.raises(UsageError, match="--train-args: --save is an option of `nlp-bench submit`"):
        with_checkpoints(twice, RUN_DIR, CheckpointRequest(chain=2))


def test_a_chain_knows_the_time_of_its_jobs(run: Run) -> None:
    """Seen on a real Slurm: two jobs of 10 minutes got 1, and ended without the checkpoint that they meant to write after 8."""
    less = replace(run, system=replace(run.system, slurm=replace(run.system.slurm, sbatch_args=("--time-min=1",))))
    assert with_checkpoints(less, RUN_DIR, CheckpointRequest()) is less
    with pytest.raises(UsageError, match=r"'--time-min=1' cannot be given: .* saves and stops by --timelimit"):
        with_checkpoints(less, RUN_DIR, CheckpointRequest(chain=2))


def test_a_recorded_run_goes_on_from_its_checkpoint(run: Run) -> None:
    """Its words for checkpoints were those of an earlier submission, not of --train-args: what is asked for now takes their place."""
    made = with_checkpoints(run, RUN_DIR, CheckpointRequest(chain=2, save_interval=5))
    pairs = re.sub(r"(--save\S*|--load) ", r"\1=", " ".join(made.tuning.train_args))
    joined = replace(made, tuning=replace(made.tuning, train_args=tuple(pairs.split())))
    assert resumed(joined, CheckpointRequest()) == resumed(made, CheckpointRequest())
    again, checkpoints = resumed(made, CheckpointRequest(load=Path("/runs/1/checkpoints")))
    folder = Path("/runs/1/checkpoints")
    assert checkpoints == CheckpointRequest(save=folder, load=folder, save_interval=5)
    words = " ".join(with_checkpoints(again, Path("/runs/2"), checkpoints).tuning.train_args)
    assert words.count("--save ") == words.count("--load ") == words.count("--exit-duration-in-mins") == 1
    assert "--save-interval 5" in words
    assert with_checkpoints(made, RUN_DIR, CheckpointRequest()) is made
    assert resumed(run, CheckpointRequest(chain=2)) == (run, CheckpointRequest(chain=2))


def test_a_chain_of_a_recorded_chain_waits_for_one_name(run: Run) -> None:
    again, checkpoints = resumed(with_checkpoints(run, RUN_DIR, CheckpointRequest(chain=2)), CheckpointRequest(chain=3))
    assert with_checkpoints(again, RUN_DIR, checkpoints).system.slurm.dependency == "singleton"


def answers(monkeypatch: pytest.MonkeyPatch, **states: str) -> None:
    jobs = {name[1:]: slurm.job(state) for name, state in states.items()}
    monkeypatch.setattr(Slurm, "query", lambda _, job_id: jobs.get(job_id))


def test_the_jobs_behind_one_that_runs_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for it: a chain of hundreds is looked at every few seconds."""
    asked: list[str] = []
    states = {"1": "COMPLETED", "2": "RUNNING"}

    def query(_: Slurm, job_id: str) -> Job:
        asked.append(job_id)
        return slurm.job(states.get(job_id, "PENDING"))

    monkeypatch.setattr(Slurm, "query", query)
    found = chain.query(Slurm(), Submission(job_ids=[str(number) for number in range(1, 200)]))
    assert found is not None
    assert found.word == "RUNNING"
    assert asked == ["1", "2"]


def test_the_job_that_the_run_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    submission = Submission(job_ids=["1", "2", "3"])
    answers(monkeypatch, _1="COMPLETED", _2="RUNNING", _3="PENDING")
    assert chain.query(Slurm(), submission) == slurm.job("RUNNING")
    assert chain.rest(Slurm(), submission, own_id="2") == ["3"]
    answers(monkeypatch, _1="COMPLETED", _2="COMPLETED", _3="PENDING")
    assert chain.query(Slurm(), submission) == slurm.job("PENDING")
    answers(monkeypatch, _1="COMPLETED", _2="FAILED", _3="TIMEOUT")
    assert chain.query(Slurm(), submission) == slurm.job("TIMEOUT")
    assert chain.rest(Slurm(), submission, own_id="3") == []
    answers(monkeypatch, _1="COMPLETED", _2="FAILED")  # Slurm is silent about the third
    assert chain.query(Slurm(), submission) is None
