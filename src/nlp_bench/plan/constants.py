"""The constants of the model: benchmark/plan.toml, overridden by a user's own file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from nlp_bench.config import catalog
from nlp_bench.config.system import FABRICS
from nlp_bench.config.table import build, read_toml
from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import some
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import (
    FAMILIES,
    GENERATIONS,
    SPELLINGS,
    Codes,
    Configurations,
    Flags,
    Framework,
    Numbers,
)
from nlp_bench.plan.interval import SIZES, TERMS, Reach, Seen, Term


@immutable
class MemoryConstants:
    """What no formula gives; the file states a source for each value."""

    deepspeed_bf16_gradient_bytes: float
    """Bytes per parameter that DeepSpeed's BF16_Optimizer holds for gradients: bf16, the fp32 sum, and what it copies; fitted."""
    deepspeed_buffer_bytes: float
    """Buckets of DeepSpeed's ZeRO-1 and what else nvidia-smi sees beyond tensors, context and communicators; fitted."""
    internevo_state_bytes: float
    """Bytes per parameter of InternEvo: weights, gradients, optimizer state and the copies of its step; fitted."""
    context_bytes: float  # CUDA context with the kernels that a process loads and cuBLAS workspace; a published figure
    communicator_bytes: float  # buffers of one NCCL communicator; a published figure
    allocator_share: float
    """Share of the activations and buffers that PyTorch's allocator adds by rounding and fragmentation; an allowance."""
    fits_below: float  # share of the GPU's memory up to which this package's trainer surely fits; a rule
    published_fits_below: float  # the same for other frameworks, whose tensors are not counted one by one; a rule
    fails_above: float  # share of the GPU's memory above which a configuration surely does not fit; a rule


FITTED = ("deepspeed_bf16_gradient_bytes", "deepspeed_buffer_bytes", "internevo_state_bytes")
"""Constants that research/planner/memory.py fits; the others are published figures or rules."""


def memory_constants(table: Mapping[str, Any], where: str = "benchmark/plan.toml") -> MemoryConstants:
    """Read table [memory]; raises UsageError that names a constant that is missing, unknown, without a source, or no number of 0 or more."""
    names = [field.name for field in fields(MemoryConstants)]
    if unknown := sorted(set(table) - set(names)):
        raise UsageError(f"{where}: [memory] has no constant {unknown[0]!r}: the constants are {', '.join(names)}")
    for name in names:
        value = _with_source(table.get(name), f"{where}: [memory]", name).get("value")
        if not _is_number(value) or not 0 <= value < float("inf"):
            raise UsageError(f"{where}: [memory] {name}: value = {value!r} is not a number of 0 or more")
    return MemoryConstants(**{name: float(table[name]["value"]) for name in names})


def _with_source(entry: Any, where: str, name: str) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping) or not entry.get("source"):
        raise UsageError(f'{where} needs {name} = {{ value = NUMBER, source = "WHERE IT COMES FROM" }}, not {entry!r}')
    return entry


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


SCHEMA = "nlp-bench/plan/1"


@immutable
class Constant:
    """One number of the time model."""

    value: float  # what the model computes with
    source: str
    about: str = ""
    prior: float | None = None  # its expected value before any point is seen; None: it is set, not fitted
    spread: float | None = None  # standard deviation of its logarithm around the prior

    @property
    def fitted(self) -> bool:
        """Whether the fit (research/planner) moves it."""
        return self.prior is not None and self.spread is not None


@immutable
class Measured:
    """A machine that `nlp-bench plan calibrate` measured: table [machine], which replaces a data sheet."""

    name: str  # name of the GPU as in the system file's [gpu], or a part of it, or the CPU's name
    peak_tflops: dict[str, float]  # best measured 10^12 FLOP/s of a matrix product, by number format
    memory_gb_per_s: float  # measured 10^9 bytes per second of a copy
    link_gb_per_s: float  # 10^9 bytes per second between the ranks of a node, one direction
    memory_gib: float
    kind: str = "gpu"  # gpu, or cpu: there launching and computing are one thread, so that the host's time adds


