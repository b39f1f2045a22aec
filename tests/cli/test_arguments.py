"""Arguments that mean nothing, or not what they seem: every subcommand names them, and nothing is written."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from support.ours import write_our_run
from support.published import published_log, write_run
from support.repeated import write_log

import nlp_bench
from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError


def test_the_api_takes_no_word_for_a_switch(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(published_log())
    log = nlp_bench.read_log(tmp_path / "x.log", sequence_length=2048)
    with pytest.raises(UsageError, match="same_workload: 'no' is neither True nor False"):
        nlp_bench.compare(log, log, same_workload="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="model: 13 is neither a text nor a path; give it in quotes"):
        nlp_bench.plan(13, "juwels-booster")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give each as an argument of its own \(\*paths\)"):
        nlp_bench.read_logs([tmp_path / "x.log"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give each as an argument of its own \(\*paths\)"):
        nlp_bench.read_logs(tmp_path.glob("*.log"))  # type: ignore[arg-type]
    with (tmp_path / "x.log").open() as file, pytest.raises(UsageError, match="give the name of the file"):
        nlp_bench.read_log(file)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pattern: 5 is no text"):
        nlp_bench.read_log(tmp_path / "x.log", pattern=5)  # type: ignore[arg-type]


Capture = pytest.CaptureFixture[str]


def test_numbers_of_numpy_are_numbers_and_booleans_are_not(tmp_path: Path) -> None:
    before = [nlp_bench.read_log(write_log(tmp_path / f"a{n}.log", 65000 + 100 * n, seed=n)) for n in range(3)]
    after = nlp_bench.read_log(write_log(tmp_path / "b.log", 65000, seed=9), num_gpus=np.int64(16))  # type: ignore[arg-type]  # as users do
    for limit in (np.int64(420), np.float64(420), np.float32(420), 420, 420.0):
        found = nlp_bench.measure(after, limit=limit, tokens=np.int64(10**7))  # type: ignore[arg-type]  # likewise
        assert found.verdict
        assert found.verdict.word == "PASS"
        assert json.loads(json.dumps(found.to_dict()))["limit_s"] == 420
    for gate in (np.float64(3), np.int32(3), 3):
        compared = nlp_bench.compare(before, after, gate=gate)  # type: ignore[arg-type]  # likewise
        assert json.loads(json.dumps(compared.to_dict()))["gate"]["percent"] == 3
    for wrong in (True, np.bool_(True), "3", np.array([3.0]), 10**400, float("nan")):
        with pytest.raises(nlp_bench.NlpBenchError, match=r"limit: .* is no number of seconds"):
            nlp_bench.measure(after, limit=wrong)  # type: ignore[arg-type]  # likewise
        for name in ("gate", "equivalent"):
            with pytest.raises(nlp_bench.NlpBenchError, match=f"{name}: .* is no percentage"):
                nlp_bench.compare(before, after, **{name: wrong})  # type: ignore[arg-type]  # likewise
    with pytest.raises(nlp_bench.NlpBenchError, match=r"pattern: .* is no text"):
        nlp_bench.read_log(tmp_path / "b.log", pattern=re.compile("(?P<elapsed_ms>1)"))  # type: ignore[arg-type]  # likewise


@pytest.mark.parametrize("option", [["--limit", "3"], ["--scaling"], ["--pattern", "x"], ["--tokens", "3"]])
def test_a_list_of_dialects_answers_no_question(capsys: Capture, option: list[str]) -> None:
    assert main(["report", "--dialects", *option]) == 2
    assert f"takes no {option[0]}; leave one of the two out" in capsys.readouterr().err
    assert main(["report", "--dialects"]) == 0


@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_view_drops_no_option(tmp_path: Path, capsys: Capture, view: str) -> None:
    runs = [write_log(tmp_path / f"g{n}.log", 4000 * n, seed=n, world_size=n) for n in (16, 32)]
    words = ["report", *map(str, runs), view, "--allow-measured"]
    for option in (["--limit", "300"], ["--price-per-kwh", "0.2"]):
        assert main([*words, *option]) == 2
        said = capsys.readouterr().err
        assert (
            f"{option[0]} is answered for each run, which {view} does not show; leave one out, or add --output DIR"
            in said
        )
    assert main([*words, "--limit", "300", "--output", str(tmp_path / "out")]) == 0
    assert re.search(r"PASS|FAIL", (tmp_path / "out/report.csv").read_text())
    capsys.readouterr()
    assert main([*words, "--rules", "jupiter-nlp"]) == 1
    assert re.search(r"g16.log(?: and 1 more)?: rules jupiter-nlp: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "LOG", "--sequence-length", "2048", "--seq-length", "8Ki"], "as 2048 and as 8Ki"),
        (["report", "LOG", "--limit", "300", "--limit=400"], "--limit: given twice, as 300 and as 400; give it once"),
        (["compare", "LOG", "LOG", "--gate", "3", "--gate", "1"], "--gate: given twice, as 3 and as 1; give it once"),
        (["check", "--model", "13", "--data-path", "x", "--mock-data"], "given twice, as x and as --mock-data"),
        (["check", "--model", "13", "--model", "175"], "--model: given twice, as 13 and as 175; give it once"),
    ],
)
def test_an_option_has_one_value(tmp_path: Path, capsys: Capture, words: list[str], said: str) -> None:
    log = write_log(tmp_path / "a.log", 65000)
    assert main([str(log) if word == "LOG" else word for word in words]) == 2
    assert said in capsys.readouterr().err
    assert (
        main(
            [
                "report",
                str(log),
                "--limit",
                "400",
                "--limit",
                "400s",
                "--sequence-length",
                "4096",
                "--seq-length",
                "4Ki",
            ]
        )
        == 0
    )


def test_measure_names_a_log_that_is_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    (run / "job.out").unlink()
    os.mkfifo(run / "job.out")
    main(["measure", str(run)])
    said = "".join(capsys.readouterr())
    assert "job.out is no regular file" in said
    assert "there is no job.out" not in said


def test_measure_writes_no_file_that_is_called_like_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["measure", str(run), "--metrics", "-"]) == 2
    assert "--metrics -: the lines go to standard output anyway" in capsys.readouterr().err
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "--identity", "", "x.tar.gz"], "--identity: it is empty; give a value, or leave the option out"),
        (["report", "--gpu", "", "x.log"], "--gpu: it is empty"),
        (["check", "--model", "13", "--sbatch-arg=--"], "--sbatch-arg: -- is no value"),
        (["check", "--model", "LOOP"], "loop.toml: Too many levels of symbolic links"),
        (["plan", "--model", "13", "--system", "LOOP"], "loop.toml: Too many levels of symbolic links"),
        (["bundle", "--output", "-", "x.log"], "--output: - is no name of a file or folder, nor standard output here"),
        (["plan", "--model", "13", "--output", "-"], "--output: - is no name of a file or folder"),
        (["data", "prepare", "x.log", "--output", "-"], "--output: - is no name of a file or folder"),
        (["history", "list", "--file", "PIPE"], "is no regular file; name one"),
    ],
)
def test_a_value_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x.log").write_text(published_log())
    found = {"LOOP": str(tmp_path / "loop.toml"), "PIPE": str(tmp_path / "pipe"), "x.log": str(tmp_path / "x.log")}
    assert main([found.get(word, word) for word in words]) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_a_history_that_is_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = write_our_run(tmp_path / "run")
    assert main(["history", "add", "--file", str(tmp_path / "pipe"), str(run)]) != 0
    assert "is no regular file; name one" in capsys.readouterr().err


SIZES = ("--sequence-length", "2048", "--num-gpus", "384")


@pytest.mark.parametrize("words", [("--output", ""), ("--output=",)])
def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(published_log())
    assert main(["report", "a.log", *SIZES, *words]) == 2
    assert "--output: it is empty" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.log"]
    assert main(["verify", "a.log", "--nonce", ""]) == 2
    assert "--nonce: it is empty" in capsys.readouterr().err


DUMP = """------------------------ arguments ------------------------
  global_batch_size ............................... 96
  seq_length ...................................... 8192
  world_size ...................................... 4
