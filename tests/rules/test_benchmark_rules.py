"""The rules of the benchmark, each kept and broken by a run of ours and by its log alone."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from support.published import change_record
from support.ruled_run import Make, asked, finding, foreign, log_of, ours

from nlp_bench.config.catalog import load_model, names
from nlp_bench.measure.contradiction import Code
from nlp_bench.measure.judgement import Status
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.rules.apply import judged
from nlp_bench.rules.checks import SECTIONS
from nlp_bench.rules.file import defaults_of, load
from nlp_bench.rules.rule import frozen_values

FAIL, PASS, NOT_SHOWN = Status.FAIL, Status.PASS, Status.NOT_SHOWN


@pytest.mark.parametrize("model", ["175", "13"])
def test_a_run_that_keeps_all_rules_is_valid_and_says_so_in_one_note(make_run: Make, model: str) -> None:
    entry = ours(make_run(model))
    assert {one.status for one in entry.rules.findings} == {PASS}
    assert (entry.rules.result, entry.rules.model, entry.outcome) == ("VALID", model, Outcome.VALID)
    (note,) = [remark for remark in entry.remarks if remark.startswith("rules ")]
    count = len(entry.rules.findings)
    assert note == f"rules jupiter-nlp: VALID; {count} of {count} rules pass"
    assert ours(make_run(model), "jupiter-nlp").outcome is Outcome.VALID


@pytest.mark.parametrize(
    ("broken", "rule", "says"),
    [
        ({"choices": {"hidden_size": 6144, "num_attention_heads": 48}}, "shape", "hidden_size is 6144 (run.json), expected 12288"),
        ({"choices": {"sequence_length": 1024}}, "shape", "seq_length is 1024 (run.json), expected 2048"),
        ({"words": ("--lr", "6e-5")}, "training", "lr is 6e-05 (log line N), expected 0.0001"),
        ({"words": ("--seed", "1")}, "agreement", "seed is 1 (log line N), expected 42"),
        ({"words": ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")},
         "training", "recompute_granularity is full (log line N), expected selective"),
        ({"parameters": 124439808}, "parameter-count", "num_parameters is 124439808 (log line N), expected 17459"),
        ({"torch": "2.9.0.dev20260101+cu126"}, "released-torch", "torch_version is 2.9.0.dev20260101+cu126 (log line N)"),
        ({"torch": "2.6.0a0+ecf3bae40a.nv25.01"}, "released-torch", "expected a released version of torch"),
        ({"torch": "2.8.0+git1a2b3c4"}, "released-torch", "2.8.0+git1a2b3c4"),
        ({"torch": "2.8.0rc1"}, "released-torch", "2.8.0rc1"),
        ({"commit": "5" * 40 + "+changes"}, "versions", "+changes (run.json), expected a commit without changes"),
        ({"choices": {"data_path": "mock"}}, "data", "data is mock data (log line N)"),
        ({"log_model": "13"}, "agreement", "tensor_model_parallel_size is 2 (log line N), expected 8"),
        ({"without": (4, 7)}, "whole-log", "missing_intervals is 2 of 15, the first after iteration 30"),
        ({"without": tuple(range(2, 15, 2))}, "whole-log", "missing_intervals is 7 of 15, the first after iteration 10"),
        ({"without": (1,)}, "whole-log", "missing_intervals is 1 of 15"),
        ({"skipped": 1}, "skipped-iterations", "skipped_iterations is 15 (log line N), expected at most 0 % of 150"),
        ({"loss": float("nan")}, "finite-loss", "lm loss is nan at iteration 10"),
        ({"seconds": (6.0,) * 14}, "final-iteration", "last_iteration is 140 (log line N), expected 150"),
        ({"outcome": {"outcome": "FAILED", "exit_status": 1}}, "exit-status", "exit_status is 1 (outcome.json), expected 0"),
        ({"seconds": (6.0, *(5.80 + 0.01 * (n % 3) for n in range(14)))}, "report-time", "expected at most 560 s over the whole 95 %"),
    ],
)  # fmt: skip
def test_a_broken_rule_names_value_place_and_rule(make_run: Make, broken: dict[str, Any], rule: str, says: str) -> None:
    entry = ours(make_run(**broken), "jupiter-nlp")
    found = finding(entry, rule)
    assert found.status is FAIL
    assert says in without_lines(found.reason())
    assert entry.rules.result == "INVALID"
    keeps_number = rule == "report-time"  # its outcome is VALID in the file: a slow run is a measurement
    assert entry.has_number is keeps_number
    assert (entry.outcome is Outcome.VALID) is keeps_number


def without_lines(text: str) -> str:
    """Return `text` without the numbers of log lines, which every new argument of the trainer moves."""
    return re.sub(r"log lines? \d+( to \d+)?", "log line N", text)


@pytest.mark.parametrize("torch", ["2.8.0", "2.8.0+cpu", "2.8.0+cu126", "2.8.0+rocm6.4", "2.8.0.post1", "2.8"])
def test_a_released_torch_of_any_build_passes(make_run: Make, torch: str) -> None:
    assert finding(ours(make_run(torch=torch)), "released-torch").status is PASS


@pytest.mark.parametrize(
    ("argument", "word", "precision"),
    [
        *(("fp8", word, "fp8") for word in ("hybrid", "e4m3")),
        *((name, "True", "fp8") for name in ("fp8_hybrid", "fp8_e4m3")),
        ("fp4", "e2m1", "fp4"),
    ],
)
def test_fewer_bits_are_less_accurate(make_run: Make, tmp_path: Path, argument: str, word: str, precision: str) -> None:
    log = (make_run() / "job.out").read_text()
    said = f"]:  {argument} ............. {word}\n[default3]:  fp16 .."
    found = finding(foreign(log.replace("]:  fp16 ..", said), tmp_path), "precision")
    assert found.status is FAIL
    reason = without_lines(found.reason())
    assert f"precision is {precision} (log line N), expected one of fp64, fp32, bf16, fp16" in reason


def test_the_log_of_another_run_never_has_a_number(make_run: Make) -> None:
    words = ("--global-batch-size", "96", "--train-iters", "150", "--log-interval", "10")
    entry = ours(make_run(log_model="13", words=words))
    assert entry.outcome is Outcome.INVALID
    assert not entry.has_number
    assert {found.code for found in entry.contradictions} >= {Code.ARGUMENTS_VS_RUN}
    assert without_lines(entry.reason_texts[0]) == "TP is 2 in the log (log line N) but 8 in run.json"
    assert entry.provenance.arithmetic is None


def test_a_small_model_under_a_large_name_is_found_in_its_log_alone(make_run: Make, tmp_path: Path) -> None:
    log = (make_run("13", parameters=124439808) / "job.out").read_text()
    entry = foreign(log, tmp_path)
    assert entry.rules.model == "13"
    assert entry.outcome is Outcome.INVALID
    said = "rule broken: parameter-count: num_parameters is 124439808 (log line N)"
    assert without_lines(entry.reason_texts[0]).startswith(said)


def test_a_run_with_another_model_breaks_the_rules_that_were_asked_for(make_run: Make) -> None:
    folder = make_run()
    change_record(folder, "run.json", model__name="tiny")
    assert ours(folder).rules is None  # nobody asked, and no file is the default of this model
    entry = ours(folder, "jupiter-nlp")
    assert finding(entry, "model").status is FAIL
    assert "report-time" not in {one.rule for one in entry.rules.findings}


def test_silence_of_run_json_and_log_is_no_agreement(make_run: Make) -> None:
    folder = make_run()
    lines = (folder / "job.out").read_text().splitlines(keepends=True)
    (folder / "job.out").write_text("".join(line for line in lines if " .." not in line))
    found = finding(ours(folder), "agreement")
    assert found.status is NOT_SHOWN
    assert "settings_in_common is not stated: run.json and the log have" in without_lines(found.reason())


def test_three_lines_show_that_none_is_missing(make_run: Make) -> None:
    assert finding(ours(make_run(choices={"iterations": 30})), "whole-log").status is PASS
    assert finding(ours(make_run(choices={"iterations": 20})), "whole-log").status is NOT_SHOWN


def test_few_intervals_are_not_enough_evidence(make_run: Make) -> None:
    entry = ours(make_run(choices={"iterations": 40}))
    assert finding(entry, "window").status is NOT_SHOWN
    assert entry.rules.result == "NOT SHOWN"


def test_every_value_of_the_model_files_is_frozen_or_named_as_free() -> None:
    not_frozen = {
        *("iterations", "recompute"),  # how long it trains is free; the second has another name in logs
        *("head_width", "num_query_groups", "activation", "normalization", "norm_epsilon", "biases", "tied_embeddings"),
        *("rotary_base", "decoder_sequence_length", "vocab_extra_ids", "tokenizer"),
    }  # the second line: what tells families apart; `deviations` of run.json names them
    for name in names("models"):
        model = load_model(name)
        for section in SECTIONS:
            fields = {field.name for field in dataclasses.fields(getattr(model, section))} - not_frozen
            renamed = {"sequence_length": "seq_length", "position_embedding": "position_embedding_type"}
            assert {renamed.get(field, field) for field in fields} <= set(frozen_values(model, section))


def test_no_recompute_is_a_value_like_any_other(make_run: Make) -> None:
    model = load_model("13")
    without = dataclasses.replace(model, training=dataclasses.replace(model.training, recompute="none"))
    assert frozen_values(without, "training")["recompute_granularity"] == "none"
    folder = make_run("13")
    log = (folder / "job.out").read_text()
    (folder / "job.out").write_text(log.replace("recompute_granularity ........................... selective",
                                                "recompute_granularity ........................... None"))  # fmt: skip
    found = finding(ours(folder), "training")
    assert found.status is FAIL
    assert "recompute_granularity is none" in without_lines(found.reason())


def test_the_default_of_a_model_is_the_file_that_says_so() -> None:
    assert defaults_of("175") == load("jupiter-nlp")
    assert defaults_of("tiny") is None


def test_an_entry_that_was_not_measured_is_judged_too() -> None:
    result = RunResult(source="x", outcome=Outcome.REFUSED, reasons=(Reason("any", "nothing"),))
    entry = judged(result, rules="jupiter-nlp")
    assert entry.rules.result == "NOT SHOWN"
    assert entry.reason_texts == ("nothing",)
    nothing = "is not stated: nothing was measured, expected at"
    assert finding(entry, "report-time").reason() == f"report-time: time_to_report_s {nothing} most 560 s"
    assert finding(entry, "window").reason() == f"window: intervals_in_window {nothing} least 5"


def without_loss(lines: str, number: int) -> str:
    return re.sub(r"lm loss: \d\S+", "lm loss: nan", lines, count=number)


def test_a_nan_that_was_printed_before_there_was_a_loss_is_none_of_the_training(make_run: Make, tmp_path: Path) -> None:
    lines = (make_run("13", choices={"log_interval": 1, "iterations": 15}) / "job.out").read_text()
    first = without_loss(lines, 1)
    entry = foreign(first, tmp_path)
    assert finding(entry, "finite-loss").status is PASS
    assert entry.has_number
    assert any("prints nan before there is a loss; all later ones are finite" in said for said in entry.remarks)
    assert foreign(without_loss(lines, 2), tmp_path).outcome is Outcome.INVALID
    counted = first.replace("number of nan iterations:   0", "number of nan iterations:   1", 1)
    assert foreign(counted, tmp_path).outcome is Outcome.INVALID


def test_a_nan_in_a_line_of_many_iterations_or_in_a_run_of_ours_is_invalid(make_run: Make, tmp_path: Path) -> None:
    folder = make_run("13")
    lines = without_loss((folder / "job.out").read_text(), 1)
    assert foreign(lines, tmp_path).outcome is Outcome.INVALID
    folder = make_run("13", choices={"log_interval": 1, "iterations": 15})
    (folder / "job.out").write_text(without_loss((folder / "job.out").read_text(), 1))
    assert ours(folder).outcome is Outcome.INVALID


def test_skipped_iterations_are_allowed_by_number_format(make_run: Make, tmp_path: Path) -> None:
    lines = (make_run() / "job.out").read_text()
    few = lines.replace("number of skipped iterations:   0", "number of skipped iterations:   2", 2)
    assert finding(foreign(few, tmp_path), "skipped-iterations").status is FAIL
    half = few.replace("bf16 ............................................ True", "bf16 ......... False")
    half = half.replace("fp16 ............................................ False", "fp16 ......... True")
    of_half = foreign(half, tmp_path)
    assert [finding(of_half, rule).status for rule in ("skipped-iterations", "precision")] == [PASS, PASS]
    unknown = few.replace(
        "bf16 ............................................ True",
        "fp8 ............................................. hybrid",
    )
    assert finding(foreign(unknown, tmp_path), "skipped-iterations").status is NOT_SHOWN
    assert finding(foreign(lines.replace("bf16 ..", "xf16 .."), tmp_path), "skipped-iterations").status is PASS


@pytest.mark.parametrize(("number", "status"), [(40, PASS), (38, FAIL)])
def test_a_run_that_ended_by_itself_keeps_the_rules_where_its_log_shows_that_it_was_enough(
    make_run: Make, number: int, status: Status
) -> None:
    run = asked("175", iterations=2000, until="4%")
    assert run.deviations == ()
    seconds = tuple(5.2 + 0.01 * (n % 3) for n in range(number))
    said = "[default3]: until 4%: enough after iteration {0} of 2000: known\n[default3]: training finished: {0} iterations\n"
    stop = 10 * number if status is PASS else 10 * number + 10
    log = log_of(run, seconds=seconds) + said.format(stop)
    entry = ours(make_run(choices={"iterations": 2000, "until": "4%"}, log=log), "jupiter-nlp")
    assert finding(entry, "final-iteration").status is status
    assert entry.has_number is (status is PASS)
