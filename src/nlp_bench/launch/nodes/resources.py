"""What one node gives its ranks: GPUs that are counted, CPUs that are shared out.

What Slurm sets: its gres guide and srun's manual page, "OUTPUT ENVIRONMENT VARIABLES".

The modes of sharing CPUs are those of NVIDIA/gpu_affinity (see `config.system.Binding`). Beyond it: GPUs whose NUMA node is unknown or holds no
allowed core take the next larger neighbourhood that does, and neighbourhoods that overlap are shared out as one.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.config.system import Binding
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.binding import VARIABLE
from nlp_bench.machine.node import node_name
from nlp_bench.machine.nvml import MIG, Nvml, NvmlError, visible_gpus
from nlp_bench.machine.topology import Core, Topology, gpu_node, ranges_of, read_topology

VISIBLE = "CUDA_VISIBLE_DEVICES"


def open_nvml() -> Nvml | None:
    """Return the driver's library, None on a node where it does not answer."""
    try:
        return Nvml()
    except NvmlError:
        return None


def require_gpus(run: Run, gpus: list[int | None] | None, variables: Mapping[str, str]) -> None:
    """Refuse a node that shows its ranks too few GPUs: NlpBenchError quotes the variables that decide it; a node that says nothing is left to torch."""
    wanted = run.parallel.gpus_per_node
    if gpus is None or len(gpus) >= wanted:
        return
    scheduler = get_scheduler(run.launch.launcher)
    deciding = [name for name in (VISIBLE, *scheduler.gpu_variables) if name in variables]
    shown = ", ".join(f"{name}={variables[name]!r}" for name in deciding) or f"{VISIBLE} is not set"
    remedy = ", or ".join(filter(None, (scheduler.gpu_remedy, "start fewer ranks per node (--gpus-per-node)")))
    if variables.get(VISIBLE, "").lstrip().startswith(MIG):
        remedy = "CUDA shows a process one MIG device; start one rank per node (--gpus-per-node 1)"
    raise NlpBenchError(
        f"parallel.gpus_per_node: {wanted} rank(s) on node {node_name(variables)}, which shows them {len(gpus)} GPU(s): "
        f"{shown}; {remedy}"
    )


def addresses(gpus: list[int | None], nvml: Nvml | None) -> list[int | None]:
    """Return the PCI address of each GPU, None where it is unknown."""
    return [None if index is None or nvml is None else _address(nvml, index) for index in gpus]


def _address(nvml: Nvml, index: int) -> int | None:
    """Return domain, bus and device in one number, as `topology.gpu_node` takes it; a GPU is its device's function 0."""
    pci = nvml.maybe("nvmlDeviceGetPciInfo", nvml.handles[index])
    return None if pci is None else pci.domain << 16 | pci.bus << 8 | pci.device << 3


Cores = list[Core]


def cpus_of_ranks(topology: Topology, binding: Binding, homes: list[int | None]) -> list[frozenset[int]]:
    """Return each local rank's CPUs; `homes` are their GPUs' NUMA nodes, None for unknown. Raises NlpBenchError for fewer cores than `binding.min_cores`."""
    shares = [cores[: binding.max_cores] for cores in _shares(topology, binding, homes)]
    for local_rank, cores in enumerate(shares):
        if len(cores) < binding.min_cores:
            allowed = [cpu for core in topology.cores for cpu in core.cpus]
            raise NlpBenchError(
                f"system.binding: {binding.mode} leaves local rank {local_rank} {len(cores)} core(s), fewer than min_cores = "
                f"{binding.min_cores}: {len(homes)} rank(s) share CPUs {ranges_of(allowed) or 'none'}; ask for more cores "
                "(system.slurm.cpus_per_task), or choose another mode or scope"
            )
    used = slice(None) if binding.cores == "all_logical" else slice(1)
    return [frozenset(cpu for core in cores for cpu in core.cpus[used]) for cores in shares]


def _shares(topology: Topology, binding: Binding, homes: list[int | None]) -> list[Cores]:
    """Return the cores of each rank, those of its GPU's own NUMA node first."""
    near = [_near(topology, binding.scope, home) for home in homes]
    if binding.mode == "all":
        return near
    if binding.mode == "single":
        return [cores[:1] for cores in near]
    shares: list[Cores] = [[] for _ in homes]
    for group, cores in _groups(near):
        _divide(binding, group, cores, homes, shares)
    if binding.balanced:
        smallest = min(len(share) for share in shares)
        shares = [share[:smallest] for share in shares]
    return [share[:1] for share in shares] if binding.mode == "single_unique" else shares


