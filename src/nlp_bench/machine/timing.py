"""How long calls take on a device, by torch: on a CUDA GPU, or on the CPU through the same operators."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.machine.node import cpu_model, memory_bytes
from nlp_bench.machine.nvml import THROTTLE_REASONS, Nvml, NvmlError

MIN_SAMPLE_S = 5e-4  # a sample is as many calls as last so long: clocks and events resolve about a microsecond
MIN_REPEATS, MAX_REPEATS = 3, 100
MAX_CALLS = 10_000


class Cpu:
    """The processor, with the threads that torch uses (OMP_NUM_THREADS)."""

    kind = "cpu"

    def __init__(self) -> None:
        import torch  # noqa: PLC0415  # takes seconds, --help must not

        self._torch: Any = torch
        self.place = torch.device("cpu")

    @property
    def name(self) -> str:
        """Linux' model name and the threads: a rank with two is another accelerator than one with one."""
        threads = self._torch.get_num_threads()
        return f"CPU {cpu_model() or os.uname().machine}, {threads} thread{'s' if threads > 1 else ''}"

    def elapsed(self, call: Callable[[], object], calls: int, *, waits: bool = False) -> float:
        """Return the seconds of `calls` calls: the thread's own processor time, so that other processes on the core do not count.

        Several threads, and ranks that wait for each other (`waits`), are timed by the monotonic clock. Operators on a CPU have
        ended when they return.
        """
        clock = time.perf_counter if waits or self._torch.get_num_threads() > 1 else time.thread_time
        start = clock()
        for _ in range(calls):
            call()
        return clock() - start

    def memory(self) -> tuple[int, int]:
        """Return the bytes that Linux calls available, and those of the node."""
        return memory_bytes("MemAvailable") or 0, memory_bytes("MemTotal") or 0

    def release(self) -> None:
        """Do nothing: the allocator returns memory at once."""

    def state(self) -> str:
        """Return the load: other processes on these cores slow everything down."""
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        busy = ", others were computing" if load > cores + 0.5 else ""
        return f"load {load:.1f} on {cores} cores{busy}"


class Cuda:
    """One GPU, timed by CUDA events, which the GPU itself records."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        import torch  # noqa: PLC0415  # as above

        self._torch: Any = torch
        self.place = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)

    def elapsed(self, call: Callable[[], object], calls: int, *, waits: bool = False) -> float:  # noqa: ARG002  # CPUs need it
        """Return the seconds of `calls` calls by two events around them (torch.cuda.Event; resolution about 0.5 us)."""
        cuda = self._torch.cuda
        with cuda.device(self.place):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            cuda.synchronize()
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def memory(self) -> tuple[int, int]:
        """Return the bytes that the driver has free, and those of the GPU."""
        free, total = self._torch.cuda.mem_get_info(self.place)
        return int(free), int(total)

    def release(self) -> None:
        """Give cached blocks back to the driver."""
        self._torch.cuda.empty_cache()

    def state(self) -> str:
        """Return clock, power, temperature and what throttles, by NVML."""
        uuid = str(getattr(self._torch.cuda.get_device_properties(self.place), "uuid", ""))
        try:
            nvml = Nvml()
        except NvmlError as error:
            return f"clocks unknown: {error}"
        own = [h for h in nvml.handles if uuid and uuid in (nvml.maybe("nvmlDeviceGetUUID", h) or "")]
        if not own:
            return "clocks unknown: NVML does not list this GPU"
        _, watts, clock, bits, celsius = nvml.sample(own[0])
        slowed = [reason for bit, reason in THROTTLE_REASONS.items() if int(bits or 0) & bit]
        return ", ".join([f"{clock} MHz, {watts} W, {celsius} degrees Celsius", *slowed])


Device = Cpu | Cuda


def pick(kind: str, local_rank: int = 0) -> Device:
    """Return the device of this rank; `kind` is auto, cpu or cuda. Raises UsageError where `kind` is cuda and there is no GPU."""
    import torch  # noqa: PLC0415  # as above

    found = torch.cuda.is_available()
    if kind == "cuda" and not found:
        raise UsageError(
            "--device cuda: torch sees no GPU here; look at the driver (nvidia-smi) and whether the environment holds a CPU build "
            "of torch, or measure the processor with --device cpu"
        )
    if not found or kind == "cpu":
        return Cpu()
    if local_rank >= torch.cuda.device_count():
        raise UsageError(f"--device: rank {local_rank} of this node has no GPU, torch sees {torch.cuda.device_count()}")
    torch.cuda.set_device(local_rank)
    return Cuda(local_rank)


@immutable
class Timing:
    """How long one call takes."""

    seconds: float  # median over the repetitions
    best_s: float
    spread: float  # half the interquartile range / median: robust against a few disturbed repetitions
    repeats: int
    calls: int


def timed(
    call: Callable[[], object],
    device: Device,
    budget_s: float,
    agree: Callable[[Any], Any] | None = None,
    *,
    sample_s: float = MIN_SAMPLE_S,
) -> Timing:
    """Time `call`, which was called before, for about `budget_s` seconds: repetitions of `sample_s` seconds, at least MIN_REPEATS.

    `agree` is for several ranks that wait for each other in the call: it returns the first one's value, so that all repeat as often.
    """
    once = max(device.elapsed(call, 1, waits=agree is not None), 1e-9)
    calls = min(MAX_CALLS, max(1, round(sample_s / once)))
    repeats = int(min(MAX_REPEATS, max(MIN_REPEATS, budget_s / (once * calls))))
    if agree is not None:
        calls, repeats = agree((calls, repeats))
    return summary([device.elapsed(call, calls, waits=agree is not None) / calls for _ in range(repeats)], calls)


def summary(seconds: Sequence[float], calls: int) -> Timing:
    """Return median and spread of the seconds of one call, one value per repetition (at least two)."""
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    spread = (high - low) / 2 / middle
    return Timing(seconds=middle, best_s=min(seconds), spread=spread, repeats=len(seconds), calls=calls)
