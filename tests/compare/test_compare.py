"""`nlp-bench compare` as a person uses it."""

import random
import re
import shutil
from pathlib import Path

import pytest
from support.command import Cli
from support.published import write_run
from support.repeated import write_log, write_runs
from support.series import write_series_run

from nlp_bench.cli.main import main

STEADY = (65000.0, 65300.0, 64800.0, 65100.0, 64900.0)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return str(write_runs(tmp_path / "before", *STEADY))


def after(tmp_path: Path, factor: float, **changes: object) -> str:
    return str(write_runs(tmp_path / "after", *(factor * rate for rate in STEADY), seed=50, **changes))


@pytest.mark.parametrize(
    ("factor", "strict", "code", "word"),
    [
        (1.0, False, 0, "GATE PASS"),
        (0.9, False, 1, "GATE FAIL"),
        (0.97, False, 0, "GATE NOT PROVEN"),
        (0.97, True, 1, "GATE NOT PROVEN"),
        (1.2, False, 0, "check that it did the same work"),
    ],
)
def test_gate(before: str, tmp_path: Path, cli: Cli, factor: float, strict: bool, code: int, word: str) -> None:
    words = ["compare", before, after(tmp_path, factor), "--gate", "3", *(["--strict"] if strict else [])]
    assert word in cli(*words, code=code).out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 5120}, "hidden_size  4096  5120  A: log line 6; B: log line 6"),
        ({"num_experts": 8}, "num_experts  not shown  8  "),
        ({"window_size": "(128, 0)"}, "window_size  not shown  (128, 0)  "),
        ({"lora_r": 16}, "lora_r  not shown  16  "),
        ({"freeze_LM": True}, "freeze_LM  not shown  True  "),
        ({"freeze_ViT": True}, "freeze_ViT  not shown  True  "),
        ({"sft": True}, "sft  not shown  True  "),
        ({"qk_layernorm": True}, "qk_layernorm  not shown  True  "),
        ({"fp4": "e2m1"}, "precision  bf16  fp4  "),
    ],
)
def test_a_different_workload_is_refused_with_the_difference(
    before: str, tmp_path: Path, cli: Cli, changes: dict[str, object], said: str
) -> None:
    caught = cli("compare", before, after(tmp_path, 1, **changes), "--same-workload", code=2)
    assert caught.out == ""
    assert said in re.sub(" {2,}", "  ", caught.err)


@pytest.mark.parametrize("switch", ["tp_comm_overlap", "ddp_average_in_collective", "a_switch_of_next_year"])
def test_a_switch_of_speed_is_another_configuration_and_is_named(tmp_path: Path, cli: Cli, switch: str) -> None:
    """Two settings of one switch were pooled as repeats, with a mean that neither had."""
    for value, factor in ((True, 1.1), (False, 1.0)):
        write_runs(
            tmp_path / "both" / str(value), *(factor * rate for rate in STEADY), seed=50 + value, **{switch: value}
        )
    best = cli("report", tmp_path / "both", "--sweep").out.splitlines()[1]
    assert f"{switch.replace('_', ' ')} True" in best
    assert "False" not in best
    said = cli("compare", tmp_path / "both/False", tmp_path / "both/True").out
    assert re.search(rf"{switch} +not shown +True", said)


@pytest.mark.parametrize(
    "changes",
    [
        [{"save_interval": 100}, {"save_interval": 200}],
        [{"wandb_exp_name": "monday"}, {"wandb_exp_name": "tuesday"}],
        [{"config_of_next_year": "/nowhere/a/x"}, {"config_of_next_year": "/nowhere/b/x"}],
        [{"a_function": "<function f at 0x7f01>"}, {"a_function": "<function f at 0x7f02>"}],
        [{"lr_warmup_iters": 5}, {"lr_warmup_iters": 6}],
        [{"rank": 0}, {"rank": 63}],
    ],
    ids=lambda changes: next(iter(changes[0])),
)
def test_what_cannot_change_the_speed_is_repeated(tmp_path: Path, cli: Cli, changes: list[dict[str, object]]) -> None:
    for number, changed in enumerate(changes):
        write_log(tmp_path / f"{number}.log", 1e4, number, **changed)
    assert "2 runs" in cli("report", tmp_path).out


