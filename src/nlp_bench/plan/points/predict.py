"""Predictions of published points: configuration columns in, seconds with their interval and memory out."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.constants import Constants
from nlp_bench.plan.forecast import Forecast, forecast
from nlp_bench.plan.points.points import Points, points_of

COLUMNS = ("id", "iter_time_s", "iter_time_s_lo90", "iter_time_s_hi90", "peak_mem_gb", "fits", "away", "refused")
"""away: in what the row is away from what was fitted, which widens its interval; refused: why nothing is predicted."""
_GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A table of predictions."""

    rows: tuple[dict[str, str], ...]
    """One per row of the points, in their order, with COLUMNS; cells are empty where nothing is predicted."""
    refused: dict[str, str]
    """Id to the reason why nothing is predicted."""

    def text(self) -> str:
        """Return the table as comma-separated values."""
        stream = io.StringIO()
        table = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        return stream.getvalue()


def predictions_of(rows: Sequence[Mapping[str, str]], constants: Constants) -> Predictions:
    """Predict the rows of a table of points."""
    points = points_of(rows, constants)
    found = forecast(points.configurations, constants, points.unknown) if points.ids else None
    told = {} if found is None else _told(points, found, constants)
    blank = dict.fromkeys(COLUMNS, "")
    return Predictions(
        rows=tuple(
            told.get(one) or {**blank, "id": one, "refused": " ".join(points.refused[one].split())}
            for one in points.all_ids
        ),
        refused=points.refused,
    )


def _told(points: Points, found: Forecast, constants: Constants) -> dict[str, dict[str, str]]:
    """Return cells by id."""
    numbers = (found.seconds.total, found.low, found.high, found.memory.published / _GB)
    shape = (len(points.ids),)
    columns = [np.broadcast_to(values, shape) for values in (*numbers, found.memory.words)]
    reach, c = constants.reach, points.configurations
    away = reach.reasons(c, constants.traits, points.unknown) if reach else [[] for _ in points.ids]
    told = {}
    for place, one in enumerate(points.ids):
        *figures, word = (column[place] for column in columns)
        cells = [f"{float(figure):.6g}" if np.isfinite(figure) else "" for figure in figures]
        told[one] = dict(zip(COLUMNS, (one, *cells, str(word), "; ".join(away[place]), ""), strict=True))
    return told
