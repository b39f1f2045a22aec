"""The peak memory of every rank: once after the first iteration, when everything has been allocated, and at the end."""

import resource
import statistics
from collections.abc import Sequence

import torch

from nlp_bench.train.watching.ranks import gather
from nlp_bench.train.watching.watcher import Ending, Say, Watcher

MOST_LISTED = 8
"""Ranks up to which each is named; of more the least, the middle and the most."""
GIB = 2**30


def peak_bytes(device: torch.device) -> int:
    """Return the greatest memory of this process so far: torch's tensors on a GPU, the resident set on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


class MemoryReport(Watcher):
    """Gathers and prints; the ranks of a pipeline stage follow each other (megatron-core's order tp-cp-ep-dp-pp)."""

    def __init__(self, device: torch.device, num_stages: int, say: Say) -> None:
        """Begin; `num_stages` is the pipeline's."""
        self._device, self._num_stages, self._say = device, num_stages, say
        self._told = ""

    def after(self, iteration: int) -> None:
        """Tell the first iteration's."""
        if not self._told:
            self._told = memory_text(self._gather(), self._num_stages)
            self._say(f" > memory after iteration {iteration}, {self._told}")

    def end(self, ending: Ending) -> None:
        """Tell the end's, where it is another."""
        now = memory_text(self._gather(), self._num_stages)
        if now != self._told:
            self._say(f" > memory at the end, after iteration {ending.iteration}, {now}")

    def _gather(self) -> list[list[float]]:
        reserved = [torch.cuda.max_memory_reserved()] if self._device.type == "cuda" else []
        return gather([peak_bytes(self._device), *reserved], self._device)


def memory_text(rows: Sequence[Sequence[float]], num_stages: int) -> str:
    """Return the numbers for the log from bytes [rank][allocated, reserved], or [rank][resident set]."""
    names = ("peak resident set",) if len(rows[0]) == 1 else ("peak allocated", "peak reserved")
    columns = list(zip(*rows, strict=True))
    parts = [f"{name} {_spread(column)}" for name, column in zip(names, columns, strict=True)]
    if num_stages > 1 and len(rows) > MOST_LISTED:
        size = len(rows) // num_stages
        stages = (max(columns[0][i : i + size]) for i in range(0, len(rows), size))
        parts.append("by pipeline stage " + " ".join(map(_gib, stages)))
    return "GiB: " + "; ".join(parts)


def _spread(column: Sequence[float]) -> str:
    if len(column) == 1:
        return _gib(column[0])
    if len(column) <= MOST_LISTED:
        return "by rank " + " ".join(map(_gib, column))
    least, most = min(column), max(column)
    ends = [f"{_gib(one)} (rank {column.index(one)})" for one in (least, most)]
    return f"{ends[0]} to {ends[1]}, median {_gib(statistics.median(column))}"


def _gib(number: float) -> str:
    return f"{number / GIB:.2f}"
