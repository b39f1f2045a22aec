"""What the records of the nodes say together: who is slow, who is silent, who is sick; as a record and as a table for people.

Slow is what is unlike many alike things, by median and MAD, with a least difference that matters: B. Iglewicz and D. C. Hoaglin, How
to Detect and Handle Outliers (ASQC, 1993): |x - median| / (1.4826 MAD) > 3.5, where MAD is the median of the distances from the
median. Neither moves when fewer than half of the values are bad.
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlp_bench.doctor.finding import FAILED
from nlp_bench.doctor.nodes import Choice
from nlp_bench.show.escape import one_line

SCORE = 3.5
TO_SIGMA = 1.4826
"""MAD times this estimates the standard deviation of a normal distribution."""
FEWEST = 3
"""With two values nobody can say which one is wrong."""
LEAST = {
    "cuda": {"gemm": 0.05, "memory": 0.05, "link": 0.20},
    "cpu": {"gemm": 0.15, "memory": 0.30, "link": 0.50},
}
"""Share of the median below which a difference is never named: GPUs of one kind differ by a few per cent from board to board; CPU
nodes may be virtual ones that share a machine."""
MAX_SKEW_S = 1.0
"""Seconds between the clocks of two nodes, seen at the end of one collective."""
UNITS = {"gemm": "TFLOP/s", "memory": "GB/s", "link": "GB/s"}
MAX_SHOWN = 64
"""Nodes without a fault that are shown one by one."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How one rate is spread over the nodes."""

    median: float | None
    """Its median; None without values."""
    mad: float | None
    """Median of the distances from it."""
    limit: float | None
    """Below this a value is an outlier; None where there are too few to tell."""
    slow: tuple[str, ...]
    """The outliers, the slowest first."""


def slow_ones(rates: Mapping[str, float], least: float) -> Spread:
    """Return the spread of `rates` (more is better) and the names of those that are too slow.

    An outlier is below the median by more than 3.5 x 1.4826 x MAD and by more than the share `least`.
    """
    if not rates:
        return Spread(median=None, mad=None, limit=None, slow=())
    median = statistics.median(rates.values())
    mad = statistics.median(abs(rate - median) for rate in rates.values())
    if len(rates) < FEWEST:
        return Spread(median=median, mad=mad, limit=None, slow=())
    limit = median - max(SCORE * TO_SIGMA * mad, least * median)
    slow = sorted((name for name, rate in rates.items() if rate < limit), key=lambda name: rates[name])
    return Spread(median=median, mad=mad, limit=limit, slow=tuple(slow))


def verdict(
    choice: Choice, nodes: Mapping[str, dict[str, Any]], accelerator: str, *, folder: Path, ended: str = ""
) -> dict[str, Any]:
    """Return what `doctor --nodes` prints and writes to doctor.json as `nodes`."""
    rates = {kind: _rates(nodes, kind) for kind in UNITS}
    spreads = {kind: slow_ones(found, LEAST[accelerator][kind]) for kind, found in rates.items()}
    rows = {name: _row(name, record) for name, record in nodes.items()}
    for kind, spread in spreads.items():
        for sample in spread.slow:
            median = spread.median or 0.0
            rows[sample.partition("/")[0]]["faults"].append(
                f"{kind}: {_device(sample)}{rates[kind][sample]:.3g} {UNITS[kind]}, {median / max(rates[kind][sample], 1e-12):.1f} times "
                f"slower than the median {median:.3g}"
            )
    for name, off_s in _skews(nodes).items():
        if abs(off_s) > MAX_SKEW_S:
            rows[name]["faults"].append(f"clock: {off_s:+.1f} s from the median of the nodes")
    down = [_row(node.name, {}) for node in choice.down]
    for row, node in zip(down, choice.down, strict=True):
        row["faults"] = [f"not tested: {node.state}{f' ({node.reason})' if node.reason else ''}"]
    found = [*rows.values(), *down]
    return {
        "folder": str(folder),
        "job": ended or None,
        "tested": sum(not row["is_silent"] for row in rows.values()),
        "asked": choice.number + len(choice.down),
        "bad": [row["node"] for row in found if row["faults"]],
        "nodes": found,
        "spread": {
            kind: {"unit": UNITS[kind], "least_share": LEAST[accelerator][kind], **asdict(spread)}
            for kind, spread in spreads.items()
        },
    }


