"""Faults of a fifth round around the planner: bid sheets, tables of points, rehearsals, where answers are written."""

import csv
import json
import os
import re
import struct
from pathlib import Path

import pytest
from support.ours import write_our_run

from nlp_bench.cli.main import main
from nlp_bench.config import accelerators, catalog
from nlp_bench.config.run import Run, read_run
from nlp_bench.data import PREFIX, maker
from nlp_bench.errors import UsageError
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import verify
from nlp_bench.files import sha256_of
from nlp_bench.launch.prediction import warnings_of
from nlp_bench.redact import without_secrets

ON = ["--system", "dgx-h100", "--nodes", "4"]


def sheet_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the bid sheet for 13B on four nodes, as plain text without line ends."""
    assert (
        main(
            [
                "plan",
                *ON,
                "--bid",
                "--format",
                "markdown",
                *(words if "--model" in words else ("--model", "13", *words)),
            ]
        )
        == 0
    )
    return " ".join(re.sub(r"\\(.)", r"\1", capsys.readouterr().out).split())


def own_model(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write a 13.toml of the user's own."""
    text = (catalog.shipped() / "benchmark/models/13.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "13.toml").write_text(text)
    return folder / "13.toml"


def test_a_model_of_ones_own_under_a_shipped_name_is_told_on_the_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(
        own_model(tmp_path, ("vocab_size = 50257", "vocab_size = 1000"), ('precision = "bf16"', 'precision = "fp8"'))
    )
    said = sheet_of(capsys, "--model", path)
    assert "shape and training parameters of 13 unchanged" not in said
    assert 'It does not rest on what nlp-bench ships alone: see "Not as shipped"' in said
    assert "model.vocab_size: 1000 instead of 50257: not the benchmark" in said
    assert "model.precision: fp8 instead of bf16: not the benchmark" in said
    assert main(["plan", "--model", path, *ON, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "warning: model.vocab_size: 1000 instead of 50257: not the benchmark" in printed.err
    assert "model.vocab_size: 1000 instead of 50257" in json.loads(printed.out)["deviations"]


def test_another_family_or_recompute_is_a_difference_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own_model(tmp_path, ('family = "gpt"', 'family = "bert"'))
    assert main(["check", "--model", str(path), "--system", "dgx-h100", "--offline"]) == 0
    assert "model.family: bert instead of gpt: not the benchmark" in capsys.readouterr().err
    assert "model.recompute: none instead of selective: not the benchmark" in sheet_of(capsys, "--recompute", "none")
    assert "shape and training parameters of 13 unchanged" in sheet_of(capsys)


def own_system(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write mine.toml, a system of the user's own."""
    text = (catalog.shipped() / "benchmark/systems/dgx-h100.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


@pytest.mark.parametrize("question", [["--bid"], [], ["--why"], ["--time", "200"]])
def test_a_system_file_that_contradicts_the_data_sheet_is_told_by_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: list[str]
) -> None:
    path = own_system(tmp_path, ("memory_gib = 80", "memory_gib = 800"))
    main(["plan", "--model", "13", "--system", str(path), "--nodes", "4", *question])
    printed, said = capsys.readouterr(), "system.gpu.memory_gib: 800, but NVIDIA H100 SXM has 96"
    assert f"warning: {said}" in printed.err
    assert (said in " ".join(printed.out.split())) == (question == ["--bid"])


def test_the_sheet_names_the_table_of_data_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = (catalog.shipped() / "benchmark/accelerators.toml").read_text()
    plain = sheet_of(capsys)
    assert "a GPU's 989.4 TFLOP/s" in plain
    assert "data sheets accelerators.toml" in plain
    assert "Not as shipped" not in plain
    (tmp_path / "home").mkdir()
    (tmp_path / "home/accelerators.toml").write_text(shipped.replace("bf16 = 989.4", "bf16 = 1500"))
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
    """Write a file of constants."""
    (folder / "mine.toml").write_text(f'schema = "nlp-bench/plan/1"\n{text}\n')
    return folder / "mine.toml"


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
    assert (
        "[machine] peak_tflops.bf16 = 1500: NVIDIA H100 80GB HBM3 has 989.4 TFLOP/s by its data sheet"
        in capsys.readouterr().err
    )
    said = sheet_of(capsys, "--constants", str(constants_of(tmp_path, machine.replace("1500", "700"))))
    assert "NVIDIA H100 80GB HBM3 as its owner measured it (bf16 700 TFLOP/s), in place of the data sheet" in said


def test_what_one_gpu_measured_is_not_taken_for_another_whose_name_it_begins_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h200 = constants_of(
        tmp_path,
        '[machine]\nname = "NVIDIA H200"\npeak_tflops = { bf16 = 700 }\nmemory_gb_per_s = 4000\nlink_gb_per_s = 400\nmemory_gib = 141',
    )
    shipped = catalog.find("systems", "dgx-h100").read_text()
    (tmp_path / "h20.toml").write_text(
        shipped.replace("NVIDIA H100 80GB HBM3", "NVIDIA H20")
        .replace("memory_gib = 80", "memory_gib = 96")
        .replace("989.4", "148")
    )
    words = ["plan", "--model", "13", "--system", str(tmp_path / "h20.toml"), "--nodes", "4", "--constants", str(h200)]
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


def layout(folder: Path, *words: str) -> Run:
    """Resolve a small run of two GPUs into `folder`."""
    given = ["--model", "tiny", "--system", "dgx-h100", "--nodes", "1", "--gpus-per-node", "2", "--data-path", "mock"]
    assert main(["check", *given, *words, "--offline", "--output", str(folder)]) == 0
    return read_run(folder)


def test_a_rehearsal_counts_only_for_the_run_that_it_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split, plain = layout(tmp_path / "split", "--tp", "2"), layout(tmp_path / "plain")
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


@pytest.mark.parametrize("started", ["submit.json", "outcome.json", "job.out"])
@pytest.mark.parametrize("command", ["check", "rehearse"])
def test_the_records_of_a_started_run_are_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, started: str
) -> None:
    run = tmp_path / "run"
    layout(run)
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
        layout(tmp_path / word, "--tp", "2", "--sequence-parallel", word)
        said += [line for line in capsys.readouterr().out.splitlines() if line.startswith("tuning ")]
    both = [
        "tuning  --recompute-granularity selective --sequence-parallel",
        "tuning  --recompute-granularity selective",
    ]
    assert said == [f"{words} --use-distributed-optimizer" for words in both]


POINT = {
    "id": "a", "params_b": "175", "layers": "96", "hidden": "12288", "heads": "96", "kv_heads": "96", "ffn": "49152", "vocab": "51200",
    "seq": "2048", "gpu": "A100-SXM4-80GB", "n_gpus": "1024", "tp": "8", "pp": "8", "vpp": "", "mbs": "1", "gbs": "1536",
    "recompute": "full", "sequence_parallel": "1", "distributed_optimizer": "1", "gated_mlp": "0", "precision": "bf16",
    "framework": "Megatron-LM", "software_version": "2023-06",
}  # fmt: skip


def predicted(folder: Path, *rows: dict[str, str]) -> list[dict[str, str]]:
    """Predict variants of a published point; return their rows."""
    with (folder / "points.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, POINT)
        table.writeheader()
        table.writerows({**POINT, **row, "id": str(place)} for place, row in enumerate(rows))
    assert main(["plan", "predict", str(folder / "points.csv"), "--output", str(folder / "out.csv")]) == 0
    with (folder / "out.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", ["distributed_optimizer", "sequence_parallel", "gated_mlp"])
def test_a_table_says_yes_and_no_in_any_case(tmp_path: Path, name: str) -> None:
    ffn = {"params_b": ""}
    no, yes = (
        predicted(tmp_path, *({name: word, **ffn} for word in words))
        for words in (("0", "FALSE", "False", "No", "off", "n", "0.0"), ("1", "TRUE", "Yes", "ON", "y", "true", "1.0"))
    )
    figures = [{(row["iter_time_s"], row["peak_mem_gb"]) for row in rows} for rows in (no, yes)]
    assert [len(found) for found in figures] == [1, 1]
    assert figures[0] != figures[1]
    (odd,) = predicted(tmp_path, {name: "FALSCH", **ffn})
    assert odd["refused"] == f"{name} = 'FALSCH' is neither yes (1, true, on) nor no (0, false, off)"
    assert odd["iter_time_s"] == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"recompute": "yes"}, "recompute = 'yes' is none of none, selective, full"),
        ({"recompute": "uniform"}, "recompute = 'uniform' is none of none, selective, full"),
        ({"recompute": "1"}, "recompute = '1' is none of none, selective, full"),
        ({"vpp": "7"}, "vpp: num_layers = 96 is not a multiple of pp*vpp = 8*7"),
        ({"vpp": "2", "pp": "1"}, "vpp: vpp = 2 needs pp above 1"),
        ({"kv_heads": "7", "params_b": ""}, "kv_heads = 7 does not divide heads = 96"),
        ({"kv_heads": "4", "params_b": ""}, "tp: num_query_groups = 4 is not a multiple of tp = 8"),
        ({"layers": "97"}, "pp: num_layers = 97 is not a multiple of pp = 8"),
        ({"gbs": "95"}, "gbs: global_batch_size = 95 is not a multiple of dp*micro_batch_size = 16*1"),
        ({"mbs": "64", "gbs": "96"}, "gbs: global_batch_size = 96 is not a multiple of dp*micro_batch_size = 16*64"),
        ({"params_b": "13"}, "params_b = 13, but layers, hidden, heads, kv_heads, ffn, gated_mlp and vocab make 17"),
        ({"params_b": "175B"}, "params_b = '175B' is not a number above 0"),
    ],
)
def test_a_row_that_cannot_have_run_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    legal, odd = predicted(tmp_path, {}, change)
    assert legal["refused"] == ""
    assert odd["refused"].startswith(said)
    assert odd["iter_time_s"] == ""