@immutable
class Constants:
    """The content of the data file."""

    time: Mapping[str, Constant]  # Table [time]
    memory: MemoryConstants  # Table [memory]
    traits: tuple[Framework, ...]  # Tables [[framework]]
    ends: Mapping[str, tuple[float, float]]
    """Table [interval]: the factors of the 90 % interval's ends near what was fitted, by framework family."""
    reach: Reach | None = None
    """Tables [distance] and [[seen]]: how the ends widen away from what was fitted; None for ends of a user's own machine."""
    machine: Measured | None = None  # Table [machine] of a user's own file
    learned_on: str | None = None  # the GPU whose runs table [interval] of a user's own file was learned from

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """Names that `Configurations.framework` indexes; the first is this package's trainer."""
        return tuple(one.name for one in self.traits)

    def __getitem__(self, name: str) -> float:
        return self.time[name].value

    def with_values(self, values: Mapping[str, float]) -> "Constants":
        """Return these constants with other values of table [time]."""
        changed = {name: replace(self.time[name], value=float(value)) for name, value in values.items()}
        return replace(self, time={**self.time, **changed})

    def cold(self) -> "Constants":
        """Return the constants before any published point is seen: every fitted one at its prior."""
        return self.with_values({name: one.prior for name, one in self.time.items() if one.fitted and one.prior})

    def fitted(self) -> tuple[str, ...]:
        """Return the names that the fit (research/planner) moves."""
        return tuple(name for name, one in self.time.items() if one.fitted)

    def by_generation(self, name: str, gpu: Codes) -> Numbers:
        """Return `NAME_ampere`, `NAME_hopper`, ... by the index in GENERATIONS; a generation without its own has the nearest one's."""
        kin = {"blackwell ultra": "blackwell", "ampere": "other"}
        words = [one if f"{name}_{one}" in self.time else kin.get(one, "other") for one in GENERATIONS]
        return self.chosen([f"{name}_{word}" for word in words], gpu)

    def by_fabric(self, name: str, fabric: Codes) -> Numbers:
        """Return `NAME_ethernet`, ... by the index in FABRICS; a fabric without a constant of its own has NAME."""
        return self.chosen([f"{name}_{one}" if f"{name}_{one}" in self.time else name for one in FABRICS], fabric)

    def chosen(self, names: Sequence[str], place: Codes) -> Numbers:
        """Return the constant `names[place]` for each place."""
        return np.asarray(np.array([self[name] for name in names])[place])

    def trait(self, name: str) -> Any:
        """Return one trait of all frameworks as an array of shape [frameworks]."""
        return np.array([getattr(one, name) for one in self.traits])

    def interval(self, c: Configurations, unknown: Flags | None = None) -> tuple[Numbers, Numbers]:
        """Return the factors of the 90 % interval's ends, shape [N] or []: wider, the farther from the rows that were fitted."""
        low, high = (np.array([self.ends[one.family][end] for one in self.traits])[c.framework] for end in (0, 1))
        return (low, high) if self.reach is None else self.reach.widened(c, self.traits, (low, high), unknown)


def read_constants(path: str | Path | None = None) -> Constants:
    """Read benchmark/plan.toml, overridden by a file of what differs; raises UsageError that names the file and the constant at fault."""
    constants = _whole(catalog.table("plan.toml"))
    return constants if path is None else overridden(constants, read_toml(Path(path), SCHEMA), str(path))


def _whole(path: Path) -> Constants:
    where = "benchmark/plan.toml"
    table = read_toml(path, SCHEMA)
    shipped = table if path == _shipped() else read_toml(_shipped(), SCHEMA)
    lacking = [one for one in shipped if one not in table] or [
        f"{one}.{key}"
        for one in ("memory", "time", "interval", "distance")
        for key in shipped[one]
        if key not in table[one]
    ]
    if lacking:
        raise UsageError(
            f"{path}: {lacking[0]} is missing, by which this nlp-bench plans: a file of another version, or a part of one; copy "
            f"{_shipped()} anew, or give what differs as --constants FILE"
        )
    return Constants(
        time={name: _constant(name, entry, where) for name, entry in table["time"].items()},
        memory=memory_constants(table.get("memory", {})),
        traits=tuple(build(Framework, one, f"{where}: framework") for one in table["framework"]),
        ends=_ends(table["interval"], where),
        reach=_reach(table, where),
    )