def test_what_only_looks_like_an_argument_is_none(tmp_path: Path, cli: Cli) -> None:
    for number in range(2):
        path = write_log(tmp_path / f"{number}.log", 1e4, number)
        path.write_text(f" > compiled dataset index builder ..... {number} s\n{path.read_text()}")
    assert "builder" not in cli("report", path, "--format", "json").out
    assert "2 runs" in cli("report", tmp_path).out


TITAN = (
    "[titan] root - INFO - Trainer is initialized with local batch size 1, global batch size 8, sequence length 8192, total steps 60",
    "[titan] root - INFO - Building 1-D device mesh with ['dp_shard'], [8]",
    "[titan] root - INFO - step: {n:2d}  loss: {loss:8.5f}  grad_norm:  0.5  memory: 49.66GiB(52.28%)  tps: {rate:,}  tflops: 300.00  mfu: 30.00%",
)
MAXTEXT = (
    "I0101 10:00:00.000001 1 pyconfig.py:559] Config param max_target_length: 8192",
    "I0101 10:00:00.000001 1 maxtext_utils.py:80] Num_devices: 8, shape (8,)",
    "completed step: {n}, seconds: 4.000, TFLOP/s/device: 100.000, Tokens/s/device: {rate}.000, total_weights: 65536, loss: {loss:.3f}",
)


@pytest.mark.parametrize(
    ("log", "said", "precision"),
    [
        (TITAN, "[titan] root - INFO - Float8 tensorwise scaled training active", "fp8"),
        (TITAN, "[titan] root - INFO - Swapped to Float8Linear layers with enable_fsdp_float8_all_gather=True", "fp8"),
        (MAXTEXT, "I0101 10:00:00.000001 1 pyconfig.py:559] Config param quantization: int8", "int8"),
        (MAXTEXT, "I0101 10:00:00.000001 1 pyconfig.py:559] Config param quantization: nanoo_fp8", "fp8"),
    ],
)
def test_low_precision_is_other_work(here: Path, cli: Cli, log: tuple[str, ...], said: str, precision: str) -> None:
    for name, head in (("a.log", log[:2]), ("b.log", (said, *log[:2]))):
        lines = (log[2].format(n=n, loss=9 - n / 20, rate=6000 + n % 7) for n in range(1, 61))
        (here / name).write_text("\n".join([*head, *lines, "Training completed\n"]))
    words = ("a.log", "b.log", "--same-workload", "--allow-measured")
    assert f"precision  not shown  {precision}  " in re.sub(" {2,}", "  ", cli("compare", *words, code=2).err)
    assert cli("report", "a.log", "b.log", "--sweep", code=None).out.count("rank  standing") == 2


@pytest.mark.parametrize(
    ("name", "values"), [("moe_router_topk", (1, 2)), ("moe_router_force_load_balancing", (False, True))]
)
def test_two_routings_are_different_work_of_experts_alone(
    tmp_path: Path, cli: Cli, name: str, values: tuple[object, object]
) -> None:
    """A dense model's dump has their defaults too."""
    for experts, code in ((8, 2), (None, 0)):
        a, b = (
            write_runs(tmp_path / f"{experts}-{seed}", *STEADY, seed=seed, num_experts=experts, **{name: value})
            for seed, value in enumerate(values)
        )
        assert (name in cli("compare", str(a), str(b), code=code).err) is bool(code)


def test_random_tokens_are_no_repeat_of_data(before: str, tmp_path: Path, cli: Cli) -> None:
    other = after(tmp_path, 1, mock_data=True)
    assert "mock_data" in cli("compare", before, other).out
    assert "5 runs: " in cli("report", before, other).flat


