"""Energy of a run over the window of its tokens per second: joules per token, kWh and money of the hypothetical training.

The counters of all nodes (`machine`) are read at the times of day that our log's lines carry. What no meter has counted is absent
with its reason. At least one sample per second, and 60 of them, is what MLPerf asks of power measurements (mlcommons/
training_policies, power measurement); fewer are said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nlp_bench.logs.record import Fact
from nlp_bench.machine.form import CPU_COLUMN
from nlp_bench.measure.meter import Column, Counter, MeterError
from nlp_bench.measure.node_records import NodeRecord, number
from nlp_bench.measure.throughput import Throughput

JOULES_PER_KWH = 3.6e6
LONG_GAP_S, FEW_SAMPLES, LEAST_HZ = 2.0, 60, 0.98
"""A longer pause, fewer samples, or a lower rate (1 Hz, and what a busy node's clock tick adds) is said."""
CLOCKS_APART_S = 0.5
GPUS = "GPU boards by NVML's energy counter, {} of {} GPUs; without CPUs, memory, network, power supplies and cooling"
CPUS = "CPU packages by RAPL, {} of {} node(s); without memory, network, power supplies and cooling"
STATED = (
    "GPU boards by NVML's energy counter, the mean of all GPUs as the log states it (--log-energy); without CPUs, memory, "
    "network, power supplies and cooling"
)


@dataclass(frozen=True, kw_only=True)
class Energy:
    """The energy of a window, or why there is none."""

    boundary: str | None = None
    """What was metered and what was not, None without a number."""
    joules: float | None = None
    """Of the window, all meters together."""
    joules_per_token: float | None = None
    """Joules / tokens of the same window."""
    mean_power_w_per_gpu: float | None = None
    """Mean over the window and all GPUs; None where CPUs were metered."""
    cpu_joules_per_token: float | None = None
    """Of the CPU packages, where the number above is of GPUs and all CPU packages could be read too: not contained in it."""
    samples_per_second: float | None = None
    """Of the node with the fewest."""
    num_samples: int | None = None
    """Within the window, of the node with the fewest."""
    longest_gap_s: float | None = None
    """The longest pause between two samples of a node."""
    remarks: tuple[str, ...] = ()
    """What qualifies the number."""
    why_none: str | None = None
    """Why there is no number."""

    def kwh(self, tokens: int) -> float | None:
        """Return the energy of a training on `tokens` tokens in kWh."""
        return None if self.joules_per_token is None else self.joules_per_token * tokens / JOULES_PER_KWH

    def cost(self, tokens: int, price_per_kwh: float | None) -> float | None:
        """Return its price in the unit of `price_per_kwh`."""
        kwh = self.kwh(tokens)
        return None if kwh is None or price_per_kwh is None else kwh * price_per_kwh

    def to_json(self, tokens: int) -> dict[str, Any]:
        """Return the `energy` object of nlp-bench/report/1."""
        names = (
            "boundary", "joules", "joules_per_token", "mean_power_w_per_gpu", "cpu_joules_per_token", "samples_per_second",
            "num_samples", "longest_gap_s",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names}
        return {**values, "energy_kwh": self.kwh(tokens), "remarks": list(self.remarks), "why_none": self.why_none}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a run's nodes should have recorded."""

    num_nodes: int
    """Nodes of the run."""
    num_gpus: int
    """GPUs (or CPU ranks) of the run."""
    is_on_gpus: bool
    """Whether the ranks ran on GPUs."""
    clock_spread_s: float | None = None
    """How far the clocks of the ranks were apart, as the log says."""


@dataclass(frozen=True)
class _Sampling:
    """How densely the nodes were sampled within the window."""

    rate: float
    count: int
    gap_s: float
    slowest: str


@dataclass
class _Metering:
    """Collects what the meters of one kind say."""

    counters: list[Counter] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def energy_of(nodes: Sequence[NodeRecord], measured: Throughput, job: Job) -> Energy | None:
    """Return the energy of the window of `measured`, None where no node recorded anything."""
    if not nodes:
        return None
    try:
        begins, ends = _window(measured)
        return _metered(nodes, measured, job, begins, ends)
    except MeterError as error:
        return Energy(why_none=str(error))


def _metered(nodes: Sequence[NodeRecord], measured: Throughput, job: Job, begins: Column, ends: Column) -> Energy:
    metering = _gpus(nodes) if job.is_on_gpus else _packages(nodes)
    _check_complete(nodes, metering, job)
    joules = sum(counter.joules_in(begins, ends) for counter in metering.counters)
    tokens, seconds = measured.window.num_tokens, float(np.sum(ends - begins))
    sampling = _sampling(metering.counters, float(begins[0]), float(ends[-1]))
    of = (len(metering.counters), job.num_gpus) if job.is_on_gpus else (len(nodes), job.num_nodes)
    return Energy(
        boundary=(GPUS if job.is_on_gpus else CPUS).format(*of),
        joules=joules,
        joules_per_token=joules / tokens,
        mean_power_w_per_gpu=joules / seconds / job.num_gpus if job.is_on_gpus else None,
        cpu_joules_per_token=_beside(nodes, job, begins, ends, tokens) if job.is_on_gpus else None,
        samples_per_second=sampling.rate,
        num_samples=sampling.count,
        longest_gap_s=sampling.gap_s,
        remarks=tuple(_remarks(sampling, job, seconds)),
    )


def _window(measured: Throughput) -> tuple[Column, Column]:
    """Return when each interval of the window began and ended, in seconds since 1970."""
    spans = measured.window.spans
    ends = spans.records.column("stamp_s")
    if np.isnan(ends).any():
        raise MeterError("the log has no time of day (field `unix time`), so that no meter can be read against it")
    if np.any(np.diff(ends) <= 0):
        raise MeterError("the clock of the log was set back during the window")
    begins = ends - spans.seconds
    # The stamps have milliseconds and the times four digits: intervals that follow each other touch.
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    return begins, ends


def _gpus(nodes: Sequence[NodeRecord]) -> _Metering:
    metering = _Metering()
    seen: set[str] = set()
    for node in nodes:
        for gpu in node.gpus():
            name, uuid = f"GPU {gpu['index']} on node {node.name}", str(gpu.get("uuid"))
            if uuid in seen:
                raise MeterError(f"{name} is recorded twice (UUID {uuid[:60]}): two nodes of this run share it")
            seen |= {uuid} if gpu.get("uuid") else set()
            joules = node.columns.get(f"gpu{gpu['index']}_energy_mj")
            if gpu.get("no_energy_counter") or joules is None:
                metering.missing.append(f"{name} has no energy counter")
            else:
                metering.counters.append(Counter(name=name, times=node.times, joules=joules / 1e3))
    return metering


def _packages(nodes: Sequence[NodeRecord]) -> _Metering:
    """Return the CPU packages; nodes that are parts of one machine (a test's, by boot id) are metered once."""
    metering = _Metering()
    machines: set[str] = set()
    for node in nodes:
        boot = node.text("boot_id") or node.name
        if boot in machines:
            continue
        machines.add(boot)
        packages = node.objects("cpu_packages")
        if not packages:
            metering.missing.append(node.text("no_meter") or f"node {node.name} recorded no CPU package")
        for index, package in enumerate(packages):
            microjoules = node.columns.get(f"cpu{index}_{CPU_COLUMN}")
            name, range_uj = f"CPU package {index} on node {node.name}", number(package.get("range_uj"))
            if microjoules is None or not range_uj:
                metering.missing.append(f"{name} was not sampled")
            else:
                metering.counters.append(
                    Counter(name=name, times=node.times, joules=microjoules / 1e6, range_j=range_uj / 1e6)
                )
    return metering


def _check_complete(nodes: Sequence[NodeRecord], metering: _Metering, job: Job) -> None:
    """Raise MeterError unless every node and every GPU of the run was metered: a part of the energy is no energy of the run."""
    if len(nodes) < job.num_nodes:
        names = ", ".join(node.name for node in nodes[:5])
        raise MeterError(f"{len(nodes)} of {job.num_nodes} nodes have machine records ({names})")
    broken = next((node for node in nodes if node.problem), None)
    if broken:
        raise MeterError(f"node {broken.name}: {broken.problem}")
    if job.is_on_gpus and len(metering.counters) != job.num_gpus:
        reasons = [node.text("no_meter") for node in nodes]
        why = next((reason for reason in reasons if reason), None) or next(
            iter(metering.missing), "the others have no record"
        )
        raise MeterError(f"{len(metering.counters)} of {job.num_gpus} GPUs have a meter: {why}")
    if not job.is_on_gpus and (metering.missing or not metering.counters):
        raise MeterError(next(iter(metering.missing), "no meter"))


def _beside(nodes: Sequence[NodeRecord], job: Job, begins: Column, ends: Column, tokens: float) -> float | None:
    metering = _packages(nodes)
    if metering.missing or not metering.counters or len(nodes) < job.num_nodes:
        return None
    try:
        return sum(counter.joules_in(begins, ends) for counter in metering.counters) / tokens
    except MeterError:
        return None


def _sampling(counters: Sequence[Counter], begin: float, end: float) -> _Sampling:
    found = []
    for counter in counters:
        times = np.sort(counter.times[np.isfinite(counter.joules)])  # outside the window a clock may have been set back
        inside = times[(times >= begin) & (times <= end)]
        around = times[max(0, int(np.searchsorted(times, begin, "right")) - 1) : int(np.searchsorted(times, end)) + 1]
        rate = (len(around) - 1) / float(around[-1] - around[0])
        found.append(_Sampling(rate, len(inside), float(np.diff(around).max()), counter.name))
    least = min(found, key=lambda sampling: sampling.rate)
    worst = max(found, key=lambda sampling: sampling.gap_s)
    return _Sampling(least.rate, min(sampling.count for sampling in found), worst.gap_s, worst.slowest)


def _remarks(sampling: _Sampling, job: Job, seconds: float) -> Iterator[str]:
    if sampling.gap_s > LONG_GAP_S:
        yield f"energy: the samples pause for up to {sampling.gap_s:.1f} s ({sampling.slowest})"
    if sampling.rate < LEAST_HZ:
        yield f"energy: {sampling.rate:.2f} samples per second; MLPerf's rules ask for at least 1"
    if sampling.count < FEW_SAMPLES:
        yield f"energy: {sampling.count} samples in the window; MLPerf's rules ask for at least {FEW_SAMPLES}"
    spread_s = job.clock_spread_s
    if job.num_nodes > 1 and spread_s is None:
        yield "energy: the log does not say how far the nodes' clocks are apart"
    elif job.num_nodes > 1 and spread_s is not None and spread_s > CLOCKS_APART_S:
        yield f"energy: the nodes' clocks are {spread_s:.1f} s apart, {100 * spread_s / seconds:.1f} % of the window"


def stated_energy(measured: Throughput, num_gpus: int | None) -> Energy | None:
    """Return the energy that the records of the window state themselves (Megatron-LM's --log-energy), None where they do not."""
    spans = measured.window.spans
    joules = spans.records.column("joules_per_device")
    joules = np.where(joules > 0, joules, np.nan)  # Megatron-LM prints 0 where it has no meter
    if np.isnan(joules).all():
        return None
    if np.isnan(joules).any():
        return Energy(why_none="the log states no energy for some intervals of the window")
    if not num_gpus:
        return Energy(why_none="the log states joules of one GPU; not in the log: number of GPUs (give --num-gpus N)")
    of_one = float(np.sum(joules * spans.num_iterations))
    return Energy(
        boundary=STATED,
        joules=of_one * num_gpus,
        joules_per_token=of_one * num_gpus / measured.window.num_tokens,
        mean_power_w_per_gpu=of_one / measured.window.seconds,
    )


def clock_spread_s(settings: Mapping[str, Fact]) -> float | None:
    """Return how far the clocks of the ranks were apart at the start, as the log says."""
    fact = settings.get("clock_spread_s")
    return float(fact.value) if fact and not isinstance(fact.value, str) else None
