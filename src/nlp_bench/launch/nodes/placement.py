"""Which CPUs a rank gets: a pure function of the node's topology, the wish and the places of the GPUs.

The modes are those of NVIDIA/gpu_affinity (see `config.binding`). Beyond it: GPUs whose NUMA node is unknown or holds no
allowed core take the next larger neighbourhood that does, and neighbourhoods that overlap are shared out as one.
"""

from collections.abc import Sequence

from nlp_bench.config.binding import Binding
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.topology import Core, Topology, format_cpus

Cores = list[Core]


def cpus_of_rank(
    topology: Topology, binding: Binding, local_rank: int, num_local_ranks: int, gpu_numa: Sequence[int | None] = ()
) -> frozenset[int]:
    """Return the logical CPUs of one rank; the ranks of a node must ask with the same arguments otherwise.

    `gpu_numa` holds the NUMA node of each local rank's GPU, None where it is unknown; empty for ranks without a GPU. Raises
    NlpBenchError where a rank would get fewer cores than `binding.min_cores`, naming the CPUs that there are.
    """
    homes = [*gpu_numa, *[None] * num_local_ranks][:num_local_ranks]
    shares = _shares(topology, binding, homes)
    cores = shares[local_rank][: binding.max_cores]
    if len(cores) < binding.min_cores:
        allowed = [cpu for core in topology.cores for cpu in core.cpus]
        raise NlpBenchError(
            f"system.binding: {binding.mode} leaves local rank {local_rank} {len(cores)} core(s), fewer than min_cores = "
            f"{binding.min_cores}: {num_local_ranks} rank(s) share CPUs {format_cpus(allowed) or 'none'}; ask for more cores "
            "(system.slurm.cpus_per_task), or choose another mode or scope"
        )
    return frozenset(cpu for core in cores for cpu in (core.cpus if binding.cores == "all_logical" else core.cpus[:1]))


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
    """Return the cores of the NUMA node `home`, or of its sockets; where there are none, of the next larger place.

    Those of the node come first.
    """
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