def test_what_one_side_does_not_show_needs_somebodys_word(before: str, tmp_path: Path, cli: Cli) -> None:
    other = after(tmp_path, 1, optimizer=None)
    assert "optimizer  adam  not shown" in cli("compare", before, other, code=2).err
    assert "is your word (--same-workload)" in cli("compare", before, other, "--same-workload").out
    assert main(["compare", before, after(tmp_path, 1, optimizer="Adam")]) == 0, "the same in other letters"


def test_logs_that_show_nothing_are_refused(tmp_path: Path, cli: Cli) -> None:
    logs = [str(write_log(tmp_path / f"{n}.log", 65000, n, stated=False)) for n in (1, 2)]
    sizes = ["--sequence-length", "4096", "--num-gpus", "16"]
    assert "hidden_size  not shown  not shown" in cli("compare", *logs, *sizes, code=2).err
    assert cli("compare", *logs, *sizes, "--same-workload", "--format", "json").json["workload_vouched_for"] is True


def test_other_free_parameters_and_machine_are_shown_in_json(before: str, tmp_path: Path, cli: Cli) -> None:
    (found,) = cli("compare", before, after(tmp_path, 1, world_size=32), "--format", "json").json["comparisons"]
    assert [row["name"] for row in found["differences"]["machine"]] == ["num_gpus"]
    assert found["differences"]["machine"][0]["b"] == {"value": 32, "from": "log line 4"}


def test_the_ratio_per_gpu_stands_beside_that_of_other_numbers_of_gpus(before: str, tmp_path: Path, cli: Cli) -> None:
    said = cli("compare", before, after(tmp_path, 1.42, world_size=32), "--gate", "3").out
    assert "GATE PASS" in said
    line = r"per GPU B/A is 0\.7093 \(A on 16, B on 32\): each of B's is 29\.07 % slower, which no gate judges"
    assert re.search(line, said), said


@pytest.mark.parametrize("num_gpus", [16, 32])
def test_a_sweep_is_matched_point_by_point_on_another_machine_too(tmp_path: Path, cli: Cli, num_gpus: int) -> None:
    for side, rates in (("a", (65000, 65200)), ("b", (60000, 60100))):
        for size in (2, 4, 8) if side == "a" else (4, 8, 16):
            changes = {"tensor_model_parallel_size": size, "world_size": 16 if side == "a" else num_gpus}
            write_runs(tmp_path / side / f"tp{size}", *rates, seed=size + len(side), **changes)
    record = cli("compare", tmp_path / "a", tmp_path / "b", "--format", "json", "--gate", "20").json
    assert sorted(found["configuration"].split("tp ")[1][0] for found in record["comparisons"]) == ["4", "8"]
    assert [found["ratio"]["level"] for found in record["comparisons"]] == [0.975, 0.975]
    assert (len(record["only_a"]), len(record["only_b"])) == (1, 1)
    assert record["gate"]["verdict"] == "NOT PROVEN"  # a point of the baseline was not measured again


def test_no_common_point_names_the_nearest_difference(tmp_path: Path, cli: Cli) -> None:
    for size in (2, 4):
        write_runs(tmp_path / "a" / str(size), 65000, seed=size, tensor_model_parallel_size=size)
        write_runs(tmp_path / "b" / str(size), 65000, seed=size, tensor_model_parallel_size=2 * size + 4)
    assert "none is in both; the nearest two differ in" in cli("compare", tmp_path / "a", tmp_path / "b", code=2).err


def test_a_failed_run_fails_the_gate(tmp_path: Path, cli: Cli) -> None:
    good, bad = write_run(tmp_path / "good"), write_run(tmp_path / "bad", outcome="TIMEOUT")
    text = cli("compare", good, bad, "--gate", "3", code=1).out
    assert "no number" in text
    assert "TIMEOUT" in text
    assert "GATE FAIL" in text
    assert main(["compare", str(good), str(bad)]) == 1
    assert "has no measured run with a number" in cli("compare", bad, good, code=2).err


