"""What the ranking says of an extrapolation."""

from dataclasses import replace

from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.bid.beyond import beyond
from nlp_bench.plan.bid.bid import known_points


def test_a_format_that_no_run_trains_in_is_named_and_hides_nothing(answered: Answer) -> None:
    own = beyond(answered, known_points())
    other = beyond(replace(answered, problem=replace(answered.problem, precision="fp16")), known_points())
    assert any("software: " in text for text in own)
    assert other[0] == "number format: planned in fp16, but a run trains in the model file's (bf16)"
    assert other[1:] == own


def test_nothing_that_fits_has_nothing_beyond(answered: Answer) -> None:
    assert beyond(replace(answered, rows=()), known_points()) == ()
