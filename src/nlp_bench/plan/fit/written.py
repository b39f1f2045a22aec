"""From a fit to the file that everybody reads."""

import datetime as dt
from pathlib import Path

from nlp_bench.config.catalog import root, table
from nlp_bench.files import write_text
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.fit.data import Measured
from nlp_bench.plan.fit.file import with_fit
from nlp_bench.plan.fit.validate import held_out, interval_ends, without_source


def write_fit(path: Path, points: Path, measured: Measured, constants: Constants, fitted: Constants) -> None:
    """Write benchmark/plan.toml with the fitted values and the interval of rows that fits have not seen."""
    held = [*held_out(measured, constants, 2 / 3), *without_source(measured, constants).values()]
    ends = interval_ends(measured, constants, held)
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    where = _named(points)
    text = table("plan.toml").read_text(encoding="utf-8")
    source = f"fitted on {where}, {today}"
    interval = f"quantiles of published / predicted time of rows left out of the fit: 5 splits of 2/3, and each source left out; {where}, {today}"
    write_text(path, with_fit(text, fitted, ends, source, interval))


def _named(points: Path) -> str:
    """Return the table's name in the repository; one from elsewhere by its last word."""
    whole = points.resolve()
    return whole.relative_to(root()).as_posix() if whole.is_relative_to(root()) else points.name
