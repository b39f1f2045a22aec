"""Numbers that a log contradicts, sizes given by hand, shared nodes: marked and without proof in every view of several runs."""

import json
import re
from pathlib import Path

import pytest
from support.command import Cli
from support.repeated import MEGATRON, write_log, write_runs
from support.series import SHARED, write_series_run

import nlp_bench
from nlp_bench.errors import UsageError


def test_the_rule_on_the_loss_is_not_shown_where_lines_have_none(tmp_path: Path, cli: Cli) -> None:
    rules = 'schema = "nlp-bench/rules/1"\ntitle = "mine"\nmodels = ["175"]\n[rules.finite-loss]\ncheck = "finite-loss"\nwhy = "mine"\n'
    (tmp_path / "mine.toml").write_text(rules)
    lines = [re.sub(r" lm loss: \S+ \|", "", line) if n >= 20 else line for n, line in enumerate(MEGATRON)]
    (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
    words = ["report", str(tmp_path / "x.log"), "--sequence-length", "4096", "--rules", str(tmp_path / "mine.toml")]
    assert "40 of 60 lines have no loss" in cli(*words, "--explain", code=None).out
    skipped = [line + " number of skipped iterations: 1 |" if n >= 20 else line for n, line in enumerate(lines)]
    (tmp_path / "x.log").write_text("\n".join(skipped) + "\n")
    assert "lines have no loss" not in cli(*words, "--explain", code=None).out


def test_a_size_against_the_log_proves_no_limit(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("\n".join(["+ python pretrain_gpt.py --seq-length 4096", *MEGATRON]) + "\n")
    for length, word in ((4096, "PASS"), (8192, "NOT PROVEN")):
        found = nlp_bench.measure(nlp_bench.read_log(tmp_path / "x.log", sequence_length=length), limit=500).verdict
        assert found.word == word
    assert found.reasons == ("the option --sequence-length 8192 is used although the log says 4096",)
    assert found.sustained == "NOT PROVEN"


def test_options_that_make_other_tokens_than_the_log_counts_prove_no_limit(tmp_path: Path) -> None:
    lines = (f"step {i} took {2 + 0.01 * (7 * i % 5):.4f} s tokens 196608 loss {9 - i / 50:.3f}" for i in range(1, 60))
    (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
    form = r"step (?P<iteration>\d+) took (?P<elapsed_s>[\d.]+) s tokens (?P<tokens>\d+) loss (?P<lm_loss>[\d.]+)"
    for batch, word in ((96, "PASS"), (192, "NOT PROVEN")):
        run = nlp_bench.read_log(tmp_path / "x.log", pattern=[form], sequence_length=2048, global_batch_size=batch)
        found = nlp_bench.measure(run, limit=900).verdict
        assert found.word == word
    assert found.reasons[0].startswith("the options give 2 times the tokens that the log itself counts")


DOUBT = "the samples per second of the log are 0.82 times what its time and sizes give"
STEADY = (49300.0, 49200.0, 49350.0)


def doubted(path: Path, rate: float, seed: int = 0, factor: float = 0.82, **changes: object) -> Path:
    """Write a log whose samples per second are `factor` times what its times give."""
    write_log(path, rate, seed, **{"pipeline_model_parallel_size": 1, **changes})

    def stated(found: re.Match[str]) -> str:
        return f"{found[0]} samples per second: {factor * 64e3 / float(found[1]):.3f} |"

    path.write_text(re.sub(r"\(ms\): ([\d.]+) \|", stated, path.read_text()))
    return path


@pytest.fixture
def honest(tmp_path: Path) -> str:
    return str(write_runs(tmp_path / "honest", *STEADY, seed=9, pipeline_model_parallel_size=1))


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
@pytest.mark.parametrize("gate", ["--gate", "--equivalent"])
def test_a_contradicted_number_proves_nothing_in_a_comparison(
    tmp_path: Path, cli: Cli, honest: str, form: str, gate: str
) -> None:
    odd = str(doubted(tmp_path / "odd.log", 65500.0))
    said = cli("compare", honest, odd, gate, "1", "--strict", "--format", form, code=1).out
    assert DOUBT in said
    assert "NOT PROVEN" in said
    assert "it is proven" not in said
    if form == "json":
        (found,) = json.loads(said)["comparisons"]
        assert found["ratio"]["verdict"] == "doubted"
        assert found["b"]["doubts"] == [
            {"source": odd, "outcome": "MEASURED", "doubts": [DOUBT], "codes": ["rates-vs-time"]}
        ]
    assert f"GATE NOT PROVEN: {odd} has a contradicted number\n" in cli("compare", odd, honest, "--gate", "1").out


def test_contradicted_repeats_are_named_and_prove_nothing(tmp_path: Path, cli: Cli, honest: str) -> None:
    for seed in range(3):
        doubted(tmp_path / f"odd/r{seed}.log", 65500.0 + 100 * seed, seed)
    odd = str(tmp_path / "odd")
    said = cli("compare", honest, odd, "--equivalent", "2", "--allow-measured").out
    assert said.count(f".log: {DOUBT}") == 3
    assert said.count(f"{odd}/r0.log, {odd}/r1.log, {odd}/r2.log have a contradicted number") == 2
    assert "EQUIVALENCE NOT PROVEN" in said
    said = cli("report", odd, "--limit", "400", "--allow-measured").flat
    assert f"limit of 400 s: NOT PROVEN ({odd}/r0.log: {DOUBT})" in said
    text = cli("compare", f"{honest}/run1.log", f"{honest}/run2.log", "--scatter", odd, "--allow-measured", code=2).err
    assert "have a contradicted number, and a doubted run shows no scatter: leave it out" in text


def test_runs_on_shared_nodes_prove_no_difference_and_a_limit(here: Path, cli: Cli) -> None:
    for number in range(6):
        write_series_run(
            here / f"{'ab'[number // 3]}/{number}", mean_s=1 + number // 3, seed=number, is_shared=number > 2
        )
    for number in (0, 3):
        cli("history", "add", "ab"[number // 3], "--name", "ab"[number // 3], "--file", "h.db")
    for a, b in (("a", "b"), ("history:a", "history:b")):
        out = cli("compare", a, b, "--gate", "3", "--file", "h.db").out
        assert out.count("ran on nodes shared with other jobs") == 3  # the sentence, the gate, and the note of B
        assert "b/5 ran on nodes shared with other jobs (--exclusive asks for whole nodes)\n" in out
        (found,) = cli("compare", a, b, "--format", "json", "--file", "h.db").json["comparisons"]
        assert found["ratio"]["verdict"] == "doubted"
        assert [doubted["codes"] for doubted in found["b"]["doubts"]] == [["shared-nodes"]] * 3
    words = "GATE NOT PROVEN: b/3, b/4, b/5 ran on nodes shared with other jobs\n"
    assert words in cli("compare", "a", "b", "--gate", "3").out
    (run,) = cli("report", "b/3", "--limit", "1000", "--format", "json").json["runs"]
    assert run["limit"] == "PASS"
    assert run["doubts"] == [{"code": "shared-nodes", "text": SHARED}]


def test_a_run_on_shared_nodes_is_left_out_where_others_are_not(here: Path, cli: Cli) -> None:
    for number in range(9):
        side = "ab"[number // 5]
        write_series_run(here / side / str(number), mean_s=1 + number // 5, seed=number, is_shared=number in {0, 5})
    cli("history", "add", "a", "--file", "h.db")
    for a in ("a", "history:last-5"):
        found = cli("compare", a, "b", "--gate", "3", "--file", "h.db", code=1).out
        assert "GATE FAIL" in found
        assert "a/0 ran on nodes shared with other jobs (--exclusive asks for whole nodes)" in found
        assert "B: left out: b/5 ran on nodes shared with other jobs (--exclusive asks for whole nodes)" in found
        assert "(4 and 3 runs" in found
    (row,) = cli("report", "a", "--sweep", "--format", "json").json["sweeps"][0]["configurations"]
    assert (row["num_counted"], row["num_runs"], row["doubts"]) == (4, 5, [])
    assert row["cause"] == "left out: a/0 ran on nodes shared with other jobs (--exclusive asks for whole nodes)"


def test_the_history_and_python_keep_the_doubts(tmp_path: Path, cli: Cli, honest: str) -> None:
    file, odd = ["--file", str(tmp_path / "h.db")], doubted(tmp_path / "odd.log", 65500.0)
    cli("history", "add", honest, *file)
    cli("history", "add", odd, "--name", "odd", *file)
    for a, b in (("history:last-3", str(odd)), (honest, "history:odd")):
        assert f".log: {DOUBT}" in cli("compare", a, b, "--gate", "1", "--strict", *file, code=1).out
    logs = nlp_bench.read_logs(honest)
    found = nlp_bench.compare(logs, nlp_bench.read_log(odd), gate=1, strict=True)
    assert not found.passes
    assert found.ratios[0].verdict == "doubted"
    assert found.ratios[0].p_value is None
    by_hand = nlp_bench.read_log(Path(honest) / "run1.log", num_gpus=64)
    assert not nlp_bench.compare(logs[1:], by_hand, gate=1, strict=True).passes


@pytest.mark.parametrize("action", ["trend", "variance"])
def test_a_trend_names_the_runs_that_are_in_doubt(tmp_path: Path, cli: Cli, action: str) -> None:
    file = ["--file", str(tmp_path / "h.db")]
    for number in range(12):
        doubted(tmp_path / f"odd/r{number:02}.log", 65500.0 + 100 * number, number)
    write_log(tmp_path / "a.log", 65000, seed=20)
    cli("history", "add", tmp_path / "odd", tmp_path / "a.log", *file)
    said = cli("history", action, "--allow-measured", *file).err
    assert said.count(" is counted, and in doubt: ") == 10
    assert "2 more are in doubt" in said


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_scaling_marks_what_is_doubted(tmp_path: Path, cli: Cli, form: str) -> None:
    small = write_log(tmp_path / "small.log", 49300.0)
    sound = write_log(tmp_path / "sound.log", 95000.0, 1, world_size=32)
    odd = doubted(tmp_path / "odd.log", 98000.0, 2, world_size=32)
    said = cli("report", small, sound, odd, "--scaling", "--format", form).out
    assert f"{odd}: {DOUBT}" in said.replace("\\", "")
    assert "doubted" in said
    if form == "json":
        places = json.loads(said)["curves"][0]["points"]
        marked = [(point["sources"], "doubted" in point["flags"]) for point in places]
        assert marked == [([str(small)], False), ([str(odd)], True), ([str(sound)], False)]
    # A doubted number is the baseline only where there is no other of that size.
    record = cli("report", small, sound, odd, "--scaling", "--baseline-gpus", "32", "--format", "json", code=None).json
    places = record["curves"][0]["points"]
    assert [point["sources"] for point in places if "baseline" in point["flags"]] == [[str(sound)]]
    text = cli("report", small, odd, "--scaling", "--baseline-gpus", "32", code=None).out
    assert "the baseline is doubted, and every speed-up and efficiency with it" in text


@pytest.mark.slow
def test_a_doubted_configuration_wins_no_sweep(tmp_path: Path, cli: Cli, honest: str) -> None:
    odd = str(doubted(tmp_path / "odd.log", 65500.0, tensor_model_parallel_size=8))
    said = cli("report", honest, odd, "--sweep").out
    assert f"\nnot decided: {odd} has a contradicted number\n" in said
    assert re.search(r"\n +1  not decided +4 .*\n +doubted +8 ", said)
    assert f"{odd}: {DOUBT}" in said
    odd = str(doubted(tmp_path / "odd.log", 38000.0, tensor_model_parallel_size=8))
    slow = str(write_log(tmp_path / "slow.log", 40000.0, tensor_model_parallel_size=2, pipeline_model_parallel_size=1))
    output = tmp_path / "out"
    (sweep,) = cli("report", honest, odd, slow, "--sweep", "--format", "json", "--output", output).json["sweeps"]
    assert [(row["standing"], row["rank"]) for row in sweep["configurations"]] == [
        ("winner", 1), ("slower", 2), ("doubted", None)
    ]  # fmt: skip
    assert sweep["sentence"].startswith(
        f"winner: TP 4, faster than the other one at 95 %; 1 cannot be judged: {odd} has a "
    )
    assert sweep["configurations"][2]["cause"] == f"{odd}: {DOUBT}"
    assert DOUBT in (output / "sweep.csv").read_text()
    assert f"16 GPUs: {sweep['sentence']}" in cli("report", honest, odd, slow, code=None).flat


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--sequence-length", "--num-gpus", "--global-batch-size"])
def test_a_view_refuses_a_size_that_contradicts_a_log(tmp_path: Path, cli: Cli, option: str) -> None:
    logs = [str(write_log(tmp_path / f"g{gpus}.log", 1000.0 * gpus, world_size=gpus)) for gpus in (16, 128)]
    for view in ("--scaling", "--sweep"):
        printed = cli("report", *logs, view, option, "128", code=2)
        assert not printed.out
        assert f"g16.log: the option {option} 128 is used although the log says" in printed.err
        assert "Leave the option out" in printed.err
    # The plain report marks them, and does not take two sizes for repeats of one.
    said = cli("report", *logs, option, "128", "--output", tmp_path / "out").out
    assert f"* supplied by hand: {option} 128 (the log says" in said
    assert "repeats of" not in said


@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_view_marks_what_was_supplied_by_hand(tmp_path: Path, cli: Cli, view: str) -> None:
    logs = [str(write_log(tmp_path / f"g{n}.log", 1e3 * n, world_size=n, seq_length=None)) for n in (16, 32)]
    words = ["report", *logs, view, "--sequence-length", "4096"]
    for form in ("table", "markdown"):
        said = cli(*words, "--format", form).out.replace("\\", "")
        assert re.search(r"\b1[56]\d\d\d\.\d\d\*", said)
        assert f"* supplied by hand: --sequence-length 4096 (not in the log): {', '.join(logs)}" in said
    assert cli(*words, "--format", "csv").out.count(",sequence_length=4096,") == 2
    assert cli(*words, "--format", "json").out.count('"sequence_length=4096"') == 2


LIMIT = """schema = "nlp-bench/rules/1"
models = ["{model}"]
title = "mine"
[rules.time]
check = "time-limit"
decides = "{decides}"
limit_s = 1000
why = "mine"
"""
OF_13 = {"num_layers": 40, "hidden_size": 5120, "num_attention_heads": 32}


@pytest.mark.parametrize("decides", ["steady", "sustained", "reference", "steady-interval"])
def test_no_limit_of_a_rule_is_kept_by_a_contradicted_number(tmp_path: Path, cli: Cli, decides: str) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text(LIMIT.format(model="13", decides=decides))
    sound, odd = write_log(tmp_path / "a.log", 49300.0, **OF_13), doubted(tmp_path / "b.log", 49300.0, **OF_13)
    assert "rules mine: VALID; 1 of 1 rules pass" in cli("report", sound, "--rules", rules).flat
    said = cli("report", odd, "--rules", rules, "--explain", code=1).flat
    assert "rules mine: NOT SHOWN, for want of evidence on time; 0 of 1 rules pass" in said
    if not decides.endswith("interval"):
        assert "expected at most 1000 s, by a number that its log does not contradict" in said


def test_rules_for_a_model_say_nothing_of_a_log_that_shows_none(tmp_path: Path, cli: Cli) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text(LIMIT.format(model="13", decides="steady"))
    nameless = {"num_layers": None, "hidden_size": None, "num_attention_heads": None}
    for shape in (nameless, {}):  # {} is the shape of another model
        log = write_log(tmp_path / "a.log", 49300.0, **shape)
        (run,) = cli("report", log, "--rules", rules, "--format", "json", code=1).json["runs"]
        assert run["rules"]["result"] == "NOT SHOWN"
        assert [(one["rule"], one["status"]) for one in run["rules"]["findings"]] == [
            ("models", "NOT SHOWN"), ("time", "PASS")
        ]  # fmt: skip


def test_a_gate_is_not_proven_by_a_side_of_which_runs_could_not_be_read(tmp_path: Path, cli: Cli) -> None:
    a = write_runs(tmp_path / "a", *[65000 + 100 * number for number in range(5)])
    b = write_runs(tmp_path / "b", *[65000 + 100 * number for number in range(5)], seed=20)
    words = ["compare", a, b, "--gate", "3", "--strict", "--allow-measured"]
    cli(*words)
    (b / "run9.log").write_text("iteration 10/ 100 | elapsed time per iteration (ms): 5000.0 | lm loss: 2.0 |\n")
    said = cli(*words, code=1).out
    assert "GATE NOT PROVEN: one run is not in it (B: " in said
    assert "run9.log), and may be slower; make it readable, or leave it out; --strict stops here" in said


@pytest.mark.parametrize(
    "words",
    ["history add a --file made", "compare a b --gate 3 --same-workload", "export bigger a", "bundle --output made a"],
)
def test_a_size_against_the_logs_is_not_passed_on(here: Path, cli: Cli, words: str) -> None:
    write_runs(here / "a", 65000, 65600, 64700)
    write_runs(here / "b", 55000, 55600, 54700, seed=40)
    said = cli(*words.split(), "--global-batch-size", "192", code=UsageError.exit_code)
    assert "the option --global-batch-size 192 is used although the log says 64. Leave the option out" in said.err
    assert said.out == ""
    assert not Path("made").exists()