def _near(topology: Topology, scope: str, home: int | None) -> Cores:
    """Return the cores of the NUMA node `home`, and behind them those of its sockets; where there are none, of the next larger place."""
    sockets = topology.sockets_of_node.get(home, frozenset()) if home is not None else frozenset()
    in_node = [core for core in topology.cores if core.node == home]
    around = [core for core in topology.cores if core.socket in sockets and core.node != home]
    return (in_node if scope == "node" else in_node + around) or around or list(topology.cores)


def _groups(near: list[Cores]) -> list[tuple[list[int], Cores]]:
    """Return disjoint sets of cores with the ranks that share each: neighbourhoods that overlap are united."""
    groups: list[tuple[list[int], set[Core]]] = []
    for rank, cores in enumerate(near):
        touching = [group for group in groups if group[1] & set(cores)]
        groups = [group for group in groups if group not in touching]
        ranks = [r for group in touching for r in group[0]]
        groups.append(([*ranks, rank], set(cores).union(*(group[1] for group in touching))))
    return [(sorted(ranks), sorted(cores, key=lambda core: (core.node, core.cpus))) for ranks, cores in groups]


def _divide(binding: Binding, ranks: list[int], cores: Cores, homes: list[int | None], shares: list[Cores]) -> None:
    """Share out `cores` among `ranks`: each GPU's own NUMA node first, then the nodes without a GPU, near ones first.

    Ranks without a node of their own come first at the latter; where all nodes have a GPU, everything is dealt out anew.
    """
    owned = {core.node for core in cores} & {home for home in homes if home is not None}
    by_place = sorted(ranks, key=lambda rank: (homes[rank] is None, homes[rank] or 0, rank))
    homeless = [rank for rank in by_place if homes[rank] not in owned]
    spare = [core for core in cores if core.node not in owned]
    if homeless and not spare:
        _deal(binding, by_place, cores, shares)
        return
    for home in owned:
        neighbours = [rank for rank in ranks if homes[rank] == home]
        _deal(binding, neighbours, [core for core in cores if core.node == home], shares)
    _deal(binding, homeless or by_place, spare, shares)


def _deal(binding: Binding, ranks: list[int], cores: Cores, shares: list[Cores]) -> None:
    """Give each of `ranks` its part of `cores`; what is left over goes to the first ones unless `balanced`."""
    each, rest = divmod(len(cores), len(ranks))
    begin = 0
    for place, rank in enumerate(ranks):
        size = each + (place < rest and not binding.balanced)
        if binding.mode == "unique_interleaved":
            shares[rank] += cores[place :: len(ranks)][:size]
        else:
            shares[rank] += cores[begin : begin + size]
        begin += size


def node_environment(run: Run, variables: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return the variables that give the ranks of this node their GPUs and CPUs; `variables` is this process's environment.

    CUDA's default order of GPUs is "fastest first"; by PCI bus, its numbers are those of nvidia-smi and of the binding. Raises
    NlpBenchError on a node that shows its ranks too few GPUs.
    """
    if run.system.accelerator != "cuda":
        return {VARIABLE: json.dumps(binding_plan(run, [], root))}
    nvml = open_nvml()
    gpus = visible_gpus(variables.get(VISIBLE), nvml)
    require_gpus(run, gpus, variables)
    order = variables.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    plan = binding_plan(run, addresses(gpus or [], nvml), root)
    return {VARIABLE: json.dumps(plan), "CUDA_DEVICE_ORDER": order}


def binding_plan(run: Run, gpus: list[int | None], root: Path = Path("/")) -> dict[str, Any]:
    """Return the content of NLP_BENCH_BINDING (see there) for the node whose file system begins at `root`.

    `gpus` holds the PCI address of each GPU that the ranks see, in their order; None in it, or an end too early, is unknown. A
    node where the request cannot be met gets a plan that binds nothing and says why.
    """
    wish, num_ranks = run.system.binding, run.parallel.gpus_per_node
    binding = replace(wish, mode=wish.mode_for(run.system.accelerator))
    plan: dict[str, Any] = {"mode": binding.mode, "memory": binding.memory}
    if binding.mode == "none":
        return plan
    try:
        topology = read_topology(root)
        homes = [None if address is None else gpu_node(address, root) for address in gpus[:num_ranks]]
        homes += [None] * (num_ranks - len(homes))
        shares = cpus_of_ranks(topology, binding, homes)
    except (NlpBenchError, OSError, ValueError) as error:
        return plan | {"why": str(error)}
    nodes = [{core.node for core in topology.cores if share.intersection(core.cpus)} for share in shares]
    ranks = [  # with the NUMA node of the GPU first: a preferred memory has one node only
        {"cpus": ranges_of(share), "nodes": sorted(touched, key=lambda node: (node != home, node))}
        for share, touched, home in zip(shares, nodes, homes, strict=True)
    ]
    return plan | {"ranks": ranks}
