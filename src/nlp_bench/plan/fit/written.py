"""From a fit to the file that everybody reads."""

import datetime as dt
from pathlib import Path

from nlp_bench.config.catalog import root, table
from nlp_bench.files import write_text
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.fit.file import with_fit
from nlp_bench.plan.fit.reach import Intervals


def write_fit(path: Path, points: Path, learned: Intervals, fitted: Constants) -> None:
    """Write benchmark/plan.toml with the fitted values and the interval of rows that fits have not seen."""
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    where = _named(points)
    text = table("plan.toml").read_text(encoding="utf-8")
    interval = f"quantiles of published / predicted time, each source left out of the fit in turn; {where}, {today}"
    write_text(path, with_fit(text, fitted, f"fitted on {where}, {today}", learned, interval))


def _named(points: Path) -> str:
    """Return the table's name in the repository; one from elsewhere by its last word."""
    whole = points.resolve()
    return whole.relative_to(root()).as_posix() if whole.is_relative_to(root()) else points.name
