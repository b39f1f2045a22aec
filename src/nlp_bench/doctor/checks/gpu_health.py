"""What the GPUs remember of faults, and what slows them at this moment.

NVML's nvmlDeviceGetTotalEccErrors (volatile: since the driver was loaded), nvmlDeviceGetRetiredPagesPendingStatus (before Ampere),
nvmlDeviceGetRemappedRows (since Ampere: corrected, uncorrected, pending, failed), nvmlDeviceGetNvLinkState. Remedies: NVIDIA's "GPU Memory Error Management" and "Dynamic Page Retirement".
"""

from typing import Any

from nlp_bench.doctor.finding import Finding, failed, ok, skipped, together, warning
from nlp_bench.doctor.place import Place
from nlp_bench.machine.nvml import THROTTLE_REASONS, Nvml

UNCORRECTED, VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC."""
MAX_LINKS = 18
"""NVML_NVLINK_MAX_LINKS."""


def check(place: Place) -> Finding:
    """Fail for memory faults that will end a run, warn of what makes a GPU slow."""
    if place.no_gpu_here:
        return skipped(place.no_gpu_here)
    if place.nvml is None or not place.nvml.handles:
        return skipped(f"no GPU to ask: {place.no_nvml or 'the driver lists none'}")
    found = [one for index in range(len(place.nvml.handles)) for one in _gpu(place.nvml, index)]
    links = [_links(place.nvml, handle) for handle in place.nvml.handles]
    if len(set(links)) > 1:
        found.append(
            warning(
                f"active NVLinks differ between the GPUs: {', '.join(map(str, links))}",
                remedy="nvidia-smi nvlink --status",
            )
        )
    facts = [f"active NVLinks per GPU: {links[0]}"] if links[0] is not None and len(set(links)) == 1 else []
    return together([*found, ok("", *facts)], f"{len(links)} GPU(s) without a remembered fault, not throttled")


def _gpu(nvml: Nvml, index: int) -> list[Finding]:
    handle, found = nvml.handles[index], []
    errors = nvml.maybe("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE)
    if errors:
        found.append(
            failed(f"GPU {index}: {errors} uncorrected ECC error(s) since the driver was loaded", remedy=_reset(index))
        )
    if nvml.maybe("nvmlDeviceGetRetiredPagesPendingStatus", handle):
        found.append(failed(f"GPU {index}: a memory page waits to be retired", remedy=_reset(index)))
    found += _rows(nvml, index)
    gpu = nvml.gpu(index)
    if gpu["ecc_mode"] is False:
        found.append(
            warning(
                f"GPU {index}: ECC is off: a flipped bit would not be noticed", remedy=f"nvidia-smi -i {index} -e 1"
            )
        )
    limit, usual = gpu["power_limit_w"], gpu["default_power_limit_w"]
    if limit and usual and limit < usual:
        found.append(
            warning(
                f"GPU {index}: power limit {limit:g} W instead of {usual:g} W",
                remedy=f"nvidia-smi -i {index} -pl {usual:g}",
            )
        )
    energy, power, clock, throttle, celsius = nvml.sample(handle)
    del energy
    reasons = [text for bit, text in THROTTLE_REASONS.items() if int(throttle or 0) & bit]
    if reasons:
        seen = f"GPU {index}: {clock or '?'} MHz, {power or '?'} W, {celsius or '?'} degrees Celsius"
        found.append(
            warning(
                f"GPU {index} is slowed: {', '.join(reasons)}", seen, remedy=f"nvidia-smi -i {index} -q -d PERFORMANCE"
            )
        )
    return found


def _rows(nvml: Nvml, index: int) -> list[Finding]:
    *_, is_pending, is_broken = nvml.maybe("nvmlDeviceGetRemappedRows", nvml.handles[index]) or (0, 0)
    found = []
    if is_broken:
        found.append(
            failed(f"GPU {index}: remapping a memory row failed", remedy="the board has to be replaced: tell the site")
        )
    if is_pending:
        found.append(failed(f"GPU {index}: a memory row waits to be remapped", remedy=_reset(index)))
    return found


def _links(nvml: Nvml, handle: Any) -> int | None:
    states = [nvml.maybe("nvmlDeviceGetNvLinkState", handle, link) for link in range(MAX_LINKS)]
    known = [state for state in states if state is not None]
    return sum(known) if known else None


def _reset(index: int) -> str:
    return f"ask the site to reset the GPU (nvidia-smi -i {index} --gpu-reset) or to take the node out"
