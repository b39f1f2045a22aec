"""All PATHs of a report to entries: few are read here, many by several processes, and what is no log is named in one line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nlp_bench.logs.source import Source
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.find import Group, Item, find
from nlp_bench.report.lean import MAX_DRAWN
from nlp_bench.report.passed import PassedOver
from nlp_bench.report.progress import ProgressLine
from nlp_bench.report.read import Read, Wish, read_item
from nlp_bench.show.escape import one_line

ALONE_S = 1.0
"""After this much reading, and if as much is left, several processes read: starting them takes half of it."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What all PATHs gave."""

    entries: list[RunEntry]
    """The runs, in the order of the PATHs."""
    passed_over: list[PassedOver]
    """For each folder that holds other files too."""


def read_sources(  # noqa: PLR0913  # one wish each
    paths: Sequence[str],
    overrides: Overrides,
    *,
    with_quotes: bool = False,
    with_samples: bool = False,
    with_records: bool = False,
    alone_s: float = ALONE_S,
) -> Sources:
    """Read all `paths`; what is reached twice counts once.

    With quotes, the provenance of each entry holds the text of its first record; with samples, the entries of the first MAX_DRAWN
    logs hold the points of their plots; with records, all entries keep every sample. After `alone_s` seconds other processes may help. Raises UsageError where the only PATH cannot be
    read or holds nothing; among several it becomes a row.
    """
    groups = find(paths)
    items = [item for group in groups for item in group.items]
    wish = Wish(
        overrides=overrides,
        is_alone=len(items) == 1 and not items[0].is_found,
        with_quotes=with_quotes,
        with_records=with_records,
    )
    drawn = replace(wish, with_samples=True)
    wishes = [drawn if with_samples and index < MAX_DRAWN else wish for index in range(len(items))]
    results = iter(_read_all(items, wishes, alone_s))
    found = [_assembled(group, [next(results) for _ in group.items]) for group in groups]
    return Sources(
        entries=[entry for entries, _ in found for entry in entries],
        passed_over=[passed for _, passed in found if passed.no_training_line or passed.binary],
    )


def _assembled(group: Group, results: list[Read]) -> tuple[list[RunEntry], PassedOver]:
    entries = [entry for read in results for entry in read.entries]
    silent: list[str] = []
    binary: list[str] = []
    for item, read in zip(group.items, results, strict=True):
        if item.is_found and not read.entries:
            (binary if read.is_binary else silent).append(one_line(item.path.removeprefix(group.path).lstrip("/")))
    passed = PassedOver(folder=one_line(group.path), no_training_line=tuple(silent), binary=tuple(binary))
    if group.items and not entries:
        reason = f"none of its {len(group.items)} file(s) holds a training line of a known dialect; see: nlp-bench report --dialects"
        entries = [RunEntry(source=passed.folder, outcome=Outcome.REFUSED, reasons=(Reason("no-log", reason),))]
    return entries, passed


def _read_all(items: list[Item], wishes: list[Wish], alone_s: float) -> list[Read]:
    is_known = all(item.is_regular for item in items)
    num_bytes = sum(item.num_bytes for item in items)
    with ProgressLine(num_files=len(items), num_bytes=num_bytes if is_known else None) as line:
        reading = _Reading(items, wishes, line)
        reading.here(alone_s)
        reading.by_others()
        return [reading.results[index] for index in range(len(items))]


class _Reading:
    """Items, some of which are read."""

    def __init__(self, items: list[Item], wishes: list[Wish], line: ProgressLine) -> None:
        self.items, self.wishes, self.line = items, wishes, line
        self.results: dict[int, Read] = {}
        self.read_bytes, self.num_bytes = 0, sum(item.num_bytes for item in items)

    def here(self, alone_s: float) -> None:
        """Read until so much time has passed that help is worth its cost; pipes are always read here."""
        for index, item in self.left():
            if item.is_regular and self.needs_help(alone_s):
                continue
            self.results[index] = read_item(item, self.wishes[index], self.progress)
            self.read_bytes += item.num_bytes
            self.line.show(len(self.results), self.read_bytes)

    def left(self) -> Iterator[tuple[int, Item]]:
        return ((index, item) for index, item in enumerate(self.items) if index not in self.results)

    def progress(self, source: Source) -> None:
        self.line.show(len(self.results), self.read_bytes + source.position_bytes)

    def needs_help(self, alone_s: float) -> bool:
        done, elapsed_s = len(self.results), self.line.elapsed_s
        if elapsed_s < alone_s or not done:
            return False
        # What is left takes as long as it did so far for as many files, or for as many bytes.
        part = max((len(self.items) - done) / done, (self.num_bytes - self.read_bytes) / max(self.read_bytes, 1))
        return len(self.items) - done > 1 and part * elapsed_s >= alone_s

    def by_others(self) -> None:
        """Read the rest in several processes."""
        rest = list(self.left())
        if not rest:
            return
        from nlp_bench.report.pool import read_many  # noqa: PLC0415  # only many logs pay for it

        done = len(self.results)
        results = read_many(
            [item for _, item in rest],
            [self.wishes[index] for index, _ in rest],
            lambda files, num_bytes: self.line.show(done + files, self.read_bytes + num_bytes),
        )
        self.results.update((index, read) for (index, _), read in zip(rest, results, strict=True))
