"""What a run was of (workload, configuration, machine), and what it observed of their speed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nlp_bench.escape import one_line
from nlp_bench.logs.record import FIRST_RECORDS, Records
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.workload import FREE, FROZEN, SHAPE, Setting, Value
from nlp_bench.outcome import Outcome

MACHINE = ("system", "accelerator", "gpu", "num_gpus")
"""Where it ran."""
NAMES = (*FROZEN, *FREE, "model", *MACHINE)
"""What makes two runs repeats of each other."""
SIZES = ("seq_length", "global_batch_size", "num_gpus")
_USED = {"seq_length": "sequence_length", "global_batch_size": "global_batch_size", "num_gpus": "num_gpus"}

Identity = tuple[tuple[str, Value], ...]


def settings_of(entry: RunResult) -> dict[str, Setting]:
    """Return all of NAMES that is known of a run; for batch, sequence and GPUs what its number was computed with."""
    found = {name: setting for name in NAMES if (setting := entry.workload.setting(name))}
    for name, attribute in (*_USED.items(), ("model", "model"), ("accelerator", "accelerator")):
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
    """Return names and values, sorted by name, whole numbers without a decimal point."""
    return tuple(sorted((name, _plain(settings[name].value)) for name in settings if name in NAMES))


def _plain(value: Value) -> Value:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def identity(entry: RunResult) -> Identity:
    """Return workload, configuration and machine of a run as sorted pairs: equal for repeats, stable between versions."""
    return identity_of(settings_of(entry))


def digest_of(known: Identity) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of an identity's JSON."""
    text = json.dumps(known, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest(entry: RunResult) -> str:
    """Return a short name of `identity(entry)`."""
    return digest_of(identity(entry))


def is_known(settings: Mapping[str, Setting]) -> bool:
    """Say whether so much is known of a run that an equal one is a repeat: the sizes, and the model by name or shape.

    A log that states nothing is equal to every other such log.
    """
    has_model = "model" in settings or ("num_layers" in settings and "hidden_size" in settings)
    return has_model and all(name in settings for name in SIZES)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run, as one observation of the speed of its configuration."""

    source: str
    outcome: Outcome
    seconds_per_token: float | None = None
    """Inverse of the steady rate, None where there is no number."""
    estimate: Estimate | None = None
    """The same with its uncertainty within the run, None where that cannot be given."""
    num_intervals: int | None = None
    sustained_tokens_per_second: float | None = None
    """Over the wall clock, None where the log has none."""
    ending_seconds_per_token: float | None = None
    """The same at the slower speed at which the run ends, None where it ends as it ran."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What is known of workload, configuration and machine."""
    program: str | None = None
    """The dialect of its log: two programs are no repeats of each other."""
    reasons: tuple[str, ...] = ()
    """Why there is no number, or what to know about it."""
    opening: str | None = None
    """What `opening_of` gives for its first records."""
    key: str | None = None
    """Which run it is, by the content of its files, where that was asked for."""

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
            opening=opening_of(entry.records),
        )

    @cached_property
    def marks(self) -> frozenset[object]:
        """What two different runs do not have in common to the last digit: the number with all it is made of, and the first records."""
        rate = self.estimate or self.seconds_per_token
        numbers = (rate, self.num_intervals, self.sustained_tokens_per_second) if rate else None
        return frozenset({numbers, self.opening} - {None})

    @property
    def scatter(self) -> float | None:
        """Standard error of the run's own mean / mean: what runs would differ by if only the scatter within counted."""
        return self.estimate.standard_error / self.estimate.seconds_per_token if self.estimate else None


_TIMES = ("elapsed_s", "tokens_per_second", "tokens_per_second_per_device", "samples_per_second", "samples_per_second_per_device",
          "clock_s", "stamp_s")  # fmt: skip
"""Of which a record has one at least, the best one first."""
_DIFFERENT = 4
"""Times that the first records have to hold: rounded ones are alike in two runs."""


def opening_of(records: Records) -> str | None:
    """Return what the first records have that those of no other run have: a log that was copied, packed or cut still begins so.

    None where there are fewer than FIRST_RECORDS, or where they do not differ.
    """
    first = records[:FIRST_RECORDS]
    times = next((found for name in _TIMES if np.isfinite(found := first.column(name)).all()), np.array([]))
    if len(first) < FIRST_RECORDS or len(np.unique(times)) < _DIFFERENT:
        return None
    return hashlib.sha256(np.concatenate([first.column("iteration"), times]).tobytes()).hexdigest()[:16]