def test_a_point_that_never_had_a_number_stops_no_gate(tmp_path: Path, cli: Cli) -> None:
    for side, outcome in (("a", "VALID"), ("b", "VALID"), ("lost", "TIMEOUT")):
        write_series_run(tmp_path / side / "tp1", tp=1, outcome="OUT_OF_MEMORY")
        write_series_run(tmp_path / side / "tp2", tp=2, seed=len(side) + ord(side[0]))
        write_series_run(tmp_path / side / "tp4", tp=4, outcome=outcome, seed=ord(side[0]))
    sides = [str(tmp_path / side) for side in ("a", "b", "lost")]
    record = cli("compare", *sides[:2], "--gate", "20", "--format", "json").json
    assert sorted(str(found["gate"]) for found in record["comparisons"]) == ["NOT PROVEN", "NOT PROVEN", "None"]
    assert "GATE FAIL: B has no number for tp 4" in cli("compare", sides[0], sides[2], "--gate", "20", code=1).out


def test_a_run_that_ended_before_its_first_line_fails_the_gate(tmp_path: Path, cli: Cli) -> None:
    write_series_run(tmp_path / "a", tp=2)
    write_series_run(tmp_path / "b", tp=2, outcome="NODE_FAIL")
    assert "GATE FAIL: B has no number\n" in cli("compare", tmp_path / "a", tmp_path / "b", "--gate", "3", code=1).out
    # Beside another configuration it is paired with the one that it nowhere contradicts, and stands alone on neither side.
    for side in ("a", "b"):
        write_series_run(tmp_path / "two" / side / "tp4", tp=4, seed=ord(side))
        shutil.copytree(tmp_path / side, tmp_path / "two" / side / "tp2")
    record = cli("compare", tmp_path / "two/a", tmp_path / "two/b", "--format", "json", code=1).json
    assert (len(record["comparisons"]), record["only_a"], record["only_b"]) == (2, [], [])


def test_runs_that_scatter_beyond_measure_claim_no_percentage(tmp_path: Path, cli: Cli) -> None:
    a, b = write_runs(tmp_path / "a", 65000, 65100), write_runs(tmp_path / "b", 30000, 90000, seed=5)
    text = cli("compare", a, b).out
    assert re.search(r"\d \(2 runs\) +\d\.\d{4} ", text)
    assert "would not be seen" in text
    assert not re.search(r"\d{4,}\.\d %", text)


@pytest.mark.parametrize("question", ["--gate", "--equivalent"])
@pytest.mark.parametrize("rate", [65000, 60000])
def test_one_run_each_proves_nothing(tmp_path: Path, cli: Cli, question: str, rate: float) -> None:
    sides = [str(write_log(tmp_path / "a.log", 65000, 1)), str(write_log(tmp_path / "b.log", rate, 2))]
    said = cli("compare", *sides, question, "3").out
    words = r"NOT PROVEN: one run each proves nothing; about \d of each would decide where runs differ by 1 %"
    assert re.search(words, said)
    (found,) = cli("compare", *sides, question, "3", "--strict", "--format", "json", code=1).json["comparisons"]
    name = {"--gate": "gate", "--equivalent": "equivalence"}[question]
    assert (found[name], found["ratio"]["verdict"], found["ratio"]["p_value"]) == ("NOT PROVEN", "not proven", None)
    assert 2 <= found[f"{name}_num_runs_each"] < 10


