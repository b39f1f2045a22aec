"""The energy of a run, by the counters of its nodes or by its log.

Energy is that of the window of tokens per second: joules per token, kWh and money of the hypothetical training. The counters of all nodes are
read at the times of day that our log's lines carry. Nothing is estimated from power: between two samples a counter is taken to rise evenly,
which matters at the two ends of a window alone, and what no meter has counted is absent with its reason. At least one sample per second,
and 60 of them, is what MLPerf asks of power measurements (mlcommons/training_policies, power measurement); fewer are reported.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column, Log
from nlp_bench.machine.form import CPU_COLUMN
from nlp_bench.measure import Fields, Json, Texts
from nlp_bench.measure.estimate import Pair
from nlp_bench.measure.machine import NodeRecord, Nodes, machine_of, number
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.workload import lookup

JOULES_PER_KWH = 3.6e6
LONG_GAP_S, FEW_SAMPLES, LEAST_HZ = 2.0, 60, 0.98
"""A longer pause, fewer samples, or a lower rate (1 Hz, and what a busy node's clock tick adds) is reported."""
CLOCKS_APART_S = 0.5
GREATEST_W = 10_000.0  # no board and no socket draws more: such a counter is not to be believed
SOCKET_W = 1_000.0  # at this power a counter of RAPL could go round unseen in a gap of the samples that is long enough
GPUS = "GPU boards by NVML's energy counter, {} of {} GPUs; without CPUs, memory, network, power supplies and cooling"
CPUS = "CPU packages by RAPL, {} of {} node(s); without memory, network, power supplies and cooling"
STATED = (
    "GPU boards by NVML's energy counter, the mean of all GPUs as the log states it (--log-energy); without CPUs, memory, "
    "network, power supplies and cooling"
)


class MeterError(Exception):
    """A counter cannot tell the energy of the window."""


@immutable(kw_only=False)
class EnergyCounter:
    """The samples of one counter."""

    name: str  # for people: "GPU 3 on node n2"
    times: Column  # seconds since 1970
    joules: Column
    range_j: float | None = None  # the counter begins again after this many joules; None: it never should

    def joules_in(self, begins: Column, ends: Column) -> float:
        """Return the energy in all intervals [begins[i], ends[i]], which rise. Raises MeterError that says why there is none."""
        there = np.isfinite(self.joules)
        times, values = self.times[there], self.joules[there]
        if len(times) < 2:
            raise MeterError(f"{self.name} has no samples of its energy counter")
        begin, end = float(begins[0]), float(ends[-1])
        if times.min() > begin or times.max() < end:
            late = max(times.min() - begin, end - times.max())
            raise MeterError(f"{self.name}: the samples miss {late:.1f} s of the window")
        first = int(np.flatnonzero(times <= begin)[-1])
        last = first + int(np.argmax(times[first:] >= end))
        times, values = times[first : last + 1], values[first : last + 1]
        if len(times) < 2 or np.any(np.diff(times) <= 0):
            raise MeterError(f"{self.name}: the node's clock was set back during the window")
        steps = np.diff(values)
        if self.range_j is None and (steps < 0).any():
            raise MeterError(f"{self.name}: the energy counter began again during the window")
        if self.range_j and np.diff(times).max() > self.range_j / SOCKET_W:
            raise MeterError(f"{self.name}: the samples pause so long that the counter may have gone round unseen")
        steps[steps < 0] += self.range_j or 0.0
        total = np.concatenate([[0.0], np.cumsum(steps)])
        joules = float(np.sum(np.interp(ends, times, total) - np.interp(begins, times, total)))
        if not 0 < joules <= GREATEST_W * float(np.sum(ends - begins)):
            raise MeterError(
                f"{self.name}: a counter that counts {joules:.6g} J in {end - begin:.1f} s is not believed"
            )
        return joules


@immutable
class Energy:
    """The energy of a window, or why there is none."""

    boundary: str | None = None  # what was metered and what was not, None without a number
    joules: float | None = None  # of the window, all meters together
    joules_per_token: float | None = None
    mean_power_w_per_gpu: float | None = None  # mean over the window and all GPUs; None where CPUs were metered
    cpu_joules_per_token: float | None = None
    """Of the CPU packages, where the number above is of GPUs and all CPU packages could be read too: not contained in it."""
    samples_per_second: float | None = None  # of the node with the fewest
    num_samples: int | None = None  # within the window, of the node with the fewest
    longest_gap_s: float | None = None
    remarks: Texts = ()
    why_none: str | None = None

    def kwh(self, tokens: int) -> float | None:
        """Return the energy of a training on `tokens` tokens in kWh."""
        return None if self.joules_per_token is None else self.joules_per_token * tokens / JOULES_PER_KWH

    def cost(self, tokens: int, price_per_kwh: float | None) -> float | None:
        """Return its price in the unit of `price_per_kwh`."""
        kwh = self.kwh(tokens)
        return None if kwh is None or price_per_kwh is None else kwh * price_per_kwh

    def to_json(self, tokens: int) -> Json:
        """Return the `energy` object of nlp-bench/report/1."""
        values = {name: value for name, value in vars(self).items() if name not in {"remarks", "why_none"}}
        return {**values, "energy_kwh": self.kwh(tokens), "remarks": list(self.remarks), "why_none": self.why_none}


@immutable(kw_only=False)
class Due:
    """What a run's nodes should have recorded."""

    num_nodes: int
    num_gpus: int
    is_on_gpus: bool
    clock_spread_s: float | None  # how far the clocks of the ranks were apart, as the log says


Metering = tuple[list[EnergyCounter], list[str]]  # the counters of one kind, and a sentence for each that is missing


def with_energy_and_machine(
    entry: RunResult,
    log: Log | None,
    *,
    run: Fields | None = None,
    environment: Fields | None = None,
    nodes: Nodes = (),
) -> RunResult:
    """Return `entry` with energy and machine, and their warnings as remarks; all but entry and log are of a run of ours. No fault of the records raises."""
    settings, run, measured = log.settings if log else {}, run or {}, entry.throughput
    num_nodes, spread, window = lookup(run, "parallel.nodes"), settings.get("clock_spread_s"), _times_of_day(measured)
    if window and isinstance(num_nodes, int) and len(nodes) > num_nodes:  # of a start on other nodes, before a requeue
        nodes = tuple(node for node in nodes if not len(node.times) or node.times.max() >= window[0])
    truth = machine_of(nodes, settings, run=run, environment=environment or {}, window=window)
    energy = None
    if measured:
        if nodes and isinstance(num_nodes, int) and entry.num_gpus:
            spread_s = number(spread.value) if spread else None
            is_on_gpus = lookup(run, "system.accelerator") == "cuda"
            energy = _metered(nodes, measured, Due(num_nodes, entry.num_gpus, is_on_gpus, spread_s))
        if energy is None or energy.joules_per_token is None:
            energy = _stated(measured, entry.num_gpus) or energy
    said = [*(truth.warnings if truth else ()), *(energy.remarks if energy else ())]
    if energy and energy.why_none and entry.accelerator != "cpu":  # few CPUs have a meter
        said.append(f"no energy: {energy.why_none}")
    return replace(entry, energy=energy, machine=truth, remarks=(*entry.remarks, *said))


def _times_of_day(measured: Throughput | None) -> Pair | None:
    """Return the times of day between which the window lies, None where the log has none."""
    if measured is None:
        return None
    spans = measured.window.spans
    stamps = spans.records.column("stamp_s")
    begin, end = float(stamps[0] - spans.seconds[0]), float(stamps[-1])
    return (begin, end) if begin < end else None


def _metered(nodes: Nodes, measured: Throughput, due: Due) -> Energy:
    try:
        begins, ends = _intervals(measured)
        counters, missing = _gpus(nodes) if due.is_on_gpus else _packages(nodes)
        _check_complete(nodes, counters, missing, due)
        joules = sum(counter.joules_in(begins, ends) for counter in counters)
    except MeterError as error:
        return Energy(why_none=str(error))
    tokens, seconds = measured.window.num_tokens, float(np.sum(ends - begins))
    return Energy(
        boundary=GPUS.format(len(counters), due.num_gpus) if due.is_on_gpus else CPUS.format(len(nodes), due.num_nodes),
        joules=joules,
        joules_per_token=joules / tokens,
        mean_power_w_per_gpu=joules / seconds / due.num_gpus if due.is_on_gpus else None,
        cpu_joules_per_token=_of_cpus_beside(nodes, begins, ends, tokens) if due.is_on_gpus else None,
        **_sampling(counters, due, begins, ends),
    )


def _intervals(measured: Throughput) -> tuple[Column, Column]:
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


def _gpus(nodes: Nodes) -> Metering:
    counters, missing, seen = list[EnergyCounter](), list[str](), set[str]()
    for node in nodes:
        for gpu in node.gpus():
            name, uuid = f"GPU {gpu['index']} on node {node.name}", str(gpu.get("uuid") or "")
            if uuid and uuid in seen:
                raise MeterError(f"{name} is recorded twice (UUID {uuid[:60]}): two nodes of this run share it")
            seen.add(uuid)
            millijoules = node.columns.get(f"gpu{gpu['index']}_energy_mj")
            if gpu.get("no_energy_counter") or millijoules is None:
                missing.append(f"{name} has no energy counter")
            else:
                counters.append(EnergyCounter(name, node.times, millijoules / 1e3))
    return counters, missing


def _packages(nodes: Nodes) -> Metering:
    """Return the CPU packages; nodes that are parts of one machine (a test's, by boot id) are metered once."""
    counters, missing = list[EnergyCounter](), list[str]()
    machines = dict[str, NodeRecord]()
    for node in nodes:
        machines.setdefault(node.text("boot_id") or node.name, node)
    for node in machines.values():
        packages = node.objects("cpu_packages")
        if not packages:
            missing.append(node.text("no_meter") or f"node {node.name} recorded no CPU package")
        for index, package in enumerate(packages):
            microjoules = node.columns.get(f"cpu{index}_{CPU_COLUMN}")
            name, range_uj = f"CPU package {index} on node {node.name}", number(package.get("range_uj"))
            if microjoules is None or not range_uj:
                missing.append(f"{name} was not sampled")
            else:
                counters.append(EnergyCounter(name, node.times, microjoules / 1e6, range_uj / 1e6))
    return counters, missing


def _check_complete(nodes: Nodes, counters: Sequence[EnergyCounter], missing: Sequence[str], due: Due) -> None:
    """Raise MeterError unless every node and every GPU of the run was metered: a part of the energy is no energy of the run."""
    if len(nodes) < due.num_nodes:
        names = ", ".join(node.name for node in nodes[:5])
        raise MeterError(f"{len(nodes)} of {due.num_nodes} nodes have machine records ({names})")
    broken = next((node for node in nodes if node.problem), None)
    if broken:
        raise MeterError(f"node {broken.name}: {broken.problem}")
    if due.is_on_gpus and len(counters) != due.num_gpus:
        reasons = [*filter(None, (node.text("no_meter") for node in nodes)), *missing, "the others have no record"]
        raise MeterError(f"{len(counters)} of {due.num_gpus} GPUs have a meter: {reasons[0]}")
    if missing and not due.is_on_gpus:
        raise MeterError(missing[0])


def _of_cpus_beside(nodes: Nodes, begins: Column, ends: Column, tokens: float) -> float | None:
    counters, missing = _packages(nodes)
    try:
        return None if missing else sum(counter.joules_in(begins, ends) for counter in counters) / tokens
    except MeterError:
        return None


def _sampling(counters: Sequence[EnergyCounter], due: Due, begins: Column, ends: Column) -> Json:
    """Return how densely the nodes were sampled within the window, and what that is too little for, by the fields of Energy."""
    begin, end = float(begins[0]), float(ends[-1])
    rates, counts, gaps = [], [], []
    for counter in counters:
        times = np.sort(counter.times[np.isfinite(counter.joules)])  # outside the window a clock may have been set back
        around = times[max(0, int(np.searchsorted(times, begin, "right")) - 1) : int(np.searchsorted(times, end)) + 1]
        rates.append((len(around) - 1) / float(around[-1] - around[0]))
        counts.append(int(np.count_nonzero((times >= begin) & (times <= end))))
        gaps.append(float(np.diff(around).max()))
    rate, count, gap_s, spread_s = min(rates), min(counts), max(gaps), due.clock_spread_s
    said = []
    if gap_s > LONG_GAP_S:
        said.append(f"the samples pause for up to {gap_s:.1f} s ({counters[gaps.index(gap_s)].name})")
    if rate < LEAST_HZ:
        said.append(f"{rate:.2f} samples per second; MLPerf's rules ask for at least 1")
    if count < FEW_SAMPLES:
        said.append(f"{count} samples in the window; MLPerf's rules ask for at least {FEW_SAMPLES}")
    if due.num_nodes > 1 and spread_s is None:
        said.append("the log does not say how far the nodes' clocks are apart")
    elif due.num_nodes > 1 and spread_s and spread_s > CLOCKS_APART_S:
        share = 100 * spread_s / float(np.sum(ends - begins))
        said.append(f"the nodes' clocks are {spread_s:.1f} s apart, {share:.1f} % of the window")
    remarks = tuple(f"energy: {text}" for text in said)
    return {"samples_per_second": rate, "num_samples": count, "longest_gap_s": gap_s, "remarks": remarks}


def _stated(measured: Throughput, num_gpus: int | None) -> Energy | None:
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
