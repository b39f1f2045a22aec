"""The GPUs of this node by NVIDIA's management library, which every driver brings along: no package is needed.

Names, argument types, units and bit masks are those of NVIDIA's nvml.h (NVML API reference, "Device Queries", "System Queries").
The energy counter exists since Volta and counts from the last time that the driver was loaded.
"""

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK, MEMORY_CLOCK, GPU_SENSOR = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU."""
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
"""Bits of nvmlClocksThrottleReasons (since R535 nvmlClocksEventReasons) that make a GPU slower than its clocks allow; the others
(idle, application clocks, sync boost, display) are settings."""
_WORDS = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE


class NvmlError(Exception):
    """The library is not there, or says no."""


class Nvml:
    """NVML, started; a question that it does not answer is None."""

    def __init__(self, path: str = LIBRARY) -> None:
        """Load the library at `path` and start it. Raises NvmlError that says why there are no GPUs to ask."""
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlError(f"no NVIDIA driver on this node ({path} cannot be loaded)") from error
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.handles = [self._handle(index) for index in range(count.value)]

    def _handle(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def _call(self, name: str, *words: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(f"{name} is not in this driver")
        status = function(*words)
        if status:
            raise NvmlError(f"{name}: {self._error(status)}")

    def _error(self, status: int) -> str:
        text = getattr(self._library, "nvmlErrorString", None)
        if text is None:
            return f"error {status}"
        text.restype = ctypes.c_char_p
        return str((text(status) or b"").decode(errors="replace")) or f"error {status}"

    def number(self, name: str, *words: Any, kind: Any = ctypes.c_uint) -> int:
        """Return what the function `name` writes behind its last argument. Raises NvmlError when it does not answer."""
        value = kind()
        self._call(name, *words, ctypes.byref(value))
        return int(value.value)

    def text(self, name: str, *words: Any) -> str | None:
        """Return what the function `name` writes into a buffer, None when it does not answer."""
        buffer = ctypes.create_string_buffer(_WORDS)
        try:
            self._call(name, *words, buffer, ctypes.c_uint(_WORDS))
        except NvmlError:
            return None
        return buffer.value.decode(errors="replace")

    def maybe(self, name: str, *words: Any, divisor: float = 1) -> float | None:
        """Return `number` / `divisor`, None when it does not answer."""
        try:
            value = self.number(name, *words)
        except NvmlError:
            return None
        return value / divisor if divisor != 1 else value

    def energy_mj(self, handle: ctypes.c_void_p) -> int:
        """Return the energy in mJ since the driver was loaded. Raises NvmlError where the GPU has no such counter."""
        return self.number("nvmlDeviceGetTotalEnergyConsumption", handle, kind=ctypes.c_ulonglong)

    def sample(self, handle: ctypes.c_void_p) -> list[float | None]:
        """Return energy in mJ, power in W, SM clock in MHz, bits of the throttle reasons and temperature in degrees Celsius."""
        return [
            _answer(self.energy_mj, handle),
            self.maybe("nvmlDeviceGetPowerUsage", handle, divisor=1000),
            self.maybe("nvmlDeviceGetClockInfo", handle, ctypes.c_int(SM_CLOCK)),
            _answer(self._throttle, handle),
            self.maybe("nvmlDeviceGetTemperature", handle, ctypes.c_int(GPU_SENSOR)),
        ]

    def _throttle(self, handle: ctypes.c_void_p) -> int:
        try:
            return self.number("nvmlDeviceGetCurrentClocksEventReasons", handle, kind=ctypes.c_ulonglong)
        except NvmlError:  # before R535 under its first name
            return self.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle, kind=ctypes.c_ulonglong)

    def gpu(self, index: int) -> dict[str, Any]:
        """Return what GPU `index` is: name, UUID, limits in W, clocks in MHz, modes; None where it does not say."""
        handle = self.handles[index]
        facts: dict[str, Any] = {
            "index": index,
            "name": self.text("nvmlDeviceGetName", handle),
            "uuid": self.text("nvmlDeviceGetUUID", handle),
            "power_limit_w": self.maybe("nvmlDeviceGetEnforcedPowerLimit", handle, divisor=1000),
            "default_power_limit_w": self.maybe("nvmlDeviceGetPowerManagementDefaultLimit", handle, divisor=1000),
            "sm_clock_mhz": self.maybe("nvmlDeviceGetClockInfo", handle, ctypes.c_int(SM_CLOCK)),
            "application_sm_clock_mhz": self.maybe("nvmlDeviceGetApplicationsClock", handle, ctypes.c_int(SM_CLOCK)),
            "max_sm_clock_mhz": self.maybe("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_int(SM_CLOCK)),
            "max_memory_clock_mhz": self.maybe("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_int(MEMORY_CLOCK)),
            "persistence_mode": _flag(self.maybe("nvmlDeviceGetPersistenceMode", handle)),
            "ecc_mode": self._ecc(handle),
        }
        try:
            self.energy_mj(handle)
            facts["no_energy_counter"] = None
        except NvmlError as error:
            facts["no_energy_counter"] = str(error)
        return facts

    def _ecc(self, handle: ctypes.c_void_p) -> bool | None:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call("nvmlDeviceGetEccMode", handle, ctypes.byref(current), ctypes.byref(pending))
        except NvmlError:
            return None
        return bool(current.value)

    def driver(self) -> dict[str, str | None]:
        """Return the versions of the driver, of the CUDA that it supports, and of NVML."""
        cuda = self.maybe("nvmlSystemGetCudaDriverVersion_v2")
        return {
            "driver": self.text("nvmlSystemGetDriverVersion"),
            "cuda_driver": None if cuda is None else f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}",
            "nvml": self.text("nvmlSystemGetNVMLVersion"),
        }


def _answer(question: Any, handle: ctypes.c_void_p) -> float | None:
    try:
        return int(question(handle))
    except NvmlError:
        return None


def _flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def used_gpus(visible: str | None, uuids: list[str], num_ranks: int) -> list[int]:
    """Return the NVML indices of the GPUs that `num_ranks` ranks take: the first ones of CUDA_VISIBLE_DEVICES, else of the node.

    `visible` holds indices or the beginnings of UUIDs; as in CUDA, the first word that names no GPU ends the list. A word
    `MIG-...` names a part of a board, which has no meter of its own.
    """
    if visible is None:
        return list(range(min(num_ranks, len(uuids))))
    found: list[int] = []
    for word in (part.strip() for part in visible.split(",")):
        if word.isdecimal():
            index = int(word) if int(word) < len(uuids) else None
        else:
            index = next((i for i, uuid in enumerate(uuids) if word and uuid.startswith(word)), None)
        if index is None or index in found:
            break
        found.append(index)
    return found[:num_ranks]