def test_known_scatter_lets_one_run_each_decide(before: str, tmp_path: Path, cli: Cli) -> None:
    sides = [str(write_log(tmp_path / "a.log", 65000, 71)), str(write_log(tmp_path / "b.log", 60000, 72))]
    text = cli("compare", *sides, "--gate", "3", "--scatter", before, code=1).out
    assert "GATE FAIL: it is proven that B is slower than A by more than 3 %" in text
    assert re.search(r"with other runs of the machine, which differ by 0\.\d\d % \(4 degrees of freedom\)", text)
    said = cli("compare", f"{before}/run1.log", f"{before}/run2.log", "--scatter", before).out
    assert "(2 degrees of freedom)" in said, "of three other runs"
    wild = write_runs(tmp_path / "wild", 65000, 60000, 70000, 55000, seed=80)
    assert "GATE NOT PROVEN" in cli("compare", *sides, "--gate", "3", "--scatter", wild).out


def test_known_scatter_is_not_used_for_runs_that_scatter_more(before: str, tmp_path: Path, cli: Cli) -> None:
    sides = [str(write_runs(tmp_path / name, 60000, 65000, 70000, seed=ord(name))) for name in "ab"]
    words = ["compare", *sides, "--scatter", before]
    assert "4 degrees of freedom): these scatter more" in cli(*words).out
    (found,) = cli(*words, "--format", "json").json["comparisons"]
    assert (found["ratio"]["other_runs"]["used"], found["ratio"]["degrees_of_freedom"]) == (False, 4)


@pytest.mark.parametrize("changes", [{"world_size": 32}, {}])
def test_scatter_of_another_machine_or_of_one_run_is_refused(
    before: str, tmp_path: Path, cli: Cli, changes: dict[str, object]
) -> None:
    rates = STEADY if changes else STEADY[:1]
    others = write_runs(tmp_path / "x", *rates, seed=9, **changes)
    said = cli("compare", before, before, "--scatter", others, code=2).err
    assert "does not hold two runs of one configuration on A's machine" in said


@pytest.mark.parametrize(
    ("factor", "code", "word"),
    [
        (1.0, 0, "\nEQUIVALENT: "),
        (0.9, 1, "\nNOT EQUIVALENT: "),
        (1.1, 1, "\nNOT EQUIVALENT: "),
        (0.98, 0, "EQUIVALENCE NOT PROVEN: "),
    ],
)
def test_equivalence(before: str, tmp_path: Path, cli: Cli, factor: float, code: int, word: str) -> None:
    other = after(tmp_path, factor)
    assert word in cli("compare", before, other, "--equivalent", "2", code=code).out
    record = cli("compare", before, other, "--equivalent", "2", "--gate", "20", "--format", "json", code=code).json
    assert record["equivalence"]["verdict"] == word.strip("\n: ").removeprefix("EQUIVALENCE ")
    assert record["gate"]["verdict"] == "PASS"


def test_another_machine_may_scatter_otherwise(before: str, tmp_path: Path, cli: Cli) -> None:
    widths = []
    for changes, method in (({}, "pooled t"), ({"world_size": 32}, "wider of Welch's t and pooled t")):
        record = cli("compare", before, after(tmp_path, 1, **changes), "--format", "json").json
        ratio = record["comparisons"][0]["ratio"]
        assert ratio["method"] == method
        widths.append(ratio["high"] / ratio["low"])
    assert widths[0] < widths[1]


@pytest.mark.parametrize(("percent", "word"), [(3, "GATE NOT PROVEN: if the slowest start"), (6, "GATE PASS")])
def test_further_starts_may_break_the_gate(before: str, tmp_path: Path, cli: Cli, percent: int, word: str) -> None:
    log, file = tmp_path / "loop.log", ("--file", tmp_path / "history.sqlite3")
    runs = [write_log(tmp_path / str(rate), rate, seed=rate) for rate in (65000, 62400, 62300)]
    log.write_text("".join(run.read_text() for run in runs))
    told = "3 attempts, finished at iteration 300"
    assert told in cli("history", "add", log, *file).out
    for side in (log, "history:1"):
        said = cli("compare", before, side, "--gate", percent, *file).out
        assert told in said
        assert word in said


