"""What the records of the nodes say together: who is slow, who is silent, who is sick."""

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench.doctor.finding import FAILED
from nlp_bench.doctor.nodes.choose import Choice
from nlp_bench.doctor.nodes.outliers import LEAST, slow_ones

MAX_SKEW_S = 1.0
"""Seconds between the clocks of two nodes, seen at the end of one collective."""
UNITS = {"gemm": "TFLOP/s", "memory": "GB/s", "link": "GB/s"}


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
