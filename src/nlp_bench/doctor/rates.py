"""How fast the devices of a node multiply and copy, and how fast the nodes talk to each other: all together, then in pairs.

In pairs a bad link is found at the node that has it. Imports torch.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from nlp_bench.machine.timing import Cpu, Cuda, Device, timed

GPU_BUDGET_S, CPU_BUDGET_S = 2.0, 0.4  # seconds for each rate: long enough on a GPU for its clocks to settle under load
GPU_SIZE, CPU_SIZE = 8192, 640  # rows and columns of the matrices: bf16 on a GPU, fp32 on one core of a CPU
GPU_BYTES, CPU_BYTES = 2**30, 2**25
SAMPLE_S = 0.03  # seconds of one repetition, several calls long
LINK_GPU_BYTES, LINK_CPU_BYTES = 2**28, 2**22
REPEATS = 8
MOST_ROUNDS = 6  # partners of a node: a sound node has a sound partner among so many, so its best pair is sound
ANSWER_S = 60  # timeout of a collective in seconds
POLL_S = 0.05


def measure_devices(accelerator: str) -> list[dict[str, Any]]:
    """Return the rates of each device: of a matrix product in TFLOP/s, of a copy in GB/s.

    Raises RuntimeError where `accelerator` is cuda and torch sees no GPU.
    """
    # One core represents its CPU: threads that wait for each other measure other people's load.
    torch.set_num_threads(1)
    if accelerator != "cuda":
        devices: list[Device] = [Cpu()]
    elif torch.cuda.is_available():
        devices = [Cuda(index) for index in range(torch.cuda.device_count())]
    else:
        raise RuntimeError("torch sees no GPU on this node")
    return [{"device": str(one.place), "gemm": _gemm(one), "memory": _memory(one)} for one in devices]


def _gemm(device: Device) -> dict[str, Any]:
    """Return the rate of a matrix product, 2 n^3 FLOPs each, in TFLOP/s."""
    size = GPU_SIZE if device.kind == "cuda" else CPU_SIZE
    kind = torch.bfloat16 if device.kind == "cuda" else torch.float32
    first, second = (torch.randn(size, size, device=device.place).to(kind) for _ in range(2))
    out = torch.empty_like(first)
    rate = _rate(lambda: torch.mm(first, second, out=out), device, 2 * size**3 / 1e12)
    return rate | {"size": size, "format": str(kind)[6:]}


def _memory(device: Device) -> dict[str, Any]:
    """Return the rate of a copy within the device's memory, bytes read and bytes written, in GB/s."""
    num_bytes = GPU_BYTES if device.kind == "cuda" else CPU_BYTES
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device.place)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), device, 2 * num_bytes / 1e9) | {"bytes": num_bytes}


def _rate(call: Callable[[], Any], device: Device, work: float) -> dict[str, Any]:
    """Return the median rate over repetitions of `call`, each of `work` units, and the best one."""
    call()
    call()  # the first ones pick kernels and touch pages
    found = timed(call, device, GPU_BUDGET_S if device.kind == "cuda" else CPU_BUDGET_S, sample_s=SAMPLE_S)
    return {"rate": work / found.seconds, "best": work / found.best_s, "repetitions": found.repeats}


def exchange(hosts: Sequence[str], port: int, number: int, *, accelerator: str, join_s: float) -> dict[str, Any]:
    """Return what node `number` of `hosts` measured with the others; raises RuntimeError where they cannot connect.

    The first one serves the rendezvous at `port` and waits `join_s` seconds for the others; later ones are left out.
    """
    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if accelerator == "cuda" else torch.device("cpu")
    patience = timedelta(seconds=2 * join_s + 10)
    store: Store = dist.TCPStore(hosts[0], port, None, number == 0, patience, wait_for_workers=False)  # type: ignore[attr-defined]
    members = _members(store, number, len(hosts), join_s)
    if len(members) < 2 or number not in members:
        return {"members": members, "why": "no other node came" if number in members else "came too late"}
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore("doctor", store),
        rank=members.index(number),
        world_size=len(members),
        timeout=timedelta(seconds=ANSWER_S),
    )
    try:
        return {"members": members, **_measure(device, members)}
    finally:
        _leave(store, number, members)


def _members(store: Store, number: int, num_nodes: int, join_s: float) -> list[int]:
    """Return the numbers of the nodes that joined in time, as the first node decides."""
    store.set(f"here/{number}", "1")
    if number == 0:
        end, joined = time.monotonic() + join_s, [0]
        while len(joined) < num_nodes and time.monotonic() < end:
            time.sleep(POLL_S)
            joined = [one for one in range(num_nodes) if store.check([f"here/{one}"])]
        store.set("members", ",".join(map(str, joined)))
    store.wait(["members"])
    return [int(word) for word in store.get("members").decode().split(",")]


def _leave(store: Store, number: int, members: list[int]) -> None:
    """Leave; the first node last, because it serves the rendezvous."""
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    with contextlib.suppress(RuntimeError):
        store.set(f"gone/{number}", "1")
        end = time.monotonic() + 10
        while number == members[0] and time.monotonic() < end:
            if store.check([f"gone/{one}" for one in members]):
                return
            time.sleep(POLL_S)


def _measure(device: torch.device, members: list[int]) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    num_bytes = LINK_GPU_BYTES if device.type == "cuda" else LINK_CPU_BYTES
    data = torch.ones(num_bytes // 4, device=device)
    dist.all_reduce(torch.ones(1, device=device))
    together_s = time.time()  # all leave the all-reduce at about the same moment: their clocks can be compared
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
        peer = partner(rank, number, size)
        dist.all_reduce(torch.ones(1, device=device))  # a barrier before every round
        if peer is None:
            continue
        seconds = _timed(lambda peer=peer: _swap(data, other, peer), device)  # type: ignore[misc]
        found["pairs"].append({"with": members[peer], "gb_per_s": num_bytes / seconds / 1e9})
    return found


def _swap(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)])
    for work in works:
        work.wait()


def _timed(call: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of a call, median on GPUs, least on CPUs, where other programs take time; the first call makes the connections."""
    samples = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[1:]) if device.type == "cuda" else min(samples[1:])


def rounds(size: int) -> int:
    """Return how many rounds pair every two of `size` once."""
    return size - 1 if size % 2 == 0 else size


def partner(rank: int, number: int, size: int) -> int | None:
    """Return the partner of `rank` in round `number`, None for a pause: the circle method of round-robin tournaments."""
    seats = size + size % 2  # with an odd number one pauses in each round
    last = seats - 1
    if rank == last:
        peer = (number * (seats // 2)) % last
    else:
        peer = (number - rank) % last
        peer = last if peer == rank else peer
    return peer if peer < size else None
