"""What every rule says, to the word: of a run that shows everything, of a log that shows nothing, and of values at the border."""

import re
from pathlib import Path

import pytest
from support.repeated import write_log
from support.ruled_run import OWN, Make, finding, foreign, ours, rule_file

from nlp_bench.measure.judgement import RuleEvidence, RuleFinding, Status, evidence, shown
from nlp_bench.measure.limit import sustained_time_ci95_s
from nlp_bench.measure.result import RunResult
from nlp_bench.rules.rule import same

SHOWN = """
model: model is 175 (run.json), expected one of 175, 13
optimizer: optimizer is adam (log line N)
parameter-count: num_parameters is 174590681088 (log line N), expected 174590681088 by the shape, to 1 %
precision: precision is bf16 (run.json), expected one of fp64, fp32, bf16, fp16
precision: precision is bf16 (log line N), expected one of fp64, fp32, bf16, fp16
released-torch: torch_version is 2.8.0+cu126 (log line N), expected a released version of torch
versions: torch_version is 2.8.0+cu126 (log line N), expected a version
versions: megatron_core_version is 0.16.1 (log line N), expected a version
versions: nlp_bench_commit is 5555555555555555555555555555555555555555 (run.json), expected a commit without changes
data: data is data/corpus_text_document (log line N), expected data that is read, no mock data
data: data is data/corpus_text_document (run.json), expected data that is read, no mock data
agreement: settings_in_common is 39 (run.json and the log), expected at least 20, all alike
whole-log: missing_intervals is 0 of 15 (log lines N), expected at most 2 % of the intervals
window: intervals_in_window is 14 (iterations 11 to 150), expected at least 5
finite-loss: lm_loss is finite in 15 line(s) (log lines N), expected a finite number in every line
skipped-iterations: skipped_iterations is 0 (log lines N), expected at most 0 % of 150 iterations
final-iteration: last_iteration is 150 (log line N), expected 150
exit-status: outcome is VALID (outcome.json)
exit-status: exit_status is 0 (outcome.json), expected 0
report-time: time_to_report_steady_s is 530.061 (iterations 11 to 150), expected at most 560 s over the whole 95 % interval, which is X
report-time: time_to_report_sustained_s is 530.061 (iterations 11 to 150, sum of the logged times)
report-time: time_to_report_reference_s is 536.092 (all logged times, warm-up included)
"""
SILENT = """
model: model is not stated: no shape is stated, expected one of 175, 13
shape: model is not stated: no frozen values to compare with, expected one of 175, 13
training: model is not stated: no frozen values to compare with, expected one of 175, 13
optimizer: optimizer is not stated, expected adam
parameter-count: num_parameters is not stated: the shape is not fully known, expected the count by the shape
precision: precision is not stated: the model is not known, expected at least the model's
released-torch: torch_version is not stated, expected a released version of torch
versions: torch_version is not stated, expected a version
versions: megatron_core_version is not stated, expected a version
versions: nlp_bench_commit is not stated, expected a commit without changes
data: data is not stated, expected data that is read, no mock data
agreement: settings_in_common is not stated: there is no run.json, expected all alike
whole-log: missing_intervals is not stated: fewer than 3 lines, expected at most 2 % of the intervals
window: intervals_in_window is 1 (iterations 2 to 2), expected at least 5
finite-loss: lm_loss is not stated, expected a finite number in every line
skipped-iterations: skipped_iterations is not stated, expected a count in the log
final-iteration: last_iteration is not stated: the log stops at 2, log line N, expected 9
exit-status: exit_status is not stated, expected 0
"""


def sentences(entry: RunResult, status: Status) -> list[str]:
    assert {one.status for rule in entry.rules.findings for one in rule.evidence} <= {status, None}
    said = [f"{rule.rule}: {one.sentence()}" for rule in entry.rules.findings for one in rule.evidence]
    said = [re.sub(r"(log lines?) \d+( to \d+)?", r"\1 N", one) for one in said]
    return [re.sub(r"which is [\d.]+ to [\d.]+ s", "which is X", one) for one in said]


def test_a_run_of_ours_shows_all_that_the_rules_ask_for(make_run: Make) -> None:
    said = sentences(ours(make_run(), "jupiter-nlp"), Status.PASS)
    assert [one for one in said if not one.startswith(("shape", "training"))] == SHOWN.strip().splitlines()
    assert "shape: hidden_size is 12288 (run.json and log line N)" in said
    assert "training: lr is 0.0001 (run.json and log line N)" in said


def test_a_note_names_three_broken_rules_and_counts_the_others(make_run: Make) -> None:
    slow = (6.0, *(5.80 + 0.01 * (n % 3) for n in range(14)))
    broken = {"torch": "2.9.0.dev1", "commit": "5" * 40 + "+changes", "seconds": slow}
    for more, words in (({}, "; report-time: "), ({"skipped": 1}, "; and 1 more; ")):
        (note,) = (one for one in ours(make_run(**broken, **more)).remarks if "INVALID" in one)
        assert words in note
        assert ("and" in note.split("; ")[-2].split()[:1]) is bool(more)


