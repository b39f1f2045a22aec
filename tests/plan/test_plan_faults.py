"""Around the planner: bid sheets, constants, tables of points, rehearsals, and where answers are written."""

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.planning import small_run

from nlp_bench.cli.main import main
from nlp_bench.config import accelerators, catalog
from nlp_bench.errors import UsageError
from nlp_bench.launch.prediction import warnings_of
from nlp_bench.plan.constants import read_constants

ON = ["--system", "dgx-h100", "--nodes", "4"]


def sheet_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the bid sheet for 13B on four nodes, as plain text without line ends."""
    model = () if "--model" in words else ("--model", "13")
    assert main(["plan", *ON, "--bid", "--format", "markdown", *model, *words]) == 0
    return " ".join(re.sub(r"\\(.)", r"\1", capsys.readouterr().out).split())


def own(folder: Path, shipped: str, *changes: tuple[str, str]) -> Path:
    """Write a file of the user's own: a shipped one with changes."""
    path = catalog.shipped() / "benchmark" / shipped
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / path.name).write_text(text)
    return folder / path.name


def test_a_model_of_ones_own_under_a_shipped_name_is_told_on_the_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = (("vocab_size = 50257", "vocab_size = 1000"), ('precision = "bf16"', 'precision = "fp8"'))
    path = str(own(tmp_path, "models/13.toml", *changes))
    said = sheet_of(capsys, "--model", path)
    assert "shape and training parameters of 13 unchanged" not in said
    assert 'It does not rest on what nlp-bench ships alone: see "Not as shipped"' in said
    assert "model.vocab_size: 1000 instead of 50257: not the benchmark" in said
    assert "model.precision: fp8 instead of bf16: not the benchmark" in said
    assert main(["plan", "--model", path, *ON, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "warning: model.vocab_size: 1000 instead of 50257: not the benchmark" in printed.err
    assert "model.vocab_size: 1000 instead of 50257" in json.loads(printed.out)["deviations"]


@pytest.mark.slow
def test_another_family_or_recompute_is_a_difference_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own(tmp_path, "models/13.toml", ('family = "gpt"', 'family = "bert"'))
    assert main(["check", "--model", str(path), "--system", "dgx-h100", "--offline"]) == 0
    assert "model.family: bert instead of gpt: not the benchmark" in capsys.readouterr().err
    assert "model.recompute: none instead of selective: not the benchmark" in sheet_of(capsys, "--recompute", "none")
    assert "shape and training parameters of 13 unchanged" in sheet_of(capsys)


@pytest.mark.parametrize("words", ["plan --bid", "plan --time 560", "check --account x --offline"])
def test_a_batch_that_was_given_in_tokens_is_told(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """196608 tokens are the batch that `check` prints: as samples an iteration has 20 times the tokens of the training."""
    name, *options = words.split()
    shared = ["--model", "175", "--system", "juwels-booster"]
    assert main([name, *shared, *options, "--global-batch-size", "196608"]) == 0
    printed = capsys.readouterr()
    said = "one iteration of 196,608 samples has 402,653,184 tokens, more than the training's 20,000,000"
    assert f"warning: {said}" in printed.err
    assert ("the time limit of 00:45:00 would end the run without a number" in printed.err) == (name == "check")
    assert (said in " ".join(printed.out.split())) == ("--bid" in options)
    assert main([name, *shared, *options, "--global-batch-size", "3200000"]) == 2
    assert ("counts samples, not tokens" in capsys.readouterr().err) == (name == "plan")


@pytest.mark.parametrize("question", [["--bid"], [], ["--why"], ["--time", "200"]])
def test_a_system_file_that_contradicts_the_data_sheet_is_told_by_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: list[str]
) -> None:
    path = own(tmp_path, "systems/dgx-h100.toml", ("memory_gib = 80", "memory_gib = 800"))
    main(["plan", "--model", "13", "--system", str(path), "--nodes", "4", *question])
    printed, said = capsys.readouterr(), "system.gpu.memory_gib: 800, but NVIDIA H100 SXM has 96"
    assert f"warning: {said}" in printed.err
    assert (said in " ".join(printed.out.split())) == (question == ["--bid"])


def test_the_sheet_names_the_table_of_data_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = sheet_of(capsys)
    assert "a GPU's 989.4 TFLOP/s" in plain
    assert "data sheets accelerators.toml" in plain
    assert "Not as shipped" not in plain
    (tmp_path / "home").mkdir()
    own(tmp_path / "home", "accelerators.toml", ("bf16 = 989.4", "bf16 = 1500"))
    monkeypatch.setenv("NLP_BENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    accelerators.forget()
    try:
        said = sheet_of(capsys)
    finally:
        accelerators.forget()
    assert f"{tmp_path}/home/accelerators.toml: NVIDIA H100 SXM: peak_tflops.bf16 = 1500 instead of 989.4" in said
    assert "a GPU's 1500 TFLOP/s" in said


def constants_of(folder: Path, text: str) -> Path:
    (folder / "mine.toml").write_text(f'schema = "nlp-bench/plan/1"\n{text}\n')
    return folder / "mine.toml"


def test_the_sheet_says_once_what_is_not_as_shipped_in_the_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").mkdir()
    own(tmp_path / "home", "plan.toml", ("host_batch_s = { value = 2e-4", "host_batch_s = { value = 3e-4"))
    monkeypatch.setenv("NLP_BENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    mine = constants_of(tmp_path, '[time]\nhost_step_s = { value = 0.5, source = "mine" }')
    said = sheet_of(capsys, "--constants", str(mine))
    assert "host_step_s = 0.5 instead of 0.005" in said
    assert said.count("host_batch_s = 0.0003 instead of 0.0002") == 1


@pytest.mark.parametrize("question", [["--bid"], [], ["--why"], ["--time", "60"]])
def test_a_prediction_faster_than_the_peak_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: list[str]
) -> None:
    path = constants_of(tmp_path, '[time]\nscale_compute = { value = 0.2, source = "mine" }')
    assert main(["plan", "--model", "13", *ON, "--constants", str(path), *question]) == UsageError.exit_code
    said = capsys.readouterr()
    assert "at their peak; no machine is faster than that. [time] scale_compute is 0.2: correct it" in said.err
    assert not said.out


def test_a_measured_peak_far_above_the_data_sheet_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = (
        '[machine]\nname = "NVIDIA H100 80GB HBM3"\npeak_tflops = { bf16 = 1500 }\nmemory_gb_per_s = 3000\n'
        "link_gb_per_s = 400\nmemory_gib = 80"
    )
    path = constants_of(tmp_path, machine)
    assert main(["plan", "--model", "13", *ON, "--constants", str(path), "--bid"]) == UsageError.exit_code
    peak = "[machine] peak_tflops.bf16 = 1500: NVIDIA H100 80GB HBM3 has 989.4 TFLOP/s by its data sheet"
    assert peak in capsys.readouterr().err
    said = sheet_of(capsys, "--constants", str(constants_of(tmp_path, machine.replace("1500", "700"))))
    assert "NVIDIA H100 80GB HBM3 as its owner measured it (bf16 700 TFLOP/s), in place of the data sheet" in said


def test_what_one_gpu_measured_is_not_taken_for_another_whose_name_it_begins_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h200 = constants_of(
        tmp_path,
        '[machine]\nname = "NVIDIA H200"\npeak_tflops = { bf16 = 700 }\nmemory_gb_per_s = 4000\nlink_gb_per_s = 400\nmemory_gib = 141',
    )
    changes = (("NVIDIA H100 80GB HBM3", "NVIDIA H20"), ("memory_gib = 80", "memory_gib = 96"), ("989.4", "148"))
    h20 = own(tmp_path, "systems/dgx-h100.toml", *changes)
    words = ["plan", "--model", "13", "--system", str(h20), "--nodes", "4", "--constants", str(h200)]
    assert main([*words, "--top", "1"]) == 0
    assert "the constants were measured on NVIDIA H200, not on NVIDIA H20: neither they" in capsys.readouterr().err


def test_constants_that_are_not_the_shipped_ones_are_told_on_the_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        '[time]\nscale_compute = { value = 0.8, source = "mine" }\n[interval]\nmegatron = { low = 0.999, high = 1.001 }'
    )
    said = sheet_of(capsys, "--constants", str(constants_of(tmp_path, text)))
    assert re.search(
        r"the constants, mine\.toml, SHA-256 [0-9a-f]{12}: \[time\] scale_compute = 0\.8 instead of 1 ", said
    )
    assert "[interval] megatron = 0.999 to 1.001 of the time instead of " in said
    assert "[distance]: the interval is not widened away from what was measured" in said


@pytest.mark.slow
def test_a_rehearsal_counts_only_for_the_run_that_it_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split, plain = small_run(tmp_path / "split", "--tp", "2"), small_run(tmp_path / "plain")
    assert main(["rehearse", "--run", str(tmp_path / "split"), "--output", str(tmp_path / "split")]) == 0
    rehearsal = (tmp_path / "split/rehearsal.json").read_text()
    assert warnings_of(split, tmp_path / "split") == []
    (tmp_path / "plain/rehearsal.json").write_text(rehearsal)
    (line,) = warnings_of(plain, tmp_path / "plain")
    assert f"{tmp_path}/plain/rehearsal.json is of another run than this one" in line
    record = json.loads(rehearsal)
    capsys.readouterr()
    for other in ({**record, "ranks": []}, {**record, "fits": ["yes"]}, {**record, "run": None}):
        (tmp_path / "split/rehearsal.json").write_text(json.dumps(other))
        said = warnings_of(split, tmp_path / "split")
        assert [line for line in said if "does not count" not in line] == []
        assert len(said) == (other["fits"] == "yes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "b.svg", "--plot", "b.svg"], "--output and --plot both name b.svg"),
        (
            ["--output", "b.svg", "--plot", "here/../b.svg", "--overwrite"],
            "--output and --plot both name here/../b.svg",
        ),
        (["--output", "here", "--emit-jube", "here/plan.txt"], "--output and --emit-jube both name here/plan.txt"),
        (["--plot", "link.svg", "--emit-jube", "link.svg"], "--plot and --emit-jube both name link.svg"),
        (["--constants", "c.toml", "--output", "c.toml", "--overwrite"], "--constants and --output both name c.toml"),
        (
            ["--output", "kept", "--format", "json"],
            "--output kept/plan.json exists; name another file, or give --overwrite",
        ),
    ],
)
def test_two_options_do_not_name_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    Path("kept").mkdir()
    Path("kept/plan.json").write_text("mine")
    Path("c.toml").write_text('schema = "nlp-bench/plan/1"\n')
    Path("link.svg").symlink_to("elsewhere.svg")
    assert main(["plan", "--model", "13", *ON, *words]) == UsageError.exit_code
    assert said in capsys.readouterr().err
    assert not Path("b.svg").exists()
    assert Path("kept/plan.json").read_text() == "mine"


ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT / "reports/reference/published_points/points.csv"


def test_a_table_of_points_may_come_out_of_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "p")
    few = "".join(POINTS.read_text(encoding="utf-8").splitlines(keepends=True)[:3])
    writer = threading.Thread(target=(tmp_path / "p").write_text, args=(few,), daemon=True)
    writer.start()
    assert main(["plan", "predict", str(tmp_path / "p")]) == 0
    writer.join(10)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_gives_no_table_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.1)
    os.mkfifo(tmp_path / "p")
    silent = "it is a pipe, and nothing came out of it within 0.1 s"
    for path, said in ((str(tmp_path / "p"), silent), ("/dev/zero", "it is a device")):
        assert main(["plan", "predict", path]) == UsageError.exit_code
        assert f"cannot read {path}: {said}; name a file of comma-separated values" in capsys.readouterr().err


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str, str], tuple[str, str]], said: str
) -> None:
    head, row, *_ = POINTS.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "points.csv"
    path.write_text("\n".join(change(head, row)) + "\n")
    assert main(["plan", "predict", str(path)]) == UsageError.exit_code
    assert said in capsys.readouterr().err


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
    path = tmp_path / "own.toml"
    text = 'schema = "nlp-bench/plan/1"\n[time]\n{} = {{ value = {}, source = "mine" }}\n'
    path.write_text(text.format(name, value))
    with pytest.raises(UsageError, match=rf"\[time\] {name}: {value:g} {rule}"):
        read_constants(path)
    path.write_text(text.format(name, 1))
    assert read_constants(path)[name] == 1
    for short in ("attention_short", "attention_narrow"):  # tokens, and a width
        path.write_text(text.format(short, 300))
        assert read_constants(path)[short] == 300


