"""The meters of one node: its GPUs, its CPU packages, and why one is missing."""

from pathlib import Path
from typing import Any

from nlp_bench.machine.form import header
from nlp_bench.machine.node import load_1min
from nlp_bench.machine.nvml import Nvml, NvmlError, used_gpus
from nlp_bench.machine.rapl import packages


class Meters:
    """What can be read on this node while the ranks run."""

    def __init__(self, root: Path, *, num_gpus: int, visible: str | None, library: str) -> None:
        """Look for the GPUs of `num_gpus` ranks (0: none is asked for) and for the CPU packages below `root`."""
        self._root = root
        self._nvml: Nvml | None = None
        self.gpus: list[dict[str, Any]] = []
        self.driver: dict[str, str | None] = {}
        self.reasons: list[str] = []
        if num_gpus:
            self._look_for_gpus(num_gpus, visible, library)
        else:
            self.reasons.append("the run uses no GPU")
        self._packages, why = packages(root)
        if why:
            self.reasons.append(why)

    def _look_for_gpus(self, num_gpus: int, visible: str | None, library: str) -> None:
        try:
            nvml = Nvml(library)
        except NvmlError as error:
            # A meter of AMD's GPUs (amdsmi) is not implemented: their nodes are told apart by their driver.
            is_amd = (self._root / "dev/kfd").exists()
            self.reasons.append("AMD GPUs: their meter (amdsmi) is not implemented" if is_amd else str(error))
            return
        self._nvml = nvml
        self.driver = nvml.driver()
        every = [nvml.gpu(index) for index in range(len(nvml.handles))]
        used = used_gpus(visible, [gpu["uuid"] or "" for gpu in every], num_gpus)
        self.gpus = [{**gpu, "is_used": gpu["index"] in used} for gpu in every]
        if len(used) < num_gpus:
            self.reasons.append(f"NVML shows {len(used)} of the {num_gpus} GPUs of the ranks")
        self.reasons += [
            f"GPU {gpu['index']} has no energy counter ({gpu['no_energy_counter']})"
            for gpu in self._used
            if gpu["no_energy_counter"]
        ]

    @property
    def _used(self) -> list[dict[str, Any]]:
        return [gpu for gpu in self.gpus if gpu["is_used"]]

    @property
    def columns(self) -> list[str]:
        """The names of the values of `sample`, after the time."""
        return header([gpu["index"] for gpu in self._used], len(self._packages))[1:]

    def sample(self) -> list[float | None]:
        """Return the values of this moment."""
        values: list[float | None] = [load_1min(self._root)]
        for gpu in self._used if self._nvml else []:
            assert self._nvml  # noqa: S101  # for the type checker
            values += self._nvml.sample(self._nvml.handles[gpu["index"]])
        return values + [package.energy_uj() for package in self._packages]

    def to_json(self) -> dict[str, Any]:
        """Return the objects `gpus`, `cpu_packages` and `no_meter` of nlp-bench/machine/1."""
        has_meter = bool(self._packages) or any(not gpu["no_energy_counter"] for gpu in self._used)
        why = "; ".join(self.reasons)
        return {
            **self.driver,
            "gpus": self.gpus,
            "cpu_packages": [{"name": p.name, "range_uj": p.range_uj} for p in self._packages],
            "no_meter": None if has_meter else f"no meter: {why}",
            "meter_remarks": self.reasons if has_meter else [],
        }
