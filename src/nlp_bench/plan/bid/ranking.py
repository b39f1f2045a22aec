"""The ranking of configurations with what others have measured beside it."""

from dataclasses import replace

from nlp_bench.plan.answer.answer import Answer, answer
from nlp_bench.plan.bid.beside import beside
from nlp_bench.plan.bid.beyond import beyond
from nlp_bench.plan.bid.bid import known_points
from nlp_bench.plan.search.advice import refuse
from nlp_bench.plan.search.problem import Problem


def ranking(problem: Problem, *, top: int) -> Answer:
    """Return the `top` best configurations. Raises UsageError, with what would work, where none is legal."""
    found = answer(problem, top=top)
    if not len(found.search.figures.fits):
        raise refuse(problem)
    points = known_points()
    return replace(found, measured=beside(found, points), extrapolated=beyond(found, points))
