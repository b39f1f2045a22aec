"""Each form holds the number of the report, and only valid runs are exported."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Cli
from support.megatron_log import line
from support.ours import write_our_run
from support.published import published_log

from nlp_bench.cli.main import main
from nlp_bench.export.forms import FIELDS
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides

STEADY = 36361.6


@pytest.fixture
def our_run(tmp_path: Path) -> Path:
    folder = write_our_run(tmp_path / "run")
    packages = {"torch": "2.6.0", "megatron-core": "0.16.1", "apex": None}
    environment = {"cpu": "AMD EPYC 7402", "platform": "Linux-5", "packages": packages}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "machine").mkdir()
    facts = {"cpu": {"model": "AMD EPYC 7402 24-Core", "sockets": 2, "cores": 48, "threads": 96}, "memory_bytes": 512 * 2**30,
             "operating_system": "Rocky Linux 8.9"}  # fmt: skip
    (folder / "machine/node1.json").write_text(json.dumps(facts))
    return folder


def test_the_system_description_has_the_fields_of_mlperf(our_run: Path, cli: Cli) -> None:
    printed = cli("export", "mlperf", our_run, "--submitter", "Example", "--set", "cooling=liquid")
    found = json.loads(printed.out)
    assert tuple(found) == FIELDS
    assert len(FIELDS) == 33
    assert all(isinstance(value, str) for value in found.values())
    expected = {
        "submitter": "Example", "cooling": "liquid", "number_of_nodes": "96", "host_processor_core_count": "24",
        "host_processor_vcpu_count": "48", "host_processor_model_name": "AMD EPYC 7402 24-Core", "host_memory_capacity": "512 GiB",
        "framework": "PyTorch 2.6.0, megatron-core 0.16.1", "operating_system": "Rocky Linux 8.9", "host_storage_type": "",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "host_storage_type" in printed.err
    assert "apex" not in found["other_software_stack"]


def test_a_field_that_mlperf_does_not_have_is_refused(our_run: Path, cli: Cli) -> None:
    assert "did you mean cooling?" in cli("export", "mlperf", our_run, "--set", "coolin=liquid", code=2).err


def test_a_field_that_the_records_have_is_not_replaced_in_silence(our_run: Path, cli: Cli) -> None:
    said = cli("export", "mlperf", our_run, "--set", "cooling=liquid", "--set", "cooling=air", code=2).err
    assert "--set cooling is given twice" in said
    said = cli("export", "mlperf", our_run, "--set", "number_of_nodes=5").err
    assert "its records say number_of_nodes '96'; --set has replaced it" in said


@pytest.mark.parametrize(
    ("form", "gap", "filled", "said"),
    [
        ("mlperf", '"cooling": ""', '"cooling": "liquid"', "cooling"),
        ("mlperf", '"cooling": ""', '"cooling": "liquid; inlet temperature not recorded"', "cooling"),
        ("torchtitan", "(to be filled: name, company, university or team)", "Example", "1. Entity"),
        ("torchtitan", "networking: not recorded", "networking: 4 links (to be filled: of what?)", "host networking"),
    ],
)
def test_what_was_filled_by_hand_is_not_replaced_by_nothing(
    form: str, gap: str, filled: str, said: str, our_run: Path, tmp_path: Path, cli: Cli
) -> None:
    words = ["export", form, str(our_run), "--output", str(tmp_path / "out")]
    assert main(words) == main(words) == 0
    (path,) = (tmp_path / "out").iterdir()
    text = path.read_text().replace(gap, filled)
    assert filled in text
    path.write_text(text)
    assert f"what it says on {said}, by hand or by --set" in cli(*words, code=2).err
    assert path.read_text() == text


def test_mllog_events_give_the_same_number_again(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    text = cli("export", "mllog", our_run).out
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    assert all(set(e) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"} for e in events)
    assert [e["time_ms"] for e in events] == sorted(e["time_ms"] for e in events)
    keys = [event["key"] for event in events]
    assert keys.index("run_start") < keys.index("tracked_stats") < keys.index("run_stop")
    assert events[-1]["metadata"]["status"] == "success"
    (tmp_path / "result_0.txt").write_text(text)
    (entry,) = measure_log(str(tmp_path / "result_0.txt"), Overrides())
    assert entry.dialect == "mlperf-mllog"
    assert entry.steady == pytest.approx(STEADY, rel=1e-4)
    assert entry.reference == pytest.approx(34063.4, rel=1e-4)


@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_mllog_names_the_family_of_the_model(our_run: Path, cli: Cli, family: str) -> None:
    run = json.loads((our_run / "run.json").read_text())
    run["model"] = {**run["model"], "family": family}
    (our_run / "run.json").write_text(json.dumps(run))
    assert f'"value": "nlp_bench_{family}_' in cli("export", "mllog", our_run).out


def by_a_clock(n: int) -> str:
    time = f"{8 * n // 60:02}:{8 * n % 60:02}"
    return "" if n in {5, 6} else f" {8 * n}%|##   | {10 * n}/120 [{time}<01:00, 1.25it/s, loss={9 - n / 20}]\n"


def in_a_ramp_up(n: int) -> str:
    batch, samples = (32, 320 * n) if n < 7 else (64, 1920 + 640 * (n - 6))
    return line(10 * n, 120, ms=1000.0 + n, batch=batch, samples=samples, loss=9 - n / 20)


@pytest.mark.parametrize(
    ("a_line", "given", "seconds", "samples"),
    [(by_a_clock, ["--global-batch-size", 64], 88, 7680), (in_a_ramp_up, [], 120.78, 5760)],
)
def test_mllog_events_have_the_times_and_samples_of_the_log(
    tmp_path: Path, cli: Cli, a_line: Callable[[int], str], given: list[object], seconds: float, samples: int
) -> None:
    (tmp_path / "a.log").write_text("".join(map(a_line, range(1, 13))))
    text = cli("export", "mllog", tmp_path / "a.log", "--sequence-length", 2048, *given, "--allow-measured").out
    last = json.loads(text.splitlines()[-1].removeprefix(":::MLLOG "))
    assert (last["time_ms"], last["metadata"]["samples_count"]) == (1000 * seconds, samples)


def test_mlperf_logging_itself_reads_them(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    """Only where a person has installed it (pip install mlperf-logging): it is no dependency of the tests."""
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser.ruleset_500")
    checker = pytest.importorskip("mlperf_logging.system_desc_checker.system_desc_checker")
    (tmp_path / "result_0.txt").write_text(cli("export", "mllog", our_run).out)
    lines, errors = parser.parse_file(str(tmp_path / "result_0.txt"))
    assert (len(lines) > 10, errors) == (True, [])
    status = "status=Research, Development, or Internal (RDI)"
    (tmp_path / "system.json").write_text(cli("export", "mlperf", our_run, "--set", status).out)
    assert checker.check_system_desc(str(tmp_path / "system.json"), "training", "5.0.0")[0] is True


def test_the_page_has_the_six_items_of_torchtitan(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    text = cli("export", "torchtitan", our_run, "--submitter", "Example Centre").out
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert [heading[:5] for heading in headings] == [f"## {n}." for n in range(1, 7)]
    assert "| 36361." in text
    assert "Example Centre" in text
    assert cli("export", "torchtitan", our_run, "--output", tmp_path / "pages").out == ""
    (page,) = (tmp_path / "pages").iterdir()
    assert page.name.endswith("_20260101_entity.md")


def test_words_of_a_log_are_no_markup(our_run: Path, cli: Cli) -> None:
    run = json.loads((our_run / "run.json").read_text())
    run["model"]["name"] = "<script>alert(1)</script> | [x](y)"
    (our_run / "run.json").write_text(json.dumps(run))
    text = cli("export", "torchtitan", our_run).out
    assert "<script" not in text.replace("\\<", "")
    assert "[x](y)" not in text


def test_collectors_get_value_and_interval(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    (rate,) = cli("export", "bigger", our_run).json
    assert rate["unit"] == "tokens/s"
    assert rate["name"] == "175 machine 384 tp8 pp8 mbs1 gbs96: tokens per second (steady)"
    assert rate["value"] == pytest.approx(STEADY, rel=1e-4)
    (time,) = cli("export", "smaller", our_run).json
    assert time["value"] == pytest.approx(550.0, rel=1e-3)
    (measures,) = cli("export", "bencher", our_run).json.values()
    metric = measures["tokens-per-second"]
    assert metric["lower_value"] < metric["value"] < metric["upper_value"]
    (tmp_path / "bencher.json").write_text(
        '{\n "of the night before": {\n  "tokens-per-second": {\n   "value": 1.0\n  }\n }\n}\n'
    )
    cli("export", "bencher", our_run, "--output", tmp_path)
    assert "of the night before" not in (tmp_path / "bencher.json").read_text()


def test_two_runs_with_one_name_are_both_kept(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    other = write_our_run(tmp_path / "other")
    record = cli("export", "bencher", our_run, other).json
    assert [name[-2:] for name in record] == ["#1", "#2"]
    for form in ("bigger", "smaller"):  # their collector knows a series by its name
        names = [point["name"] for point in cli("export", form, our_run, other).json]
        assert ["#1:" in names[0], "#2:" in names[1]] == [True, True]
    assert "give --output DIR" in cli("export", "mllog", our_run, other, code=2).err
    cli("export", "mllog", our_run, other, "--output", tmp_path / "mllog")
    assert sorted(path.name for path in (tmp_path / "mllog").iterdir()) == ["result_0.txt", "result_1.txt"]


def test_a_run_without_a_number_is_refused_with_the_reason(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "train.log").write_text(published_log())
    printed = cli("export", "bigger", tmp_path / "train.log", code=1)
    assert "REFUSED, a run without a number is not exported: not in the log: sequence length" in printed.err
    assert printed.out == ""
    assert len(cli("export", "bigger", tmp_path / "train.log", our_run, code=1).json) == 1
    cli("export", "bigger", tmp_path / "train.log", "--sequence-length", 2048, "--allow-measured")
