"""How fast the devices of this node multiply and copy. Imports torch."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

GPU_BUDGET_S, CPU_BUDGET_S = 2.0, 0.4
"""Seconds for each rate: long enough on a GPU for its clocks to settle under load."""
GPU_SIZE, CPU_SIZE = 8192, 640
"""Rows and columns of the matrices: bf16 on a GPU, fp32 on one core of a CPU."""
GPU_BYTES, CPU_BYTES = 2**30, 2**25
SAMPLE_S = 0.03
"""Seconds of one repetition, several calls long."""


def devices(accelerator: str) -> list[torch.device]:
    """Return the devices whose rates are measured; raises RuntimeError where GPUs are asked for and torch sees none."""
    if accelerator != "cuda":
        return [torch.device("cpu")]
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU on this node")
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def gemm(device: torch.device) -> dict[str, Any]:
    """Return the rate of a matrix product, 2 n^3 FLOPs each, in TFLOP/s."""
    size = GPU_SIZE if device.type == "cuda" else CPU_SIZE
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    first, second = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    out = torch.empty_like(first)
    return _rate(lambda: torch.mm(first, second, out=out), device, 2 * size**3 / 1e12) | {
        "size": size,
        "format": str(kind)[6:],
    }


def memory(device: torch.device) -> dict[str, Any]:
    """Return the rate of a copy within the device's memory, bytes read and bytes written, in GB/s."""
    num_bytes = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), device, 2 * num_bytes / 1e9) | {"bytes": num_bytes}


def _rate(call: Callable[[], Any], device: torch.device, work: float) -> dict[str, Any]:
    """Return the median rate over repetitions of `call`, each of `work` units, and the best one."""
    _timed(call, device, 2)  # the first calls pick kernels and touch pages
    calls = max(1, round(SAMPLE_S / max(_timed(call, device, 1), 1e-6)))
    end = time.monotonic() + (GPU_BUDGET_S if device.type == "cuda" else CPU_BUDGET_S)
    samples: list[float] = []
    while time.monotonic() < end or len(samples) < 5:
        samples.append(work * calls / max(_timed(call, device, calls), 1e-9))
    return {"rate": statistics.median(samples), "best": max(samples), "repetitions": len(samples)}


def _timed(call: Callable[[], Any], device: torch.device, calls: int) -> float:
    """Return the seconds of `calls` calls: on a CPU those in which the core worked for this thread.

    A program beside this one takes time away, but does not make the core slower; a low clock does.
    """
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    _wait(device)
    begin = clock()
    for _ in range(calls):
        call()
    _wait(device)
    return clock() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
