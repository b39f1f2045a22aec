"""The committed constants on the published points of the repository: what docs/memory.md prints, and no false answer."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nlp_bench.config.catalog import root
from nlp_bench.plan.constants import FITTED, Constants, read_constants
from nlp_bench.plan.memory.fits import Memory
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.predict import Points, points_of, read_rows
from research.planner.memory import Peaks, fit_memory, relative_errors

POINTS = root() / "reports" / "reference" / "published_points" / "points.csv"
Rows = list[dict[str, str]]


@cache
def read(path: Path = POINTS) -> tuple[Points, Rows, Constants]:
    constants = read_constants()
    points = points_of(read_rows(path), constants)
    with path.open(newline="", encoding="utf-8") as stream:
        by_id = {row["id"]: row for row in csv.DictReader(stream)}
    return points, [by_id[one] for one in points.ids], constants


def peaks() -> tuple[Peaks, Rows]:
    points, rows, _ = read()
    has = np.array([bool(row["peak_mem_gb"]) for row in rows])
    chosen = [row for row in rows if row["peak_mem_gb"]]
    bytes_ = np.array([float(row["peak_mem_gb"]) * 1e9 for row in chosen])
    return Peaks(
        configurations=points.configurations.take(has), peak_bytes=bytes_, groups=np.arange(len(chosen))
    ), chosen


def answers(status: str) -> tuple[list[str], Memory]:
    points, rows, constants = read()
    places = np.array([row["status"] == status and bool(row["recompute"]) for row in rows])
    found = published_memory(points.configurations.take(places), constants)
    return np.select([found.fits, found.tight], ["yes", "tight"], "no").tolist(), found


@pytest.mark.parametrize(
    ("source", "number", "at_most"),
    [
        ("", 82, 0.030),
        ("BLOOM", 47, 0.027),
        ("INTERNEVO", 10, 0.030),
        ("KORTHMEM", 3, 0.040),
        ("SIMUMAX", 12, 0.006),
        ("TITAN", 10, 0.085),
    ],
)
def test_median_errors_are_those_of_the_page(source: str, number: int, at_most: float) -> None:
    some, rows = peaks()
    errors = np.abs(relative_errors(some, read()[2]))
    chosen = errors[[row["source_id"].startswith(source) for row in rows]]
    assert len(chosen) == number
    assert np.median(chosen) <= at_most


def test_committed_constants_are_what_the_fit_finds() -> None:
    constants = read()[2]
    found = fit_memory(peaks()[0], constants)
    for name in FITTED:
        assert getattr(constants.memory, name) == pytest.approx(getattr(found.memory, name), rel=0.01)


def test_no_run_that_failed_was_said_to_fit() -> None:
    words, _ = answers("OOM")
    assert len(words) == 4
    assert "yes" not in words


def test_no_run_that_ran_was_said_not_to_fit() -> None:
    words, found = answers("ok")
    assert len(words) > 400
    assert "no" not in words
    assert words.count("yes") > len(words) / 2
    assert np.allclose(sum(found.parts.values()), found.total)
