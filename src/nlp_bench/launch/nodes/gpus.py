"""The GPUs that CUDA will show the ranks of this node, asked before torch starts.

Rules of CUDA_VISIBLE_DEVICES: CUDA C++ Programming Guide, "CUDA Environment Variables" (indices, beginnings of UUIDs, the first
word that fits nothing ends the list), NVIDIA MIG User Guide, "CUDA Device Enumeration" (a process sees one MIG device). What
Slurm sets: its gres guide and srun's manual page, "OUTPUT ENVIRONMENT VARIABLES".
"""

from collections.abc import Mapping
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.node import node_name
from nlp_bench.machine.nvml import Nvml, NvmlError

VISIBLE = "CUDA_VISIBLE_DEVICES"


def open_nvml() -> Nvml | None:
    """Return the driver's library, None on a node where it does not answer."""
    try:
        return Nvml()
    except NvmlError:
        return None


def visible_gpus(visible: str | None, nvml: Nvml | None) -> list[int | None] | None:
    """Return the PCI address of each GPU that a process will see, in CUDA's order by PCI bus; None where nothing tells.

    `visible` is CUDA_VISIBLE_DEVICES. Without a driver to ask, its words are counted and the addresses are None.
    """
    if visible is None:
        return None if nvml is None else [_address(nvml, handle) for handle in nvml.handles]
    words = [word.strip() for word in visible.split(",")]
    known = [_place(nvml, word) for word in words]
    end = next((i for i, place in enumerate(known) if place is None or place in known[:i]), len(words))
    if words[0].startswith("MIG-"):
        end = min(end, 1)
    return [address for place in known[:end] if place is not None for address in place[1:]]


def require_gpus(run: Run, gpus: list[int | None] | None, variables: Mapping[str, str]) -> None:
    """Refuse a node that shows its ranks fewer GPUs than there are ranks; one that says nothing is left to torch.

    Raises NlpBenchError quoting the variables that decide it.
    """
    wanted = run.parallel.gpus_per_node
    if gpus is None or len(gpus) >= wanted:
        return
    scheduler = get_scheduler(run.launch.launcher)
    deciding = [name for name in (VISIBLE, *scheduler.gpu_variables) if name in variables]
    told = ", ".join(f"{name}={variables[name]!r}" for name in deciding) or f"{VISIBLE} is not set"
    remedy = ", or ".join(filter(None, (scheduler.gpu_remedy, "start fewer ranks per node (--gpus-per-node)")))
    if variables.get(VISIBLE, "").lstrip().startswith("MIG-"):
        remedy = "CUDA shows a process one MIG device; start one rank per node (--gpus-per-node 1)"
    raise NlpBenchError(
        f"parallel.gpus_per_node: {wanted} rank(s) on node {node_name(variables)}, which shows them {len(gpus)} GPU(s): "
        f"{told}; {remedy}"
    )


def _place(nvml: Nvml | None, word: str) -> tuple[str, int | None] | None:
    """Return what `word` of CUDA_VISIBLE_DEVICES means: a name that is unique, and the PCI address if known; None: nothing."""
    if nvml is None:
        is_good = word.isdecimal() or word.startswith(("GPU-", "MIG-"))
        return (word, None) if is_good else None
    if word.startswith("MIG-"):
        return _mig(nvml, word)
    if word.isdecimal():
        found = [int(word)] if int(word) < len(nvml.handles) else []
    else:
        uuids = [nvml.maybe("nvmlDeviceGetUUID", handle) or "" for handle in nvml.handles]
        found = [index for index, uuid in enumerate(uuids) if word and uuid.startswith(word)]
    return (str(found[0]), _address(nvml, nvml.handles[found[0]])) if len(found) == 1 else None


def _mig(nvml: Nvml, word: str) -> tuple[str, int | None] | None:
    try:
        part = nvml.ask("nvmlDeviceGetHandleByUUID", word)
        board = nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
    except NvmlError:
        return None
    return word, _address(nvml, board)


def _address(nvml: Nvml, handle: Any) -> int | None:
    """Return domain, bus and device in one number, as `topology.gpu_node` takes it; a GPU is its device's function 0."""
    pci = nvml.maybe("nvmlDeviceGetPciInfo", handle)
    return None if pci is None else pci.domain << 16 | pci.bus << 8 | pci.device << 3
