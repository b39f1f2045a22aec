"""Runs of the history for a comparison: by number, by name, by configuration, or the last ones before a run."""

import re
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.history.row import COLUMNS, Row
from nlp_bench.history.store import Filter, Store, open_to_read
from nlp_bench.measure.observation import Observation, digest_of, identity_of
from nlp_bench.outcome import Outcome

MAX_LAST = 500
EARLIER = 20
"""Runs before a single one that show what runs differ by."""
_DIGEST = re.compile(r"[0-9a-f]{6,12}")
_FORMS = "last (the run before the other side's), last-N (the N before), a number, a name, or a configuration (12 hex digits)"


def named(path: Path, word: str) -> list[Observation]:
    """Return the runs that `word` stands for: a name, a number, or the beginning of a configuration's short name.

    Raises UsageError when there are none.
    """
    with open_to_read(path) as store:
        rows = store.rows(Filter(name=word), COLUMNS) if word else []
        if not rows and word.isdecimal():
            rows = store.rows(Filter(ids=[int(word)]), COLUMNS) if len(word) < 18 else []
        if not rows and _DIGEST.fullmatch(word):
            rows = store.rows(Filter(identity=word), COLUMNS)
    if not rows:
        raise UsageError(f"history:{word} is not in {path}; give {_FORMS}; see: nlp-bench history list --file {path}")
    return [row.observation() for row in rows]


def before(path: Path, word: str, others: list[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Return, for each configuration of `others`, the last valid run (or the last N) that is none of them, and those before it.

    Of the latter there are up to EARLIER where one run was asked for, and none where several were: those show themselves what runs
    differ by.
    `others` have keys. Where a run of `others` is in the history itself, only runs before it count. Raises UsageError when there
    are none.
    """
    number = _number(word)
    keys = {run.key for run in others}
    found: list[Row] = []
    earlier: list[Row] = []
    with open_to_read(path) as store:
        for identity in dict.fromkeys(digest_of(identity_of(run.settings)) for run in others):
            rows = _last(store, identity, keys, number + (EARLIER if number == 1 else 0))
            found += rows[-number:]
            earlier += rows[:-number]
    if not found:
        raise UsageError(
            f"history:{word}: {path} has no earlier valid run of this configuration; add one with: nlp-bench history add PATH"
        )
    return [row.observation() for row in found], [row.observation() for row in earlier]


def _last(store: Store, identity: str, keys: set[str | None], number: int) -> list[Row]:
    rows = store.rows(Filter(identity=identity))
    own = [index for index, row in enumerate(rows) if row.key in keys]
    earlier = rows[: own[0]] if own else rows
    valid = [row for row in earlier if row.outcome == Outcome.VALID.value and row.tokens_per_second_steady]
    return store.rows(Filter(ids=[row.id for row in valid[-number:]]), COLUMNS)


def _number(word: str) -> int:
    match = re.fullmatch(r"last(?:-([0-9]{1,4}))?", word)
    number = int(match[1] or 1) if match else 0
    if not 1 <= number <= MAX_LAST:
        raise UsageError(f"history:{word[:40]} is unknown; give {_FORMS}; N is from 1 to {MAX_LAST}")
    return number


def why_no_name(word: str) -> str | None:
    """Say why `word` cannot be a person's name for runs, None where it can."""
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,63}", word):
        return "a name begins with a letter and holds letters, digits, ., - and _ (64 at most)"
    if word.startswith("last") or _DIGEST.fullmatch(word):
        return "the name could be taken for history:last or for a configuration"
    return None