@pytest.mark.parametrize(("both", "word"), [(False, "GATE NOT PROVEN: at the speeds at which the runs end B"), (True, "GATE PASS")])  # fmt: skip
def test_a_slow_end_of_b_may_break_the_gate(tmp_path: Path, cli: Cli, both: bool, word: str) -> None:
    """Throttling in the last quarter of each run is outside of the window; where A's runs have it too, nothing has changed."""

    def slowed(match: re.Match[str]) -> str:
        return f"{int(match[1]):8d}/     300{match[2]}{float(match[3]) * (1.3 if int(match[1]) > 225 else 1):.1f}"

    file = ("--file", tmp_path / "history.sqlite3")
    for name, seed, is_slow in (("a", 0, both), ("b", 50, True)):
        folder = write_runs(tmp_path / name, *STEADY, seed=seed)
        for log in folder.iterdir() if is_slow else ():
            log.write_text(re.sub(r" (\d+)/ *300(.*?iteration \(ms\): )([\d.]+)", slowed, log.read_text()))
        cli("history", "add", folder, "--name", name, *file)
    for a, b in ((tmp_path / "a", tmp_path / "b"), ("history:a", "history:b")):
        out = cli("compare", a, b, "--gate", 3, *file).out
        assert word in out
        assert "B: 5 of 5 runs end at a slower speed" in out or both


def test_even_runs_that_begin_alike_by_a_clock_of_whole_seconds_are_no_copies(tmp_path: Path, cli: Cli) -> None:
    """As by tqdm's bars: 20 s every 4 steps; a cut copy is still one."""
    for name, period in (("a", 5.0), ("b", 5.05)):
        (tmp_path / name).mkdir()
        for run in range(4):
            source, clock, text = random.Random(f"{name}{run}"), 0.0, ""  # noqa: S311  # a repeatable test
            for step in range(4, 401, 4):
                clock += 4 * period * (1 + 0.001 * run if step > 40 else 1) * (1 + source.gauss(0, 0.001))
                text += f"step {step}/400 loss {9 - step / 100 + source.gauss(0, 0.01):.3f} at {clock:.0f} s\n"
            (tmp_path / name / f"run{run}.log").write_text(text)
    (tmp_path / "a" / "cut.log").write_text((tmp_path / "a" / "run0.log").read_text()[:1500])
    pattern = r"step (?P<iteration>\d+)/(?P<total_iterations>\d+) loss (?P<lm_loss>[\d.]+) at (?P<clock_s>\d+) s"
    words = ["--pattern", pattern, "--global-batch-size", "8", "--sequence-length", "2048", "--num-gpus", "8"]
    out = cli("compare", tmp_path / "a", tmp_path / "b", *words, "--same-workload", "--allow-measured", code=None).out
    assert "(4 and 4 runs" in out
    assert out.count("counted once") == 1


def test_markdown_takes_nothing_for_markup(tmp_path: Path, cli: Cli) -> None:
    one, two = tmp_path / "<b>|x", tmp_path / "b"
    write_runs(one, 65000, optimizer="<img>")
    write_runs(two, 65000, seed=3, optimizer="<img>", tensor_model_parallel_size="<i>|")
    text = cli("compare", one, two, "--format", "markdown").out
    assert "<" not in text.replace("\\<", "").replace("| < 0", "")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7, 5}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["A"], "the following arguments are required: B"),
        (["A", "B", "--strict"], "--strict goes with --gate"),
        (["nowhere", "B"], "PATH nowhere does not exist"),
        *((["A", "B", f"--gate={percent}"], "percentage") for percent in ("0", "-1", "100", "nan", "x", "1e400")),
    ],
)
def test_bad_words(words: list[str], message: str, before: str, cli: Cli) -> None:
    assert message in cli("compare", *(before if word in {"A", "B"} else word for word in words), code=2).err
