"""`nlp-bench plan` as a person types it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli

CASE = ("plan", "--model", "175", "--system", "juwels-booster")


@pytest.mark.slow
def test_json_csv_and_markdown_say_the_same(cli: Cli) -> None:
    record = cli(*CASE, "--top", "2", "--format", "json").json
    assert record["schema"] == "nlp-bench/plan-answer/1"
    assert [row["rank"] for row in record["configurations"]] == [1, 2]
    assert record["published"]["published"] is True
    assert record["published"]["first_layers"] is None
    rows = list(csv.DictReader(cli(*CASE, "--top", "2", "--format", "csv").out.splitlines()))
    assert [float(row["report_s"]) for row in rows[:2]] == [row["report_s"] for row in record["configurations"]]
    assert len(rows) == 3
    text = cli(*CASE, "--top", "2", "--format", "markdown").out
    assert f"| {record['configurations'][0]['tokens_per_second']:.0f} |" in text


@pytest.mark.slow
def test_output_goes_to_a_file_or_a_folder(cli: Cli, tmp_path: Path) -> None:
    best = (*CASE, "--top", "1")
    assert cli(*best, "--output", tmp_path / "a.txt").out == ""
    assert "searched" in (tmp_path / "a.txt").read_text(encoding="utf-8")
    for words, name in (((tmp_path / "b.json",), "b.json"), ((tmp_path, "--format", "json"), "plan.json")):
        assert cli(*best, "--output", *words).out == ""
        assert json.loads((tmp_path / name).read_text(encoding="utf-8"))["kind"] == "plan"
    said = cli(*best, "--output", tmp_path / "c.xlsx", code=2).err
    assert "c.xlsx ends in none of .txt, .md, .json, .csv, .html, by which" in said
    said = cli(*best, "--emit-jube", f"{tmp_path}/my sweep.yaml").err
    assert f"run it with: jube run '{tmp_path}/my sweep.yaml'" in said


@pytest.mark.slow
def test_why_time_and_size_have_answers(cli: Cli) -> None:
    done = cli(*CASE, "--vpp", "4", "--why", "--format", "json", code=None)
    assert [done.json["sizes"][name] for name in ("tp", "pp", "vpp")] == [8, 8, 4]
    assert (done.code == 0) == (done.json["configuration"]["fits"] == "yes")
    record = cli(*CASE, "--tp", "3", "--why", "--format", "json", code=1).json
    assert record["legal"] is False
    assert "GPUs" not in record["broken_rules"]
    assert "sequence" in record["broken_rules"]
    record = cli(*CASE, "--time", "3000", "--nodes", "48", "--format", "json").json
    assert record["within"]["report_s"] <= 3000
    assert record["within"]["nodes"] in record["usable_nodes"]
    assert "impossible on at most 96 nodes" in cli(*CASE, "--time", "1", "--nodes", "96", code=1).out
    words = ["plan", "--model-size", "auto", "--days", "5", "--tokens", "300B", "--nodes", "20", "--system", "dgx-a100"]
    record = cli(*words, "--sequence-length", "4096", "--format", "json").json
    assert record["sequence_length"] == 4096
    assert record["recommended"]["days"] <= 5
    assert record["nemo_parameters"] == pytest.approx(4.03e9, rel=0.01)
    assert "recommended: " in cli(*words).out


@pytest.mark.slow
def test_the_best_can_be_rehearsed(cli: Cli) -> None:
    words = ["plan", "--model", "gpt_126m", "--system", "juwels-booster", "--nodes", "1", "--top", "1", "--gas", "1"]
    found = cli(*words, "--rehearse", "1", "--format", "json").json
    (text,) = found["rehearsed"]
    assert text.startswith("rank 1 rehearsed (")
    needed = float(text.split("all that a GPU needs ")[1].split(" of ")[0])
    assert needed == pytest.approx(found["configurations"][0]["memory_gib"], rel=0.1)


def test_nothing_fits_is_exit_code_1_and_says_what_would_help(cli: Cli) -> None:
    """What recomputing saves is no help where the state alone is too much."""
    text = cli(*CASE, "--nodes", "2", code=1).out
    assert "none surely fits: the least memory is" in text
    assert "what would help: more nodes, or GPUs with more memory" in text
    text = cli(
        "plan", "--model", "13", "--system", "juwels-booster", "--nodes", "4", "--sequence-length", "131072", code=1
    ).out
    assert "what would help: more nodes, --recompute full" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "0"], "--nodes: '0' is not a whole number above 0"),
        (["--nodes", "9" * 5000], "is more than 999_999_999"),
        (["--nodes", "999999999"], "are more than the 1048576 that are planned for"),
        (["--global-batch-size", "1048577"], "1048577 samples in an iteration are more than the 1048576 that are planned for"),
        (["--nodes", "7560", "--global-batch-size", "7560"], "13970112 layouts divide 30240 GPUs and a global batch of 7560"),
        (["--tp", "536870912", "--pp", "536870912", "--cp", "64"], "is not a multiple of tp*pp*cp = 18446744073709551616"),
        (["--tp", "7"], "number of GPUs = 384 is not a multiple of tp = 7"),
        (["--tp", "8", "--vpp", "5"], "every layout breaks the rule: virtual stages"),
        (["--recompute", "some"], "--recompute: 'some' is not one of none, selective, full, any"),
        (["--sequence-parallel", "maybe"], "--sequence-parallel: 'maybe' is neither true nor false"),
        (["--precision", "fp64"], "precision 'fp64' is no number format"),
        (["--why", "--time", "500"], "--why and --time are two questions"),
        (["--why", "--emit-jube", "x.yaml"], "--emit-jube goes with the ranking"),
        (["--nodes", "96", "--precision", "fp16", "--rehearse", "1"], "--rehearse: planned in fp16, but a run trains in bf16; leave --precision out"),
        (["--days", "5"], "--days goes with --model-size"),
        (["--format", "html"], "--format html is of --bid"),
        (["--bid", "--format", "csv"], "--bid has no --format csv"),
        (["--bid", "--output", "bid.doc"], "bid.doc ends in none of .txt, .md, .json, .csv, .html"),
        (["--time", "500", "--format", "csv"], "--time has no --format csv"),
        (["--model-size", "auto", "--days", "5"], "--model and --model-size exclude each other"),
        # what no layout solves: what is in the way, and what is near
        (["--nodes", "97"], "97 nodes x 4 = 388 GPUs with global batch 96: each of 4320 layouts breaks a rule, most often interleaving (2376), global batch (1680), a"),
        (["--nodes", "95"], "attention heads (11076), query groups (11076); global batches that work on these nodes: 95, 114; nodes that work with this batch: 90, 96"),
        (["--global-batch-size", "97", "--tp", "8", "--pp", "8"], "on these nodes: 96, 99; nodes that work with this batch: 64, 128; or leave a fixed size free"),
        (["--tp", "8", "--pp", "8", "--vpp", "4", "--global-batch-size", "98"], "and tp 8, pp 8, vpp 4: each of 24 layouts breaks a rule, most often global batch (15), c"),
        (["--tp", "8", "--pp", "8", "--gas", "7"], "no layout makes it as dp*micro_batch_size*7; global batches that work on these nodes: 84, 105; or leave a fixed size free"),
        (["--global-batch-size", "97", "--gas", "16"], "no layout makes it as dp*micro_batch_size*16; global batches that work on these nodes: 96, 112; or leave a"),
        (["--pp", "4", "--vpp", "2", "--gas", "3"], "every layout breaks the rule: micro-batch groups; or leave a fixed size free"),
        (["--micro-batch-size", "5", "--gas", "1"], "not a multiple of the micro batch size 5; global batches that work on these nodes: 80, 120; or leave"),
        (["--nodes", "16", "--tp", "8", "--pp", "8", "--vpp", "4", "--global-batch-size", "9"], "global batches that work on these nodes: 8, 16;"),
        (["--micro-batch-size", "2", "--gas", "7"], "micro batch size 2, gas 7: no layout makes it as dp*micro_batch_size*7"),
        (["--tp", "3"], "and tp 3: every layout breaks the rule: sequence; or leave a fixed size free"),
        (["--nodes", "193"], "global batches that work on these nodes: 193; nodes that work with this batch: 192, 196"),
    ],
)  # fmt: skip
def test_bad_words_name_the_rule_and_the_remedy(cli: Cli, words: list[str], said: str) -> None:
    assert said in " ".join(cli(*CASE, *words, code=2).err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--model M is missing"),
        (["--model", "1750", "--system", "juwels-booster"], "not a file of benchmark/models; did you mean 175?"),
        (["--model", "175", "--system", "juwels"], "did you mean juwels-booster?"),
        (["--model", "bert_large", "--system", "juwels-booster"], "'bert' is not planned"),
        (["--model", "tiny", "--system", "local"], "write [gpu] name, memory_gib, peak_bf16_tflops"),
        (["--model", "tiny", "--system", "slurm-sandbox"], "trains on CPU ranks"),
        (["--model-size", "5b", "--days", "5", "--tokens", "1B"], "'5b' is not auto"),
        (["--model-size", "auto", "--days", "5"], "--tokens missing"),
    ],
)
def test_wrong_models_and_systems_are_refused(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli("plan", *words, code=2).err


@pytest.mark.slow
def test_help_is_light_and_the_answer_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'scipy', 'matplotlib', 'megatron'"
    for words, not_imported in ((["plan", "--help"], heavy + ", 'numpy'}"), ([*CASE, "--top", "1"], heavy + "}")):
        code = f"import sys\nfrom nlp_bench.cli.main import main\ntry:\n main({words!r})\nexcept SystemExit: pass\nprint(sorted({not_imported} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
