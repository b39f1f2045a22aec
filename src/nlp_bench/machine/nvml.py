"""The GPUs of this node by NVIDIA's management library, through NVIDIA's own binding of it (nvidia-ml-py).

Functions and units are those of the NVML API reference, "Device Queries" and "System Queries".
The energy counter exists since Volta and counts from the last time that the driver was loaded.
"""

from typing import Any

from nlp_bench.packages import remedy

MIG = "MIG-"  # beginning of the name of a part of a board in CUDA_VISIBLE_DEVICES
SM_CLOCK, MEMORY_CLOCK, GPU_SENSOR = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
"""Bits of nvmlClocksThrottleReasons (since R535 nvmlClocksEventReasons) that make a GPU slower than its clocks allow; the others
(idle, application clocks, sync boost, display) are settings."""
_FACTS: tuple[tuple[str, str, tuple[int, ...], int], ...] = (
    ("name", "nvmlDeviceGetName", (), 1),
    ("uuid", "nvmlDeviceGetUUID", (), 1),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), 1000),
    ("default_power_limit_w", "nvmlDeviceGetPowerManagementDefaultLimit", (), 1000),
    ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (SM_CLOCK,), 1),
    ("application_sm_clock_mhz", "nvmlDeviceGetApplicationsClock", (SM_CLOCK,), 1),
    ("max_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", (SM_CLOCK,), 1),
    ("max_memory_clock_mhz", "nvmlDeviceGetMaxClockInfo", (MEMORY_CLOCK,), 1),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", (), 1),
    ("ecc_mode", "nvmlDeviceGetEccMode", (), 1),
)
"""Field of machine/NODE.json, the function that returns it, its arguments after the device, and the divisor of its result."""


class NvmlError(Exception):
    """NVML is not available, or a GPU does not support a query."""


class Nvml:
    """NVML, started."""

    def __init__(self) -> None:
        """Load and start it. Raises NvmlError that says why there are no GPUs."""
        try:
            import pynvml  # noqa: PLC0415  # a node without GPUs needs none
        except ImportError as error:
            raise NvmlError(f"the Python package nvidia-ml-py is not installed: {remedy('pynvml')}") from error
        self._binding: Any = pynvml
        try:
            self.ask("nvmlInit")
        except NvmlError as error:
            if isinstance(error.__cause__, self._binding.NVMLError_LibraryNotFound):
                raise NvmlError("no NVIDIA driver on this node (libnvidia-ml.so.1 cannot be loaded)") from error
            raise
        self.handles = [self.ask("nvmlDeviceGetHandleByIndex", i) for i in range(self.ask("nvmlDeviceGetCount"))]
        """The devices, as the binding's functions take them."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return what the binding's function `name` returns. Raises NvmlError where there is no answer."""
        try:
            return getattr(self._binding, name)(*arguments)
        except (self._binding.NVMLError, UnicodeError) as error:
            raise NvmlError(f"{name}: {error}") from error

    def maybe(self, name: str, *arguments: Any, divisor: float = 1) -> Any:
        """Return what `ask` returns, a number divided by `divisor`; None where there is no answer."""
        try:
            value = self.ask(name, *arguments)
        except NvmlError:
            return None
        return value / divisor if divisor != 1 else value

    def sample(self, handle: Any) -> list[float | None]:
        """Return energy in mJ, power in W, SM clock in MHz, bits of the throttle reasons and temperature in degrees Celsius."""
        throttle = self.maybe("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if throttle is None:  # before R535 under its first name
            throttle = self.maybe("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return [
            self.maybe("nvmlDeviceGetTotalEnergyConsumption", handle),
            self.maybe("nvmlDeviceGetPowerUsage", handle, divisor=1000),
            self.maybe("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
            throttle,
            self.maybe("nvmlDeviceGetTemperature", handle, GPU_SENSOR),
        ]

    def gpu(self, index: int) -> dict[str, Any]:
        """Return what GPU `index` is: name, UUID, limits in W, clocks in MHz, modes; None where it does not report one."""
        handle = self.handles[index]
        facts: dict[str, Any] = {"index": index}
        for name, function, arguments, divisor in _FACTS:
            facts[name] = self.maybe(function, handle, *arguments, divisor=divisor)
        mode, ecc = facts["persistence_mode"], facts["ecc_mode"]
        facts["persistence_mode"] = None if mode is None else bool(mode)
        facts["ecc_mode"] = None if ecc is None else bool(ecc[0])  # current, pending
        try:
            self.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
            facts["no_energy_counter"] = None
        except NvmlError as error:
            facts["no_energy_counter"] = str(error)
        return facts

    def driver(self) -> dict[str, str | None]:
        """Return the versions of the driver, of the CUDA that it supports, and of NVML."""
        cuda = self.maybe("nvmlSystemGetCudaDriverVersion_v2")
        return {
            "driver": self.maybe("nvmlSystemGetDriverVersion"),
            "cuda_driver": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "nvml": self.maybe("nvmlSystemGetNVMLVersion"),
        }


def visible_gpus(visible: str | None, nvml: Nvml | None) -> list[int | None] | None:
    """Return the NVML index of each GPU that a process will see, in CUDA's order by PCI bus; None where nothing tells.

    `visible` is CUDA_VISIBLE_DEVICES. Of a MIG device it is the index of its board. Without a driver to ask, the words are counted and
    the indices are None. Rules: CUDA C++ Programming Guide, "CUDA Environment Variables" (indices, beginnings of UUIDs, the first word that
    fits nothing ends the list), NVIDIA MIG User Guide, "CUDA Device Enumeration" (a process sees one MIG device).
    """
    if visible is None:
        return None if nvml is None else list(range(len(nvml.handles)))
    words = [word.strip() for word in visible.split(",")]
    known = [_device(nvml, word) for word in words]
    end = next((i for i, device in enumerate(known) if device is None or device in known[:i]), len(words))
    if words[0].startswith(MIG):
        end = min(end, 1)
    return [index for device in known[:end] if device is not None for index in device[1:]]


def _device(nvml: Nvml | None, word: str) -> tuple[str, int | None] | None:
    """Return what `word` of CUDA_VISIBLE_DEVICES means: a name that is unique, and the index if known; None: nothing."""
    if nvml is None:
        is_good = word.isdecimal() or word.startswith(("GPU-", MIG))
        return (word, None) if is_good else None
    if word.startswith(MIG):
        return _mig(nvml, word)
    if word.isdecimal():
        found = [int(word)] if int(word) < len(nvml.handles) else []
    else:
        uuids = [nvml.maybe("nvmlDeviceGetUUID", handle) or "" for handle in nvml.handles]
        found = [index for index, uuid in enumerate(uuids) if word and uuid.startswith(word)]
    return (str(found[0]), found[0]) if len(found) == 1 else None


def _mig(nvml: Nvml, word: str) -> tuple[str, int | None] | None:
    try:
        part = nvml.ask("nvmlDeviceGetHandleByUUID", word)
        board = nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
    except NvmlError:
        return None
    return word, nvml.maybe("nvmlDeviceGetIndex", board)
