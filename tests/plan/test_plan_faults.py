"""Around the planner: bid sheets, constants, tables of points, rehearsals, and where answers are written."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import Cli
from support.planning import small_run

from nlp_bench.config import accelerators, catalog
from nlp_bench.errors import UsageError
from nlp_bench.launch.prediction import warnings_of
from nlp_bench.plan.constants import read_constants

ON = ("plan", "--system", "dgx-h100", "--nodes", "4")
CASE = (*ON, "--model", "13")


def sheet_of(cli: Cli, *words: object) -> str:
    """Return the bid sheet for 13B on four nodes, as plain text without line ends."""
    plan = ON if "--model" in words else CASE
    return " ".join(re.sub(r"\\(.)", r"\1", cli(*plan, "--bid", "--format", "markdown", *words).out).split())


def own(folder: Path, shipped: str, *changes: tuple[str, str]) -> Path:
    """Write a file of the user's own: a shipped one with changes."""
    path = catalog.shipped() / "benchmark" / shipped
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / path.name).write_text(text)
    return folder / path.name


def test_a_model_of_ones_own_under_a_shipped_name_is_told_on_the_sheet(tmp_path: Path, cli: Cli) -> None:
    changes = (("vocab_size = 50257", "vocab_size = 1000"), ('precision = "bf16"', 'precision = "fp8"'))
    path = own(tmp_path, "models/13.toml", *changes)
    said = sheet_of(cli, "--model", path)
    assert "shape and training parameters of 13 unchanged" not in said
    assert 'It does not rest on what nlp-bench ships alone: see "Not as shipped"' in said
    assert "model.vocab_size: 1000 instead of 50257: not the benchmark" in said
    assert "model.precision: fp8 instead of bf16: not the benchmark" in said
    printed = cli(*ON, "--model", path, "--format", "json")
    assert "warning: model.vocab_size: 1000 instead of 50257: not the benchmark" in printed.err
    assert "model.vocab_size: 1000 instead of 50257" in printed.json["deviations"]


@pytest.mark.slow
def test_another_family_or_recompute_is_a_difference_too(tmp_path: Path, cli: Cli) -> None:
    path = own(tmp_path, "models/13.toml", ('family = "gpt"', 'family = "bert"'))
    said = cli("check", "--model", path, "--system", "dgx-h100", "--offline").err
    assert "model.family: bert instead of gpt: not the benchmark" in said
    assert "model.recompute: none instead of selective: not the benchmark" in sheet_of(cli, "--recompute", "none")
    assert "shape and training parameters of 13 unchanged" in sheet_of(cli)


@pytest.mark.parametrize("words", ["plan --bid", "plan --time 560", "check --account x --offline"])
def test_a_batch_that_was_given_in_tokens_is_told(words: str, cli: Cli) -> None:
    """196608 tokens are the batch that `check` prints: as samples an iteration has 20 times the tokens of the training."""
    name, *options = words.split()
    shared = ["--model", "175", "--system", "juwels-booster", *options, "--global-batch-size"]
    printed = cli(name, *shared, "196608")
    said = "one iteration of 196,608 samples has 402,653,184 tokens, more than the training's 20,000,000"
    assert f"warning: {said}" in printed.err
    assert ("the time limit of 00:45:00 would end the run without a number" in printed.err) == (name == "check")
    assert (said in " ".join(printed.out.split())) == ("--bid" in options)
    assert ("counts samples, not tokens" in cli(name, *shared, "3200000", code=2).err) == (name == "plan")


QUESTIONS = pytest.mark.parametrize("question", [["--bid"], [], ["--why"], ["--time", "200"]])


@QUESTIONS
def test_a_system_file_that_contradicts_the_data_sheet_is_told_by_plan(
    tmp_path: Path, cli: Cli, question: list[str]
) -> None:
    path = own(tmp_path, "systems/dgx-h100.toml", ("memory_gib = 80", "memory_gib = 800"))
    printed = cli("plan", "--model", "13", "--system", path, "--nodes", "4", *question, code=None)
    said = "system.gpu.memory_gib: 800, but NVIDIA H100 SXM has 96"
    assert f"warning: {said}" in printed.err
    assert (said in " ".join(printed.out.split())) == (question == ["--bid"])


