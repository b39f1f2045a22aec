"""Models, systems and run.json that cannot be meant, were edited or are no regular files."""

import os
from pathlib import Path

import pytest
from support.command import Capture, Cli
from support.forked_commands import Nlp, nlp_bench
from support.ours import seal_run, write_our_run
from support.planning import small_run

from nlp_bench.config import catalog
from nlp_bench.plan.machines import against_sheet, sheet_of

__all__ = ["nlp_bench"]


WRITES = {"check": ("run.json", "--offline"), "rehearse": ("rehearsal.json",)}
"""Of two commands the record that they write, and how they ask no scheduler."""


@pytest.mark.parametrize("started", ["submit.json", "outcome.json", "job.out"])
@pytest.mark.parametrize("command", WRITES)
def test_the_records_of_a_started_run_are_not_replaced(tmp_path: Path, cli: Cli, command: str, started: str) -> None:
    run = tmp_path / "run"
    small_run(run)
    (run / started).write_text("{}")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    words = (command, "--model", "13", "--system", "dgx-h100", *WRITES[command][1:], "--output", run)
    assert f"--output: {run} holds {started}: a run was started there" in cli(*words, code=2).err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("command", WRITES)
def test_a_file_of_somebody_else_is_no_record_to_replace(tmp_path: Path, cli: Cli, command: str) -> None:
    record = tmp_path / WRITES[command][0]
    record.write_text('{"schema": "theirs/1"}')
    words = (command, "--model", "13", "--system", "dgx-h100", *WRITES[command][1:], "--output", tmp_path)
    assert f"--output: {record} is none of nlp-bench's and would be replaced" in cli(*words, code=2).err
    assert record.read_text() == '{"schema": "theirs/1"}'


@pytest.mark.parametrize(("word", "shown"), [("yes", " --sequence-parallel"), ("no", "")])
def test_check_shows_whether_the_sequence_is_split(tmp_path: Path, capsys: Capture, word: str, shown: str) -> None:
    small_run(tmp_path, "--tp", "2", "--sequence-parallel", word)
    said = f"\ntuning  --recompute-granularity selective{shown} --use-distributed-optimizer\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"nodes": 1', '"nodes": 1, "nodes": 2', "'nodes' stands twice in one object; leave one of the two out"),
        ("{", "\ufeff{", "it begins with a byte order mark; save it as UTF-8 without one"),
        ("", "", "it is empty: its file server shows it late, or crashed while it was written; look again in a minute"),
        ('"nodes": 1', f'"nodes": {"9" * 5000}', "a number of 5000 digits, 99999999999999999999..., is in no record"),
    ],
)
def test_a_run_json_that_readers_would_read_differently_is_refused(
    tmp_path: Path, cli: Cli, old: str, new: str, said: str
) -> None:
    small_run(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace(old, new, 1) if old else new)
    assert f"{path} is not JSON: {said}" in cli("rehearse", "--run", path, code=1).err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"hidden_size": 256', '"hidden_size": 4096', "model.parameters_billion: 0.0042, but the architecture has"),
        ('"parameters_billion": 0.0042', '"parameters_billion": 175', "model.parameters_billion: 175, but the architecture"),
        ('"global_batch_size": 8', '"global_batch_size": 1001', "batch: global_batch_size = 1001 is not a multiple of"),
        ('"gradient_accumulation_steps": 4', '"gradient_accumulation_steps": 3', "batch: global_batch_size = 8 is not dp*"),
        ('"sequence_length": 256', '"sequence_length": 64', "batch.sequence_length: 256, but model.architecture"),
    ],
)  # fmt: skip
def test_an_edited_run_json_that_contradicts_itself_is_not_submitted(
    tmp_path: Path, cli: Cli, old: str, new: str, said: str
) -> None:
    small_run(tmp_path)
    path = tmp_path / "run.json"
    assert old in path.read_text(), path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    done = cli("submit", "--run", path, "--print", code=2)
    assert said in done.err
    assert not done.out


def test_what_an_edited_run_json_does_not_say_of_its_model_is_said(tmp_path: Path, cli: Cli) -> None:
    small_run(tmp_path, "--iterations", "6")
    path = tmp_path / "run.json"
    assert "not the benchmark" not in cli("submit", "--run", path, "--print").err
    path.write_text(path.read_text().replace('"hidden_dropout": 0.0', '"hidden_dropout": 0.3', 1))
    said = f"warning: {path}: model.hidden_dropout: 0.3 instead of 0.0: not the benchmark"
    assert said in cli("submit", "--run", path, "--print").err


