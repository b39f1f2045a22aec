"""What several tests of the planner ask."""

import pytest
from support.planning import problem

from nlp_bench.plan.ranking import Answer, answer


@pytest.fixture(scope="session")
def answered() -> Answer:
    """The ten best configurations of 175B on 96 nodes of JUWELS Booster."""
    return answer(problem(), top=10)
