"""The nodes of a partition as the controller sees them."""

import re
from dataclasses import dataclass

from nlp_bench.config.machine import scontrol_field
from nlp_bench.config.slurm_text import MARK, records, rows
from nlp_bench.doctor.place import Place
from nlp_bench.errors import NlpBenchError
from nlp_bench.programs import ask

DOWN = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "NOT_RESPONDING",
    "NO_RESPOND",
    "MAINT",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "UNKNOWN",
    "FUTURE",
    "REBOOT",
)
"""Parts of a node's state (scontrol show node, flags behind a +) with which no job starts there; "*" means: does not answer."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node."""

    name: str
    """Slurm's name."""
    address: str
    """Its NodeAddr."""
    state: str
    """Slurm's word with its flags, for example IDLE+DRAIN."""
    reason: str
    """Why it is down, in the words of whoever took it down; empty where it is up."""

    @property
    def is_down(self) -> bool:
        """Whether no job starts there."""
        return self.state.endswith("*") or any(word in self.state for word in DOWN)


def partition_nodes(queue: str) -> list[Node]:
    """Return the nodes of a partition, in Slurm's order, each with its state. Raises NlpBenchError where Slurm does not say."""
    names = ask("sinfo", "--Node", "--partition", queue, f"--format={MARK}%N")
    listed = rows(names.out, 1) if names.is_good else None
    if listed is None:
        raise NlpBenchError(f"sinfo does not list partition {queue}: {names.said}; try `scontrol ping`")
    return nodes_of(",".join(dict.fromkeys(name.strip() for (name,) in listed)))


def nodes_of(words: str) -> list[Node]:
    """Return the nodes that `words` ("node[1-3],node7") name. Raises NlpBenchError for a name that Slurm does not know."""
    if not words:
        return []
    answer = ask("scontrol", "show", "node", words, "--oneliner")
    known = [_node(line) for line in records(answer.out, "NodeName").values()]
    if not answer.is_good or not known:
        raise NlpBenchError(f"scontrol does not know the nodes {words}: {answer.said}; `sinfo -N` lists them")
    return known


def queue_of(place: Place, partitions: str) -> str:
    """Return the partition of the run, else the system's, else Slurm's default one in `scontrol show partition`."""
    named = place.run.launch.queue if place.run else (place.system.slurm.queue if place.system else "")
    found = records(partitions, "PartitionName").items()
    return named or next((name for name, line in found if "Default=YES" in line), "")


def _node(line: str) -> Node:
    reason = re.search(r"\bReason=(.*?)(?: \[\S+@\S+\])?\s*(?:$| Comment=)", line)
    state = scontrol_field(line, "State")
    return Node(
        name=scontrol_field(line, "NodeName"),
        address=scontrol_field(line, "NodeAddr") or scontrol_field(line, "NodeName"),
        state=state,
        reason=reason.group(1) if reason else "",
    )
