"""The verdict on the records of all nodes: which are slow, silent or faulty; as a record and as a table for people.

Slow is an outlier by median and MAD, with a least difference that matters: B. Iglewicz and D. C. Hoaglin, How
to Detect and Handle Outliers (ASQC, 1993): |x - median| / (1.4826 MAD) > 3.5, where MAD is the median of the distances from the
median. Neither moves when fewer than half of the values are bad.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlp_bench.doctor.nodes import Choice, End
from nlp_bench.doctor.place import FAILED
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.show.table import Column, as_text

SCORE = 3.5
TO_SIGMA = 1.4826  # MAD times this estimates the standard deviation of a normal distribution
FEWEST = 3  # values needed to tell an outlier: of two either may be wrong
MAX_SKEW_S = 1.0  # seconds between the clocks of two nodes, seen at the end of one collective
MAX_SHOWN = 64  # nodes without a fault that are shown one by one


@immutable(kw_only=False)
class Rate:
    """A rate that nodes are compared by."""

    column: str  # its name in a node's row
    unit: str
    heading: str  # of its column in the table
    least_share: Mapping[str, float]
    """By accelerator, the share of the median below which a difference is never reported."""


RATES = {
    "gemm": Rate("gemm_tflops", "TFLOP/s", "GEMM TFLOP/s", {"cuda": 0.05, "cpu": 0.15}),
    "memory": Rate("memory_gb_per_s", "GB/s", "memory GB/s", {"cuda": 0.05, "cpu": 0.30}),
    "link": Rate("link_gb_per_s", "GB/s", "link GB/s", {"cuda": 0.20, "cpu": 0.50}),
}
"""GPUs of one kind differ by a few per cent from board to board; CPU nodes may be virtual ones that share a machine."""


def spread_of(rates: Mapping[str, float], least: float) -> dict[str, Any]:
    """Return `median` and `mad` of `rates` (more is better), the `limit` below which one is an outlier, and `slow`, the slowest outlier first.

    An outlier is below the median by more than 3.5 x 1.4826 x MAD and by more than the share `least`; of too few rates there is no limit.
    """
    if not rates:
        return {"median": None, "mad": None, "limit": None, "slow": []}
    median = statistics.median(rates.values())
    mad = statistics.median(abs(rate - median) for rate in rates.values())
    limit = median - max(SCORE * TO_SIGMA * mad, least * median) if len(rates) >= FEWEST else None
    slow = [name for name in sorted(rates, key=rates.__getitem__) if limit is not None and rates[name] < limit]
    return {"median": median, "mad": mad, "limit": limit, "slow": slow}


def verdict(
    choice: Choice, nodes: Mapping[str, dict[str, Any]], accelerator: str, *, folder: Path, end: End
) -> dict[str, Any]:
    """Return what `doctor --nodes` prints and writes to doctor.json as `nodes`."""
    rows = {name: _row(name, record, is_started=end.is_started) for name, record in nodes.items()}
    spreads: dict[str, dict[str, Any]] = {}
    for kind, rate in RATES.items():
        samples = {sample: value for row in rows.values() for sample, value in _samples(row, rate.column).items()}
        least = rate.least_share[accelerator]
        spreads[kind] = spread = {"unit": rate.unit, "least_share": least, **spread_of(samples, least)}
        for sample in spread["slow"]:
            (name, _, index), value, median = sample.partition("/"), samples[sample], spread["median"]
            which = f"{kind}: {f'GPU {index} ' if index else ''}{value:.3g} {rate.unit}"
            slower = f"{median / max(value, 1e-12):.1f} times slower than the median {median:.3g}"
            rows[name]["faults"].append(f"{which}, {slower}")
    clocks = {name: record["exchange"]["clock_s"] for name, record in nodes.items() if _exchange(record).get("clock_s")}
    for name, at_s in clocks.items():
        off_s = at_s - statistics.median(clocks.values())
        if abs(off_s) > MAX_SKEW_S:
            rows[name]["faults"].append(f"clock: {off_s:+.1f} s from the median of the nodes")
    down = [_row(node.name, {}) | {"faults": [f"not tested: {node.why}"]} for node in choice.down]
    found = [*rows.values(), *down]
    return {
        "folder": str(folder),
        "job": end.why or None,
        "tested": sum(not row["is_silent"] for row in rows.values()),
        "asked": choice.number + len(choice.down),
        "bad": [row["node"] for row in found if row["faults"]],
        "nodes": found,
        "spread": spreads,
    }


def _row(name: str, record: dict[str, Any], *, is_started: bool = True) -> dict[str, Any]:
    step, faults = record.get("step"), []
    if step != "finished" and is_started:
        faults.append(f"did not finish: last step {step}" if step else "did not answer: it left no record")
    faults += [f"{at}: {text}" for at, text in (record.get("errors") or {}).items()]
    for one in record.get("checks") or []:
        if one.get("status") == FAILED:
            faults.append(f"{one.get('name')}: {one.get('summary')}")
    for test in record.get("vendor") or []:
        if not test.get("is_passed"):
            faults.append(f"{test.get('name')}: {test.get('said') or 'failed'}")
    exchange, devices = _exchange(record), record.get("devices") or []
    if exchange.get("why"):
        faults.append(f"exchange: {exchange['why']}")
    links = [float(pair["gb_per_s"]) for pair in exchange.get("pairs") or []]
    return {
        "node": name,
        "is_silent": not step,
        "faults": faults,
        "gemm_tflops": [float(one["gemm"]["rate"]) for one in devices],
        "memory_gb_per_s": [float(one["memory"]["rate"]) for one in devices],
        "link_gb_per_s": max(links, default=None),  # with the best partner: a faulty partner is not its fault
        "all_reduce_bus_gb_per_s": exchange.get("all_reduce_bus_gb_per_s"),
    }


def _exchange(record: dict[str, Any]) -> dict[str, Any]:
    return record.get("exchange") or {}


def _samples(row: Mapping[str, Any], column: str) -> dict[str, float]:
    """Return the values of a row's column, by NODE or, of several devices, by NODE/INDEX."""
    values = row[column] if isinstance(row[column], list) else [] if row[column] is None else [row[column]]
    return {f"{row['node']}/{index}" if len(values) > 1 else row["node"]: value for index, value in enumerate(values)}


