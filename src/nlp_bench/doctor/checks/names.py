"""Names to addresses: what torchrun does before anything else, and never gives up on."""

import ipaddress
import re
import socket

from nlp_bench.doctor.finding import Finding, failed, ok, warning
from nlp_bench.doctor.place import Place
from nlp_bench.doctor.slurm_nodes import Node, nodes_of, partition_nodes, queue_of
from nlp_bench.machine.addresses import look_up
from nlp_bench.programs import ask

WITHIN_S = 2.0
"""Seconds for all names together; a resolver that takes longer holds up every connection of a large job."""
MOST = 64
"""Names that are asked for; a whole machine's are alike."""


def check(place: Place) -> Finding:
    """Resolve this node's own name and the addresses by which the nodes of a run find each other."""
    own = socket.gethostname()
    suffix = place.system.network.master_addr_suffix if place.system else ""
    nodes = _nodes(place)
    asked = list(dict.fromkeys([own, *((node.name + suffix if suffix else node.address) for node in nodes[:MOST])]))
    found = look_up(asked, WITHIN_S)
    known = {name: one.addresses for name, one in found.items()}
    silent = [name for name, one in found.items() if one.is_silent]
    lost = [name for name, one in found.items() if one.problem and not one.is_silent]
    if silent or [name for name in lost if name != own]:
        bad = ", ".join([*silent, *(name for name in lost if name != own)][:8])
        return failed(
            f"cannot be resolved{f' within {WITHIN_S:g} s' if silent else ''}: {bad}",
            f"this is {own}; network.master_addr_suffix is {suffix!r}",
            remedy=f"getent ahosts {bad.split(',')[0]}; set network.master_addr_suffix in benchmark/systems to the site's suffix",
        )
    facts = [f"{name}: {', '.join(addresses[:3])}" for name, addresses in known.items() if addresses][:8]
    if own in lost:
        return warning(
            f"this node's own name {own} cannot be resolved", *facts, remedy=f"getent hosts {own}; add it to /etc/hosts"
        )
    loops = [name for name in asked if name == own and place.is_inside and all(map(_is_loop, known[name]))]
    if loops and len(nodes) > 1 and not all(_is_loop(address) for name in asked for address in known[name]):
        return warning(
            f"{own} means {known[own][0]} here: ranks of other nodes would be told to meet at themselves",
            *facts,
            remedy="take the name out of the loopback line of /etc/hosts, or set network.master_addr_suffix",
        )
    of = f", the first of {len(nodes)} nodes" if len(nodes) > MOST else ""
    return ok(f"{len(asked)} name(s) resolved{of}", *facts)


def _nodes(place: Place) -> list[Node]:
    if not place.slurm.is_good:
        return []
    if place.is_inside and place.variables.get("SLURM_JOB_NODELIST"):
        return nodes_of(place.variables["SLURM_JOB_NODELIST"])
    if not place.is_slurm:
        return []
    queue = queue_of(place, ask("scontrol", "show", "partition", "--oneliner").out)
    return partition_nodes(queue) if re.fullmatch(r"[\w.-]+", queue) else []


def _is_loop(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
