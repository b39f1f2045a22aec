"""A training with its attempts as text, JSON and a page: `nlp-bench report --training`."""

from textwrap import wrap
from typing import Any

from nlp_bench import __version__
from nlp_bench.measure.training import PARTS, Started, Training
from nlp_bench.show.page import page
from nlp_bench.show.table import (
    TEXT,
    Style,
    Table,
    as_document,
    documents,
    percentage,
    significant,
    spaced,
    table_of,
    with_spaces,
)

WIDTH, MAX_ROWS = 110, 6
SCHEMA = "nlp-bench/report/1"


def head(training: Training) -> list[str]:
    """Return the goodput in one line, and why the training is not VALID."""
    rate = training.goodput
    number = len(training.attempts)
    lines = [f"{training.outcome.value}: {number} attempt{'s' * (number != 1)}"]
    if rate is not None and training.wall_s and training.new_tokens is not None:
        tokens = with_spaces(round(training.new_tokens))
        lines[0] += (
            f", goodput {spaced(significant(rate, 5))} tokens/s ({tokens} new tokens in {training.wall_s:.0f} s)"
        )
    return [*lines, training.reason] if training.reason else lines


def table(training: Training, most: int | None = None) -> Table:
    """Return a row for each attempt, at most the last `most`, then the seconds of all and their part of the wall clock."""
    number = len(training.attempts)
    first = max(number - most, 0) if most else 0
    rows = [_row(i, each) for i, each in enumerate(training.attempts[first:], first + 1)]
    if training.wall_s and training.account_s:
        account = [training.account_s[part] for part in PARTS]
        rows.append(["all", "", *(f"{value:.1f}" for value in account)])
        rows.append(["%", "", *(percentage(value / training.wall_s, 1) for value in account)])
    return table_of(["attempt", "iterations", *(f"{part} s" for part in PARTS)], rows)


def _row(number: int, each: Started) -> list[str]:
    cells = [f"{each.account_s[part]:.1f}" if part in each.account_s else "" for part in PARTS]
    return [str(number), f"{each.first_iteration}-{each.last_iteration}", *cells]


def _document(training: Training, style: Style) -> str:
    lines, most = [style.text(line) for line in head(training)], None
    if style is TEXT:
        lines, most = (
            [part for line in lines for part in wrap(line, WIDTH, break_on_hyphens=False, break_long_words=False)],
            MAX_ROWS,
        )
    return as_document(lines, style.table(table(training, most)) if training.attempts else ())


def html(training: Training) -> str:
    """Return the page: the account as one bar, and the table."""
    bars: list[dict[str, Any]] = []
    begin = 0.0
    for part, value in (training.account_s or {}).items():
        width = 100 * value / training.wall_s if training.wall_s else 0.0
        bars.append({"part": part, "seconds": f"{value:.1f}", "begin": begin, "width": width})
        begin += width
    return page(
        "report/training.html",
        title="Training",
        version=__version__,
        words=head(training),
        columns=table(training),
        bars=bars,
    )


FORMATS = {**documents(_document, lambda training: {"training": training.to_json()}), "html": html}
"""By the word of --format."""
