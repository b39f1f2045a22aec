"""The median that windows are decided by is numpy's, to the last bit."""

import numpy as np
import pytest

from nlp_bench.measure.series import median


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 50, 51])
def test_it_is_the_median_of_numpy(number: int) -> None:
    values = np.random.default_rng(number).lognormal(size=number)
    before = values.copy()
    assert median(values) == np.median(values)
    assert np.array_equal(values, before)
