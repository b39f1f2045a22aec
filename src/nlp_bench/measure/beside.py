"""What stands beside a run's rate: its energy, and the truth about its machine."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.logs.record import Log
from nlp_bench.measure.energy import Energy, Job, clock_spread_s, energy_of, stated_energy
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.machine import machine_of, read_environment
from nlp_bench.measure.node_records import NodeRecord
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.workload import lookup


def with_machine(
    entry: RunResult,
    log: Log | None,
    *,
    run_dir: Path | None = None,
    run: Mapping[str, Any] | None = None,
    nodes: tuple[NodeRecord, ...] = (),
) -> RunResult:
    """Return `entry` with energy and machine; their warnings become remarks.

    `run_dir`, `run` and `nodes` are the folder, the run.json and the nodes' records of a run of ours, None for somebody's log. No fault of the records raises.
    """
    environment = read_environment(run_dir) if run_dir else None
    settings = log.settings if log else {}
    window = _times(entry.throughput)
    truth = machine_of(nodes, settings, run=run, environment=environment, window=window)
    energy = _energy(entry, log, nodes, run)
    said = [*(truth.warnings if truth else ()), *(energy.remarks if energy else ())]
    if energy and energy.why_none:
        said.append(f"no energy: {energy.why_none}")
    return replace(entry, energy=energy, machine=truth, remarks=(*entry.remarks, *said))


def _energy(
    entry: RunResult, log: Log | None, nodes: tuple[NodeRecord, ...], run: Mapping[str, Any] | None
) -> Energy | None:
    measured, num_nodes = entry.throughput, lookup(run or {}, "parallel.nodes")
    if measured is None:
        return None
    metered = None
    if nodes and isinstance(num_nodes, int) and entry.num_gpus:
        is_on_gpus = lookup(run or {}, "system.accelerator") == "cuda"
        spread_s = clock_spread_s(log.settings) if log else None
        job = Job(num_nodes=num_nodes, num_gpus=entry.num_gpus, is_on_gpus=is_on_gpus, clock_spread_s=spread_s)
        metered = energy_of(nodes, measured, job)
    has_number = metered is not None and metered.joules_per_token is not None
    return metered if has_number else stated_energy(measured, entry.num_gpus) or metered


def _times(measured: Throughput | None) -> tuple[float, float] | None:
    """Return the times of day between which the window lies, None where the log has none."""
    if measured is None:
        return None
    spans = measured.window.spans
    stamps = spans.records.column("stamp_s")
    begin, end = float(stamps[0] - spans.seconds[0]), float(stamps[-1])
    return (begin, end) if begin < end else None
