"""Which nodes are tested."""

import re
from dataclasses import dataclass

from nlp_bench.config.machine import ask_slurm
from nlp_bench.config.slurm_text import hostnames, hostnames_command
from nlp_bench.doctor.place import Place
from nlp_bench.doctor.slurm_nodes import Node, nodes_of, partition_nodes, queue_of
from nlp_bench.errors import NlpBenchError, UsageError

LISTED = re.compile(r"[\w.,\[\]-]*[A-Za-z][\w.,\[\]-]*")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The nodes of a test."""

    names: tuple[str, ...]
    """Their names in Slurm's order; empty where Slurm chooses `number` of them."""
    number: int
    """How many."""
    down: tuple[Node, ...] = ()
    """Nodes that were asked for, but that Slurm gives to nobody."""


def choose(place: Place, which: str) -> Choice:
    """Return the nodes that `which` names: all, a number, or a list as Slurm writes it.

    Raises UsageError for a word that is none of these, NlpBenchError where none of the nodes is up.
    """
    if not place.is_slurm:
        if which not in {"all", "1"}:
            raise UsageError(f"--nodes: {which!r}, but without Slurm there is this machine only: --nodes all")
        return Choice(names=(), number=1)
    if not place.slurm.is_good:
        raise NlpBenchError(f"--nodes: Slurm does not answer: {place.slurm.said}; try `scontrol ping`")
    if place.is_inside:
        return _allocated(place, which)
    if which.isdecimal():
        if int(which) < 1:
            raise UsageError(f"--nodes: {which} is less than 1")
        return Choice(names=(), number=int(which))
    queue = queue_of(place, ask_slurm("scontrol", "show", "partition", "--oneliner") or "")
    if which == "all":
        nodes = partition_nodes(queue)
    elif LISTED.fullmatch(which):
        nodes = nodes_of(which)
    else:
        raise UsageError(f"--nodes: {which!r} is neither all nor a number nor a list like node[1-3],node7")
    up = tuple(node.name for node in nodes if not node.is_down)
    down = tuple(node for node in nodes if node.is_down)
    if not up:
        said = "; ".join(f"{node.name} {node.state} {node.reason}".strip() for node in down[:5])
        raise NlpBenchError(f"--nodes: none of the {len(nodes)} node(s) is up: {said}; see `sinfo -R`")
    return Choice(names=up, number=len(up), down=down)


def _allocated(place: Place, which: str) -> Choice:
    if which != "all":
        raise UsageError("--nodes: inside an allocation all of its nodes are tested: --nodes all")
    words = place.variables.get("SLURM_JOB_NODELIST", "")
    names = hostnames(ask_slurm(*hostnames_command(words)) or "")
    if not names:
        raise NlpBenchError(f"--nodes: Slurm does not tell the nodes of this allocation ({words!r})")
    return Choice(names=tuple(names), number=len(names))