@pytest.mark.slow
def test_plan_replaces_no_file_of_its_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, points = tmp_path / "mine", tmp_path / "points.csv"
    plan = ["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8"]
    points.write_text("\n".join(POINTS.read_text().splitlines()[:3]))
    for option in ("--output", "--emit-jube", "--plot"):
        path = mine.with_suffix(".txt" if option == "--output" else ".svg")
        path.write_text("precious")
        assert main([*plan, option, str(path)]) == 2
        assert f"{option} {path} exists; name another file, or give --overwrite" in capsys.readouterr().err
        assert path.read_text() == "precious"
        assert main([*plan, option, str(path), "--overwrite"]) == 0
        assert path.read_text() != "precious"
    os.mkfifo(tmp_path / "pipe.svg")
    for option in ("--output", "--emit-jube", "--plot"):
        assert main([*plan, option, str(tmp_path / "pipe.svg"), "--overwrite"]) == 2
        assert f"{option} {tmp_path}/pipe.svg is a pipe, which a file would replace" in capsys.readouterr().err
    assert (tmp_path / "pipe.svg").is_fifo()
    predict = ["plan", "predict", str(points), "--output", str(tmp_path / "mine.csv")]
    for _ in range(2):  # the second time over its own
        assert main(predict) == 0
    assert main([*predict[:-1], str(points)]) == 2
    for verb in ("calibrate", "learn"):
        words = ["--from", "nowhere.json"] if verb == "calibrate" else ["nowhere"]
        mine.with_suffix(".toml").write_text("precious = 1")
        capsys.readouterr()
        assert main(["plan", verb, *words, "--output", str(mine.with_suffix(".toml"))]) == 2
        assert f"{mine}.toml exists; name another file" in capsys.readouterr().err


def test_a_rehearsal_of_more_gpus_than_any_machine_has_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rehearse", "--model", "175", "--system", "juwels-booster", "--tp", "8", "--pp", "8", "--gas", "1"]
    assert main([*words, "--nodes", "1000000"]) == 2
    assert "4000000 GPUs in all are more than the 1048576" in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_rehearsal_says_what_takes_so_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.001)
    assert main(["rehearse", "--model", "tiny", "--system", "local", "--nodes", "1"]) == 0
    assert "each makes the process groups of all" in capsys.readouterr().err


def test_the_planners_own_file_is_no_file_of_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["plan", "--model", "13", *ON, "--constants", str(ROOT / "benchmark/plan.toml")]) == UsageError.exit_code
    )
    assert "leave out those of benchmark/plan.toml" in capsys.readouterr().err