@pytest.fixture
def home(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder whose files come before the shipped ones."""
    (here / "home").mkdir()
    monkeypatch.setenv("NLP_BENCH_HOME", str(here / "home"))
    accelerators.forget()
    yield here / "home"
    accelerators.forget()


def test_the_sheet_names_the_table_of_data_sheets(home: Path, cli: Cli) -> None:
    plain = sheet_of(cli)
    assert "a GPU's 989.4 TFLOP/s" in plain
    assert "data sheets accelerators.toml" in plain
    assert "Not as shipped" not in plain
    own(home, "accelerators.toml", ("bf16 = 989.4", "bf16 = 1500"))
    accelerators.forget()
    said = sheet_of(cli)
    assert f"{home}/accelerators.toml: NVIDIA H100 SXM: peak_tflops.bf16 = 1500 instead of 989.4" in said
    assert "a GPU's 1500 TFLOP/s" in said


def constants_of(folder: Path, text: str) -> Path:
    (folder / "mine.toml").write_text(f'schema = "nlp-bench/plan/1"\n{text}\n')
    return folder / "mine.toml"


def test_the_sheet_says_once_what_is_not_as_shipped_in_the_constants(home: Path, here: Path, cli: Cli) -> None:
    own(home, "plan.toml", ("host_batch_s = { value = 2e-4", "host_batch_s = { value = 3e-4"))
    mine = constants_of(here, '[time]\nhost_step_s = { value = 0.5, source = "mine" }')
    said = sheet_of(cli, "--constants", mine)
    assert "host_step_s = 0.5 instead of 0.005" in said
    assert said.count("host_batch_s = 0.0003 instead of 0.0002") == 1


@QUESTIONS
def test_a_prediction_faster_than_the_peak_is_refused(tmp_path: Path, cli: Cli, question: list[str]) -> None:
    path = constants_of(tmp_path, '[time]\nscale_compute = { value = 0.2, source = "mine" }')
    said = cli(*CASE, "--constants", path, *question, code=2)
    assert "at their peak; no machine is faster than that. [time] scale_compute is 0.2: correct it" in said.err
    assert not said.out


def machine_of(folder: Path, name: str, bf16: int) -> Path:
    """Write constants that hold what was measured of a machine."""
    rest = "memory_gb_per_s = 3000\nlink_gb_per_s = 400\nmemory_gib = 80"
    return constants_of(folder, f'[machine]\nname = "{name}"\npeak_tflops = {{ bf16 = {bf16} }}\n{rest}')


def test_a_measured_peak_far_above_the_data_sheet_is_refused(tmp_path: Path, cli: Cli) -> None:
    h100 = "NVIDIA H100 80GB HBM3"
    peak = f"[machine] peak_tflops.bf16 = 1500: {h100} has 989.4 TFLOP/s by its data sheet"
    assert peak in cli(*CASE, "--constants", machine_of(tmp_path, h100, 1500), "--bid", code=2).err
    said = sheet_of(cli, "--constants", machine_of(tmp_path, h100, 700))
    assert "NVIDIA H100 80GB HBM3 as its owner measured it (bf16 700 TFLOP/s), in place of the data sheet" in said


def test_what_one_gpu_measured_is_not_taken_for_another_whose_name_it_begins_with(tmp_path: Path, cli: Cli) -> None:
    h200 = machine_of(tmp_path, "NVIDIA H200", 700)
    changes = (("NVIDIA H100 80GB HBM3", "NVIDIA H20"), ("memory_gib = 80", "memory_gib = 96"), ("989.4", "148"))
    h20 = own(tmp_path, "systems/dgx-h100.toml", *changes)
    words = ("--model", "13", "--system", h20, "--nodes", "4", "--constants", h200, "--top", "1")
    assert "the constants were measured on NVIDIA H200, not on NVIDIA H20: neither they" in cli("plan", *words).err


def test_constants_that_are_not_the_shipped_ones_are_told_on_the_sheet(tmp_path: Path, cli: Cli) -> None:
    text = (
        '[time]\nscale_compute = { value = 0.8, source = "mine" }\n[interval]\nmegatron = { low = 0.999, high = 1.001 }'
    )
    said = sheet_of(cli, "--constants", constants_of(tmp_path, text))
    own_constant = r"the constants, mine\.toml, SHA-256 [0-9a-f]{12}: \[time\] scale_compute = 0\.8 instead of 1 "
    assert re.search(own_constant, said)
    assert "[interval] megatron = 0.999 to 1.001 of the time instead of " in said
    assert "[distance]: the interval is not widened away from what was measured" in said


@pytest.mark.slow
def test_a_rehearsal_counts_only_for_the_run_that_it_is_of(tmp_path: Path, cli: Cli) -> None:
    split, plain = small_run(tmp_path / "split", "--tp", "2"), small_run(tmp_path / "plain")
    cli("rehearse", "--run", tmp_path / "split", "--output", tmp_path / "split")
    rehearsal = (tmp_path / "split/rehearsal.json").read_text()
    assert warnings_of(split, tmp_path / "split") == []
    (tmp_path / "plain/rehearsal.json").write_text(rehearsal)
    (line,) = warnings_of(plain, tmp_path / "plain")
    assert f"{tmp_path}/plain/rehearsal.json is of another run than this one" in line
    record = json.loads(rehearsal)
    for other in ({**record, "ranks": []}, {**record, "fits": ["yes"]}, {**record, "run": None}):
        (tmp_path / "split/rehearsal.json").write_text(json.dumps(other))
        said = warnings_of(split, tmp_path / "split")
        assert [line for line in said if "does not count" not in line] == []
        assert len(said) == (other["fits"] == "yes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "b.svg", "--plot", "b.svg"], "--output and --plot both name b.svg"),
        (["--output", "b.svg", "--plot", "here/../b.svg", "--overwrite"], "--output and --plot both name here/../b.svg"),
        (["--output", "here", "--emit-jube", "here/plan.txt"], "--output and --emit-jube both name here/plan.txt"),
        (["--plot", "link.svg", "--emit-jube", "link.svg"], "--plot and --emit-jube both name link.svg"),
        (["--constants", "c.toml", "--output", "c.toml", "--overwrite"], "--constants and --output both name c.toml"),
        (["--output", "kept", "--format", "json"], "--output kept/plan.json exists; name another file, or give --overwrite"),
    ],
)  # fmt: skip
def test_two_options_do_not_name_one_file(here: Path, cli: Cli, words: list[str], said: str) -> None:
    (here / "here").mkdir()
    (here / "kept").mkdir()
    (here / "kept/plan.json").write_text("mine")
    (here / "c.toml").write_text('schema = "nlp-bench/plan/1"\n')
    (here / "link.svg").symlink_to("elsewhere.svg")
    assert said in cli(*CASE, *words, code=2).err
    assert not (here / "b.svg").exists()
    assert (here / "kept/plan.json").read_text() == "mine"


ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT / "reports/reference/published_points/points.csv"


def test_a_table_of_points_may_come_out_of_a_pipe(tmp_path: Path, cli: Cli) -> None:
    os.mkfifo(tmp_path / "p")
    few = "".join(POINTS.read_text(encoding="utf-8").splitlines(keepends=True)[:3])
    writer = threading.Thread(target=(tmp_path / "p").write_text, args=(few,), daemon=True)
    writer.start()
    assert len(cli("plan", "predict", tmp_path / "p").out.splitlines()) == 3
    writer.join(10)


def test_what_gives_no_table_is_not_waited_for(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.1)
    os.mkfifo(tmp_path / "p")
    silent = "it is a pipe, and nothing came out of it within 0.1 s"
    for path, said in ((str(tmp_path / "p"), silent), ("/dev/zero", "it is a device")):
        refused = cli("plan", "predict", path, code=2).err
        assert f"cannot read {path}: {said}; name a file of comma-separated values" in refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head, row: (f"{head},mbs", f"{row},1"), "column mbs stands 2 times in the header; leave one of them"),
        (lambda head, row: (head, f"{row},7"), "line 2: 1 more cell(s) than the header has columns; put a cell"),
        (lambda head, row: (head.replace(",", ";"), row), "its columns are divided by semicolons; save the table"),
        (lambda head, row: (head.replace(",", "\t"), row), "its columns are divided by tabs"),
    ],
)
def test_a_table_whose_cells_are_not_where_they_seem_is_refused(
    tmp_path: Path, cli: Cli, change: Callable[[str, str], tuple[str, str]], said: str
) -> None:
    head, row, *_ = POINTS.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "points.csv"
    path.write_text("\n".join(change(head, row)) + "\n")
    assert said in cli("plan", "predict", path, code=2).err


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("attention_hopper", 1.2, "is a share of the peak: no attention is faster than that; it is at most 1"),
        ("memory_share", 85, "is a share of the memory's bandwidth: .*; it is at most 1"),
        ("link_share", 2.5, "is a share of the links' bandwidth: .*; it is at most 2"),
        ("fabric_share", 1.01, "is a share of the adapters' bandwidth: .*; it is at most 1"),
        ("score_traffic", 0.1, "is the bytes moved over their least count; it is at least 1"),
        ("stream_eager", 0.5, "is the bytes moved over their least count; it is at least 1"),
        ("products_hopper", 1.5, "is a share of the peak: no product is faster than that; it is at most 1"),
    ],
)
def test_a_constant_that_no_machine_has_is_refused(tmp_path: Path, name: str, value: float, rule: str) -> None:
    def read(name: str, value: float) -> float:
        text = f'[time]\n{name} = {{ value = {value}, source = "mine" }}'
        return read_constants(constants_of(tmp_path, text))[name]

    with pytest.raises(UsageError, match=rf"\[time\] {name}: {value:g} {rule}"):
        read(name, value)
    assert read(name, 1) == 1
    for short in ("attention_short", "attention_narrow"):  # tokens, and a width
        assert read(short, 300) == 300


@pytest.mark.slow
def test_plan_replaces_no_file_of_its_user(tmp_path: Path, cli: Cli) -> None:
    mine, points = tmp_path / "mine", tmp_path / "points.csv"
    plan = ["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8"]
    points.write_text("\n".join(POINTS.read_text().splitlines()[:3]))
    for option in ("--output", "--emit-jube", "--plot"):
        path = mine.with_suffix(".txt" if option == "--output" else ".svg")
        path.write_text("precious")
        assert f"{option} {path} exists; name another file, or give --overwrite" in cli(*plan, option, path, code=2).err
        assert path.read_text() == "precious"
        cli(*plan, option, path, "--overwrite")
        assert path.read_text() != "precious"
    pipe = tmp_path / "pipe.svg"
    os.mkfifo(pipe)
    for option in ("--output", "--emit-jube", "--plot"):
        said = cli(*plan, option, pipe, "--overwrite", code=2).err
        assert f"{option} {pipe} is a pipe, which a file would replace" in said
    assert pipe.is_fifo()
    predict = ("plan", "predict", points, "--output")
    for _ in range(2):  # the second time over its own
        cli(*predict, tmp_path / "mine.csv")
    cli(*predict, points, code=2)
    mine.with_suffix(".toml").write_text("precious = 1")
    for words in (("calibrate", "--from", "nowhere.json"), ("learn", "nowhere")):
        said = cli("plan", *words, "--output", mine.with_suffix(".toml"), code=2).err
        assert f"{mine}.toml exists; name another file" in said


def test_a_rehearsal_of_more_gpus_than_any_machine_has_is_refused_at_once(cli: Cli) -> None:
    words = ["rehearse", "--model", "175", "--system", "juwels-booster", "--tp", "8", "--pp", "8", "--gas", "1"]
    assert "4000000 GPUs in all are more than the 1048576" in cli(*words, "--nodes", "1000000", code=2).err


@pytest.mark.slow
def test_a_long_rehearsal_says_what_takes_so_long(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.001)
    said = cli("rehearse", "--model", "tiny", "--system", "local", "--gpus-per-node", "1", "--gas", "64").err
    assert "each makes the process groups of all 1 and executes all 64 micro-batches, which may take minutes" in said


def test_the_planners_own_file_is_no_file_of_changes(cli: Cli) -> None:
    said = cli(*CASE, "--constants", ROOT / "benchmark/plan.toml", code=2).err
    assert "leave out those of benchmark/plan.toml" in said
