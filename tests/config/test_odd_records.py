"""Models, systems and run.json that cannot be meant, were edited or are no regular files."""

import os
from pathlib import Path

import pytest
from support.forked_commands import Nlp, nlp_bench
from support.ours import seal_run, write_our_run
from support.planning import small_run

from nlp_bench.cli.main import main
from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.plan.machines import against_sheet, sheet_of

__all__ = ["nlp_bench"]


@pytest.mark.parametrize("started", ["submit.json", "outcome.json", "job.out"])
@pytest.mark.parametrize("command", ["check", "rehearse"])
def test_the_records_of_a_started_run_are_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, started: str
) -> None:
    run = tmp_path / "run"
    small_run(run)
    (run / started).write_text("{}")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    words = ["--model", "13", "--system", "dgx-h100", *(["--offline"] if command == "check" else [])]
    assert main([command, *words, "--output", str(run)]) == UsageError.exit_code
    assert f"--output: {run} holds {started}: a run was started there" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(("command", "record"), [("check", "run.json"), ("rehearse", "rehearsal.json")])
def test_a_file_of_somebody_else_is_no_record_to_replace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, record: str
) -> None:
    (tmp_path / record).write_text('{"schema": "theirs/1"}')
    words = ["--model", "13", "--system", "dgx-h100", *(["--offline"] if command == "check" else [])]
    assert main([command, *words, "--output", str(tmp_path)]) == UsageError.exit_code
    assert f"--output: {tmp_path / record} is none of nlp-bench's and would be replaced" in capsys.readouterr().err
    assert (tmp_path / record).read_text() == '{"schema": "theirs/1"}'


def test_check_shows_whether_the_sequence_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for word in ("yes", "no"):
        small_run(tmp_path / word, "--tp", "2", "--sequence-parallel", word)
        said += [line for line in capsys.readouterr().out.splitlines() if line.startswith("tuning ")]
    both = [
        "tuning  --recompute-granularity selective --sequence-parallel",
        "tuning  --recompute-granularity selective",
    ]
    assert said == [f"{words} --use-distributed-optimizer" for words in both]


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    small_run(tmp_path / "run")
    path = tmp_path / "run/run.json"
    path.write_text(path.read_text().replace(old, new, 1) if old else new)
    assert main(["rehearse", "--run", str(path)]) != 0
    assert f"{path} is not JSON: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"hidden_size": 256', '"hidden_size": 4096', "model.parameters_billion: 0.0042, but the architecture has"),
        ('"parameters_billion": 0.0042', '"parameters_billion": 175', "model.parameters_billion: 175, but the architecture"),
        ('"global_batch_size": 8', '"global_batch_size": 1001', "batch: global_batch_size = 1001 is not a multiple of"),
        ('"gradient_accumulation_steps": 2', '"gradient_accumulation_steps": 3', "batch: global_batch_size = 8 is not dp*"),
        ('"sequence_length": 256', '"sequence_length": 64', "batch.sequence_length: 256, but model.architecture"),
    ],
)  # fmt: skip
def test_an_edited_run_json_that_contradicts_itself_is_not_submitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    small_run(tmp_path / "run")
    path = tmp_path / "run/run.json"
    assert old in path.read_text(), path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    capsys.readouterr()
    assert main(["submit", "--run", str(path), "--print"]) == UsageError.exit_code
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


def test_what_an_edited_run_json_does_not_say_of_its_model_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run(tmp_path / "run", "--iterations", "6")
    path = tmp_path / "run/run.json"
    assert main(["submit", "--run", str(path), "--print"]) == 0
    assert "not the benchmark" not in capsys.readouterr().err
    path.write_text(path.read_text().replace('"hidden_dropout": 0.0', '"hidden_dropout": 0.3', 1))
    assert main(["submit", "--run", str(path), "--print"]) == 0
    assert f"warning: {path}: model.hidden_dropout: 0.3 instead of 0.0: not the benchmark" in capsys.readouterr().err


def test_litter_and_a_broken_system_file_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Emacs locks by a dangling link, macOS writes ._ files; somebody else's file may be half written."""
    systems = tmp_path / "benchmark/systems"
    systems.mkdir(parents=True)
    (systems / ".#mine.toml").symlink_to("somebody@host.1:2")
    (systems / "._mine.toml").write_bytes(b"\0\5\x16\7")
    (systems / "folder.toml").mkdir()
    (systems / "half.toml").write_text("schema = ")
    (systems / "poor.toml").write_text('schema = "nlp-bench/system/1"\n')
    monkeypatch.chdir(tmp_path)
    for name in ("NLP_BENCH_ROOT", "NLP_BENCH_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no scheduler
    assert main(["check", "--model", "tiny"]) == 0
    printed = capsys.readouterr()
    assert "system  local" in printed.out
    assert f"passed over, while this machine is looked for: {systems}/half.toml is not valid TOML" in printed.err
    assert f"(in {systems}/poor.toml)" in printed.err
    assert main(["check", "--model", "tiny", "--system", "folder"]) == UsageError.exit_code
    assert "did you mean" not in capsys.readouterr().err


def test_data_files_of_another_user_in_the_current_folder_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standing in /tmp is enough to meet a benchmark/systems/local.toml that exports LD_PRELOAD."""
    (tmp_path / "benchmark/models").mkdir(parents=True)
    (tmp_path / "benchmark/models/mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NLP_BENCH_ROOT", raising=False)
    assert "mine" in catalog.names("models")
    if os.geteuid() == 0:
        os.chown(tmp_path / "benchmark", 65534, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 4711)
    catalog._is_trusted.cache_clear()
    assert "mine" not in catalog.names("models")
    assert f"{tmp_path}/benchmark belongs to another user: what lies there is passed over" in capsys.readouterr().err


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
def test_words_of_the_trainer_that_train_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    shared = ["--model", "tiny", "--system", "local", "--launcher", "local", f"--train-args={words}"]
    for command in (["check", "--offline"], ["submit", "--print"]):
        assert main([*command, *shared]) == UsageError.exit_code
        captured = capsys.readouterr()
        assert said in captured.err
        assert "usage" not in captured.out


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("latin-1", "ISO-8859-1")]
)
def test_a_data_file_in_another_encoding_has_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, name: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes("# Jülich\n".encode(encoding) + 'schema = "nlp-bench/model/1"\n'.encode(encoding))
    assert main(["check", "--model", str(path), "--offline"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert f"is no text in UTF-8, which TOML is; save it as UTF-8: iconv -f {name} -t UTF-8 {path} > NEW" in said


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.2)
    os.mkfifo(tmp_path / "model.toml")
    words = ["check", "--system", "local", "--launcher", "local", "--offline", "--model"]
    assert main([*words, str(tmp_path / "model.toml")]) == 2
    assert "it is a pipe" in capsys.readouterr().err
    tiny = Path(__file__).resolve().parents[2] / "benchmark/models/tiny.toml"
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + tiny.read_bytes())
    assert main([*words, str(tmp_path / "marked.toml")]) == 0


def test_an_edited_run_is_told_to_be_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_our_run(tmp_path / "run")
    seal_run(folder)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace("{", "{ ", 1))
    assert main(["report", str(folder)]) == 1
    said = capsys.readouterr().err
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
        assert (done.returncode, "run.json: it is no regular file" in done.stdout + done.stderr) == (1, True)


def test_a_record_without_end_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_our_run(tmp_path / "run")
    with (run / "run.json").open("r+b") as stream:
        stream.truncate(3 << 30)  # a hole
    assert main(["measure", str(run)]) == 1
    assert "run.json: it is larger than 64 MiB, which no record is" in capsys.readouterr().err
