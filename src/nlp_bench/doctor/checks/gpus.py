"""The GPUs of this node: how many, and which."""

from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.launch.nodes.gpus import TOLD, VISIBLE, visible_gpus


def check(place: Place) -> Finding:
    """Compare what NVML and CUDA_VISIBLE_DEVICES show with the ranks per node and the system file's GPU."""
    if place.no_gpu_here:
        return skipped(place.no_gpu_here)
    if place.nvml is None or not place.nvml.handles:
        return failed(
            f"the ranks need GPUs: {place.no_nvml or 'the driver lists none'}",
            remedy="nvidia-smi; else --system of a CPU machine",
        )
    kinds = [place.nvml.maybe("nvmlDeviceGetName", handle) or "unknown" for handle in place.nvml.handles]
    driver = place.nvml.driver()
    told = [f"{name}={place.variables[name]}" for name in TOLD if name in place.variables]
    facts = [f"{len(kinds)} x {' / '.join(dict.fromkeys(kinds))}", f"driver {driver['driver']}", *told]
    if place.accelerator != "cuda":
        return skipped(f"the ranks run on the CPU; this node has {facts[0]}")
    return _number(place, facts) or _kind(place, kinds, facts)


def _number(place: Place, facts: list[str]) -> Finding | None:
    shown = visible_gpus(place.variables.get(VISIBLE), place.nvml)
    wanted = place.run.parallel.gpus_per_node if place.run else None
    if wanted is None or shown is None or len(shown) >= wanted:
        return None
    return failed(
        f"{wanted} rank(s) per node, but {len(shown)} GPU(s) are visible",
        *facts,
        remedy="nvidia-smi -L; ask Slurm for all GPUs of the node (system.slurm.gres), or start fewer ranks per node",
    )


def _kind(place: Place, kinds: list[str], facts: list[str]) -> Finding:
    if len(set(kinds)) > 1:
        return warning(
            "the GPUs of this node are not alike", *kinds, remedy="choose alike ones with CUDA_VISIBLE_DEVICES"
        )
    sheet = place.system.gpu if place.system else None
    if sheet and not _is_like(sheet.name, kinds[0]):
        return warning(
            f"the system file says {sheet.name}, NVML says {kinds[0]}",
            *facts,
            remedy="correct [gpu] of benchmark/systems, on which efficiency and predictions rest",
        )
    return ok(facts[0], *facts[1:])


def _is_like(sheet: str, told: str) -> bool:
    """Return whether the first word of a data sheet's name with a number in it ("A100-SXM4-40GB") begins a word of the driver's."""
    model = next((word for word in sheet.replace("-", " ").split() if any(sign.isdigit() for sign in word)), sheet)
    return model.lower() in told.lower()
