"""NCCL, and the interfaces that the environment tells it (and gloo) to use.

The words of NCCL_SOCKET_IFNAME: NVIDIA's NCCL user guide, "Environment Variables": a list of beginnings of names; "=" before it: whole
names; "^": all but these. gloo's GLOO_SOCKET_IFNAME is a list of whole names (PyTorch, torch.distributed, "Common environment variables").
"""

from nlp_bench.doctor.finding import Finding, failed, ok, skipped, together, warning
from nlp_bench.doctor.place import Place
from nlp_bench.machine.node import NCCL_PACKAGES
from nlp_bench.packages import installed_version

SLOW = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
}
"""Variables that are set while looking for a fault, and make everything slow when they stay."""


def check(place: Place) -> Finding:
    """Compare the variables with the interfaces of this node."""
    names = sorted(path.name for path in (place.files / "sys/class/net").glob("*"))
    found = [one for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") for one in _interface(place, name, names)]
    for name, value in SLOW.items():
        if place.variables.get(name) == value:
            found.append(warning(f"{name}={value} makes collectives slow", remedy=f"unset {name}"))
    if place.accelerator == "cuda" and not (place.system and place.system.container.image):
        version = next((f"{p} {v}" for p in NCCL_PACKAGES if (v := installed_version(p))), None)
        site = place.system is not None and place.system.software.system_site_packages
        found.append(
            ok("", version or "NCCL comes with the site's torch")
            if version or site
            else warning(
                "no NCCL package is installed with torch",
                remedy="python -c 'import torch; print(torch.cuda.nccl.version())'",
            )
        )
    elif not found:
        return skipped("the ranks run on the CPU, and no interface is set")
    return together(
        found, "interfaces are there" if place.accelerator == "cpu" else "NCCL and its interfaces are there"
    )


def _interface(place: Place, name: str, here: list[str]) -> list[Finding]:
    value = place.variables.get(name, "")
    if not value:
        return []
    where = f"{name}={value}; this node has: {', '.join(here) or 'none that is told'}"
    if value.startswith("^"):
        return [ok("", where)]
    is_whole = value.startswith("=") or name.startswith("GLOO")
    words = [word.partition(":")[0] for word in value.lstrip("=").split(",") if word]
    fitting = [i for i in here for word in words if (i == word if is_whole else i.startswith(word))]
    if fitting:
        return [ok("", where)]
    if place.is_login_node:
        return [
            warning(
                f"{name} names {value}, which this login node does not have",
                where,
                remedy="nlp-bench doctor --nodes all",
            )
        ]
    return [
        failed(
            f"{name} names {value}, which this node does not have",
            where,
            remedy=f"ip -brief link; correct {name} in [environment] of benchmark/systems",
        )
    ]
