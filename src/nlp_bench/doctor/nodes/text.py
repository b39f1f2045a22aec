"""The test of nodes as a table for people."""

from collections.abc import Mapping
from typing import Any

from nlp_bench.doctor.nodes.outliers import SCORE, TO_SIGMA
from nlp_bench.show.escape import one_line

MOST = 64
"""Nodes without a fault that are shown one by one."""


def text(found: Mapping[str, Any]) -> str:
    """Return the nodes, bad ones first with what is wrong, the spread of each rate, and what to type next."""
    rows = sorted(found["nodes"], key=lambda row: not row["faults"])
    num_bad = len(found["bad"])
    width = max((len(row["node"]) for row in rows), default=4)
    lines = [f"{'node':<{width}}  {'GEMM TFLOP/s':>14}  {'memory GB/s':>12}  {'link GB/s':>10}"]
    for row in rows[: num_bad + MOST]:
        lines.append(
            f"{row['node']:<{width}}  {_least(row, 'gemm_tflops'):>14}  {_least(row, 'memory_gb_per_s'):>12}  {_least(row, 'link_gb_per_s'):>10}"
        )
        lines += [f"{'':<{width}}  {one_line(fault)}" for fault in row["faults"]]
    if len(rows) > num_bad + MOST:
        lines.append(f"and {len(rows) - num_bad - MOST} more without a fault")
    lines += [
        "",
        f"an outlier is below the median by more than {SCORE} x {TO_SIGMA} x MAD and by more than the least share",
    ]
    lines += [_spread(kind, spread) for kind, spread in found["spread"].items()]
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


def _spread(kind: str, spread: Mapping[str, Any]) -> str:
    if spread["median"] is None:
        return f"  {kind}: not measured"
    limit = "too few nodes to tell" if spread["limit"] is None else f"limit {spread['limit']:.3g}"
    return f"  {kind}: median {spread['median']:.3g} {spread['unit']}, MAD {spread['mad']:.2g}, least share {spread['least_share']:.0%}, {limit}"