def test_deepspeed_shares_out_layers_unevenly(tmp_path: Path) -> None:
    (one,) = predicted(tmp_path, {"layers": "97", "framework": "Megatron-DeepSpeed"})
    assert one["refused"] == ""


def bundled(folder: Path) -> Path:
    """Make a bundle of a small run, as a folder."""
    run = write_our_run(folder / "run")
    return make_bundle([str(run)], folder / "evidence", Options(), with_ranks=False, force=False).path


def sealed_again(folder: Path, *, sizes: int = 0) -> None:
    """Make all hashes fit, as a forger does; `sizes` is added to the sizes."""
    text = (folder / "manifest.json").read_text()
    for file in json.loads(text)["files"]:
        path = folder / file["path"]
        text = text.replace(file["sha256"], sha256_of(path))
        text = text.replace(f'"size": {file["size"]}', f'"size": {path.stat().st_size + sizes}')
    (folder / "manifest.json").write_text(text)
    names = [*(file["path"] for file in json.loads(text)["files"]), "manifest.json"]
    (folder / "SHA256SUMS").write_text("".join(f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("report/report.json", '{\n "schema"', '{\n "runs": [],\n "schema"', "'runs' stands twice in one object"),
        ("manifest.json", '{\n "schema"', '{\n "praise": 1,\n "schema"', "praise: no manifest has this key"),
        ("manifest.json", "nlp-bench report", "nlp-bench trust", "derived_by: it is not what the rest of the manifest"),
        ("manifest.json", "", "", ""),
    ],
)
def test_a_bundle_with_words_that_nobody_holds_against_the_log_differs(
    tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    folder = bundled(tmp_path)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    sealed_again(folder)
    found = verify(folder)
    assert not found.faults
    assert found.is_verified == (not said)
    assert said in " ".join(found.differences.get(name, ()))


def test_a_manifest_with_a_key_twice_or_wrong_sizes_is_no_good_one(tmp_path: Path) -> None:
    folder = bundled(tmp_path)
    sealed_again(folder, sizes=1)
    assert any("report/report.json has " in fault for fault in verify(folder).faults)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"runs"', '"runs": [], "runs"', 1))
    with pytest.raises(UsageError, match=r"manifest\.json is not the manifest .*'runs' stands twice"):
        verify(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"nodes": 1', '"nodes": 1, "nodes": 2', "'nodes' stands twice in one object; leave one of the two out"),
        ("{", "\ufeff{", "it begins with a byte order mark; save it as UTF-8 without one"),
        ('"nodes": 1', f'"nodes": {"9" * 5000}', "a number of 5000 digits, 99999999999999999999..., is in no record"),
    ],
)
def test_a_run_json_that_readers_would_read_differently_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    layout(tmp_path / "run")
    path = tmp_path / "run/run.json"
    path.write_text(path.read_text().replace(old, new, 1))
    assert main(["rehearse", "--run", str(path)]) != 0
    assert f"{path} is not JSON: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"hidden_size": 256', '"hidden_size": 4096', "model.parameters_billion: 0.0042, but the architecture has"),
        (
            '"parameters_billion": 0.0042',
            '"parameters_billion": 175',
            "model.parameters_billion: 175, but the architecture",
        ),
        ('"global_batch_size": 8', '"global_batch_size": 1001', "batch: global_batch_size = 1001 is not a multiple of"),
        (
            '"gradient_accumulation_steps": 2',
            '"gradient_accumulation_steps": 3',
            "batch: global_batch_size = 8 is not dp*",
        ),
        ('"sequence_length": 256', '"sequence_length": 64', "batch.sequence_length: 256, but model.architecture"),
    ],
)
def test_an_edited_run_json_that_contradicts_itself_is_not_submitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    layout(tmp_path / "run")
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
    layout(tmp_path / "run", "--iterations", "6")
    path = tmp_path / "run/run.json"
    assert main(["submit", "--run", str(path), "--print"]) == 0
    assert "not the benchmark" not in capsys.readouterr().err
    path.write_text(path.read_text().replace('"hidden_dropout": 0.0', '"hidden_dropout": 0.3', 1))
    assert main(["submit", "--run", str(path), "--print"]) == 0
    assert f"warning: {path}: model.hidden_dropout: 0.3 instead of 0.0: not the benchmark" in capsys.readouterr().err