-------------------- end of arguments ---------------------
"""


def test_measure_replaces_no_file_but_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_our_run(tmp_path / "run")
    before = (run / "job.out").read_bytes()
    assert main(["measure", str(run), "--metrics", str(run / "job.out")]) == UsageError.exit_code
    assert "--metrics" in capsys.readouterr().err
    assert (run / "job.out").read_bytes() == before
    for _ in range(2):  # its own of the time before is replaced
        assert main(["measure", str(run), "--metrics", str(tmp_path / "metrics.txt")]) == 0


def test_export_replaces_no_file_but_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    words = ["export", "mllog", str(tmp_path / "a.log"), "--allow-measured", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    (written,) = (tmp_path / "out").iterdir()
    assert main(words) == 0
    written.write_text("mine\n")
    assert main(words) == UsageError.exit_code
    assert f"{written.name} exists; name another" in capsys.readouterr().err
    assert written.read_text() == "mine\n"


@pytest.mark.parametrize("words", [["report", ""], ["compare", "", "x"], ["history", "add", ""], ["bundle", ""]])
def test_an_empty_path_among_several_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == UsageError.exit_code
    assert "it is empty; give a path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--emit-jube", "."], "name a file"),
        (["bundle", "a.out", "--output", "."], "--output . is a folder; name a file in it, or a new folder"),
    ],
    ids=["plan", "bundle"],
)
def test_the_current_folder_is_no_file(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) in {1, 2}
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["report", "a.out", "--output=~/out"],
        ["bundle", "a.out", "--output=~/e.tar.gz"],
        ["data", "prepare", "x.jsonl", "--output=~/x"],
    ],
)
def test_a_tilde_that_no_shell_replaced_makes_no_folder_of_that_name(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.out").write_text(DUMP + published_log())
    assert main(words) == UsageError.exit_code
    assert "begins with a ~ that the shell left as it is; write a blank in place of =" in capsys.readouterr().err
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("words", [["report", "a.out", "\u2013limit", "560"], ["plan", "\u2014model", "13"]])
def test_a_dash_that_a_text_made_of_hyphens_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == UsageError.exit_code
    said = capsys.readouterr().err
    assert "begins with a dash that is no hyphen (U+201" in said
    assert f"; write --{words[-2][1:]}" in said


def test_the_api_names_the_argument_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    with pytest.raises(UsageError, match="PATH is empty"):
        nlp_bench.read_logs("")
    with pytest.raises(UsageError, match="gpu: 3 is no name"):
        nlp_bench.read_log(tmp_path / "a.log", gpu=3)  # type: ignore[arg-type]
    log = nlp_bench.read_log(tmp_path / "a.log")
    with pytest.raises(UsageError, match="limit: True"):
        nlp_bench.measure(log, limit=True)
    with pytest.raises(UsageError, match="results: one of them is no Result"):
        nlp_bench.to_frame(log)  # type: ignore[arg-type]
