"""Measured times for the fit."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags, Numbers, taken
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.predict import REQUIRED, points_of, read_rows

MEASURED = ("iter_time_s", "grade", "status", "source_id")  # further columns of a table of measured points
NEEDED = (*(name for name in REQUIRED if name != "id"), "dp")  # cells that a scored row has, by the protocol
GROUP = ("model", "gpu", "precision", "tp", "pp", "cp", "mbs", "seq", "recompute")
"""Rows that agree in these are one configuration at another scale, batch or software version: never on both sides of a split."""
Places = npt.NDArray[np.int64]


@immutable
class Measured:
    """N measured points; arrays of shape [N]."""

    configurations: Configurations  # what was run
    seconds: Numbers  # measured seconds of an iteration
    ids: npt.NDArray[Any]  # ids of the rows
    sources: npt.NDArray[Any]  # where they were published: a word per row
    groups: Places  # number of the configuration group
    sweeps: npt.NDArray[Any]  # source, model, GPU and GPU count in a word: rows that compare with each other
    looked_at: Flags  # whether somebody has looked at the row and found it as published

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, chosen: npt.NDArray[Any]) -> "Measured":
        """Return the rows at these positions, or where this mask of shape [N] is true."""
        return taken(self, chosen)

    def weights(self) -> Numbers:
        """Return weights of mean 1 that let a source count as the square root of its rows."""
        _, place, count = np.unique(self.sources, return_inverse=True, return_counts=True)
        weights = count[place] ** -0.5
        return np.asarray(weights / weights.mean())


def read_measured(path: str | Path, constants: Constants) -> Measured:
    """Read the rows of grade A and B with a time and every cell of NEEDED; raises UsageError for a missing column, NlpBenchError for no row."""
    rows = {row["id"]: row for row in read_rows(path)}
    measured = _measured_rows(path)
    scored = [one for one in measured if _is_scored(one)]
    points = points_of([rows[one["id"]] for one in scored], constants)
    kept = {one["id"]: one for one in scored if one["id"] in points.ids}
    if not kept:
        raise NlpBenchError(f"{path}: no row of grade A or B has a time and a whole configuration")
    own = [kept[one] for one in points.ids]
    numbers: dict[tuple[str, ...], int] = {}
    groups = [numbers.setdefault(tuple(one[name] for name in GROUP), len(numbers)) for one in own]
    return Measured(
        configurations=points.configurations,
        seconds=np.array([float(one["iter_time_s"]) for one in own]),
        ids=np.array(points.ids),
        sources=np.array([one["source_id"] for one in own]),
        groups=np.array(groups, dtype=np.int64),
        sweeps=np.array([" ".join((one["source_id"], one["model"], one["gpu"], one["n_gpus"])) for one in own]),
        looked_at=np.array([bool(one.get("looked_at")) for one in own]),
    )


def _measured_rows(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as stream:
        table = csv.DictReader(stream)
        names = table.fieldnames or ()
        missing = [name for name in (*MEASURED, *GROUP, *NEEDED) if name not in names]
        if missing:
            raise UsageError(
                f"{path}: no column {', '.join(dict.fromkeys(missing))}; measured points have {', '.join(MEASURED)} too"
            )
        return [{name: (value or "").strip() for name, value in row.items() if isinstance(name, str)} for row in table]


def _is_scored(row: dict[str, str]) -> bool:
    try:
        timed = 0 < float(row["iter_time_s"]) < float("inf")
    except ValueError:
        return False
    return timed and row["grade"] in {"A", "B"} and row["status"] in {"", "ok"} and all(row[name] for name in NEEDED)
