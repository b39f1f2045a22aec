"""The two throughputs against the published figures."""

from collections.abc import Callable

import numpy as np
import pytest

from nlp_bench.logs.record import Attempt, LogRecord, Records
from nlp_bench.measure.estimate import student_cdf, variance_ratio_tail
from nlp_bench.measure.sizes import Overrides, Sizes, iterations_per_record, sizes_of
from nlp_bench.measure.throughput import (
    Summary,
    Throughput,
    measure_records,
    reference_tokens_per_second,
    time_to_report_s,
)  # fmt: skip

Make = Callable[..., list[LogRecord]]
SEED_SECONDS = (7.2310, 5.3551, 5.6192, 5.3291, 5.3247)


def sizes(found: list[LogRecord], sequence_length: int = 2048) -> Sizes:
    return sizes_of(Attempt(records=Records.of(found)), Overrides(sequence_length=sequence_length))


def measured(found: list[LogRecord]) -> Throughput | None:
    return measure_records(Records.of(found), sizes(found))


def test_the_five_published_lines(records: Make) -> None:
    found = measured(records(*SEED_SECONDS, step=10, batch=96))
    assert round(found.reference, 1) == 34063.4
    assert round(time_to_report_s(20_000_000, found.reference), 1) == 587.1
    assert round(found.steady, 1) == 36361.6
    assert round(time_to_report_s(20_000_000, found.steady), 1) == 550.0
    assert found.window.to_json() == {
        "first_iteration": 11,
        "last_iteration": 50,
        "num_records": 4,
        "excluded": [{"iterations": [1, 10], "why": "warm-up"}],
    }
    assert found.ci95[0] < found.steady < found.ci95[1]


@pytest.mark.parametrize(
    ("rate", "seconds"), [(60777.68, "329.07"), (36055.39, "554.70"), (14620.74, "1367.92"), (52315.10, "382.30")]
)
def test_published_times_to_the_printed_digit(rate: float, seconds: str) -> None:
    assert f"{time_to_report_s(20_000_000, rate):.2f}" == seconds


def test_the_reference_is_null_where_the_batch_changes(records: Make) -> None:
    mixed = [*records(1.0, 1.0, batch=8), *records(1.0, 1.0, start=2, batch=16)]
    assert reference_tokens_per_second(sizes(mixed)) is None
    assert measured(mixed).steady > 0


def test_nothing_without_times(records: Make) -> None:
    assert reference_tokens_per_second(sizes(records(None, None))) is None
    assert measured(records(None, None)) is None
    assert time_to_report_s(20_000_000, None) is None


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([10, 20, 30], [10, 10, 10]), ([1, 10, 20, 30, 35], [1, 9, 10, 10, 5]), ([7, 8, 9, 60, 61], [1, 1, 1, 1, 1])],
)
def test_how_many_iterations_a_line_covers(records: Make, numbers: list[int], expected: list[int]) -> None:
    found = [records(1.0, start=number - 1)[0] for number in numbers]
    assert iterations_per_record(Records.of(found)).tolist() == expected
    alone = Records.of(records(1.0, start=9))
    assert [iterations_per_record(alone, *interval).tolist() for interval in ((), (10,))] == [[1], [10]]


def test_statistics() -> None:
    found = Summary.of(np.arange(1.0, 101.0))
    assert (found.mean, found.median, found.p95, found.p99) == pytest.approx((50.5, 50.5, 95.05, 99.01))
    assert found.cv == pytest.approx(29.011491975882016 / 50.5)
    one = Summary.of(np.array([3.0]))
    assert (one.p99, one.cv) == (3.0, None)


@pytest.mark.parametrize("degrees", [1, 2.5, 10, 300])
def test_the_distributions_are_those_of_scipy(degrees: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for t in (-30, -3, -0.1, 0, 0.05, 0.5, 1, 4, 30):
        assert student_cdf(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), rel=1e-9, abs=1e-12)
    for ratio in (0.05, 0.5, 1, 2, 9):
        for other in (1, 4, 50):
            assert variance_ratio_tail(ratio, degrees, other) == pytest.approx(
                stats.f.sf(ratio, degrees, other), rel=1e-8
            )