def _row(name: str, record: dict[str, Any]) -> dict[str, Any]:
    step = record.get("step")
    faults = (
        []
        if step == "finished"
        else [f"did not finish: last step {step}" if step else "did not answer: it left no record"]
    )
    faults += [f"{at}: {text}" for at, text in (record.get("errors") or {}).items()]
    failed = [one for one in record.get("checks") or [] if one.get("status") == FAILED]
    faults += [f"{one.get('name')}: {one.get('summary')}" for one in failed]
    for test in record.get("vendor") or []:
        if not test.get("is_passed"):
            faults.append(f"{test.get('name')}: {test.get('said') or 'failed'}")
    exchange = record.get("exchange") or {}
    if exchange.get("why"):
        faults.append(f"exchange: {exchange['why']}")
    return {
        "node": name,
        "is_silent": not step,
        "faults": faults,
        "gemm_tflops": _values(record, "gemm"),
        "memory_gb_per_s": _values(record, "memory"),
        "link_gb_per_s": _best(record),
        "all_reduce_bus_gb_per_s": exchange.get("all_reduce_bus_gb_per_s"),
    }


def _values(record: dict[str, Any], kind: str) -> list[float]:
    return [float(one[kind]["rate"]) for one in record.get("devices") or []]


def _best(record: dict[str, Any]) -> float | None:
    """Return the rate with the best partner: one bad partner does not make a node bad."""
    pairs = (record.get("exchange") or {}).get("pairs") or []
    return max((float(pair["gb_per_s"]) for pair in pairs), default=None)


def _rates(nodes: Mapping[str, dict[str, Any]], kind: str) -> dict[str, float]:
    if kind == "link":
        return {name: best for name, record in nodes.items() if (best := _best(record)) is not None}
    found: dict[str, float] = {}
    for name, record in nodes.items():
        values = _values(record, kind)
        found |= {(f"{name}/{index}" if len(values) > 1 else name): value for index, value in enumerate(values)}
    return found


def _device(sample: str) -> str:
    name, _, index = sample.partition("/")
    del name
    return f"GPU {index} " if index else ""


def _skews(nodes: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    told = {name: (record.get("exchange") or {}).get("clock_s") for name, record in nodes.items()}
    known = {name: float(at) for name, at in told.items() if at is not None}
    if len(known) < 2:
        return {}
    middle = statistics.median(known.values())
    return {name: at - middle for name, at in known.items()}


def text(found: Mapping[str, Any]) -> str:
    """Return the nodes, bad ones first with what is wrong, the spread of each rate, and what to type next."""
    rows = sorted(found["nodes"], key=lambda row: not row["faults"])
    num_bad = len(found["bad"])
    width = max((len(row["node"]) for row in rows), default=4)
    lines = [f"{'node':<{width}}  {'GEMM TFLOP/s':>14}  {'memory GB/s':>12}  {'link GB/s':>10}"]
    for row in rows[: num_bad + MAX_SHOWN]:
        lines.append(
            f"{row['node']:<{width}}  {_least(row, 'gemm_tflops'):>14}  {_least(row, 'memory_gb_per_s'):>12}  {_least(row, 'link_gb_per_s'):>10}"
        )
        lines += [f"{'':<{width}}  {one_line(fault)}" for fault in row["faults"]]
    if len(rows) > num_bad + MAX_SHOWN:
        lines.append(f"and {len(rows) - num_bad - MAX_SHOWN} more without a fault")
    lines += [
        "",
        f"an outlier is below the median by more than {SCORE} x {TO_SIGMA} x MAD and by more than the least share",
    ]
    lines += [_spread_text(kind, spread) for kind, spread in found["spread"].items()]
    reduced = [row["all_reduce_bus_gb_per_s"] for row in rows if row.get("all_reduce_bus_gb_per_s")]
    if reduced:
        lines.append(f"all-reduce over {len(reduced)} nodes: {min(reduced):.3g} GB/s bus bandwidth")
    if found["job"]:
        lines.append(f"the job: {one_line(found['job'])}")
    lines.append(
        f"{found['tested']} of {found['asked']} node(s) answered, {num_bad} with a fault; records: {found['folder']}"
    )
    if num_bad:
        names = ",".join(found["bad"])
        lines.append(
            f"next: keep them out of a job: nlp-bench submit ... --sbatch-arg=--exclude={names}; tell the site; again: nlp-bench doctor --nodes {names}"
        )
    return "\n".join(lines)


def _least(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if isinstance(value, list):
        value = min(value, default=None)
    return "-" if value is None else f"{value:.3g}"


def _spread_text(kind: str, spread: Mapping[str, Any]) -> str:
    if spread["median"] is None:
        return f"  {kind}: not measured"
    limit = "too few nodes to tell" if spread["limit"] is None else f"limit {spread['limit']:.3g}"
    return f"  {kind}: median {spread['median']:.3g} {spread['unit']}, MAD {spread['mad']:.2g}, least share {spread['least_share']:.0%}, {limit}"
