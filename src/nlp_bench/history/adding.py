"""Runs that a report can read into the history."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.history.row import Row, row_of
from nlp_bench.history.store import open_to_write
from nlp_bench.history.text import name_of
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.report.sources import read_sources
from nlp_bench.show.escape import one_line


@dataclass(frozen=True, kw_only=True)
class Added:
    """What became of the paths."""

    lines: tuple[str, ...]
    """One per run that is in the history now."""
    refused: tuple[str, ...]
    """One per entry that is no ended run, with the reason."""


def add_runs(paths: Sequence[str], file: Path, *, name: str = "", overrides: Overrides | None = None) -> Added:
    """Add every ended run below `paths`, the failed ones too: they are part of what happened to the machine.

    A log that gives no number and tells no end (REFUSED, UNKNOWN) and a published table are no runs. Raises NlpBenchError where
    the file cannot be written; none of the runs is then added.
    """
    entries = read_sources(paths, overrides or Overrides()).entries
    refusals = {index: why for index, entry in enumerate(entries) if (why := _why_not(entry))}
    added = now()
    rows = [row_of(entry, name=name, added=added) for index, entry in enumerate(entries) if index not in refusals]
    found: list[tuple[int, bool]] = []
    if rows:
        with open_to_write(file) as store:
            found = store.add(rows)
    return Added(
        lines=tuple(_line(row, *end) for row, end in zip(rows, found, strict=True)),
        refused=tuple(f"{entries[index].source}: {why}" for index, why in refusals.items()),
    )


def _why_not(entry: RunEntry) -> str | None:
    if entry.outcome in {Outcome.REFUSED, Outcome.UNKNOWN}:
        return "; ".join(entry.reason_texts) or entry.outcome.value
    if entry.published_tokens_per_second is not None:
        return "a published value is no run; compare it with: nlp-bench report"
    return None


def _line(row: Row, number: int, is_new: bool) -> str:
    rate = f" {row.tokens_per_second_steady:.2f} tokens/s" if row.tokens_per_second_steady else ""
    what = "added" if is_new else "was there, measured anew"
    return f"run {number} {what}: {row.identity} {name_of(row)} {row.outcome}{rate} ({one_line(row.source)})"
