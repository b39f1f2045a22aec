"""What the lines of one form say: which of their numbers are columns of a record, and which are settings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from nlp_bench.logs.unknown import words as w
from nlp_bench.logs.unknown.meaning import Meaning, ending, fact, meaning, words_of
from nlp_bench.logs.unknown.naming import is_each, is_of_others, is_result, is_times_devices, rank_of, without_names
from nlp_bench.logs.unknown.pairs import Spot, spots_of

MEASURES = frozenset({"tokens_rate", "samples_rate", "steps_rate", "rate", "step_time", "time", "clock"})
"""Kinds that a record is made of, beside its counter."""
PAUSED, CUT = 1, 2
"""Marks of a row: an evaluation stood in front of it; its last number may go on in the next line."""
_COUNTERS = frozenset({"counter", "anonymous"})
_ESSENTIAL = MEASURES | _COUNTERS
_ARITHMETIC = re.compile(r"\s*(?:[*+^/]|-\d|//)")
_CODE = re.compile(r"\bdef |\blambda |\bself\.|\bimport |\breturn |\bprint\(|\badd_argument|\bassert |f\"|f'")
_HEAD_NAMES = re.compile(r"\S*[/\\]\S*|\S+\.\w{1,4}\b")
_ROW_KINDS = frozenset(
    {"seen_tokens", "step_tokens", "seen_samples", "global_batch", "sequence", "sequence_limit", "devices", "loss"}
)


class Column(NamedTuple):
    """One number of every line of a form."""

    at: int
    """Which number of the line."""
    meaning: Meaning
    """What it is."""
    factor: float
    """The value is the number times this."""
    shown: str
    """Its name or unit, as the log has it."""
    clock: tuple[int, ...] = ()
    """The numbers of a clock (`1:03:17`) of which it is the first."""
    is_rounded: bool = False
    """Whether a letter stands for the digits that were left out (`2.05K`)."""
    is_hint: bool = False
    """Whether only the last words of a longer name say it."""


@dataclass(frozen=True)
class Plan:
    """What every line with the same texts between its numbers says."""

    columns: tuple[Column, ...] = ()
    """The numbers that may belong to a record."""
    facts: tuple[Column, ...] = ()
    """The numbers that may be settings."""
    is_foreign: bool = False
    """Whether the line is of an evaluation, of data, of a picture, of another program."""
    is_training: bool = False
    """Whether words of a training stand on it."""
    key: str = ""
    """Names the form."""
    num_numbers: int = 0
    """Numbers of the line."""
    has_counter: bool = False
    """Whether the line counts iterations."""
    has_measure: bool = False
    """Whether the line states a rate or a time."""
    is_cut_short: bool = False
    """Whether it ends in a number that is a column, so that a digit or a unit may be missing."""
    is_learned: bool = False
    """Whether the line is one of reinforcement learning."""
    is_pause: bool = False
    """Whether the line tells of an evaluation, beside what else it says."""
    rank: int = -1
    """Which number is the rank of the process that wrote the line, -1 where none is."""

    @property
    def is_record(self) -> bool:
        """Whether the line is a record of its own."""
        return self.has_counter and self.has_measure

    @property
    def counter(self) -> int:
        """Which column counts: a named one before a bare number."""
        named = (at for at, column in enumerate(self.columns) if column.meaning.kind == "counter")
        return next(named, next((at for at, c in enumerate(self.columns) if c.meaning.kind == "anonymous"), 0))


NOTHING = Plan()


def plan_of(texts: list[str]) -> Plan:
    """Return what lines say that have `texts` between their numbers."""
    line = "0".join(texts)
    if _CODE.search(line):
        return NOTHING
    spots, loose = spots_of(texts)
    rank = rank_of(spots)
    names = {word.text for spot in spots for word in words_of(f"{spot.name} {spot.unit} {spot.behind[:16]}")}
    told = {
        word.text
        for text in (*loose, *_bar_names(spots))
        for word in words_of(without_names(_HEAD_NAMES.sub(" ", text)))
    }
    is_foreign = bool(told & w.FOREIGN) or bool(names & w.REINFORCED) or bool((names | told) & w.PICTURES)
    is_foreign |= is_of_others(line) or is_result(spots) or _counts_twice(spots)
    columns = () if is_foreign else tuple(_columns(spots))
    if any(_counts_evaluation(spots[column.at]) for column in columns if column.meaning.kind in _COUNTERS):
        columns, is_foreign = (), True
    if rank == 0 and not any(column.meaning.kind == "counter" for column in columns):
        rank = -1  # what is counted in front of the line is the step
    columns = tuple(column for column in columns if column.at != rank)
    if is_each(loose):
        columns = tuple(_of_device(column) for column in columns)
    kinds = {column.meaning.kind for column in columns}
    last = max((at for c in columns for at in (c.at, *c.clock)), default=-1)
    return Plan(
        columns=columns,
        facts=() if kinds & _ESSENTIAL else tuple(_facts(spots)),
        is_foreign=is_foreign,
        is_training=bool((names | told) & w.EVIDENCE),
        key=key_of(columns),
        num_numbers=len(spots),
        has_counter=bool(kinds & _COUNTERS),
        has_measure=bool(kinds & MEASURES),
        is_cut_short=last == len(spots) - 1 and not texts[-1].strip(),
        is_learned=bool(names & w.LEARNED),
        is_pause=bool((names | told) & w.EVALUATED),
        rank=rank,
    )


def _counts_evaluation(spot: Spot) -> bool:
    return any(word.text in w.EVALUATED for word in words_of(spot.name))


def _counts_twice(spots: list[Spot]) -> bool:
    """Say whether one thing is counted twice, `update 2/100 | loss of update 3/100`: those are the halves of two lines."""
    counted = [
        one.name.split()[-1].lower() for one, two in pairwise(spots) if one.name and two.joint == "/" and not two.name
    ]
    return len(set(counted)) < len(counted)


def _bar_names(spots: list[Spot]) -> list[str]:
    """Return the words in front of the percentage of each bar: they say what its loop does."""
    return [spot.name for spot in spots if spot.unit.strip() == "%" and spot.behind.startswith("|")]


def key_of(columns: Sequence[Column]) -> str:
    """Return what names a form: its counters and measures in order."""
    return "|".join(column_key(column) for column in columns if column.meaning.kind in _ESSENTIAL)


def column_key(column: Column) -> str:
    """Return what names a column of a form."""
    return f"{column.meaning.kind}/{column.meaning.place}/{column.shown}"


def _columns(spots: list[Spot]) -> list[Column]:
    columns: list[Column] = []
    clocks = _clocks(spots)
    is_bar = any(spots[parts[-1]].behind.startswith("<") for parts in clocks.values())
    inner = {at for parts in clocks.values() for at in parts[1:]}
    for spot in spots:
        if spot.at in inner:
            continue
        column = _clock(spot, spots, clocks) if spot.at in clocks else _column(spot, spots, columns)
        if column and is_times_devices(spot, spots[spot.at + 1] if spot.at + 1 < len(spots) else None):
            column = _of_device(column)
        if column and is_bar and column.meaning.kind in {"steps_rate", "step_time"}:
            column = column._replace(meaning=replace(column.meaning, per="bar"))
        if column:
            columns.append(column)
    kinds = {column.meaning.kind for column in columns}
    epoch = spots[0] if spots and not kinds & _COUNTERS and "tokens_rate" in kinds else None
    if epoch and epoch.name.lower() == "epoch" and not epoch.unit and epoch.at not in clocks:
        columns.insert(0, Column(0, Meaning("counter", per="epoch"), 1.0, epoch.name))
    return columns


def _of_device(column: Column) -> Column:
    """Return the column of a rate as that of one device, where it does not say otherwise."""
    if not column.meaning.kind.endswith("rate") or column.meaning.place:
        return column
    return column._replace(meaning=replace(column.meaning, place="device", per=""))


def _clocks(spots: list[Spot]) -> dict[int, tuple[int, ...]]:
    """Return the numbers of each clock by its first: `1:03:17`, `14:32`."""
    clocks: dict[int, tuple[int, ...]] = {}
    begin = 0
    while begin < len(spots):
        end = begin
        while end + 1 < len(spots) and spots[end].behind == ":" and spots[end + 1].joint == ":":
            end += 1
        if end > begin and end - begin < 3 and not _is_counter(spots[begin]):
            clocks[begin] = tuple(range(begin, end + 1))
        begin = end + 1
    return clocks


def _is_counter(spot: Spot) -> bool:
    found = meaning(spot.name, "")
    return "epoch" in spot.name.lower() or (found is not None and found.kind == "counter")


def _clock(spot: Spot, spots: list[Spot], clocks: dict[int, tuple[int, ...]]) -> Column | None:
    parts = clocks[spot.at]
    if not spot.name:
        if not spots[parts[-1]].behind.startswith("<"):
            return None
        return Column(spot.at, Meaning("clock"), 1.0, "clock of the bar", parts)
    found = meaning(spot.name, "s")
    return Column(spot.at, found, 1.0, spot.name, parts) if found and found.kind in {"time", "clock"} else None


def _column(spot: Spot, spots: list[Spot], before: list[Column]) -> Column | None:
    last = before[-1] if before and before[-1].at == spot.at - 1 else None
    is_behind = (not spot.name and spot.joint == "/") or spot.name.lower() in {"of", "out of"}
    if is_behind:
        is_total = last is not None and last.meaning.kind in {"counter", "anonymous"}
        return Column(spot.at, Meaning("total"), 1.0, "total") if is_total else None
    if not spot.name and last and spot.joint.startswith("(") and spot.unit.lstrip().startswith("/"):
        return _share(spot, last)
    found = meaning(spot.name, spot.unit)
    if found is None and not before and not spot.unit:
        found = ending(spot.name)
    if found is None:
        following = spots[spot.at + 1] if spot.at + 1 < len(spots) else None
        return _anonymous(spot, following)
    if found.kind not in MEASURES | _ROW_KINDS | {"counter", "stamp"}:
        return None
    if found.kind == "step_tokens" and spot.scale != 1 and not spot.unit:
        return None
    shown = " ".join(f"{spot.name} {spot.unit}".split())
    return Column(spot.at, found, found.factor * spot.scale, shown, is_rounded=spot.scale != 1)


def _share(spot: Spot, last: Column) -> Column | None:
    """Return the column of `(1409.82/gpu)` behind a rate."""
    is_device = [word.text for word in words_of(spot.unit)] == ["/", "dev"]
    if not is_device or last.meaning.kind not in {"tokens_rate", "samples_rate"} or last.meaning.place == "device":
        return None
    changed = replace(last.meaning, place="device", per="")
    return Column(spot.at, changed, changed.factor * spot.scale, f"{last.shown} {spot.unit}")


def _anonymous(spot: Spot, following: Spot | None) -> Column | None:
    """Return the column of `[10/100]`, or of a number that begins the line, in front of a bar."""
    if spot.unit or spot.scale != 1 or (spot.name and not _is_head(spot)):
        return None
    is_pair = following is not None and not following.name and following.joint == "/" and not following.unit
    is_first = spot.at == 0 and not spot.joint and not spot.name and spot.behind.lstrip()[:1] in {"|", ":", ","}
    return Column(spot.at, Meaning("anonymous"), 1.0, "count") if is_pair or is_first else None


def _is_head(spot: Spot) -> bool:
    """Say whether what stands in front of `[10/100]` is of the logger, and names no other count."""
    named = {word.text for word in words_of(spot.name)}
    return "[" in spot.opener and (w.FOREIGN | w.EXTREMES | w.PARTS | {"epoch", "loss"}).isdisjoint(named)


def _facts(spots: list[Spot]) -> list[Column]:
    found = []
    for spot in spots:
        what = fact(spot.name, spot.unit) if spot.name else None
        # `0.5M tokens` may be 500 000 or 524 288.
        if what and spot.scale == 1 and not _ARITHMETIC.match(spot.behind):
            found.append(Column(spot.at, what[0], 1.0, spot.name, is_hint=not what[1]))
    return found
