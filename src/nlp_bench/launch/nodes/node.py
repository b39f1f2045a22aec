"""What one node gives its ranks: GPUs that are counted, CPUs that are shared out."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.nodes.gpus import VISIBLE, open_nvml, require_gpus, visible_gpus
from nlp_bench.launch.nodes.placement import cpus_of_rank
from nlp_bench.machine.binding import VARIABLE
from nlp_bench.machine.topology import format_cpus, gpu_node, read_topology


def node_environment(run: Run, variables: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return the variables that tell the ranks of this node their places; `variables` is this process's environment.

    CUDA's default order of GPUs is "fastest first"; by PCI bus, its numbers are those of nvidia-smi and of the binding. Raises
    NlpBenchError on a node that shows its ranks too few GPUs.
    """
    if run.system.accelerator != "cuda":
        return {VARIABLE: json.dumps(binding_plan(run, [], root))}
    gpus = visible_gpus(variables.get(VISIBLE), open_nvml())
    require_gpus(run, gpus, variables)
    order = variables.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    plan = binding_plan(run, gpus or [], root)
    return {VARIABLE: json.dumps(plan), "CUDA_DEVICE_ORDER": order}


def binding_plan(run: Run, gpus: list[int | None], root: Path = Path("/")) -> dict[str, Any]:
    """Return the content of NLP_BENCH_BINDING (see there) for the node whose file system begins at `root`.

    `gpus` holds the PCI address of each GPU that the ranks see, in their order; None in it, or an end too early, is unknown. A
    node where the wish cannot be fulfilled gets a plan that binds nothing and says why.
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
        shares = [cpus_of_rank(topology, binding, rank, num_ranks, homes) for rank in range(num_ranks)]
    except (NlpBenchError, OSError, ValueError) as error:
        return plan | {"why": str(error)}
    nodes = [{core.node for core in topology.cores if share.intersection(core.cpus)} for share in shares]
    ranks = [
        {"cpus": format_cpus(share), "nodes": _home_first(touched, home)}
        for share, touched, home in zip(shares, nodes, homes, strict=True)
    ]
    return plan | {"ranks": ranks}


def _home_first(nodes: set[int], home: int | None) -> list[int]:
    """Return the NUMA nodes, the GPU's own first: a preferred memory has one node only."""
    return sorted(nodes, key=lambda node: (node != home, node))
