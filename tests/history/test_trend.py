"""Levels, single runs that leave them, and changes that stay."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nights import row

from nlp_bench.analysis.levels import Kind
from nlp_bench.analysis.trend import Trend, trend_text, trends


def trend(*rates: float | None) -> Trend:
    (found,) = trends(row(day, rate, id=day + 1) for day, rate in enumerate(rates))
    return found


def noisy(seed: int, *levels: tuple[int, float]) -> list[float]:
    source = random.Random(seed)  # noqa: S311  # a repeatable test
    return [rate * (1 + source.gauss(0, 0.005)) for number, rate in levels for _ in range(number)]


def test_a_steady_machine_has_one_level() -> None:
    found = trend(*noisy(1, (30, 1000.0)))
    assert found.flags == ()
    assert [len(level.rows) for level in found.levels] == [30]
    assert found.levels[0].mean == pytest.approx(1000, rel=0.005)
    assert "no run leaves its level" in trend_text([found], Path("runs.sqlite3"))


def test_one_bad_night_is_a_drop_and_no_new_level() -> None:
    rates = noisy(2, (20, 1000.0))
    found = trend(*rates[:12], 900.0, *rates[12:])
    (flag,) = found.flags
    assert (flag.kind, flag.row.ended_s / 86400, flag.num_before) == (Kind.DROP, 12, 12)
    assert flag.change == pytest.approx(-0.1, abs=0.01)
    assert [len(level.rows) for level in found.levels] == [20]
    assert "% below the level of the 12 runs before it" in trend_text([found], Path("runs.sqlite3"))


def test_a_lasting_change_is_a_new_level_from_its_first_run() -> None:
    found = trend(*noisy(3, (15, 1000.0), (15, 970.0)))
    (flag,) = found.flags
    assert (flag.kind, flag.row.ended_s / 86400) == (Kind.NEW_LEVEL, 15)
    assert [len(level.rows) for level in found.levels] == [15, 15]
    assert found.levels[1].mean == pytest.approx(970, rel=0.005)
    assert flag.change == pytest.approx(found.levels[1].mean / found.levels[0].mean - 1)
    assert ": a new level begins, " in trend_text([found], Path("runs.sqlite3"))


def test_five_runs_in_a_row_make_a_level() -> None:
    rates = noisy(6, (10, 1000.0), (5, 900.0))
    found = [trend(*rates[:n]) for n in (11, 14, 15)]
    assert [(len(one.levels), len(one.flags)) for one in found] == [(1, 1), (1, 4), (2, 1)]


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda source: source.gauss(0, 1),
    "heavy tails": lambda source: source.gauss(0, 1) / math.sqrt(source.gammavariate(1.5, 2) / 3) / math.sqrt(3),
    "rare slow nights": lambda source: source.gauss(0, 1) - 8 * (source.random() < 0.05),
    "two speeds": lambda source: 0.2 * source.gauss(0, 1) - 2 * (source.random() < 0.25),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_sixty_nights_of_one_level_seldom_have_two(noise: str) -> None:
    """150 series: at 5 % each 19 or more with a second level come once in 200 times."""
    source = random.Random(7)  # noqa: S311  # a repeatable test
    series = [[1000 * (1 + 0.003 * NOISES[noise](source)) for _ in range(60)] for _ in range(150)]
    assert sum(len(trend(*rates).levels) > 1 for rates in series) < 15


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
def test_half_a_per_cent_is_seen_at_a_scatter_of_a_third(noise: str) -> None:
    """An EWMA chart finds 85 of 100 such steps, the Shewhart chart alone 4."""
    source = random.Random(8)  # noqa: S311  # a repeatable test
    found = 0
    for _ in range(100):
        rates = [1000 * (1 + 0.003 * NOISES[noise](source) - 0.005 * (night >= 30)) for night in range(60)]
        (*_, last) = (seen := trend(*rates)).levels
        found += len(seen.levels) == 2 and abs(len(last.rows) - 30) < 10
    assert found >= 85


STEADY = noisy(5, (20, 1000.0))


@pytest.mark.parametrize(
    ("rates", "kinds"),
    [
        ([*STEADY[:10], 1100.0], [Kind.RISE]),
        ([*STEADY[:10], 900.0, 1100.0, *STEADY[10:]], [Kind.DROP, Kind.RISE]),
        ([1000.0, 500.0, 2000.0], []),
        ([1000.0, 1000.0, 1000.0, 1000.0, 1000.1], []),  # each scatters within, whatever their rounding hides
        ([1000.0, 1000.0, 1000.0, 1000.0, 990.0], [Kind.DROP]),
    ],
    ids=[
        "the latest",
        "two apart in direction",
        "three runs come before any flag",
        "rounded to one value",
        "beyond it",
    ],
)
def test_single_runs_are_flagged_and_make_no_level(rates: list[float], kinds: list[Kind]) -> None:
    found = trend(*rates)
    assert ([flag.kind for flag in found.flags], len(found.levels)) == (kinds, 1)


def test_failed_runs_are_counted_and_part_configurations() -> None:
    rows = [row(1, 100.0), row(2, None), row(3, 5.0, "b"), row(4, None, "c"), row(5, 101.0)]
    found = trends(rows)
    assert [(t.rows[0].identity, len(t.rows), t.num_failed) for t in found] == [("b", 1, 0), ("0123456789ab", 2, 1)]


@pytest.mark.slow
def test_false_flags_are_rare() -> None:
    """At 0.27 % a run 27 of 10000 are expected; 54 would come once in 10^5 histories."""
    flags = 0
    for seed in range(50):
        flags += len(trend(*noisy(seed, (200, 1000.0))).flags)
    assert flags < 54
