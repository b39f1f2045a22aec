"""What the partition gives, and how much of it is there."""

from nlp_bench.config import partition
from nlp_bench.config.machine import scontrol_field
from nlp_bench.config.slurm_text import records
from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.doctor.slurm_nodes import partition_nodes, queue_of
from nlp_bench.programs import ask

SHOWN = 10
"""Nodes that are named; a machine that is down altogether has thousands."""


def check(place: Place) -> Finding:
    """Compare the run with the partition's limits and with the nodes that are up; of a list of partitions each is looked for."""
    if not place.is_slurm or not place.slurm.is_good:
        return skipped("Slurm does not answer (see slurm)" if place.is_slurm else "the run does not go through Slurm")
    listing = ask("scontrol", "show", "partition", "--oneliner")
    lines = records(listing.out, "PartitionName")
    queues = queue_of(place, listing.out).split(",")
    missing = [queue for queue in queues if queue not in lines]
    if missing:
        has = f"it has: {', '.join(sorted(lines))}"
        return failed(
            f"Slurm has no partition {', '.join(map(repr, missing))}",
            has,
            remedy="nlp-bench doctor --queue NAME (sinfo lists them)",
        )
    limits = [_limits(lines[queue]) for queue in queues]
    shut = [queue for queue in queues if scontrol_field(lines[queue], "State") != "UP"]
    if shut:
        return failed(f"not open: {', '.join(shut)}", *limits, remedy="choose another with --queue (sinfo lists them)")
    if place.run is not None:
        partition.check(place.run)  # raises what it refuses, in its own words
    return _nodes(place, queues, limits)


def _limits(line: str) -> str:
    return " ".join(
        f"{name}={scontrol_field(line, name)}"
        for name in ("PartitionName", "State", "MaxTime", "MaxNodes", "TotalNodes")
    )


def _nodes(place: Place, queues: list[str], limits: list[str]) -> Finding:
    where, nodes = ",".join(queues), partition_nodes(",".join(queues))
    down = [f"{node.name}: {node.state}{f' ({node.reason})' if node.reason else ''}" for node in nodes if node.is_down]
    num_up, wanted = len(nodes) - len(down), place.run.parallel.nodes if place.run else 1
    if num_up < wanted:
        return warning(
            f"the run asks for {wanted} node(s), {num_up} of {len(nodes)} in {where} are up: it would wait",
            *limits,
            *down[:SHOWN],
            remedy="sinfo -R tells why nodes are down; or choose fewer --nodes",
        )
    if down:
        return warning(
            f"{len(down)} of {len(nodes)} nodes of {where} are down", *limits, *down[:SHOWN], remedy="sinfo -R"
        )
    return ok(f"{where}: {num_up} nodes up", *limits)
