"""What is said of a wrong word: two lines at most, with the option, the nearest one that there is, and where all are listed."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.command import Capture, Cli
from support.processes import execute, surroundings

from nlp_bench.cli.main import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("submit --tensor-model-paralel-size 4", "no option --tensor-model-paralel-size; did you mean --tensor-model-parallel-size?"),
        ("submit --Sequence_length=3", "did you mean --sequence-length?"),
        ("submit --seq 3", "did you mean --seq-length?"),
        ("submit --lr 1e-4", "but the trainer has: write --train-args='--lr ...'"),
        ("check --save x", "nlp-bench check has no option --save (it is an option of submit"),
        ("submit --job-name x", "no option --job-name, which is sbatch's: say --job-name-prefix"),
        ("submit -p batch", "no option -p, which is sbatch's: say --queue"),
        ("submit --output x", "no option --output, which is sbatch's: a run writes into its own folder (--run-dir)"),
        ("report --limt 560 x.log", "did you mean --limit?"),
        ("report x.log --top 3", "no option --top (it is an option of plan)"),
        ("submit --repeats 3", "no option --repeats (it is an option of check)"),
        ("plan -n 3", "no option -n"),
        ("report x.log --json", "no option --json; write --format json"),
        ("plan --mod 175", "no option --mod; did you mean --model?"),
        ("report --precision fp61 x.log", "--precision: 'fp61' is not one of fp32, tf32, bf16, fp16, fp8, mxfp8, fp4; did you mean fp16?"),
        ("report --format tabel x.log", "did you mean table?"),
        ("submit --recompute-granularity ful", "--recompute-granularity: 'ful' is not one of none, selective, full; did you mean full?"),
        ("submit --launcher sulrm", "did you mean slurm?"),
        ("submit --tp", "--tp: expected one argument"),
        ("submit --ntasks-per-node 4", "--ntasks-per-node: '4' is not one of 1"),
        ("history ad x", "did you mean add?"),
        ("export mlprf x", "did you mean mlperf?"),
        ("sync", "the following arguments are required: DIR; see: nlp-bench sync --help"),
        ("launch a b", "unrecognized arguments: b"),
        ("reprot x.log", "did you mean report?"),
        ("check --model gpt-175B", "did you mean 175?"),
        ("check --model gpt3-175b", "did you mean 175?"),
        ("check --model 13b", "did you mean 13?"),
        ("check --model gpt1.3b", "did you mean gpt_1_3b?"),
        ("check --model llama-8b", "did you mean llama_8b?"),
        ("check --model nothing", "(known: 13, 175, "),
        ("check --system JUWELS", "did you mean juwels-booster?"),
        ("check --tags 174", "did you mean 175?"),
        ("report --rules jupiter {log}", "did you mean jupiter-nlp?"),
        ("report --gpu H100-SMX {log}", "did you mean NVIDIA H100 SXM?"),
        ("data prepare {log} --output x --tokenizer-type GPT2BPETokeniser", "did you mean GPT2BPETokenizer?"),
        ("data --skip-broken", "--skip-broken does not go with nlp-bench data without prepare"),
        ("data prepar a.jsonl", "unknown word 'prepar'"),
    ],
)  # fmt: skip
def test_two_lines(words: str, said: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "job.out").write_text("{}")
    captured = cli(*[word.format(log=tmp_path / "job.out") for word in words.split()], code=2)
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("nlp-bench: error: ")
    assert said in lines[0]
    assert len(lines) <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "job.out\r"], r"'job.out' is followed by a carriage return: its script has Windows line ends; remove them with: sed -i 's/\r$//' SCRIPT"),
        (["bundle", "job.out", "--output", "ev.tar.gz\r"], "'ev.tar.gz' is followed by a carriage return"),
        (["doctor\r"], "'doctor' is followed by a carriage return"),
        (["submit", "--model", "tiny", " "], r"the word after 'tiny' is blanks alone (' '): remove the blank behind a \ at a line's end"),
        (["watch", "\N{NO-BREAK SPACE}"], "the word after 'watch' is blanks alone"),
        ([" "], "the word after 'nlp-bench' is blanks alone"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("here")
def test_a_word_that_a_terminal_does_not_show_is_refused_at_once(words: list[str], said: str, cli: Cli) -> None:
    found = cli(*words, code=2)
    assert said in found.err
    assert not [*Path().iterdir()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "560", "report", "x"], "--limit stands before the subcommand: begin with it, as in nlp-bench report --limit ..."),
        (["a.log"], "'a.log' is no subcommand; to read a log or a run folder: nlp-bench report a.log"),
        (["sumbit"], "unknown subcommand 'sumbit'; did you mean submit?"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("here")
def test_a_first_word_that_is_no_subcommand(words: list[str], said: str, cli: Cli) -> None:
    Path("a.log").write_text("")
    assert said in cli(*words, code=2).err


@pytest.mark.parametrize("name", ["s3://bucket/rep", "https://host/rep", "login01:/scratch/rep"])
@pytest.mark.parametrize(
    "words", [["report", "a.log"], ["bundle", "a.log"], ["plan", "--model", "13", "--system", "dgx-h100"]]
)
@pytest.mark.usefixtures("here")
def test_an_address_to_write_to_is_refused(words: list[str], name: str, cli: Cli) -> None:
    Path("a.log").write_text("")
    said = f"--output: {name!r} is an address, and nothing is fetched from one or sent to one"
    assert said in cli(*words, "--output", name, code=2).err
    assert [*Path().iterdir()] == [Path("a.log")]


@pytest.mark.parametrize("name", ["-1.log", "-old.log"])
@pytest.mark.usefixtures("here")
def test_a_file_whose_name_begins_with_a_hyphen_is_named(name: str, cli: Cli) -> None:
    Path(name).touch()
    assert f"{name}, which is a file here: write ./{name}" in cli("report", name, code=2).err


def test_ctrl_c_while_the_surroundings_are_settled(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("nlp_bench.cli.main.settle", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("sys.argv", ["nlp-bench", "report", "job.out"])
    assert main() == 130
    assert capsys.readouterr().err == "nlp-bench: interrupted; repeat the same command to go on\n"


IN_AN_IMPORT = """
import os, signal, sys
from nlp_bench.cli.main import main
sent = []
def watch(frame, event, arg):
    if frame.f_code.co_name == "cb" and "importlib" in frame.f_code.co_filename and not sent:
        sent.append(os.kill(os.getpid(), signal.SIGINT))
sys.settrace(watch)
sys.exit(main())
"""


def test_ctrl_c_while_python_frees_the_lock_of_an_import_is_not_lost() -> None:
    """Python prints what is raised there, and drops it: the subcommand went on and ended with 0."""
    done = execute(sys.executable, "-c", IN_AN_IMPORT, "report", "--dialects", timeout=60)
    assert (done.returncode, done.stderr) == (130, "nlp-bench: interrupted; repeat the same command to go on\n")


def test_the_package_imports_next_to_nothing_before_signals_are_handled() -> None:
    words = [sys.executable, "-S", "-c", "import sys, nlp_bench; print({'re', 'typing'} & set(sys.modules))"]
    assert execute(*words, check=True, env=surroundings()).stdout == "set()\n"
