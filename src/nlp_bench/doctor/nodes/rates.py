"""How fast the devices of this node multiply and copy. Imports torch."""

from typing import Any

import torch

from nlp_bench.machine.timing import Cpu, Cuda, Device, timed

GPU_BUDGET_S, CPU_BUDGET_S = 2.0, 0.4
"""Seconds for each rate: long enough on a GPU for its clocks to settle under load."""
GPU_SIZE, CPU_SIZE = 8192, 640
"""Rows and columns of the matrices: bf16 on a GPU, fp32 on one core of a CPU."""
GPU_BYTES, CPU_BYTES = 2**30, 2**25
SAMPLE_S = 0.03
"""Seconds of one repetition, several calls long."""


def devices(accelerator: str) -> list[Device]:
    """Return the devices whose rates are measured; raises RuntimeError where GPUs are asked for and torch sees none."""
    if accelerator != "cuda":
        return [Cpu()]
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU on this node")
    return [Cuda(index) for index in range(torch.cuda.device_count())]


def gemm(device: Device) -> dict[str, Any]:
    """Return the rate of a matrix product, 2 n^3 FLOPs each, in TFLOP/s."""
    size = GPU_SIZE if device.kind == "cuda" else CPU_SIZE
    kind = torch.bfloat16 if device.kind == "cuda" else torch.float32
    first, second = (torch.randn(size, size, device=device.place).to(kind) for _ in range(2))
    out = torch.empty_like(first)
    rate = _rate(lambda: torch.mm(first, second, out=out), device, 2 * size**3 / 1e12)
    return rate | {"size": size, "format": str(kind)[6:]}


def memory(device: Device) -> dict[str, Any]:
    """Return the rate of a copy within the device's memory, bytes read and bytes written, in GB/s."""
    num_bytes = GPU_BYTES if device.kind == "cuda" else CPU_BYTES
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device.place)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), device, 2 * num_bytes / 1e9) | {"bytes": num_bytes}


def _rate(call: Any, device: Device, work: float) -> dict[str, Any]:
    """Return the median rate over repetitions of `call`, each of `work` units, and the best one."""
    call()
    call()  # the first ones pick kernels and touch pages
    budget_s = GPU_BUDGET_S if device.kind == "cuda" else CPU_BUDGET_S
    found = timed(call, device, budget_s, sample_s=SAMPLE_S)
    return {"rate": work / found.seconds, "best": work / found.best_s, "repetitions": found.repeats}
