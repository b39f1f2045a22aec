"""Every way to end tells what happened, what shows it, where the log is and what to type."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.following import offline

from nlp_bench.cli.parser import parser_of
from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.config.request import from_options
from nlp_bench.config.resolve import for_another_job
from nlp_bench.config.run import Run, read_run
from nlp_bench.launch.chain import CheckpointRequest, resumed, with_checkpoints
from nlp_bench.launch.end.advice import REMEDIES, advice, of_entry, short
from nlp_bench.launch.end.ending import Ending
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder with a name that a shell would take apart, whose job was to keep checkpoints."""
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path))
    made = tmp_path / "it's a DIR $HOME"
    made.mkdir()
    recorded(made).write(made)
    (made / "job.out").touch()
    return made


def recorded(folder: Path) -> Run:
    run = offline("tiny", "slurm-sandbox", timelimit="13:30:00", data_path="mock")
    return with_checkpoints(run, folder, CheckpointRequest(save=folder / "checkpoints"))


def save(folder: Path) -> None:
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/latest_checkpointed_iteration.txt").write_text("7")


def test_a_system_file_of_ones_own_is_in_no_command_by_its_name(folder: Path) -> None:
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "system": {**record["system"], "name": "own"}}))
    found = advice(Ending.of(Outcome.OUT_OF_MEMORY, "any", "memory"), folder)
    assert [command.split()[0] for command in found.commands] == ["tail"]  # and no `nlp-bench plan --system own`


ENDINGS = [Ending.of(outcome, code or "any", f"reason {code or 'any'}", "line 7") for outcome, code in REMEDIES]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS, ids=Ending.text)
@pytest.mark.parametrize("has_saved", [False, True])
def test_every_ending_has_advice_that_can_be_typed(
    ending: Ending, folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_saved: bool
) -> None:
    if has_saved:
        save(folder)
    found = advice(ending, folder)
    assert f"what happened: {ending.text().partition('; line 7')[0]}" in found.text()
    assert "evidence: line 7" in found.text()
    assert f"log: {folder}/job.out" in found.text()
    assert found.commands
    monkeypatch.chdir(folder.parent)
    for command in found.commands:
        check(shlex.split(command), folder)


def check(words: list[str], folder: Path) -> None:
    """A command of ours is taken with its options and for this run, and files that are named are there."""
    named = [word for word in words if str(folder) in word]
    there = [word for word in named if "*" not in word and not word.endswith(("outcome.json", "ready"))]
    assert all(Path(word).exists() for word in there), words
    if words[0] != "nlp-bench":
        return
    assert words[1] in SUBCOMMANDS
    if "--help" in words:
        return
    options = parser_of(words[1]).read(words[2:])
    assert getattr(options, "model", None) in {None, "tiny"}
    assert getattr(options, "system", None) in {None, "slurm-sandbox", ("slurm-sandbox",)}
    if words[1] == "submit":
        run = for_another_job(read_run(options.recorded), from_options(options))
        run, checkpoints = resumed(run, CheckpointRequest(load=options.load))
        assert with_checkpoints(run, folder / "next", checkpoints).tuning.train_args


def test_a_reason_with_a_remedy_of_its_own_decides() -> None:
    """Whatever it says, and wherever it stands among the reasons; of another outcome it says nothing."""
    reasons = (Reason("other-code", "stalled"), Reason("rendezvous", "any"))
    found = advice(Ending(outcome=Outcome.FAILED, reasons=reasons), Path("/nowhere"))
    assert found.remedy.startswith("the nodes did not find each other")
    found = advice(Ending(outcome=Outcome.TIMEOUT, reasons=reasons), Path("/nowhere"))
    assert found.remedy.startswith("a longer --timelimit")


def test_of_a_good_run_only_the_next_commands_are_said(folder: Path) -> None:
    found = advice(Ending(outcome=Outcome.VALID), folder)
    lines = found.text().splitlines()
    assert lines == found.what_now().splitlines()
    assert all(line.startswith("next: nlp-bench ") for line in lines)


@pytest.mark.parametrize("is_one_word", [False, True])
def test_a_checkpoint_is_gone_on_from(folder: Path, *, is_one_word: bool) -> None:
    if is_one_word:
        text = (folder / "run.json").read_text()
        (folder / "run.json").write_text(re.sub(r'"--save",\s*"', '"--save=', text))
    ending = Ending.of(Outcome.TIMEOUT, "state", "Slurm: TIMEOUT")
    assert not any("--load" in command for command in advice(ending, folder).commands)
    save(folder)
    goes_on = ["--run", f"{folder}/run.json", "--load", f"{folder}/checkpoints"]
    assert shlex.split(advice(ending, folder).commands[0])[2:] == goes_on
    failed = Ending.of(Outcome.FAILED, "any", "exit status 1")
    assert shlex.split(advice(failed, folder).commands[1])[2:] == goes_on  # anew would be refused: the folder is full
    (folder / "checkpoints/latest_checkpointed_iteration.txt").write_text("99999999")  # all done
    assert not any("--load" in command for command in advice(failed, folder).commands)


def test_the_time_limit_is_doubled(folder: Path) -> None:
    commands = advice(Ending(outcome=Outcome.TIMEOUT), folder).commands
    assert commands[0].endswith("run.json --timelimit 1-03:00:00")


def test_a_folder_without_a_record_is_not_told_nonsense(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"launch": [], "tuning": {"train_args": ["--save"]}, "model": None}))
    for outcome in Outcome:
        said = advice(Ending.of(outcome, "any", "a reason"), tmp_path).text()
        assert not {"DIR", "LOGS", "LONGER", "CHECKPOINTS", "MODEL", "NODES"} & set(shlex.split(said.replace("'", "")))
        assert "log: none was written" in said
        assert "tail" not in said.replace("tail -n 3 ", "")


def test_a_log_cannot_write_on_the_terminal(folder: Path) -> None:
    ending = Ending.of(Outcome.FAILED, "any", "a\x1b[2J\nb", "\x1b]0;owned\x07RuntimeError\r: x")
    for text in (advice(ending, folder).text(), short(ending, folder), ending.text()):
        assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert "\n" not in ending.text()


def test_one_line_for_lists(folder: Path) -> None:
    line = short(Ending.of(Outcome.NODE_FAIL, "state", "Slurm: NODE_FAIL"), folder)
    assert "\n" not in line
    assert "next: sinfo --list-reasons" in line


def test_a_row_of_a_report_shows_the_evidence(folder: Path) -> None:
    (folder / "outcome.json").write_text(json.dumps({"evidence": "RuntimeError: boom"}))
    row = RunResult(
        source=str(folder), dialect="nlp-bench", outcome=Outcome.FAILED, reasons=(Reason("any", "exit status 1"),)
    )
    assert "evidence: RuntimeError: boom; log: " in (of_entry(row) or "")
    assert of_entry(RunResult(source=str(folder), dialect="nlp-bench", outcome=Outcome.VALID)) is None
    assert of_entry(RunResult(source="job.out", dialect="nlp-bench", outcome=Outcome.FAILED)) is None
