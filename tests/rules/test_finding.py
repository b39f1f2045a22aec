"""Evidence is shared between runs, and never mixed up."""

from nlp_bench.rules.finding import Status, evidence


def test_equal_evidence_is_one_object() -> None:
    assert evidence("bf16", Status.PASS, 1, 1, "run.json") is evidence("bf16", Status.PASS, 1, 1, "run.json")


def test_equal_values_of_different_types_stay_apart() -> None:
    values = [evidence("bf16", Status.PASS, value).value for value in (1, True, 1.0)]
    assert [type(value) for value in values] == [int, bool, float]
