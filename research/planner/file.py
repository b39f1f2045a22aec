"""The constants' file with fitted values in their places; comments and everything else stay as they are."""

import datetime as dt
import json
import re
from pathlib import Path

from nlp_bench.config.catalog import root, table
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import write_text
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.interval import Seen
from research.planner.reach import Intervals

MARK = "# What was fitted, by kind of framework and chip: written by `python -m research.planner`.\n"
"""Everything below this line is written anew."""


def write_fit(path: Path, points: Path, learned: Intervals, fitted: Constants) -> None:
    """Write benchmark/plan.toml with the fitted values and the interval of rows that fits have not seen."""
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    where = _named(points)
    text = table("plan.toml").read_text(encoding="utf-8")
    interval = (
        "published / predicted time of each framework family, each source left out of the fit in turn: quantiles as far "
        f"out as hold 90 % of a source that they were not learned from; {where}, {today}"
    )
    write_text(path, with_fit(text, fitted, f"fitted on {where}, {today}", learned, interval))


def _named(points: Path) -> str:
    """Return the table's name in the repository; one from elsewhere by its last word."""
    whole = points.resolve()
    return whole.relative_to(root()).as_posix() if whole.is_relative_to(root()) else points.name


def with_fit(
    text: str, fitted: Constants, source: str, learned: Intervals | None = None, interval_source: str = ""
) -> str:
    """Return the text of benchmark/plan.toml with the fitted values and, where given, the interval replaced, each with its source."""
    for name in fitted.fitted():
        text = _replaced(
            text,
            rf"^({name} = \{{ value = )[^,]+(,.*?source = )\"(?:[^\"\\]|\\.)*\"",
            rf"\g<1>{fitted[name]:.4g}\g<2>{_quoted(source)}",
            name,
        )
    return text if learned is None else _with_interval(text, learned, interval_source)


def _with_interval(text: str, learned: Intervals, source: str) -> str:
    for family, ends in learned.ends.items():
        line = f"{family} = {{ low = {ends.low:.3f}, high = {ends.high:.3f} }}"
        text = _replaced(text, rf"^{family} = \{{ low = .*$", line, f"[interval] {family}")
    for name, one in learned.terms.items():
        line = f"{name} = {{ below = {one.below:.3f}, above = {one.above:.3f}, source = {_quoted(one.source)} }}"
        text = _replaced(text, rf"^{name} = \{{ below = .*$", line, f"[distance] {name}")
    text = _replaced(text, r"^(\[interval\]\nsource = ).*$", rf"\g<1>{_quoted(source)}", "[interval] source")
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise NlpBenchError(f"benchmark/plan.toml: the line {MARK.strip()!r} is missing; mend the file first")
    return head + mark + "".join(_seen(one) for one in learned.reach.seen)


def _seen(one: Seen) -> str:
    ranges = "".join(f"{name} = [{low:.6g}, {high:.6g}]\n" for name, (low, high) in one.ranges.items())
    return (
        f'\n[[seen]]\nkind = "{one.kind}"\nchip = "{one.chip}"\nrows = {one.rows}\nsources = {one.sources}\nformats = {json.dumps(list(one.formats))}\n'
        f"fabrics = {json.dumps(list(one.fabrics))}\n"
        f"[seen.ranges]\n{ranges}"
    )


def _quoted(words: str) -> str:
    return json.dumps(words).replace("\\", "\\\\")


def _replaced(text: str, pattern: str, line: str, name: str) -> str:
    found, count = re.subn(pattern, line, text, flags=re.MULTILINE)
    if count != 1:
        raise NlpBenchError(
            f"benchmark/plan.toml: {name} stands {count} times on a line of its own, not once; mend the file first"
        )
    return found