def _shipped() -> Path:
    return catalog.shipped() / "benchmark/plan.toml"


def own_file() -> tuple[str, ...]:
    """Return in what a plan.toml that is found before the shipped one differs from it, with its path."""
    path = catalog.table("plan.toml")
    return () if path == _shipped() else tuple(f"{path}: {one}" for one in deviations(_whole(path)))


def deviations(constants: Constants) -> tuple[str, ...]:
    """Return, by tables of the file, in what the constants differ from those that nlp-bench ships."""
    own = _whole(_shipped())
    found = []
    for name, (ours, theirs) in {
        "time": [{key: f"{one.value:g}" for key, one in of.time.items()} for of in (own, constants)],
        "memory": [vars(of.memory) for of in (own, constants)],
        "interval": [
            {family: f"{low:g} to {high:g} of the time" for family, (low, high) in of.ends.items()}
            for of in (own, constants)
        ],
    }.items():
        changed = [
            f"{key} = {theirs[key]} instead of {ours.get(key)}" for key in theirs if theirs[key] != ours.get(key)
        ]
        found += [f"[{name}] {some(changed, _NAMED)}"] if changed else []
    if constants.traits != own.traits:
        found.append("[[framework]]: other properties of the frameworks")
    if constants.reach is None:
        found.append("[distance]: the interval is not widened away from what was measured")
    elif constants.reach != own.reach:
        found.append("[distance] or [[seen]]: the interval is widened otherwise away from what was fitted")
    if (machine := constants.machine) is not None:
        peaks = ", ".join(f"{name} {peak:g} TFLOP/s" for name, peak in machine.peak_tflops.items())
        found.append(f"[machine]: {machine.name} as its owner measured it ({peaks}), in place of the data sheet")
    return tuple(found)


_NAMED = 5


def constant_line(name: str, value: float, source: str) -> str:
    """Return one line of table [time]."""
    return f"{name} = {{ value = {value:.6g}, source = {json.dumps(source)} }}"


def overridden(constants: Constants, table: Mapping[str, Any], where: str) -> Constants:
    """Return the constants, overridden by the tables [time], [interval] and [machine] of a user's own file."""
    allowed = ("time", "interval", "machine", "measurements", "about")
    if unknown := sorted(set(table) - set(allowed)):
        near = nearest(unknown[0], list(allowed))
        whole = "; leave out those of benchmark/plan.toml, which stay as they are" if "framework" in table else ""
        raise UsageError(f"{where}: [{unknown[0]}]: unknown table{near}; it has {', '.join(allowed)}{whole}")
    for name in allowed[:3]:
        if not isinstance(table.get(name, {}), Mapping):
            raise UsageError(f"{where}: {name} = {table[name]!r} is no table; write [{name}] above its lines")
    changed = {}
    for name, entry in table.get("time", {}).items():
        if name not in constants.time:
            raise UsageError(f"{where}: [time] {name}: no such constant{nearest(name, list(constants.time))}")
        changed[name] = replace(_constant(name, entry, where), prior=None, spread=None)
    return replace(
        constants,
        time={**constants.time, **changed},
        ends={**constants.ends, **_ends(table.get("interval", {}), where)},
        reach=None if {"interval", "machine"} & set(table) else constants.reach,
        machine=_measured(table["machine"], where) if "machine" in table else constants.machine,
        learned_on=str(table["interval"]["gpu"]) if "gpu" in table.get("interval", {}) else constants.learned_on,
    )


