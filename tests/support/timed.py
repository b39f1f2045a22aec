"""How long the slowest of a test's many cases took: what the bound of a fault is compared with (tests/faults/table.py)."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from faults.table import SLOWEST

Timer = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def each_case(request: pytest.FixtureRequest) -> Iterator[Timer]:
    """Give what measures one case: `with each_case(): ...`, within a loop over all of them."""
    seconds: list[float] = []

    @contextmanager
    def timer() -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds.append(time.perf_counter() - start)

    yield timer
    request.node.user_properties.append((SLOWEST, max(seconds)))
