"""Questions to the planner, and runs, as short as a test needs them."""

from functools import cache
from pathlib import Path
from typing import Any

from nlp_bench.cli.main import main
from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.config.run import Run, read_run
from nlp_bench.plan.constants import Constants, read_constants
from nlp_bench.plan.problem import Fixed, Problem, make_problem


@cache
def constants() -> Constants:
    """Return the repository's constants, read once."""
    return read_constants()


def problem(model: str = "175", system: str = "juwels-booster", *, fixed: Fixed | None = None, **given: Any) -> Problem:
    given = {"tokens": 20_000_000, **given}
    return make_problem(load_model(model), load_system(system), constants(), fixed=fixed, **given)


def small_run(folder: Path, *words: str) -> Run:
    """Resolve a small run of two GPUs into `folder`."""
    given = ["--model", "tiny", "--system", "dgx-h100", "--nodes", "1", "--gpus-per-node", "2", "--data-path", "mock"]
    assert main(["check", *given, *words, "--offline", "--output", str(folder)]) == 0
    return read_run(folder)
