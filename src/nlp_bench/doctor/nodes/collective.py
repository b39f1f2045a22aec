"""The nodes talk to each other: all together, then in pairs, so that a bad link is found at the node that has it. Imports torch."""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

GPU_BYTES, CPU_BYTES = 2**28, 2**22
REPEATS = 8
MOST_ROUNDS = 6
"""Partners of a node: a good node has a good partner among so many, so its best pair is good."""
ANSWER_S = 60
"""Seconds after which a collective is given up."""
LOOK_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the nodes meet."""

    host: str
    """Address of the first node, which serves the meeting point."""
    port: int
    """Its port."""
    number: int
    """Number of this node."""
    num_nodes: int
    """Nodes of the job."""
    join_s: float
    """Seconds that the first node waits for the others; who has not come by then is left out."""


def exchange(meeting: Meeting, device: torch.device) -> dict[str, Any]:
    """Return what this node measured with the others; raises RuntimeError where they do not come together."""
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        meeting.host,
        meeting.port,
        None,
        meeting.number == 0,
        timedelta(seconds=2 * meeting.join_s + 10),
        wait_for_workers=False,
    )
    members = _members(store, meeting)
    if len(members) < 2 or meeting.number not in members:
        return {"members": members, "why": "no other node came" if meeting.number in members else "came too late"}
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore("doctor", store),
        rank=members.index(meeting.number),
        world_size=len(members),
        timeout=timedelta(seconds=ANSWER_S),
    )
    try:
        return {"members": members, **_measure(device, members)}
    finally:
        _leave(store, meeting, members)


def _members(store: Store, meeting: Meeting) -> list[int]:
    """Return the numbers of the nodes that came in time, as the first node decides."""
    store.set(f"here/{meeting.number}", "1")
    if meeting.number == 0:
        end = time.monotonic() + meeting.join_s
        here = [0]
        while len(here) < meeting.num_nodes and time.monotonic() < end:
            time.sleep(LOOK_S)
            here = [number for number in range(meeting.num_nodes) if store.check([f"here/{number}"])]
        store.set("members", ",".join(map(str, here)))
    store.wait(["members"])
    return [int(word) for word in store.get("members").decode().split(",")]


def _leave(store: Store, meeting: Meeting, members: list[int]) -> None:
    """Go; the first node last, because it serves the meeting point."""
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    with contextlib.suppress(RuntimeError):
        store.set(f"gone/{meeting.number}", "1")
        end = time.monotonic() + 10
        while meeting.number == members[0] and time.monotonic() < end:
            if store.check([f"gone/{number}" for number in members]):
                return
            time.sleep(LOOK_S)


def _measure(device: torch.device, members: list[int]) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    num_bytes = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    data = torch.ones(num_bytes // 4, device=device)
    dist.all_reduce(torch.ones(1, device=device))
    together_s = time.time()  # all leave the sum at about the same moment: their clocks can be compared
    seconds = _timed(lambda: dist.all_reduce(data), device)
    found: dict[str, Any] = {
        "backend": dist.get_backend(),
        "clock_s": together_s,
        "bytes": num_bytes,
        "all_reduce_bus_gb_per_s": 2 * (size - 1) / size * num_bytes / seconds / 1e9,
        "pairs": [],
    }
    other = torch.empty_like(data)
    for number in range(min(MOST_ROUNDS, rounds(size))):
        mate = partner(rank, number, size)
        dist.all_reduce(torch.ones(1, device=device))  # every round begins together
        if mate is None:
            continue
        seconds = _timed(lambda mate=mate: _swap(data, other, mate), device)  # type: ignore[misc]
        found["pairs"].append({"with": members[mate], "gb_per_s": num_bytes / seconds / 1e9})
    return found


def _swap(mine: torch.Tensor, theirs: torch.Tensor, mate: int) -> None:
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, mate), dist.P2POp(dist.irecv, theirs, mate)])
    for work in works:
        work.wait()


def _timed(call: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of a call, median on GPUs, least on CPUs, where other programs take time away; the first call makes the connections."""
    samples = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples[1:]) if device.type == "cuda" else min(samples[1:])


def rounds(size: int) -> int:
    """Return how many rounds let everybody meet everybody once."""
    return size - 1 if size % 2 == 0 else size


def partner(rank: int, number: int, size: int) -> int | None:
    """Return whom `rank` meets in round `number`, None for a rest: the circle method of round-robin tournaments."""
    seats = size + size % 2  # with an odd number one rests in each round
    last = seats - 1
    if rank == last:
        mate = (number * (seats // 2)) % last
    else:
        mate = (number - rank) % last
        mate = last if mate == rank else mate
    return mate if mate < size else None
