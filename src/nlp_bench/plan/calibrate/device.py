"""What is measured: a CUDA GPU, or the CPU through the same operators."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nlp_bench.errors import UsageError

KINDS = ("auto", "cpu", "cuda")


class Device(Protocol):
    """An accelerator under torch."""

    @property
    def kind(self) -> str:
        """Return cpu or cuda."""

    @property
    def name(self) -> str:
        """Return the product name, as its driver or Linux says it."""

    @property
    def place(self) -> Any:
        """Return torch's device."""

    def elapsed(self, call: Callable[[], object], calls: int, *, waits: bool = False) -> float:
        """Return the seconds of `calls` calls, one after the other, until the last has ended; `waits`: for other ranks, too."""

    def free_bytes(self) -> int:
        """Return the memory that is free now."""

    def total_bytes(self) -> int:
        """Return the memory of the device."""

    def release(self) -> None:
        """Give memory back that is not used."""

    def state(self) -> str:
        """Return clock, temperature, load: what else may explain a number."""


def pick(kind: str, local_rank: int = 0) -> Device:
    """Return the device of this rank. Raises UsageError where there is no GPU and one is asked for."""
    import torch  # noqa: PLC0415  # takes seconds, --help must not

    found = torch.cuda.is_available()
    if kind == "cuda" and not found:
        raise UsageError(
            "--device cuda: torch sees no GPU here; look at the driver (nvidia-smi) and whether the environment holds a CPU build "
            "of torch, or measure the processor with --device cpu"
        )
    if found and kind != "cpu":
        if local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"--device: rank {local_rank} of this node has no GPU, torch sees {torch.cuda.device_count()}"
            )
        torch.cuda.set_device(local_rank)
        return Cuda(local_rank)
    return Cpu()


@dataclass(frozen=True)
class Cpu:
    """The processor, with the threads that torch was told to use (OMP_NUM_THREADS)."""

    kind: str = "cpu"

    @property
    def name(self) -> str:
        """Linux' model name and the threads, since a rank with two threads is another accelerator than one with one."""
        import torch  # noqa: PLC0415  # as above

        from nlp_bench.machine.node import cpu_model  # noqa: PLC0415  # as above

        threads = torch.get_num_threads()
        return f"CPU {cpu_model() or os.uname().machine}, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def place(self) -> Any:
        """The CPU of torch."""
        import torch  # noqa: PLC0415  # as above

        return torch.device("cpu")

    def elapsed(self, call: Callable[[], object], calls: int, *, waits: bool = False) -> float:
        """Return the thread's own processor time: what other processes take of the core does not count.

        Several threads, and ranks that wait for each other, are timed by the monotonic clock. Operators on a CPU have ended when
        they return.
        """
        import torch  # noqa: PLC0415  # as above

        clock = time.perf_counter if waits or torch.get_num_threads() > 1 else time.thread_time
        begin = clock()
        for _ in range(calls):
            call()
        return clock() - begin

    def free_bytes(self) -> int:
        """Return what Linux calls available."""
        return _memory("MemAvailable")

    def total_bytes(self) -> int:
        """Return the node's memory."""
        return _memory("MemTotal")

    def release(self) -> None:
        """Do nothing: the allocator gives back at once."""

    def state(self) -> str:
        """Return the load: other processes on these cores slow everything down."""
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        busy = ", others were computing" if load > cores + 0.5 else ""
        return f"load {load:.1f} on {cores} cores{busy}"


class Cuda:
    """One GPU, timed by CUDA events, which the GPU itself records."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        """Take GPU `index` of those that torch sees."""
        import torch  # noqa: PLC0415  # as above

        self._torch: Any = torch
        self.place = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)

    def elapsed(self, call: Callable[[], object], calls: int, *, waits: bool = False) -> float:  # noqa: ARG002  # CPUs need it
        """Return the time between two events around the calls (torch.cuda.Event; milliseconds, resolution about 0.5 us)."""
        cuda = self._torch.cuda
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def free_bytes(self) -> int:
        """Return what the driver has left."""
        return int(self._torch.cuda.mem_get_info(self.place)[0])

    def total_bytes(self) -> int:
        """Return what the driver says the GPU has."""
        return int(self._torch.cuda.mem_get_info(self.place)[1])

    def release(self) -> None:
        """Give cached blocks back to the driver."""
        self._torch.cuda.empty_cache()

    def state(self) -> str:
        """Return clock, power, temperature and what throttles, by NVML."""
        from nlp_bench.machine.nvml import THROTTLE_REASONS, Nvml, NvmlError  # noqa: PLC0415  # needs a driver

        uuid = str(getattr(self._torch.cuda.get_device_properties(self.place), "uuid", ""))
        try:
            nvml = Nvml()
            ids = [nvml.text("nvmlDeviceGetUUID", handle) or "" for handle in nvml.handles]
            chosen = next((h for h, own in zip(nvml.handles, ids, strict=True) if uuid and uuid in own), None)
            if chosen is None:
                return "clocks unknown: NVML does not list this GPU"
            _, watts, clock, bits, celsius = nvml.sample(chosen)
        except NvmlError as error:
            return f"clocks unknown: {error}"
        slowed = [reason for bit, reason in THROTTLE_REASONS.items() if int(bits or 0) & bit]
        return f"{clock} MHz, {watts} W, {celsius} degrees Celsius" + (f", {', '.join(slowed)}" if slowed else "")


def _memory(name: str) -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{name}:"))
