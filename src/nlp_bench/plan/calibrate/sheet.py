"""What measured rates are shares of: a GPU's data sheet where it is known, else the rates themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.calibrate.fit import Constant
from nlp_bench.plan.calibrate.record import Calibration

LONELY_LINK = 10e9
"""Bytes per second that are written for the link where one rank measured alone; nothing that one rank does depends on it."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The whole that shares are of."""

    generation: str
    """Of the constants' GPUs; "other" where there is no data sheet."""
    peak_flops: float
    """FLOP/s in the number format that was measured most."""
    memory_bytes_per_s: float
    """Of the GPU's memory."""
    link_bytes_per_s: float
    """Between GPUs of a node, one direction."""
    measured: bool
    """Whether these are measurements, which table [machine] then holds."""
    machine: Mapping[str, Any]
    """Table [machine]."""


def reference_of(calibration: Calibration, constants: Mapping[str, Constant], system: str | None) -> Reference:
    """Return the data sheet of the GPU (of `system`, where that is given), or the measurements themselves.

    Raises NlpBenchError where products or copies were not measured, UsageError for a system that is not known or has another GPU.
    """
    if calibration.kind == "cuda":
        found = _from_sheet(calibration, system)
        if found:
            return found
    return _from_measurements(calibration, constants)


def _from_sheet(calibration: Calibration, system: str | None) -> Reference | None:
    from nlp_bench.plan.machines import sheet_of  # noqa: PLC0415  # reads the accelerators' table

    name, gib = calibration.device, calibration.memory_bytes / 2**30
    if system:
        name, gib = _gpu_of(system, name)
    try:
        sheet = sheet_of(name, calibration.precision, gib)
    except UsageError:
        return None  # not in the table: what was measured stands for it
    return Reference(
        generation=sheet.generation,
        peak_flops=sheet.half_flops,
        memory_bytes_per_s=sheet.memory_bytes_per_s,
        link_bytes_per_s=sheet.link_bytes_per_s,
        measured=False,
        machine={},
    )


def _gpu_of(system: str, device: str) -> tuple[str, float]:
    from nlp_bench.config.catalog import load_system  # noqa: PLC0415  # reads a file

    gpu = load_system(system).gpu
    if gpu is None:
        raise UsageError(f"--system {system}: has no [gpu], but a GPU was measured: {device}")
    return gpu.name, gpu.memory_gib


def _from_measurements(calibration: Calibration, constants: Mapping[str, Constant]) -> Reference:
    peaks = {name.partition(".")[2]: one.value for name, one in constants.items() if name.startswith("product_flops")}
    copied = constants.get("memory_bytes_per_s")
    if not peaks or copied is None:
        raise NlpBenchError(
            "calibrate: matrix products and copies are needed and were not both measured; give it more --minutes: "
            + "; ".join(calibration.skipped[:3])
        )
    link = constants["link_bytes_per_s"].value if "link_bytes_per_s" in constants else LONELY_LINK
    return Reference(
        generation="other",
        peak_flops=peaks.get(calibration.precision, next(iter(peaks.values()))),
        memory_bytes_per_s=copied.value,
        link_bytes_per_s=link,
        measured=True,
        machine={
            "name": calibration.device,
            "kind": "cpu" if calibration.kind == "cpu" else "gpu",
            "peak_tflops": {name: value / 1e12 for name, value in peaks.items()},
            "memory_gb_per_s": copied.value / 1e9,
            "link_gb_per_s": link / 1e9,
            "memory_gib": round(calibration.memory_bytes / 2**30, 1),
        },
    )