def different_runs(runs: Iterable[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Return the runs, each once, in the order in which they were met, and their copies. Of a run whose log was cut the longest counts."""
    groups: list[list[Observation]] = []
    place: dict[object, list[Observation]] = {}
    for run in runs:
        known = {id(place[mark]): place[mark] for mark in run.marks if mark in place}
        group, *others = known.values() if known else [[]]
        for other in others:
            group += other
            groups = [each for each in groups if each is not other]
        if not known:
            groups.append(group)
        group.append(run)
        place.update((mark, group) for each in (group if others else [run]) for mark in each.marks)
    kept = [max(group, key=lambda run: run.num_intervals or 0) for group in groups]
    return kept, [run for group, one in zip(groups, kept, strict=True) for run in group if run is not one]


SPEED = (*SHAPE, "precision", "optimizer", "attention_dropout", "hidden_dropout")
"""Frozen settings that change the work of a step. The learning rate and its schedule do not; weak scaling changes them."""
MAX_CELL = 30
Key = tuple[tuple[str, Value], ...]


def known(entry: RunResult) -> dict[str, Setting]:
    """Return what tells runs apart: run.json where there is one, since a run that failed early prints less than its neighbours."""
    return dict(entry.workload.asked or entry.workload.logged)


def workload_key(entry: RunResult) -> Key:
    """Return what was trained and where, as far as it is known; different keys never share a curve.

    A published table is a curve of its own: its rates are not ours.
    """
    settings = known(entry)
    found: dict[str, Value] = {name: settings[name].value for name in SPEED if name in settings}
    if entry.sequence_length:
        found["seq_length"] = entry.sequence_length
    if not found.keys() & {"num_layers", "hidden_size"} and "num_parameters" in settings:
        found["num_parameters"] = settings["num_parameters"].value
    model = model_of(entry)
    machine = machine_of(entry)
    table = entry.published.table if entry.published else None
    dialect = None if says_model(entry) else entry.dialect  # two programs that name no model had hardly the same one
    words = {"model": model, "machine": machine, "table": table, "dialect": dialect}
    found.update({name: value for name, value in words.items() if value})
    return tuple(sorted(found.items()))


def model_of(entry: RunResult) -> str | None:
    """Return the name of the model, None where nobody says it."""
    name = entry.model or entry.workload.value("model")
    return one_line(name) if name is not None else None


def machine_of(entry: RunResult) -> str | None:
    """Return the name of the machine, or else of its device, None where nobody says it."""
    name = known(entry).get("system") or known(entry).get("gpu")
    device = "CPU" if device_of(entry) == "cpu" else None
    return one_line(name.value) if name else device


def device_of(entry: RunResult) -> str | None:
    """Return cuda or cpu, None where nobody says it."""
    value = entry.accelerator or entry.workload.value("accelerator")
    return str(value) if value else None


def says_model(entry: RunResult) -> bool:
    """Say whether name, shape or number of parameters tells which model was trained."""
    return model_of(entry) is not None or any(
        known(entry).get(name) for name in ("num_layers", "hidden_size", "num_parameters")
    )


def title(entry: RunResult) -> str:
    """Return a heading for the runs that share the workload of `entry`."""
    model, machine = model_of(entry), machine_of(entry)
    layers, hidden = entry.workload.count("num_layers"), entry.workload.count("hidden_size")
    shape = f"model of {layers} layers, hidden size {hidden}" if layers and hidden else "unknown model"
    return f"{model or shape}{f' on {machine}' if machine else ''}"


def num_gpus_of(entry: RunResult) -> int | None:
    """Return the GPUs (or CPU ranks) of a run, None where nobody says it."""
    return entry.num_gpus or entry.workload.count("world_size")


def batch_of(entry: RunResult) -> int | None:
    """Return the samples per iteration, None where nobody says it."""
    return entry.global_batch_size or entry.workload.count("global_batch_size")


def cell(value: Value | None) -> str:
    """Return a setting as text for a table; missing is empty."""
    if value is None:
        return ""
    text = f"{value:g}" if isinstance(value, float) else one_line(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."


def varying(
    settings: Sequence[dict[str, Setting]], names: Sequence[str], is_complete: Sequence[bool]
) -> tuple[str, ...]:
    """Return those of `names` whose value is not the same everywhere; what follows from others is left out.

    A value that is not stated is a value of its own only where the log `is_complete`: a run that failed early prints less.
    """
    found = []
    for name in names:
        values = {cell(each[name].value) for each in settings if name in each}
        missing = any(name not in each for each, complete in zip(settings, is_complete, strict=True) if complete)
        if len(values) + missing > 1:
            found.append(name)
    split = {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"} & set(found)
    implied = {"data_parallel_size"} if split else set()
    return tuple(name for name in found if name not in implied)
