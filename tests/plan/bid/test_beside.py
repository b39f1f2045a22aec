"""What others measured in the published configuration stands beside its prediction."""

from dataclasses import replace

from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.bid.beside import beside
from nlp_bench.plan.bid.bid import known_points


def test_the_published_run_of_the_reference_machine_is_found(answered: Answer) -> None:
    (text,) = beside(answered, known_points())
    assert text.startswith("554.7 s (JSC-001: GPT3-175B, Megatron-LM, ")
    assert answered.published is not None
    share = abs(answered.published.report_s / 554.7 - 1)
    assert f"{100 * share:.0f} %" in text


def test_where_the_published_configuration_is_not_legal_nothing_stands_beside_it(answered: Answer) -> None:
    assert beside(replace(answered, published=None), known_points()) == ()