def _constant(name: str, entry: Any, where: str) -> Constant:
    entry = _with_source(entry, f"{where}: [time]", name)
    for field_name in ("value", "prior", "spread"):
        value = entry.get(field_name, 1.0)
        if not _is_number(value) or not 0 < value < _MOST:
            rule = f"is not a number above 0 and below {_MOST:.0e}"
            raise UsageError(f"{where}: [time] {name}: {field_name} = {value!r:.40} {rule}")
    found = next(((low, high, rule) for names, low, high, rule in _RANGES if re.fullmatch(names, name)), None)
    if found and not found[0] <= entry["value"] <= found[1]:
        low, high, rule = found
        range_text = f"at most {high:g}" if entry["value"] > high else f"at least {low:g}"
        raise UsageError(f"{where}: [time] {name}: {entry['value']:g} {rule}; it is {range_text}")
    return build(Constant, dict(entry), f"{where}: [time] {name}")


_RANGES = (
    (r"products_\w+", 0.0, 1.0, "is a share of the peak: no product is faster than that"),
    (r"attention_(?!short$|narrow$)\w+", 0.0, 1.0, "is a share of the peak: no attention is faster than that"),
    ("memory_share", 0.0, 1.0, "is a share of the memory's bandwidth: nothing is copied faster than that"),
    (r"fabric_share\w*", 0.0, 1.0, "is a share of the adapters' bandwidth: nothing is sent faster than that"),
    # NVLink's switches add up on the way (NVLS): a ring's count of bytes is then up to twice what is sent.
    ("link_share", 0.0, 2.0, "is a share of the links' bandwidth: nothing is sent faster than that, or twice where switches add up"),
    ("score_traffic|cast_traffic|stream_(?:eager|xla)", 1.0, float("inf"), "is the bytes moved over their least count"),
)  # fmt: skip
"""Constants, the least and the greatest value, and why. `operand_traffic` and `stream_fused` may be below 1: `calibrate` measures them, and caches help."""
_MOST = 1e12  # no share, factor, latency or length is near it; beyond, products of constants overflow


def _ends(table: Mapping[str, Any], where: str) -> dict[str, tuple[float, float]]:
    ends = {}
    for family, entry in table.items():
        if family in {"source", "gpu"}:
            continue
        if family not in FAMILIES:
            raise UsageError(f"{where}: [interval] {family}: no such framework family{nearest(family, list(FAMILIES))}")
        low, high = (entry.get(end) if isinstance(entry, Mapping) else None for end in ("low", "high"))
        if not _is_number(low) or not _is_number(high) or not 0 < low <= 1 <= high < float("inf"):
            raise UsageError(f"{where}: [interval] {family}: {entry!r} needs low and high with 0 < low <= 1 <= high")
        ends[family] = (float(low), float(high))
    return ends


def _reach(table: Mapping[str, Any], where: str) -> Reach:
    terms = {name: build(Term, dict(table["distance"][name]), f"{where}: [distance] {name}") for name in TERMS}
    seen = [build(Seen, dict(entry), f"{where}: seen") for entry in table["seen"]]
    if wrong := [one for one in seen if set(one.ranges) != set(SIZES)]:
        raise UsageError(f"{where}: seen: {wrong[0].kind} on {wrong[0].chip}: needs the ranges {', '.join(SIZES)}")
    return Reach(seen=seen, terms=terms)


def _measured(table: Mapping[str, Any], where: str) -> Measured:
    machine = build(Measured, dict(table), f"{where}: [machine]")
    numbers = {name: getattr(machine, name) for name in ("memory_gb_per_s", "link_gb_per_s", "memory_gib")}
    numbers |= {f"peak_tflops.{name}": peak for name, peak in machine.peak_tflops.items()}
    for name, value in numbers.items():
        if not 0 < value < _MOST:
            raise UsageError(f"{where}: [machine] {name} = {value!r} is not a number above 0 and below {_MOST:.0e}")
    if not machine.name.strip():
        raise UsageError(f"{where}: [machine] name is empty; write the words that the system file's [gpu] name has")
    return machine


def precision_of(words: str) -> str:
    """Return the number format of the matrix products that a table's cell names; raises UsageError where it names none."""
    named = set(re.findall(r"[a-z0-9]+", words.lower()))
    if found := next((name for name, spellings in SPELLINGS.items() if named & spellings), None):
        return found
    known = sorted({one for spellings in SPELLINGS.values() for one in spellings})
    raise UsageError(f"precision {words[:40]!r} is no number format; known are {', '.join(known)}")
