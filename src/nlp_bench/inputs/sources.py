"""Reads all PATHs to runs, many of them in several processes; files that are no logs are listed in one line."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from nlp_bench.escape import one_line, some
from nlp_bench.immutable import immutable
from nlp_bench.inputs.find import Group, Item, find, record_beside
from nlp_bench.inputs.read import Read, ReadOptions, read_item, refusal_of_record
from nlp_bench.logs.source import Source
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.rules.apply import judged, wanted
from nlp_bench.terminal import StatusLine

_MAX_NAMES = 5
MAX_DRAWN = 1000  # logs whose runs have plots


@immutable
class PassedOver:
    """Files below one PATH that are no logs of a training."""

    folder: str
    no_training_line: tuple[str, ...]  # text files without a training line; paths below the folder
    binary: tuple[str, ...]  # files that are no text, by their first bytes; likewise

    def sentence(self) -> str:
        """Return the note for the report, in one line."""
        kinds = {"file(s) hold no training line": self.no_training_line, "binary file(s) are passed over": self.binary}
        parts = [f"{len(names)} {what}: {some(names, _MAX_NAMES)}" for what, names in kinds.items() if names]
        return f"{self.folder}: {'; '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return one object of `passed_over` in nlp-bench/report/1."""
        return {"folder": self.folder, "no_training_line": list(self.no_training_line), "binary": list(self.binary)}


QUIET_S, STEP_S = 1.0, 0.1
_BAR_WIDTH = 20


class ReadProgress:
    """Progress of the reading: one line on standard error, if that is a terminal, after QUIET_S; wiped at the end."""

    def __init__(self, num_files: int, num_bytes: int | None, stream: TextIO | None = None) -> None:
        """Start; `num_bytes` is the size of all files, None where it is not known."""
        self.num_files, self.num_bytes = num_files, num_bytes
        stream = stream or sys.stderr
        self.line = StatusLine(stream) if stream is not None and stream.isatty() else None
        self.started_s = time.monotonic()
        self.next_s = self.started_s + QUIET_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    def show(self, files: int, read_bytes: int) -> None:
        """Redraw the line, if it is time to."""
        now_s = time.monotonic()
        if self.line and now_s >= self.next_s:
            self.next_s = now_s + STEP_S
            self.line.show(self.text(files, read_bytes, now_s - self.started_s))

    def close(self) -> None:
        """Wipe the line."""
        if self.line:
            self.line.wipe()

    def text(self, files: int, read_bytes: int, elapsed_s: float) -> str:
        """Return the line for a moment."""
        num_files = [f"{files} of {self.num_files} files"] if self.num_files > 1 else []
        speed = read_bytes / elapsed_s
        total = f" of {self.num_bytes / 1e6:.2f}" if self.num_bytes else ""
        amount = [*num_files, f"{read_bytes / 1e6:.2f}{total} MB", f"{speed / 1e6:.2f} MB/s"]
        if not self.num_bytes:
            return "reading " + ", ".join(amount)
        part = min(read_bytes / self.num_bytes, 1.0)
        left = [f"{(self.num_bytes - read_bytes) / speed:.0f} s left"] if 0 < part < 1 else []
        bar = ("#" * int(part * _BAR_WIDTH)).ljust(_BAR_WIDTH)
        return f"reading [{bar}] " + ", ".join([f"{100 * part:.0f} %", *left, *amount])


ALONE_S = 1.0  # reading time after which, if as much is left, several processes read: starting them takes half of it


@immutable
class Sources:
    """The results of all PATHs."""

    entries: list[RunResult]  # the runs, in the order of the PATHs
    passed_over: list[PassedOver]  # one for each folder with files that are no logs


def read_sources(  # noqa: PLR0913  # one option each
    paths: Sequence[str],
    overrides: Overrides,
    *,
    with_quotes: bool = False,
    with_samples: bool = False,
    with_records: bool = False,
    rules: str | None = None,
    alone_s: float = ALONE_S,
) -> Sources:
    """Read all `paths`; an item that several of them contain counts once.

    With quotes, the provenance of each entry holds the text of its first record; with samples, the entries of the first MAX_DRAWN
    logs hold the points of their plots; with records, all entries keep every sample. `rules` are those of `rules.apply.wanted`. After
    `alone_s` seconds other processes may be started. Raises UsageError where a single item cannot be read; one of several becomes a row.
    """
    groups = find(paths)
    items = [item for group in groups for item in group.items]
    options = ReadOptions(
        overrides=overrides,
        is_alone=len(items) == 1 and not items[0].is_found,
        with_quotes=with_quotes,
        with_records=with_records,
        rules=rules or wanted(None),
    )
    drawn = replace(options, with_samples=True)
    work = [(n, item, drawn if with_samples and n < MAX_DRAWN else options) for n, item in enumerate(items)]
    results = iter(_read_all(work, alone_s))
    found = [_assembled(group, [next(results) for _ in group.items], options) for group in groups]
    return Sources(
        entries=[entry for entries, _ in found for entry in entries],
        passed_over=[passed for _, passed in found if passed.no_training_line or passed.binary],
    )


def _assembled(group: Group, results: list[Read], options: ReadOptions) -> tuple[list[RunResult], PassedOver]:
    entries = [entry for read in results for entry in read.entries]
    texts: list[str] = []
    binary: list[str] = []
    for item, read in zip(group.items, results, strict=True):
        if item.is_found and not read.entries:
            (binary if read.is_binary else texts).append(one_line(item.path.removeprefix(group.path).lstrip("/")))
    passed = PassedOver(folder=one_line(group.path), no_training_line=tuple(texts), binary=tuple(binary))
    if group.items and not entries:
        reason = f"none of its {len(group.items)} file(s) holds a training line of a known dialect; see: nlp-bench report --dialects{group.hidden}"
        record = record_beside(Path(group.path))
        refusal = refusal_of_record(record, passed.folder) if record else None
        nothing = RunResult(source=passed.folder, outcome=Outcome.REFUSED, reasons=(Reason("no-log", reason),))
        entries = [judged(refusal or nothing, rules=options.rules)]
    return entries, passed


def _read_all(work: list[tuple[int, Item, ReadOptions]], alone_s: float) -> list[Read]:
    """Read in this process until starting others pays off; pipes are always read here."""
    num_files, num_bytes = len(work), sum(item.num_bytes for _, item, _ in work)
    progress = ReadProgress(num_files, num_bytes if all(item.is_regular for _, item, _ in work) else None)
    results: dict[int, Read] = {}
    done_bytes = 0

    def show(source: Source) -> None:
        progress.show(len(results), done_bytes + source.position_bytes)

    def is_worth_processes() -> bool:
        done, elapsed_s = len(results), progress.elapsed_s
        if elapsed_s < alone_s or not done or num_files - done < 2:
            return False
        # The rest is estimated to take as long per file, or per byte, as so far; the larger counts.
        part = max((num_files - done) / done, (num_bytes - done_bytes) / max(done_bytes, 1))
        return part * elapsed_s >= alone_s

    try:
        for index, item, options in work:
            if not (item.is_regular and is_worth_processes()):
                results[index] = read_item(item, options, show)
                done_bytes += item.num_bytes
                progress.show(len(results), done_bytes)
        if rest := [one for one in work if one[0] not in results]:
            from nlp_bench.inputs.pool import read_many  # noqa: PLC0415  # imported for many logs only

            done = len(results)
            results |= read_many(rest, lambda files, size: progress.show(done + files, done_bytes + size))
    finally:
        progress.close()
    return [results[index] for index in range(num_files)]
