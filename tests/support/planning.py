"""Questions to the planner, as short as a test needs them."""

from typing import Any

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.plan.constants import Constants, read_constants
from nlp_bench.plan.problem import Fixed, Problem, make_problem

_CONSTANTS: list[Constants] = []


def constants() -> Constants:
    """Return the repository's constants, read once."""
    if not _CONSTANTS:
        _CONSTANTS.append(read_constants())
    return _CONSTANTS[0]


def problem(model: str = "175", system: str = "juwels-booster", *, fixed: Fixed | None = None, **given: Any) -> Problem:
    given = {"tokens": 20_000_000, **given}
    return make_problem(load_model(model), load_system(system), constants(), fixed=fixed, **given)