def text(found: Mapping[str, Any], end: End) -> str:
    """Return the nodes, bad ones first with what is wrong, the spread of each rate, and what to type next."""
    rows = sorted(found["nodes"], key=lambda row: not row["faults"])
    if not end.is_started:
        down = [f"{row['node']}: {one_line(fault)}" for row in rows for fault in row["faults"]]
        return "\n".join([*down, f"no node was tested: {one_line(end.why)}"])
    num_bad = len(found["bad"])
    listed = rows[: num_bad + MAX_SHOWN]
    nodes = Column(heading="node", cells=[row["node"] for row in listed], is_text=True)
    rates = [
        Column(heading=rate.heading, cells=[_least(row, rate.column) for row in listed]) for rate in RATES.values()
    ]
    lines = as_text([nodes, *rates], has_rule=False)
    for place, row in reversed(list(enumerate(listed, start=2))):
        lines[place:place] = [f"    {one_line(fault)}" for fault in row["faults"]]
    if len(rows) > num_bad + MAX_SHOWN:
        lines.append(f"and {len(rows) - num_bad - MAX_SHOWN} more without a fault")
    rule = f"an outlier is below the median by more than {SCORE} x {TO_SIGMA} x MAD and by more than the least share"
    lines += ["", rule, *(_spread_text(kind, spread) for kind, spread in found["spread"].items())]
    reduced = [row["all_reduce_bus_gb_per_s"] for row in rows if row.get("all_reduce_bus_gb_per_s")]
    if reduced:
        lines.append(f"all-reduce over {len(reduced)} nodes: {min(reduced):.3g} GB/s bus bandwidth")
    if found["job"]:
        lines.append(f"the job: {one_line(found['job'])}")
    answered = f"{found['tested']} of {found['asked']} node(s) answered"
    lines.append(f"{answered}, {num_bad} with a fault; records: {found['folder']}")
    if num_bad:
        names = ",".join(found["bad"])
        exclude = f"nlp-bench submit ... --sbatch-arg=--exclude={names}"
        again = f"nlp-bench doctor --nodes {names}"
        lines.append(f"next: keep them out of a job: {exclude}; tell the site; again: {again}")
    return "\n".join(lines)


def _least(row: Mapping[str, Any], column: str) -> str:
    value = min(_samples(row, column).values(), default=None)
    return "-" if value is None else f"{value:.3g}"


def _spread_text(kind: str, spread: Mapping[str, Any]) -> str:
    if spread["median"] is None:
        return f"  {kind}: not measured"
    limit = "too few nodes to tell" if spread["limit"] is None else f"limit {spread['limit']:.3g}"
    return f"  {kind}: median {spread['median']:.3g} {spread['unit']}, MAD {spread['mad']:.2g}, least share {spread['least_share']:.0%}, {limit}"