def test_an_endless_corpus_is_refused_and_its_tokenizer_needs_few_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "--vocab-size", "300", "--output", str(tmp_path / "data")]
    assert main([*words, "--documents", "1e12"]) == UsageError.exit_code
    assert "documents: 1000000000000 are more than 10000000" in capsys.readouterr().err
    assert main(["data", "--vocab-size", "900000000", "--output", str(tmp_path / "data")]) == UsageError.exit_code
    assert "vocab_size: 900000000 is more than 1000000" in capsys.readouterr().err
    assert main([*words, "--documents", "50"]) == 0
    few = (tmp_path / "data/merges.txt").read_text()
    monkeypatch.setattr(maker, "LEARNED_FROM", 50)
    assert main([*words, "--documents", "100"]) == 0
    assert (tmp_path / "data/merges.txt").read_text() == few
    assert json.loads((tmp_path / "data/data.json").read_text())["num_documents"] == 100


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


def test_a_driver_that_fails_is_no_silent_lack_of_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\necho "Driver/library version mismatch" >&2\nexit 18\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["check", "--model", "tiny", "--system", "local"]) == 0
    assert (
        "warning: nvidia-smi fails, so that no GPU is seen here: Driver/library version mismatch"
        in capsys.readouterr().err
    )


def test_doctor_sees_a_wrong_length_in_the_midst_of_an_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "--documents", "20", "--vocab-size", "300", "--output", str(tmp_path / "data")]) == 0
    prefix = tmp_path / "data" / PREFIX
    words = ["doctor", "--checks", "data", "--model", "tiny", "--system", "local", "--data-path", str(prefix)]
    assert main(words) == 0
    assert "1 pair(s) of .bin and .idx are whole" in capsys.readouterr().out
    content = bytearray(Path(f"{prefix}.idx").read_bytes())
    content[34 + 4 * 7 : 34 + 4 * 8] = struct.pack("<i", 2**30)
    Path(f"{prefix}.idx").write_bytes(content)
    assert main(words) != 0
    assert "is damaged: sequence 7 or the one behind it has a wrong length or place" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("option", ["--te=--help", "--apex=--upload-pack=touch pwned", "--apex-commit=--exec=x"])
def test_what_is_built_is_no_option_of_git_or_pip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    named = [] if option.startswith("--apex=") else ["--apex", "https://example.org/apex"]
    assert main(["build", "--root", str(tmp_path), *named, option]) == UsageError.exit_code
    name, _, value = option.partition("=")
    assert f"{name}: {value!r} begins with -, so that git or pip would take it for an option" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        'ssh-keygen -t ed25519 -N "" -f key',
        "gzip -9 -c a > b",
        "zip -r all.zip folder",
        "openssl req -key a.pem -out b",
        "openssl s_client -connect host:443",
        'send "hello there"',
        "isend 4 rank 3, send 5 blocks",
    ],
)
def test_commands_without_a_password_stay(line: str) -> None:
    assert without_secrets(line) == line
