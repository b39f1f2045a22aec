"""The meters of one node: its GPUs by NVML, its CPU packages by RAPL, and why one is missing.

RAPL: Linux, Documentation/power/powercap/powercap.rst and the driver intel_rapl (which serves AMD's processors, too): each zone has
`name`, `energy_uj` and `max_energy_range_uj`, at which the counter wraps around. Since Linux 5.10 `energy_uj` is for root alone.
"""

from pathlib import Path
from typing import Any

from nlp_bench.immutable import immutable
from nlp_bench.machine.form import header
from nlp_bench.machine.node import load_1min, text_of
from nlp_bench.machine.nvml import MIG, Nvml, NvmlError, visible_gpus


@immutable(kw_only=False)
class Package:
    """One CPU package whose counter can be read."""

    name: str  # name of the zone, "package-0"
    counter: Path  # its file `energy_uj`
    range_uj: int  # the counter wraps around after this many microjoules

    def energy_uj(self) -> int | None:
        """Return the counter in microjoules, None when it cannot be read at present."""
        return _number(self.counter)


def packages(root: Path) -> tuple[list[Package], str | None]:
    """Return the CPU packages of the node whose file system begins at `root`, and why there are none."""
    # Sub-zones (core, uncore, dram) are parts of a package or next to it, psys covers them all: one boundary, no double count.
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*/name"))
    found = {path.parent: name for path in zones if (name := text_of(path).strip()).startswith("package")}
    if not found:
        return [], "no RAPL on this node (no package in /sys/class/powercap)"
    if any(_number(zone / "energy_uj") is None for zone in found):
        return [], "RAPL cannot be read by this user (energy_uj in /sys/class/powercap; an administrator can allow it)"
    read = [
        Package(name, zone / "energy_uj", _number(zone / "max_energy_range_uj") or 0) for zone, name in found.items()
    ]
    return read, None


def _number(path: Path) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else None


class Meters:
    """What can be read on this node while the ranks run."""

    def __init__(self, root: Path, *, num_gpus: int, visible: str | None) -> None:
        """Find the GPUs of `num_gpus` ranks (0: none) and the CPU packages below `root`.

        `visible` is CUDA_VISIBLE_DEVICES.
        """
        self._root = root
        self._nvml: Nvml | None = None
        self.gpus: list[dict[str, Any]] = []
        self.reasons: list[str] = []
        if num_gpus:
            self._find_gpus(num_gpus, visible)
        else:
            self.reasons.append("the run uses no GPU")
        self._packages, why = packages(root)
        if why:
            self.reasons.append(why)

    def _find_gpus(self, num_gpus: int, visible: str | None) -> None:
        try:
            self._nvml = nvml = Nvml()
        except NvmlError as error:
            # A meter of AMD's GPUs (amdsmi) is not implemented: their nodes are recognised by their driver.
            is_amd = (self._root / "dev/kfd").exists()
            self.reasons.append("AMD GPUs: their meter (amdsmi) is not implemented" if is_amd else str(error))
            return
        every = [nvml.gpu(index) for index in range(len(nvml.handles))]
        is_part = (visible or "").lstrip().startswith(MIG)  # of a board, which has no meter of its own
        used = [] if is_part else (visible_gpus(visible, nvml) or [])[:num_gpus]
        self.gpus = [{**gpu, "is_used": gpu["index"] in used} for gpu in every]
        if len(used) < num_gpus:
            self.reasons.append(f"NVML shows {len(used)} of the {num_gpus} GPUs of the ranks")
        for gpu in self._used:
            if gpu["no_energy_counter"]:
                self.reasons.append(f"GPU {gpu['index']} has no energy counter ({gpu['no_energy_counter']})")

    @property
    def _used(self) -> list[dict[str, Any]]:
        return [gpu for gpu in self.gpus if gpu["is_used"]]

    @property
    def columns(self) -> list[str]:
        """The names of the values of `sample`, after the time."""
        return header([gpu["index"] for gpu in self._used], len(self._packages))[1:]

    def sample(self) -> list[float | None]:
        """Return the values of this moment."""
        values = [load_1min(self._root)]
        if self._nvml:
            for gpu in self._used:
                values += self._nvml.sample(self._nvml.handles[gpu["index"]])
        return values + [package.energy_uj() for package in self._packages]

    def to_json(self) -> dict[str, Any]:
        """Return versions of the driver and the objects `gpus`, `cpu_packages` and `no_meter` of nlp-bench/machine/1."""
        has_meter = bool(self._packages) or any(not gpu["no_energy_counter"] for gpu in self._used)
        return {
            **(self._nvml.driver() if self._nvml else {}),
            "gpus": self.gpus,
            "cpu_packages": [{"name": p.name, "range_uj": p.range_uj} for p in self._packages],
            "no_meter": None if has_meter else f"no meter: {'; '.join(self.reasons)}",
            "meter_remarks": self.reasons if has_meter else [],
        }
