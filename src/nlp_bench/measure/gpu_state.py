"""How each GPU of a run stood in the window: limits, mean clock, and in which share of the samples it was held back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.machine.nvml import THROTTLE_REASONS
from nlp_bench.measure.node_records import NodeRecord, number
from nlp_bench.show.escape import one_line


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU that ranks used."""

    where: str
    """"GPU 3 on node n2"."""
    name: str
    """Product name, empty where it is not known."""
    limit_w: float | None
    """Power limit in force."""
    default_w: float | None
    """The product's own limit."""
    sm_clock_mhz: float | None
    """Mean over the samples."""
    throttled: Mapping[str, float] = field(default_factory=dict)
    """Reason (`nvml.THROTTLE_REASONS`) to the share of the samples, above 0, in which it held the GPU back."""


def gpu_states(nodes: Sequence[NodeRecord], window: tuple[float, float] | None) -> list[GpuState]:
    """Return the GPUs of all nodes; `window` holds the times of day between which samples count, None for all."""
    return [state for node in nodes for state in _of_node(node, window)]


def _of_node(node: NodeRecord, window: tuple[float, float] | None) -> Iterator[GpuState]:
    begin, end = window or (-np.inf, np.inf)
    inside = (node.times >= begin) & (node.times <= end)
    for gpu in node.gpus():
        index = gpu["index"]
        clocks = _known(node, f"gpu{index}_sm_clock_mhz", inside)
        yield GpuState(
            where=f"GPU {index} on node {node.name}",
            name=one_line(gpu.get("name") or "")[:100],
            limit_w=number(gpu.get("power_limit_w")),
            default_w=number(gpu.get("default_power_limit_w")),
            sm_clock_mhz=float(clocks.mean()) if len(clocks) else None,
            throttled=_shares(_known(node, f"gpu{index}_throttle_reasons", inside)),
        )


def _known(node: NodeRecord, name: str, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    column = node.columns.get(name)
    return np.empty(0) if column is None else column[inside & np.isfinite(column)]


def _shares(bits: NDArray[Any]) -> dict[str, float]:
    masks = bits.astype(np.int64)
    shares = {reason: float(np.mean(masks & bit > 0)) for bit, reason in THROTTLE_REASONS.items() if len(masks)}
    return {reason: share for reason, share in shares.items() if share}
