"""What a run was of (workload, configuration, machine), and what it observed of their speed."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TypeVar

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import FIRST_RECORDS, Records
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.log_end import Shown
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.trace import TIMES, Kin, Trace, kin_of, trace_of
from nlp_bench.measure.workload import FREE, FROZEN, Setting, Value
from nlp_bench.outcome import Outcome

MACHINE = ("system", "accelerator", "gpu", "num_gpus")  # where it ran
NAMES = (*FROZEN, *FREE, "model", *MACHINE)  # what makes two runs repeats of each other
_SIZES = {"seq_length": "sequence_length", "global_batch_size": "global_batch_size", "num_gpus": "num_gpus"}
"""Sizes that a number is computed with: name of the setting to attribute of the entry."""

Identity = tuple[tuple[str, Value], ...]
Each = TypeVar("Each")


def grouped(found: Iterable[Each], key: Callable[[Each], object]) -> list[list[Each]]:
    """Return those with equal keys together, in the order of their first ones."""
    groups: dict[object, list[Each]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def settings_of(entry: RunResult) -> dict[str, Setting]:
    """Return all of NAMES that is known of a run; for batch, sequence and GPUs what its number was computed with."""
    found = {name: setting for name in NAMES if (setting := entry.workload.configured(name))}
    for name, attribute in (*_SIZES.items(), ("model", "model"), ("accelerator", "accelerator")):
        value = getattr(entry, attribute)
        if value is not None and (name not in found or found[name].value != value):
            found[name] = Setting(value, _source(entry, attribute))
    if "num_gpus" in found:  # one number under two names
        found.pop("world_size", None)
    return found


def _source(entry: RunResult, attribute: str) -> str:
    origin = (entry.provenance.quantities or {}).get(attribute) if entry.provenance else None
    return (origin.source if origin else None) or "run.json"


def identity_of(settings: Mapping[str, Setting]) -> Identity:
    """Return workload, configuration and machine as sorted pairs, whole numbers without a decimal point: stable between versions."""
    return tuple(sorted((name, _plain(settings[name].value)) for name in settings if name in NAMES))


def _plain(value: Value) -> Value:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def digest_of(known: Identity) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of an identity's JSON."""
    text = json.dumps(known, ensure_ascii=True, separators=(",", ":"))
    return _sha256(text)[:12]


def _sha256(text: str) -> str:
    import hashlib  # noqa: PLC0415  # OpenSSL's library, which one log alone does not need

    return hashlib.sha256(text.encode()).hexdigest()


def digest(entry: RunResult) -> str:
    """Return a short name of what a run was of: equal for repeats."""
    return digest_of(identity_of(settings_of(entry)))


def is_known(settings: Mapping[str, Setting]) -> bool:
    """Return whether enough is known of a run that an equal one is a repeat: the sizes, and the model by name or shape.

    A log that states nothing is equal to every other such log.
    """
    has_model = "model" in settings or ("num_layers" in settings and "hidden_size" in settings)
    return has_model and all(name in settings for name in _SIZES)


@immutable
class Observation:
    """One run, as one observation of the speed of its configuration."""

    source: str
    outcome: Outcome
    seconds_per_token: float | None = None  # inverse of the steady rate, None where there is no number
    estimate: Estimate | None = None  # the same with its uncertainty within the run, None where that cannot be given
    num_intervals: int | None = None
    sustained_tokens_per_second: float | None = None  # over the wall clock, None where the log has none
    ending_seconds_per_token: float | None = None
    """The same at the slower speed at which the run ends, None where it ends as it ran."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What is known of workload, configuration and machine."""
    program: str | None = None  # the dialect of its log: two programs are no repeats of each other
    reasons: tuple[str, ...] = ()  # why there is no number, or what to know about it
    doubts: tuple[str, ...] = ()  # what speaks against the number: `RunResult.doubts`
    stopped: str | None = None  # how its log says that it was ended before its last iteration; None where it does not
    overruled: Identity = ()  # sizes that its log states, where a person gave others
    opening: str | None = None  # what `opening_of` gives for its first records
    trace: Trace | None = None  # lines by which a copy or a part of it is known
    key: str | None = None  # which run it is, by the content of its files, where it was requested

    @classmethod
    def of(cls, entry: RunResult) -> "Observation":
        """Return what an entry of a report observed."""
        measured = entry.throughput
        return cls(
            source=entry.source,
            outcome=entry.outcome,
            seconds_per_token=1 / measured.steady if measured else None,
            estimate=measured.estimate if measured else None,
            num_intervals=measured.window.num_records if measured else None,
            sustained_tokens_per_second=entry.sustained,
            ending_seconds_per_token=measured.ending_seconds_per_token if measured else None,
            settings=settings_of(entry),
            program=entry.dialect,
            reasons=entry.reason_texts,
            doubts=entry.doubts,
            stopped=entry.ending.text if entry.ending and entry.ending.shown in _STOPPED else None,
            overruled=tuple((each.name, each.logged) for each in entry.sizes_supplied if each.logged is not None),
            opening=opening_of(entry.records),
            trace=entry.trace or (trace_of(entry.records) if measured else None),
        )

    @cached_property
    def marks(self) -> frozenset[object]:
        """What two different runs do not have in common to the last digit: the number with all it is made of, and the first records."""
        rate = self.estimate or self.seconds_per_token
        numbers = (rate, self.num_intervals, self.sustained_tokens_per_second) if rate else None
        return frozenset({numbers, self.opening} - {None})