def test_litter_and_a_broken_system_file_do_not_stop_the_others(
    here: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Emacs locks by a dangling link, macOS writes ._ files; somebody else's file may be half written."""
    systems = here / "benchmark/systems"
    systems.mkdir(parents=True)
    (systems / ".#mine.toml").symlink_to("somebody@host.1:2")
    (systems / "._mine.toml").write_bytes(b"\0\5\x16\7")
    (systems / "folder.toml").mkdir()
    (systems / "half.toml").write_text("schema = ")
    (systems / "poor.toml").write_text('schema = "nlp-bench/system/1"\n')
    monkeypatch.delenv("NLP_BENCH_SYSTEM", raising=False)
    monkeypatch.setenv("PATH", str(here))  # no scheduler
    done = cli("check", "--model", "tiny")
    assert "system  local" in done.out
    assert f"passed over, while this machine is looked for: {systems}/half.toml is not valid TOML" in done.err
    assert f"(in {systems}/poor.toml)" in done.err
    assert "did you mean" not in cli("check", "--model", "tiny", "--system", "folder", code=2).err


def test_data_files_of_another_user_in_the_current_folder_are_passed_over(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Standing in /tmp is enough to meet a benchmark/systems/local.toml that exports LD_PRELOAD."""
    (here / "benchmark/models").mkdir(parents=True)
    (here / "benchmark/models/mine.toml").write_text("")
    assert "mine" in catalog.names("models")
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    if os.getuid() == 0:  # whose files everybody takes
        os.chown(here / "benchmark", 65534, -1)
    catalog._is_trusted.cache_clear()
    assert "mine" not in catalog.names("models")
    assert f"{here}/benchmark belongs to another user: what lies there is passed over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-h", "train_args: -h prints the trainer's options and trains nothing"),
        ("--help", "train_args: --help prints the trainer's options and trains nothing"),
        ("--data-path X", "train_args: --data-path would have no effect, for run.json records the data"),
        ("--data-cache-path=X", "train_args: --data-cache-path would have no effect"),
        ("--mock-data", "train_args: --mock-data would have no effect, for run.json records the data"),
    ],
)
def test_words_of_the_trainer_that_train_nothing_are_refused(cli: Cli, words: str, said: str) -> None:
    shared = ("--model", "tiny", "--system", "local", "--launcher", "local", f"--train-args={words}")
    for command in (("check", "--offline"), ("submit", "--print")):
        done = cli(*command, *shared, code=2)
        assert said in done.err
        assert "usage" not in done.out


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("latin-1", "ISO-8859-1")]
)
def test_a_data_file_in_another_encoding_has_its_remedy(tmp_path: Path, cli: Cli, encoding: str, name: str) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes("# Jülich\n".encode(encoding) + 'schema = "nlp-bench/model/1"\n'.encode(encoding))
    said = f"is no text in UTF-8, which TOML is; save it as UTF-8: iconv -f {name} -t UTF-8 {path} > NEW"
    assert said in cli("check", "--model", path, "--offline", code=2).err


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        (1979.0, "the prediction takes the data sheet's; is it the sparse one?"),
        (0.989, "the prediction takes the data sheet's; write it in TFLOP/s"),
        (989e3, "the prediction takes the data sheet's; write it in TFLOP/s"),
        (700.0, "the prediction takes the data sheet's"),
    ],
)
def test_a_peak_in_another_unit_is_not_called_sparse(peak: float, said: str) -> None:
    (line,) = against_sheet(sheet_of("H100 SXM", "bf16", 80.0), 80.0, peak)
    assert line.endswith(said)


def test_a_data_file_that_is_a_pipe_is_refused_and_one_with_a_byte_order_mark_is_read(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.2)
    os.mkfifo(tmp_path / "model.toml")
    words = ("check", "--system", "local", "--launcher", "local", "--offline", "--model")
    assert "it is a pipe" in cli(*words, tmp_path / "model.toml", code=2).err
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + catalog.find("models", "tiny").read_bytes())
    cli(*words, tmp_path / "marked.toml")


def test_an_edited_run_is_told_to_be_put_back(tmp_path: Path, report: Cli) -> None:
    folder = write_our_run(tmp_path / "run")
    seal_run(folder)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace("{", "{ ", 1))
    said = report(folder, code=1).err
    assert "put the original of the file that is named back" in said
    assert "precision" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["run.json", "outcome.json", "submit.json", "environment.json", "ended.json", "machine/n1.samples.csv"]
)
@pytest.mark.parametrize("command", ["report", "measure", "sync"])
def test_a_record_that_is_a_pipe_hangs_nobody(tmp_path: Path, nlp_bench: Nlp, name: str, command: str) -> None:
    run = write_our_run(tmp_path / "run")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    done = nlp_bench(command, str(run))
    if name == "run.json" and command != "sync":
        assert (
            done.returncode,
            "run.json: it is no regular file" in " ".join(f"{done.stdout}{done.stderr}".split()),
        ) == (1, True)


def test_a_record_without_end_is_refused_by_name(tmp_path: Path, cli: Cli) -> None:
    run = write_our_run(tmp_path / "run")
    with (run / "run.json").open("r+b") as stream:
        stream.truncate(3 << 30)  # a hole
    assert "run.json: it is larger than 64 MiB, which no record is" in cli("measure", run, code=1).err
