"""A system file and the accelerators' table as the planner's machine."""

import re
from typing import Any

import numpy as np

from nlp_bench.config.system import System
from nlp_bench.errors import UsageError
from nlp_bench.plan.configurations import Machines
from nlp_bench.plan.constants import GENERATIONS, Constants, Measured
from nlp_bench.plan.sheets import Sheet, sheet_of

_TERA = 1e12


def machine_of(system: System, constants: Constants, precision: str) -> Machines:
    """Return the machine that a system file describes, every field a number (arrays of shape []).

    What `nlp-bench plan calibrate` measured (table [machine] of a constants file) stands in for the data sheet where its name is
    the GPU's, or where the system is a CPU's. Raises UsageError for a GPU that neither knows, a system without [gpu], and one whose
    [network] has no bandwidth; the message says what to write.
    """
    if not isinstance(system.gpus_per_node, int):
        raise UsageError(
            f'system.gpus_per_node: {system.name} says "auto", which is counted where the job runs; planning needs a number: --gpus-per-node N'
        )
    measured = constants.machine
    if system.gpu is None:
        if measured is None:
            raise UsageError(
                f"system.gpu: {system.name} has no [gpu], so that there is no data sheet to plan with; measure the machine: "
                "nlp-bench plan calibrate --output cpu.toml, then --constants cpu.toml"
            )
        return _measured_machine(measured, system, precision, fabric=_fabric(system, measured.link_gb_per_s * 1e9))
    if measured is not None and _same(measured.name, system.gpu.name):
        return _measured_machine(measured, system, precision, fabric=_fabric(system, None))
    sheet = sheet_of(system.gpu.name, precision, system.gpu.memory_gib)
    return machines(
        generation=sheet.generation,
        gpus_per_node=system.gpus_per_node,
        domain=domain_of(sheet, system.gpus_per_node),
        peak_flops=sheet.peak_flops,
        half_flops=sheet.half_flops,
        memory_bytes_per_s=sheet.memory_bytes_per_s,
        link_bytes_per_s=sheet.link_bytes_per_s,
        fabric_bytes_per_s=_fabric(system, None),
        memory_bytes=system.gpu.memory_gib * 2**30,
    )


def domain_of(sheet: Sheet, gpus_per_node: float) -> float:
    """Return the GPUs that NVLink joins: those of a node, more where a rack is one domain, fewer where bridges join pairs."""
    if sheet.domain is None:
        return gpus_per_node
    return float(sheet.domain)


def machines(*, generation: str, **numbers: Any) -> Machines:
    """Return machines of one generation from plain numbers."""
    arrays: dict[str, Any] = {name: np.asarray(value, dtype=np.float64) for name, value in numbers.items()}
    return Machines(gpu=np.asarray(GENERATIONS.index(generation)), **arrays)


def _measured_machine(measured: Measured, system: System, precision: str, *, fabric: float) -> Machines:
    peaks = measured.peak_tflops
    peak = peaks.get(precision)
    if peak is None:
        raise UsageError(
            f"[machine] {measured.name}: {precision} was not measured, only {', '.join(peaks)}; calibrate with --precision {precision}"
        )
    half = peak if precision == "fp32" else peaks.get("bf16", peaks.get("fp16", peak))
    return machines(
        generation="other",
        gpus_per_node=system.gpus_per_node,
        domain=system.gpus_per_node,
        peak_flops=peak * _TERA,
        half_flops=half * _TERA,
        memory_bytes_per_s=measured.memory_gb_per_s * 1e9,
        link_bytes_per_s=measured.link_gb_per_s * 1e9,
        fabric_bytes_per_s=fabric,
        memory_bytes=measured.memory_gib * 2**30,
    )


def _fabric(system: System, otherwise: float | None) -> float:
    network = system.network
    if network.links_per_node and network.link_gbit_per_s:
        return network.links_per_node * network.link_gbit_per_s * 1e9 / 8
    if otherwise is not None:
        return otherwise
    raise UsageError(
        f"system.network: {system.name} has no bandwidth; planning needs both lines: [network] links_per_node = ADAPTERS OF A NODE, "
        "link_gbit_per_s = RATE OF ONE IN ONE DIRECTION"
    )


def _same(one: str, other: str) -> bool:
    plain = [" ".join(re.sub(r"nvidia|amd", "", words.casefold()).split()) for words in (one, other)]
    return plain[0] in plain[1] or plain[1] in plain[0]
