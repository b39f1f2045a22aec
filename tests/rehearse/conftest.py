"""Small models, trained for real and rehearsed."""

from collections.abc import Iterator

import pytest
from support.watched import Trained


@pytest.fixture(scope="session")
def trained() -> Iterator[Trained]:
    ranks = Trained()
    yield ranks
    ranks.close()