def test_a_log_of_times_shows_nothing_else(tmp_path: Path) -> None:
    line = "iteration {0}/ 9 | elapsed time per iteration (s): 5.0 | global batch size: 96 |\n"
    entry = foreign(line.format(1) + line.format(2), tmp_path, sequence_length=2048)
    said = sentences(entry, Status.NOT_SHOWN)
    assert [one for one in said if not one.startswith("report-time")] == SILENT.strip().splitlines()
    time = "time_to_report_steady_s is 508.626 (iterations 2 to 2), expected at most 560 s over the whole 95 % interval"
    assert said[-3] == f"report-time: {time}, which is not known"


def test_what_a_log_leaves_out_is_named_one_by_one(make_run: Make, tmp_path: Path) -> None:
    lines = (make_run() / "job.out").read_text().splitlines(keepends=True)
    words = ("number of parameters", " hidden_dropout ..", "vocab_size ..", " tensor_model_parallel_size ..")
    words += ("bf16", "fp16", "params_dtype")
    entry = foreign("".join(line for line in lines if not any(word in line for word in words)), tmp_path)
    named = ("shape", "training", "parameter-count", "precision")
    said = {f"{name}: {one.sentence()}" for name in named for one in finding(entry, name).evidence if one.status}
    assert {one for one in said if "not stated" in one} == {
        "shape: vocab_size is not stated, expected 50257",
        "training: hidden_dropout is not stated, expected 0.1",
        "parameter-count: num_parameters is not stated, expected 174579671040 by the shape, to 1 %",
        "precision: precision is not stated, expected one of fp64, fp32, bf16, fp16",
    }


@pytest.mark.parametrize("decides", ["steady", "sustained", "reference", "steady-interval", "sustained-interval"])
def test_each_time_is_held_against_the_limit(decides: str, make_run: Make, tmp_path: Path) -> None:
    # Throttled at the end, which leaves intervals without proof.
    throttled = (6.1, *(5.2 + 0.01 * (n % 3) for n in range(11)), 7.0, 7.01, 7.02)
    folder = make_run() if decides.endswith("-interval") else make_run(seconds=throttled)
    entry = ours(folder)
    name = decides.removesuffix("-interval")
    rate = getattr(entry, name)
    values = (20e6 / rate, 20e6 / rate)
    if decides.endswith("-interval"):
        found = entry.time_ci95_s(20_000_000) if name == "steady" else sustained_time_ci95_s(entry, 20_000_000)
        assert found[0] < values[0] < found[1]
        values = found
    between = "NOT SHOWN" if decides.endswith("-interval") else "PASS"  # a value that is the limit keeps it
    for limit_s, word in ((values[1] * 1.0001, "PASS"), (values[0] * 0.9999, "FAIL"), (sum(values) / 2, between)):
        own = rule_file(tmp_path, f'{OWN}[rules.report-time]\ndecides = "{decides}"\nlimit_s = {limit_s!r}\n')
        rule = finding(ours(folder, own), "report-time")
        assert (rule.status.value, limit_s) == (word, limit_s)
        deciding = [one for one in rule.evidence if one.status]
        assert [(one.name, one.status) for one in deciding] == [(f"time_to_report_{name}_s", rule.status)]
        wanted = f"at most {limit_s:g} s"
        assert str(deciding[0].expected).startswith(wanted)
        assert ("which is" in str(deciding[0].expected)) is decides.endswith("-interval")


