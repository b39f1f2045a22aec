"""Arguments that mean nothing, or not what they seem: every subcommand names them, and nothing is written."""

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.command import Cli
from support.ours import write_our_run
from support.published import published_log, write_run
from support.repeated import write_log

import nlp_bench
from nlp_bench.errors import UsageError

DUMP = """------------------------ arguments ------------------------
  global_batch_size ............................... 96
  seq_length ...................................... 8192
  world_size ...................................... 4
-------------------- end of arguments ---------------------
"""


def test_numbers_of_numpy_are_numbers_and_booleans_are_not(tmp_path: Path) -> None:
    before = [nlp_bench.read_log(write_log(tmp_path / f"a{n}.log", 65000 + 100 * n, seed=n)) for n in range(3)]
    after = nlp_bench.read_log(write_log(tmp_path / "b.log", 65000, seed=9), num_gpus=np.int64(16))  # type: ignore[arg-type]  # as users do
    for limit in (np.int64(420), np.float64(420), np.float32(420), 420, 420.0):
        found = nlp_bench.measure(after, limit=limit, tokens=np.int64(10**7))  # type: ignore[arg-type]  # likewise
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("verify --identity= x.tar.gz", "--identity: it is empty; give a value, or leave the option out"),
        ("verify a.log --nonce=", "--nonce: it is empty"),
        ("report --gpu= x.log", "--gpu: it is empty"),
        ("report a.log --output=", "--output: it is empty"),
        ("report a.log --output ''", "--output: it is empty"),
        ("report ''", "it is empty; give a path"),
        ("compare '' x", "it is empty; give a path"),
        ("history add ''", "it is empty; give a path"),
        ("bundle ''", "it is empty; give a path"),
        ("check --model 13 --sbatch-arg=--", "--sbatch-arg: -- is no value"),
        ("check --model loop.toml", "loop.toml: Too many levels of symbolic links"),
        ("plan --model 13 --system loop.toml", "loop.toml: Too many levels of symbolic links"),
        ("bundle --output - x.log", "--output: - is no name of a file or folder, nor standard output here"),
        ("plan --model 13 --output -", "--output: - is no name of a file or folder"),
        ("data prepare x.log --output -", "--output: - is no name of a file or folder"),
        ("history list --file pipe", "is no regular file; name one"),
        ("history add --file pipe a.log", "is no regular file; name one"),
        ("plan --model 13 --system juwels-booster --nodes 8 --emit-jube .", "name a file"),
        ("bundle a.log --output .", "--output . is a folder; name a file in it, or a new folder"),
        ("report a.log --output=~/out", "begins with a ~ that the shell left as it is; write a blank in place of ="),
        ("bundle a.log --output=~/e.tar.gz", "begins with a ~ that the shell left as it is"),
        ("data prepare x.jsonl --output=~/x", "begins with a ~ that the shell left as it is"),
        ("report a.log \u2013limit 560", "begins with a dash that is no hyphen (U+2013), as texts make of two; write --limit"),
        ("plan \u2014model 13", "begins with a dash that is no hyphen (U+2014), as texts make of two; write --model"),
        ("report a.log --sequence-length 2048 --seq-length 8Ki", "as 2048 and as 8Ki"),
        ("report a.log --limit 300 --limit=400", "--limit: given twice, as 300 and as 400; give it once"),
        ("compare a.log a.log --gate 3 --gate 1", "--gate: given twice, as 3 and as 1; give it once"),
        ("check --model 13 --data-path x --mock-data", "given twice, as x and as --mock-data"),
        ("check --model 13 --model 175", "--model: given twice, as 13 and as 175; give it once"),
        ("build --root . --apex https://x.org/apex --te=--help", "--te: '--help' begins with -, so that git or pip would take it for an option"),
        ("build --root . --apex='--upload-pack=touch pwned'", "--apex: '--upload-pack=touch pwned' begins with -"),
        ("build --root . --apex https://x.org/apex --apex-commit=--exec=x", "--apex-commit: '--exec=x' begins with -"),
        ("build --root . --apex .", "--apex: . is no git repository, and a commit of it is built; clone it"),
        ("report --dialects --limit 3", "takes no --limit; leave one of the two out"),
        ("report --dialects --scaling", "takes no --scaling; leave one of the two out"),
        ("report --dialects --pattern x", "takes no --pattern; leave one of the two out"),
        ("report --dialects --tokens 3", "takes no --tokens; leave one of the two out"),
    ],
)  # fmt: skip
def test_a_word_that_cannot_be_meant_is_named_and_nothing_is_written(
    here: Path, cli: Cli, words: str, said: str
) -> None:
    (here / "loop.toml").symlink_to("loop.toml")
    os.mkfifo(here / "pipe")
    (here / "a.log").write_text(DUMP + published_log())
    before = sorted(here.iterdir())
    assert said in cli(*shlex.split(words), code=1 if "--emit-jube" in words else UsageError.exit_code).err
    assert sorted(here.iterdir()) == before


def test_an_option_may_be_repeated_with_the_same_value(tmp_path: Path, report: Cli) -> None:
    twice = "--limit 400 --limit 400s --sequence-length 4096 --seq-length 4Ki"
    report(write_log(tmp_path / "a.log", 65000), *twice.split(), code=0)
    report("--dialects", code=0)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_view_drops_no_option(tmp_path: Path, cli: Cli, view: str) -> None:
    runs = [write_log(tmp_path / f"g{n}.log", 4000 * n, seed=n, world_size=n) for n in (16, 32)]
    words = ("report", *runs, view, "--allow-measured")
    for option in (["--limit", "300"], ["--price-per-kwh", "0.2"]):
        said = cli(*words, *option, code=2).err
        assert f"{option[0]} is answered for each run, which {view} does not show; leave one out, or add" in said
    cli(*words, "--limit", "300", "--output", tmp_path / "out")
    assert re.search(r"PASS|FAIL", (tmp_path / "out/report.csv").read_text())
    text = cli(*words, "--rules", "jupiter-nlp", code=1).err
    assert re.search(r"g16.log(?: and 1 more)?: rules jupiter-nlp: ", text)


def test_measure_names_a_log_that_is_a_pipe(tmp_path: Path, cli: Cli) -> None:
    run = write_run(tmp_path / "run")
    (run / "job.out").unlink()
    os.mkfifo(run / "job.out")
    said = str(cli("measure", run, code=None))
    assert "job.out is no regular file" in said
    assert "there is no job.out" not in said


def test_measure_writes_no_file_that_is_called_like_standard_output(here: Path, cli: Cli) -> None:
    run = write_run(here / "run")
    assert "--metrics -: the lines go to standard output anyway" in cli("measure", run, "--metrics", "-", code=2).err
    assert not (here / "-").exists()


def test_measure_replaces_no_file_but_its_own(tmp_path: Path, cli: Cli) -> None:
    run = write_our_run(tmp_path / "run")
    before = (run / "job.out").read_bytes()
    assert "--metrics" in cli("measure", run, "--metrics", run / "job.out", code=UsageError.exit_code).err
    assert (run / "job.out").read_bytes() == before
    for _ in range(2):  # its own of the time before is replaced
        cli("measure", run, "--metrics", tmp_path / "metrics.txt")


def test_export_replaces_no_file_but_its_own(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    words = ("export", "mllog", tmp_path / "a.log", "--allow-measured", "--output", tmp_path / "out")
    for _ in range(2):
        cli(*words)
    (written,) = (tmp_path / "out").iterdir()
    written.write_text("mine\n")
    assert f"{written.name} exists; name another" in cli(*words, code=UsageError.exit_code).err
    assert written.read_text() == "mine\n"
