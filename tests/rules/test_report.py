"""Rules at the command line: columns, notes, explanation, exit codes, and rules that every process applies."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.published import change_record
from support.ruled_run import OWN, Make, rule_file

from nlp_bench.config import catalog
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.sizes import Overrides
from nlp_bench.rules.apply import VARIABLE, measured_folder, wanted


@pytest.fixture
def as_json(report: Cli) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(*words: object) -> tuple[int, dict[str, Any]]:
        found = report(*words, "--format", "json")
        return found.code, found.json["runs"][0]

    return run


def test_a_valid_run_has_its_word_in_every_format(make_run: Make, as_json: Cli, report: Cli) -> None:
    folder = str(make_run())
    code, run = as_json(folder, "--rules", "jupiter-nlp")
    assert (code, run["rules"]["result"], run["rules"]["rules"]) == (0, "VALID", "jupiter-nlp")
    shape = next(one for one in run["rules"]["findings"] if one["rule"] == "shape")
    layers = next(one for one in shape["evidence"] if one["name"] == "num_layers")
    assert re.fullmatch(r"run\.json and log line \d+", layers.pop("source"))
    assert layers == {"name": "num_layers", "status": "PASS", "value": 96, "expected": 96}
    assert run["rules"]["free"]["tensor_model_parallel_size"] == 8
    assert next(csv.DictReader(io.StringIO(report(folder, "--format", "csv").out)))["rules"] == "VALID"
    for form in ("table", "markdown"):
        assert "VALID; 17 of 17 rules pass" in report(folder, "--format", form).out


def test_a_broken_rule_that_was_asked_for_takes_number_and_exit_code(make_run: Make, as_json: Cli) -> None:
    folder = str(make_run(torch="2.9.0.dev1"))
    code, run = as_json(folder)
    assert (code, run["outcome"], run["rules"]["result"]) == (0, "VALID", "INVALID")
    code, run = as_json(folder, "--rules", "jupiter-nlp")
    assert (code, run["outcome"], run["tokens_per_second"]["steady"]) == (1, "INVALID", None)
    assert run["reasons"][0].startswith("rule broken: released-torch: torch_version is 2.9.0.dev1")
    assert run["provenance"]["arithmetic"] is None


def test_a_broken_rule_takes_all_that_was_worked_out(make_run: Make, as_json: Cli) -> None:
    """The mean time that --until knew of stood in the record of an INVALID run."""
    seconds = tuple(5.0 + 0.01 * (n % 3) for n in range(100))
    folder = make_run(torch="2.9.0.dev1", seconds=seconds)
    change_record(folder, "run.json", tuning__until="5%")
    assert as_json(folder)[1]["until"]["seconds_per_iteration"] == pytest.approx(5.01, abs=0.01)
    code, run = as_json(folder, "--rules", "jupiter-nlp")
    assert (code, run["outcome"], run["until"], run["energy"]) == (1, "INVALID", None, None)


def test_a_slow_run_keeps_its_number_and_fails_all_the_same(make_run: Make, as_json: Cli) -> None:
    slow = make_run(seconds=(6.0, *(5.80 + 0.01 * (n % 3) for n in range(14))))
    code, run = as_json(slow, "--rules", "jupiter-nlp")
    assert (code, run["outcome"], run["rules"]["result"]) == (1, "VALID", "INVALID")
    assert run["tokens_per_second"]["steady"] > 0


def test_a_log_alone_is_not_accepted_and_keeps_its_number(make_run: Make, tmp_path: Path, as_json: Cli) -> None:
    (tmp_path / "a.log").write_text((make_run() / "job.out").read_text())
    code, run = as_json(tmp_path / "a.log", "--rules", "jupiter-nlp")
    assert (code, run["outcome"], run["rules"]["result"]) == (1, "VALID", "NOT SHOWN")
    assert as_json(tmp_path / "a.log")[1]["rules"] is None
    without = "".join(f"[rules.{name}]\napply = false\n" for name in ("agreement", "versions", "exit-status"))
    assert as_json(tmp_path / "a.log", "--rules", rule_file(tmp_path, OWN + without))[0] == 0


def test_required_evidence_that_is_missing_breaks_the_rule(make_run: Make, tmp_path: Path, as_json: Cli) -> None:
    (tmp_path / "a.log").write_text((make_run() / "job.out").read_text())
    own = rule_file(tmp_path, OWN + "[rules.exit-status]\nrequired_evidence = true\n")
    _, run = as_json(tmp_path / "a.log", "--rules", own)
    assert run["outcome"] == "INVALID"
    assert run["reasons"][0] == "rule broken: exit-status: exit_status is not stated, expected 0"


def test_the_explanation_lists_each_rule_with_its_evidence(make_run: Make, report: Cli) -> None:
    out = report(make_run(log_model="13"), "--explain", code=1).out
    assert "  rules     jupiter-nlp: INVALID, model 175 (sha256 " in out
    assert re.search(r"  FAIL      agreement: world_size is 32 \(log line \d+\), expected 384; ", out)
    assert re.search(r"num_layers is 40 \(log line \d+\), expected 96", out)
    assert "  PASS      exit-status: outcome is VALID (outcome.json); exit_status is 0 (outcome.json)" in out
    assert "run.json and the log describe one run" in out
    assert "  free      tensor_model_parallel_size " in out


@pytest.mark.parametrize("name", ["jupiter", "gone.toml", ""])
def test_rules_that_are_not_there_are_refused_before_anything_is_read(name: str, tmp_path: Path, cli: Cli) -> None:
    assert "no.log" not in cli("report", tmp_path / "no.log", "--rules", name, code=2).err


def test_a_fault_of_the_default_file_costs_no_number(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run()
    (tmp_path / "benchmark" / "rules").mkdir(parents=True)
    (tmp_path / "benchmark" / "models").symlink_to(catalog.root() / "benchmark" / "models")
    text = "schema = 'nlp-bench/rules/1'\ndefault = true\nmodles = []\n"
    (tmp_path / "benchmark" / "rules" / "mine.toml").write_text(text)
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    entry = measured_folder(folder, "run").entry
    assert entry.has_number
    assert any("could not be applied" in said and "modles" in said for said in entry.remarks)


@pytest.mark.slow
def test_what_is_asked_for_holds_in_other_processes_and_ends_with_the_report(make_run: Make, here: Path) -> None:
    text = (make_run() / "job.out").read_text()
    for number in range(4):
        (here / f"{number}.log").write_text(text)
    (here / "own.toml").write_text(OWN)
    found = read_sources([str(here / "*.log")], Overrides(), rules=wanted("own.toml"), alone_s=0.0)
    assert [entry.rules.rules if entry.rules else None for entry in found.entries] == ["own"] * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "jupiter-nlp")
        entry = measured_folder(make_run(torch="1.0.dev1"), "run", rules=wanted(None)).entry
        assert not entry.has_number


def test_text_of_a_log_stays_one_line_and_no_markup(make_run: Make, tmp_path: Path, report: Cli) -> None:
    text = (make_run() / "job.out").read_text().replace("torch 2.8.0+cu126", "torch <b>\x1b[31m|x|" + "y" * 300)
    (tmp_path / "a.log").write_text(text)
    out = report(tmp_path / "a.log", "--rules", "jupiter-nlp", "--format", "markdown").out
    assert "\x1b" not in out
    assert "<b>" not in out.replace("\\<b\\>", "")
    assert "y" * 200 not in out


def test_a_published_value_shows_little_and_breaks_nothing(as_json: Cli) -> None:
    table = str(catalog.root() / "reports" / "reference" / "juwels_booster" / "results.csv")
    code, run = as_json(table, "--rules", "jupiter-nlp")
    assert (code, run["outcome"], run["rules"]["result"]) == (1, "MEASURED", "NOT SHOWN")
    assert run["tokens_per_second"]["reference"] > 0