_STOPPED = (Shown.ENDED_FROM_OUTSIDE, Shown.STOPS_EARLY, Shown.CRASHED)
_DIFFERENT = 4  # distinct times that the first records must hold: rounded ones may be equal in two runs
_NEIGHBOURS, _PAIRS = 50, 100_000
"""Runs next in speed with which each is compared line by line, and comparisons in all: of ten thousand runs each is with its ten next ones."""


def opening_of(records: Records) -> str | None:
    """Return what the first records have that those of no other run have: a log that was copied, packed or cut still begins so.

    None where there are fewer than FIRST_RECORDS, or where they do not differ.
    """
    columns = [records.columns[name][:FIRST_RECORDS].tolist() for name in TIMES if name in records.columns]
    times = next((column for column in columns if all(map(math.isfinite, column))), None)
    if times is None or len(times) < FIRST_RECORDS or len(set(times)) < _DIFFERENT:
        return None
    first = (records.column("iteration")[:FIRST_RECORDS].tolist(), times)
    return _sha256(repr(first))[:16]


def _shared_marks(one: Observation, two: Observation) -> frozenset[object]:
    """Return the marks that two observations have in common, without first records of whole seconds where both logs are equally long."""
    shared, traces = one.marks & two.marks, (one.trace, two.trace)
    is_coarse = all(trace and trace.is_coarse for trace in traces)
    is_long = len({trace.last.iteration for trace in traces if trace}) == 1
    return shared - {one.opening} if is_coarse and is_long else shared


def kin_between(one: Observation, two: Observation) -> Kin | None:
    """Return why two observations are of one run, None where nothing shows it."""
    if shared := _shared_marks(one, two):
        return Kin.BEGINNING if shared == {one.opening} else Kin.NUMBERS
    return kin_of(one.trace, two.trace)


def of_these(runs: Iterable[Observation], others: Sequence[Observation]) -> list[Observation]:
    """Return those of `runs` that are a run of `others`, whole or in part."""
    return [run for run in runs if any(kin_between(run, other) for other in others)]


def different_runs(runs: Iterable[Observation]) -> tuple[list[Observation], list[tuple[Observation, Kin]]]:
    """Return the runs, each once, and their copies and parts, in their order. Of a run whose log was cut the longest counts."""
    given = list(runs)
    longest_first = sorted(range(len(given)), key=lambda at: -(given[at].num_intervals or 0))
    rank = {at: place for place, at in enumerate(longest_first)}
    heads = list(range(len(given)))  # those that are of one run lead to the longest of them
    kin: dict[int, Kin] = {}  # of each that is no head why it is not

    def head_of(at: int) -> int:
        while heads[at] != at:
            at = heads[at]
        return at

    def join(one: int, two: int, why: Kin | None) -> None:
        one, two = sorted((head_of(one), head_of(two)), key=rank.__getitem__)
        if why and one != two:
            heads[two], kin[two] = one, why

    # What is equal to the last digit, in time that grows with the number of runs.
    met: dict[object, int] = {}
    for at in longest_first:
        for mark in given[at].marks:
            first = met.setdefault(mark, at)
            join(first, at, kin_between(given[first], given[at]))
    # What is of one run line by line, and the parts of one log.
    alone = [at for at in longest_first if at not in kin]
    alone.sort(key=lambda at: given[at].seconds_per_token or 0.0)
    near = min(_NEIGHBOURS, max(3, _PAIRS // max(len(alone), 1)))
    for place, one in enumerate(alone):
        for two in alone[place + 1 : place + 1 + near]:
            join(one, two, kin_of(given[one].trace, given[two].trace))
    return [run for at, run in enumerate(given) if at not in kin], [(given[at], kin[at]) for at in sorted(kin)]