@pytest.mark.parametrize("decides", ["steady", "steady-interval"])
def test_a_number_by_a_size_that_contradicts_the_log_keeps_no_limit(decides: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.log", 54000).read_text()
    head = (
        'schema = "nlp-bench/rules/1"\nmodels = ["tiny"]\n[rules.report-time]\ncheck = "time-limit"\nwhy = "a limit"\n'
    )
    own = rule_file(tmp_path, f'{head}limit_s = 560\ndecides = "{decides}"\n')
    entry = foreign(log, tmp_path, own, sequence_length=8192)
    assert entry.time_ci95_s(20_000_000)[1] < 560
    assert finding(entry, "report-time").status is Status.NOT_SHOWN


def test_what_a_rule_cannot_compare_is_not_shown(make_run: Make, tmp_path: Path) -> None:
    log = (make_run() / "job.out").read_text()
    log = log.replace("global batch size:    96", "global batch size:    90", 1)  # no reference then
    text = OWN + '[rules.report-time]\ndecides = "reference"\n[rules.precision]\norder = [["fp64"]]\n'
    entry = foreign(log, tmp_path, rule_file(tmp_path, text))
    found = {one.rule: one for one in entry.rules.findings}
    assert found["report-time"].status is found["precision"].status is Status.NOT_SHOWN
    reason = "precision: precision is not stated: bf16 is not in the rule's order, expected bf16 or better"
    assert found["precision"].reason() == reason


@pytest.mark.parametrize(
    ("name", "wanted", "status"),
    [
        ("seed", "equals = 42", "PASS"),
        ("seed", "equals = 41", "FAIL"),
        ("seed", "at_least = 42", "PASS"),
        ("seed", "at_least = 42.5", "FAIL"),
        ("seed", "at_most = 42", "PASS"),
        ("seed", "at_most = 41.5", "FAIL"),
        ("seed", "at_least = 41\nat_most = 43", "PASS"),
        ("seed", "one_of = [41, 42]", "PASS"),
        ("seed", "one_of = [40, 41]", "FAIL"),
        ("optimizer", 'contains = "DA"', "PASS"),
        ("optimizer", 'contains = "sgd"', "FAIL"),
        ("optimizer", "at_least = 0", "FAIL"),
        ("use_distributed_optimizer", "at_least = 0", "FAIL"),
        ("use_distributed_optimizer", "equals = true", "PASS"),
        ("use_distributed_optimizer", "equals = false", "FAIL"),
    ],
)
def test_a_setting_at_its_border(name: str, wanted: str, status: str, make_run: Make, tmp_path: Path) -> None:
    head = 'schema = "nlp-bench/rules/1"\nmodels = ["175"]\n'
    own = rule_file(tmp_path, f'{head}[rules.one]\ncheck = "setting"\nname = "{name}"\nwhy = "x"\n{wanted}\n')
    assert [one.status.value for one in ours(make_run(), own).rules.findings] == [status]


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (True, "true", True), (True, 1, False), (0, False, False), (1, 1.0, True), (1e9, 1e9 + 0.5, True),
        (1.0, 1.0 + 1e-8, False), ("Adam", "adam", True), ("adam", "sgd", False), (42, "42", True),
    ],
)  # fmt: skip
def test_two_statements_of_one_setting(first: float | str, second: float | str, alike: bool) -> None:
    assert same(first, second) is same(second, first) is alike


def test_equal_values_of_different_types_stay_apart() -> None:
    values = [evidence("bf16", Status.PASS, value).value for value in (1, True, 1.0)]
    assert [type(value) for value in values] == [int, bool, float]


def test_a_value_has_the_digits_that_a_person_reads() -> None:
    assert [shown(value) for value in ("y" * 120, "y" * 121, 0.1 + 0.2)] == ["y" * 120, "y" * 117 + "...", "0.3"]


@pytest.mark.parametrize(
    ("without", "goes_on", "said"),
    [
        ((), False, "0 of 15"),
        ((1, 2, 3), False, "3 of 15"),
        ((1, 2, 3), True, "0 of 12"),
        ((7,), False, "1 of 15, the first after iteration 60"),
        ((3, 7, 8, 9), False, "4 of 15, the first after iteration 60"),
    ],
)
def test_lines_that_are_missing_are_counted(without: tuple[int, ...], goes_on: bool, said: str, make_run: Make) -> None:
    folder = make_run(without=without, choices={"train_args": ("--load", "ckpt")} if goes_on else {})
    (found,) = finding(ours(folder), "whole-log").evidence
    assert (found.value, found.status) == (said, Status.PASS if said.startswith("0") else Status.FAIL)


def test_a_log_whose_front_was_cut_off_under_its_dump_is_not_shown_to_be_whole(make_run: Make, tmp_path: Path) -> None:
    log = (make_run(without=(1, 2, 3)) / "job.out").read_text()
    (found,) = finding(foreign(log, tmp_path), "whole-log").evidence
    assert "is not stated: the log begins at iteration 40, expected" in found.sentence()


def test_a_reason_names_what_decides_else_what_is_missing_and_then_what_stands_with_it() -> None:
    wrong = [RuleEvidence(name=name, status=Status.FAIL, value=1, expected=2) for name in "abcd"]
    gone = RuleEvidence(name="m", status=Status.NOT_SHOWN, expected=5)
    kept, shown_too = RuleEvidence(name="k", status=Status.PASS, value=3), RuleEvidence(name="s", status=None, value=4)
    empty = RuleEvidence(name="e", status=None)

    def reason(status: Status, *found: RuleEvidence) -> str:
        return RuleFinding(rule="r", check="c", why="w", status=status, outcome=None, evidence=found).reason()

    assert reason(Status.FAIL, kept, wrong[0], gone, shown_too, empty) == "r: a is 1, expected 2; s is 4"
    assert reason(Status.FAIL, kept, gone) == "r: m is not stated, expected 5"
    assert reason(Status.NOT_SHOWN, kept) == "r: k is 3"
    assert reason(Status.FAIL, *wrong[:3]) == "r: a is 1, expected 2; b is 1, expected 2; c is 1, expected 2"
    assert reason(Status.FAIL, *wrong).endswith("c is 1, expected 2 and 1 more")
    assert reason(Status.NOT_SHOWN) == "r: no evidence"
