"""How well is memory predicted? Published peaks against predictions, cross-validated by groups, and the answers for runs that ran or failed.

    python -m research.planner.memory_accuracy                       (a few seconds)
    python -m research.planner.memory_accuracy --points POINTS.csv   (other rows with the same columns)

A group is what differs in nothing but scale, version or date; each row is predicted with constants that were fitted without its group.
"""

import argparse
import csv
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nlp_bench.config import catalog
from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.constants import FITTED, Constants, read_constants
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.neighbours import POINTS
from nlp_bench.plan.predict import Points, points_of, read_rows
from research.planner.data import GROUP
from research.planner.memory import PRIORS, Peaks, cross_validate, fit_memory, held_errors, relative_errors

Row = dict[str, str]


def main() -> int:
    """Fit, cross-validate, print; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=Path, default=catalog.root() / POINTS, help=f"default: {POINTS}")
    parser.add_argument("--seeds", type=int, default=5, help="so many splits into three folds (default: 5)")
    options = parser.parse_args()
    constants = read_constants()
    try:
        points, rows = read_points(options.points, constants)
    except NlpBenchError as error:
        raise SystemExit(f"memory_accuracy.py: {error}") from error
    if not any(row.get("peak_mem_gb") for row in rows):
        raise SystemExit(f"memory_accuracy.py: {options.points}: no row has a peak_mem_gb")
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {options.points.name}: {len(rows)} rows that can be predicted")
    show_errors(points, rows, constants, options.seeds)
    show_answers(points, rows, constants)
    return 0


def read_points(path: Path, constants: Constants) -> tuple[Points, list[Row]]:
    """Return the configurations of a table and, in the same order, its whole rows."""
    points = points_of(read_rows(path), constants)
    with path.open(newline="", encoding="utf-8") as stream:
        by_id = {row["id"]: row for row in csv.DictReader(stream)}
    return points, [by_id[one] for one in points.ids]


def peaks_of(points: Points, rows: list[Row]) -> tuple[Peaks, list[Row]]:
    """Return the rows with a published peak."""
    has = np.array([bool(row["peak_mem_gb"]) for row in rows])
    chosen = [row for row in rows if row["peak_mem_gb"]]
    _, groups = np.unique(["|".join(row[name] for name in GROUP) for row in chosen], return_inverse=True)
    peaks = np.array([float(row["peak_mem_gb"]) * 1e9 for row in chosen])
    return Peaks(configurations=points.configurations.take(has), peak_bytes=peaks, groups=groups.reshape(-1)), chosen


def show_errors(points: Points, rows: list[Row], constants: Constants, num_seeds: int) -> None:
    """Print the fitted constants and the errors by source."""
    peaks, chosen = peaks_of(points, rows)
    errors = np.abs(cross_validate(peaks, constants, num_seeds=num_seeds))
    third = [median_of_others(peaks, constants, seed) for seed in range(num_seeds)]
    fitted = fit_memory(peaks, constants)
    prior = replace(constants, memory=replace(constants.memory, **PRIORS))
    print("\n| constant | where the fit starts | fitted on all rows | in benchmark/plan.toml |\n|:--|--:|--:|--:|")
    for name in FITTED:
        values = (PRIORS[name], getattr(fitted.memory, name), getattr(constants.memory, name))
        print(f"| {name} | {' | '.join(f'{value:.4g}' for value in values)} |")
    print(
        "\n| source | rows | median error | 90th percentile | largest | without the source in the fit |\n|:--|--:|--:|--:|--:|--:|"
    )
    sources: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(chosen):
        sources[f"{row['source_id']} {row['precision']}"].append(place)
    for name, places in sorted(sources.items(), key=lambda item: -float(np.median(errors[:, item[1]]))):
        print(
            f"| {name} | {len(places)} | {summary(errors[:, places])} | {left_out(peaks, chosen, places, constants):.1%} |"
        )
    print(f"| **all** | {len(chosen)} | {summary(errors)} | |")
    print(
        f"\nfitted on one third of the groups, tested on the rest: {min(third):.1%} to {max(third):.1%} (median errors)"
    )
    for words, one in (("all rows, in benchmark/plan.toml", constants), ("nothing fitted", prior)):
        print(f"{words}: {np.median(np.abs(relative_errors(peaks, one))):.1%}")


def summary(errors: npt.NDArray[np.float64]) -> str:
    """Return median, 90th percentile and largest."""
    return " | ".join(f"{value:.1%}" for value in (np.median(errors), np.quantile(errors, 0.9), errors.max()))


def left_out(peaks: Peaks, chosen: list[Row], places: list[int], constants: Constants) -> float:
    """Return the median error of rows when nothing of their source is fitted."""
    source = chosen[places[0]]["source_id"]
    others = np.array([row["source_id"] != source for row in chosen])
    errors = relative_errors(peaks, fit_memory(peaks.take(others), constants))
    return float(np.median(np.abs(errors[places])))


def median_of_others(peaks: Peaks, constants: Constants, seed: int) -> float:
    """Return the median error of two thirds of the groups when the other third is fitted."""
    used = (np.random.default_rng(seed).permutation(int(peaks.groups.max()) + 1) % 3 == 0)[peaks.groups]
    return float(np.median(np.abs(held_errors(peaks, ~used, constants))))


def show_answers(points: Points, rows: list[Row], constants: Constants) -> None:
    """Print what is said of runs that ran and that failed, where the recomputation is published."""
    found = published_memory(points.configurations, constants)
    shares = found.total / found.capacity
    print("\n| label | runs | yes | tight | no | predicted share of the GPU |\n|:--|--:|--:|--:|--:|:--|")
    for label, names in (("ran out of memory", ("OOM",)), ("ran", ("ok", ""))):
        places = [place for place, row in enumerate(rows) if row["recompute"] and row["status"] in names]
        if places:
            numbers = " | ".join(str(int(np.sum(found.words[places] == word))) for word in ("yes", "tight", "no"))
            span = f"{shares[places].min():.0%} to {shares[places].max():.0%}"
            print(f"| {label} | {len(places)} | {numbers} | {span} |")


if __name__ == "__main__":
    sys.exit(main())
