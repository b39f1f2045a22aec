"""What the ranking says of published measurements: the same configuration, and in what the best lies outside of them."""

from dataclasses import replace

from nlp_bench.plan.neighbours import known_points, measured_by_others
from nlp_bench.plan.ranking import Answer, beyond_published


def test_the_published_run_of_the_reference_machine_is_found(answered: Answer) -> None:
    row, points = answered.published, known_points()
    assert row is not None
    assert points is not None
    (text,) = measured_by_others(answered.problem, row.sizes, row.report_s, points)
    assert text.startswith("554.7 s (JSC-001: GPT3-175B, Megatron-LM, ")
    assert f"{100 * abs(row.report_s / 554.7 - 1):.0f} %" in text


def test_a_format_that_no_run_trains_in_is_named_and_hides_nothing(answered: Answer) -> None:
    own = beyond_published(answered, known_points())
    other = beyond_published(replace(answered, problem=replace(answered.problem, precision="fp16")), known_points())
    assert any("software: " in text for text in own)
    assert other[0] == "number format: planned in fp16, but a run trains in the model file's (bf16)"
    assert other[1:] == own


def test_nothing_that_fits_has_nothing_beyond(answered: Answer) -> None:
    assert beyond_published(replace(answered, rows=()), known_points()) == ()
