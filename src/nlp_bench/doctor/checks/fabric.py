"""The InfiniBand (or RoCE) ports of this node."""

import re

from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.machine.node import infiniband


def check(place: Place) -> Finding:
    """Compare the active ports with the system file's links per node and their rate."""
    ports = infiniband(place.files)
    network = place.system.network if place.system else None
    wanted = network.links_per_node if network else None
    if not ports:
        return _none(place, wanted)
    facts = [
        f"{port['device']} port {port['port']}: {port['state']}, {port['rate']}, {port['link_layer']}" for port in ports
    ]
    up = [port for port in ports if port["state"] == "ACTIVE"]
    if wanted is not None and len(up) < wanted and not place.is_login_node:
        return failed(
            f"{len(up)} of {wanted} links are active",
            *facts,
            remedy="ibstat; take the node out of the job: --sbatch-arg=--exclude=NODE",
        )
    if not up:
        return failed("no port is active", *facts, remedy="ibstat; tell the site")
    rate = network.link_gbit_per_s if network else None
    slow = [f"{port['device']} {port['rate']}" for port in up if rate and (_rate(port["rate"]) or rate) < rate]
    if slow and len(up) - len(slow) < (wanted or len(up)):
        return warning(
            f"slower than {rate:g} Gbit/s: {', '.join(slow)}",
            *facts,
            remedy="ibstat; a cable or a port has come up at a lower rate: tell the site",
        )
    return ok(f"{len(up)} of {len(ports)} port(s) active", *facts)


def _none(place: Place, wanted: int | None) -> Finding:
    if (place.files / "sys/class/cxi").is_dir():
        return skipped("the adapters are Slingshot's (/sys/class/cxi), which have no InfiniBand ports")
    if wanted is None or not place.is_slurm:
        return skipped("no InfiniBand here, and none is expected")
    if place.is_login_node:
        return skipped("no InfiniBand on this login node; look at the compute nodes: nlp-bench doctor --nodes all")
    return failed(f"{wanted} link(s) per node are expected, Linux lists none", remedy="ibstat; tell the site")


def _rate(text: str | None) -> float | None:
    found = re.match(r"([\d.]+) Gb/sec", text or "")
    return float(found.group(1)) if found else None
