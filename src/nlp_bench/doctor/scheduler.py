"""Checks of Slurm and of the names of its nodes; not answering, not being installed and refusing are distinguished."""

import ipaddress
import re
import shutil
import socket
from collections.abc import Sequence

from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.doctor.place import Finding, Place, failed, ok, skipped, warning
from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.launch.scheduler.slurm import PARTITIONS, SHOW, cluster_name, is_absent, way_on, without_overrides
from nlp_bench.launch.scheduler.slurm_answers import MARK, field_of, other_form, records, rows
from nlp_bench.launch.script import job_script
from nlp_bench.machine.addresses import look_up
from nlp_bench.programs import ask

SLOW_S = 2.0
"""Seconds for `scontrol show config`; a healthy controller takes a few hundredths, and every query of a run waits as long."""
WITHIN_S = 2.0  # seconds for all names together; a resolver that takes longer holds up every connection of a large job
MAX_NAMES = 64  # names that are looked up; a whole machine's are alike
MAX_SHOWN = 10  # nodes that are named; a machine that is down altogether has thousands
DOWN = (
    "DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "NO_RESPOND", "MAINT", "UNKNOWN", "FUTURE", "REBOOT",
)  # fmt: skip
"""Beginnings of the parts of a node's state (scontrol show node, flags after a +) with which no job starts there; "*" means: does not answer.
Slurm starts a node that is POWERED_DOWN to save power, or in a cloud, for the job that wants it (its Power Saving Guide)."""

NO_NODES = "Requested node configuration is not available"
"""What `sbatch --test-only` says of a job that no node can take, drained ones not counted; without the option the job waits for these."""


@immutable
class Node:
    """One node of a partition as the controller sees it."""

    name: str
    address: str  # its NodeAddr
    state: str  # Slurm's state with its flags, for example IDLE+DRAIN
    reason: str  # the administrator's reason why it is down; empty where it is up

    @property
    def is_down(self) -> bool:
        """Whether no job starts there."""
        return any(word.endswith("*") or word.startswith(DOWN) for word in self.state.split("+"))

    @property
    def is_powered_down(self) -> bool:
        """Whether it is a cloud's and not up: until it is, its NodeAddr is the bare name."""
        flags = self.state.split("+")
        return "CLOUD" in flags and any(word.startswith("POWER") for word in flags)

    @property
    def why(self) -> str:
        """Its state, and the reason where there is one."""
        return f"{self.state} ({self.reason})" if self.reason else self.state


def partition_nodes(queue: str) -> list[Node]:
    """Return the nodes of a partition, in Slurm's order, each with its state. Raises NlpBenchError where Slurm does not list them."""
    names = ask("sinfo", "--Node", "--partition", queue, f"--format={MARK}%N")
    listed = rows(names.out, 1) if names.is_good else None
    if listed is None:
        why = other_form("sinfo") if names.is_good else f"{names.text}; try `scontrol ping`"
        raise NlpBenchError(f"sinfo does not list partition {queue}: {why}")
    return nodes_of(",".join(dict.fromkeys(name.strip() for (name,) in listed)))


def nodes_of(words: str) -> list[Node]:
    """Return the nodes that `words` ("node[1-3],node7") name. Raises NlpBenchError for a name that Slurm does not know."""
    if not words:
        return []
    answer = ask(*SHOW, "node", words)
    known = [node_of(line) for line in records(answer.out, "NodeName").values()]
    if not answer.is_good or not known:
        raise NlpBenchError(f"scontrol does not know the nodes {words}: {answer.text}; `sinfo -N` lists them")
    return known


def node_of(line: str) -> Node:
    """Return the node that a line of `scontrol --oneliner show node` describes."""
    reason = re.search(r"\bReason=(.*?)(?: \[\S+@\S+\])?\s*(?:$| Comment=)", line)
    name = field_of(line, "NodeName")
    return Node(
        name=name,
        address=field_of(line, "NodeAddr") or name,
        state=field_of(line, "State"),
        reason=reason.group(1) if reason else "",
    )


def queue_of(place: Place, partitions: str) -> str:
    """Return the partition of the run, else the system's, else Slurm's default one in `scontrol show partition`."""
    named = place.run.launch.queue if place.run else (place.system.slurm.queue if place.system else "")
    found = records(partitions, "PartitionName").items()
    return named or next((name for name, line in found if "Default=YES" in line), "")


def slurm(place: Place) -> Finding:
    """Check whether Slurm answers, and how fast."""
    answer = place.slurm
    if is_absent(answer) and not place.is_slurm:
        return skipped("no Slurm here, and the run needs none")
    if not answer.is_good or (place.is_slurm and cluster_name(answer.out) is None):
        return failed(
            f"Slurm does not answer: {answer.text}",
            f"scontrol show config took {answer.elapsed_s:.1f} s",
            remedy=way_on(answer)
            or "scontrol ping; if both controllers are down, wait or ask the site; load the site's Slurm module, or set SLURM_CONF",
        )
    missing = [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]
    if missing and place.is_slurm:
        return failed(f"{', '.join(missing)} not on PATH", remedy="load the site's Slurm module")
    version = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", answer.out, re.MULTILINE)
    what = f"cluster {cluster_name(answer.out)}, Slurm {version.group(1) if version else '(no version told)'}"
    took = f"scontrol show config took {answer.elapsed_s:.2f} s"
    if answer.elapsed_s > SLOW_S:
        return warning(f"{what}, but slow: {took}", remedy="sdiag; ask less often: nlp-bench watch --every 60")
    return ok(what, took)


def partition(place: Place) -> Finding:
    """Compare the run with the partition's limits and with the nodes that are up; of a list of partitions each must exist."""
    if not place.is_slurm or not place.slurm.is_good:
        return skipped("Slurm does not answer (see slurm)" if place.is_slurm else "the run does not go through Slurm")
    listing = ask(*PARTITIONS)
    lines = records(listing.out, "PartitionName")
    queues = queue_of(place, listing.out).split(",")
    missing = [queue for queue in queues if queue not in lines]
    if missing:
        has, remedy = f"it has: {', '.join(sorted(lines))}", "nlp-bench doctor --queue NAME (sinfo lists them)"
        return failed(f"Slurm has no partition {', '.join(map(repr, missing))}", has, remedy=remedy)
    names = ("PartitionName", "State", "MaxTime", "MaxNodes", "TotalNodes")
    limits = [" ".join(f"{name}={field_of(lines[queue], name)}" for name in names) for queue in queues]
    shut = [queue for queue in queues if field_of(lines[queue], "State") != "UP"]
    if shut:
        return failed(f"not open: {', '.join(shut)}", *limits, remedy="choose another with --queue (sinfo lists them)")
    if place.run is not None:
        get_scheduler("slurm").check_limits(place.run)  # its refusal is the finding
    where, nodes = ",".join(queues), partition_nodes(",".join(queues))
    down = [f"{node.name}: {node.why}" for node in nodes if node.is_down]
    num_up, wanted = len(nodes) - len(down), place.run.parallel.nodes if place.run else 1
    if num_up < wanted:
        what = f"the run asks for {wanted} node(s), {num_up} of {len(nodes)} in {where} are up: it would wait"
        if len(nodes) < max(int(field_of(lines[queue], "TotalNodes") or 0) for queue in queues):
            what += "; Slurm hides powered-down nodes of a cloud (PrivateData=cloud shows them)"
        remedy = "sinfo -R tells why nodes are down; or choose fewer --nodes"
        return warning(what, *limits, *down[:MAX_SHOWN], remedy=remedy)
    if down:
        what = f"{len(down)} of {len(nodes)} nodes of {where} are down"
        return warning(what, *limits, *down[:MAX_SHOWN], remedy="sinfo -R")
    return ok(f"{where}: {num_up} nodes up", *limits)


def job(place: Place) -> Finding:  # noqa: PLR0911  # one answer per case
    """Pass the run's own job script to `sbatch --test-only`, which submits nothing, and quote its answer."""
    if not place.is_slurm:
        return skipped("the run does not go through Slurm")
    if not place.slurm.is_good:
        return skipped("Slurm does not answer (see slurm)")
    if place.run is None:
        return skipped("no run to submit (see system)")
    script = job_script(place.run, root=place.root, run_dir=place.runs)
    variables = without_overrides(place.run.launch.account, place.variables)
    answer = ask("sbatch", "--test-only", stdin=script, variables=variables)
    text = re.sub(r"(^|\s)sbatch: ", r"\1", answer.text)
    if answer.is_good and re.search(r"\bJob \d+ to start at ", f"{answer.err}\n{answer.out}"):
        return ok("sbatch would take the job", text)
    if answer.is_good:  # a stand-in, where the site has another scheduler by now
        what = f"sbatch --test-only does not say when the job would start: {text or 'nothing'}"
        return warning(what, remedy="sbatch --version tells whether it is Slurm's; ask the site which scheduler it has")
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    nodes = run_nodes(place) if NO_NODES in text else []
    if (num_up := sum(not node.is_down for node in nodes)) < place.run.parallel.nodes <= len(nodes):
        why = f"while {num_up} of {len(nodes)} nodes are up, which says nothing of the job: it would wait"
        again = f"sinfo -R; when they are back, ask again: {place.again} --checks job"
        return warning(f"sbatch --test-only finds no nodes {why} ({text})", *lines, remedy=again)
    options = "--queue, --account, --timelimit, --gres, --nodes"
    remedy = f"change what it names ({options}), then ask again: {place.again} --checks job"
    return failed(f"sbatch refuses the job: {text}", *lines, remedy=remedy)


def allocation(place: Place) -> Finding:
    """Compare the allocation's nodes with the run's; `launch` would refuse the difference after the job has waited."""
    if not place.is_inside:
        return skipped("not inside a Slurm allocation")
    given = place.variables.get("SLURM_JOB_NUM_NODES") or place.variables.get("SLURM_NNODES", "")
    job = f"job {place.variables['SLURM_JOB_ID']}: {place.variables.get('SLURM_JOB_NODELIST', '')}"
    if not given.isdecimal() or place.run is None:
        return skipped(f"nothing to compare with: {job}")
    wanted = place.run.parallel.nodes
    if int(given) == wanted:
        return ok(f"{given} node(s), as the run asks for", job)
    remedy = f"salloc --nodes={wanted}, or give nlp-bench --nodes {given}"
    return failed(f"the allocation has {given} node(s), the run asks for {wanted}", job, remedy=remedy)


def names(place: Place) -> Finding:
    """Resolve this node's own name and the addresses by which the nodes of a run find each other.

    torchrun does that before anything else, and never gives up.
    """
    own = socket.gethostname()
    suffix = place.system.network.master_addr_suffix if place.system else ""
    known = run_nodes(place)
    nodes = [node for node in known if not node.is_powered_down]
    wanted = [own, *((node.name + suffix if suffix else node.address) for node in nodes[:MAX_NAMES])]
    found = look_up(dict.fromkeys(wanted), WITHIN_S)
    silent = [name for name, one in found.items() if one.is_silent]
    lost = [name for name, one in found.items() if one.problem and not one.is_silent]
    bad = [*silent, *(name for name in lost if name != own)][:8]
    if bad:
        return failed(
            f"cannot be resolved{f' within {WITHIN_S:g} s' if silent else ''}: {', '.join(bad)}",
            f"this is {own}; network.master_addr_suffix is {suffix!r}",
            remedy=f"getent ahosts {bad[0]}; set network.master_addr_suffix in benchmark/systems to the site's suffix",
        )
    facts = [f"{name}: {', '.join(one.addresses[:3])}" for name, one in found.items() if one.addresses][:8]
    if own in lost:
        what = f"this node's own name {own} cannot be resolved"
        return warning(what, *facts, remedy=f"getent hosts {own}; add it to /etc/hosts")
    every = [address for one in found.values() for address in one.addresses]
    if len(nodes) > 1 and place.is_inside and _are_loops(found[own].addresses) and not _are_loops(every):
        return warning(
            f"{own} means {found[own].addresses[0]} here: ranks of other nodes would be told to meet at themselves",
            *facts,
            remedy="take the name out of the loopback line of /etc/hosts, or set network.master_addr_suffix",
        )
    of = f", the first of {len(nodes)} nodes" if len(nodes) > MAX_NAMES else ""
    num_off = len(known) - len(nodes)
    off = f"; {num_off} powered down: their addresses come when Slurm starts them" if num_off else ""
    return ok(f"{len(found)} name(s) resolved{of}{off}", *facts)


def run_nodes(place: Place) -> list[Node]:
    """Return the nodes of the allocation, else of the partition; none without Slurm."""
    if not place.slurm.is_good:
        return []
    if place.is_inside and place.variables.get("SLURM_JOB_NODELIST"):
        return nodes_of(place.variables["SLURM_JOB_NODELIST"])
    if not place.is_slurm:
        return []
    queue = queue_of(place, ask(*PARTITIONS).out)
    return partition_nodes(queue) if re.fullmatch(r"[\w.,-]+", queue) else []


def _are_loops(addresses: Sequence[str]) -> bool:
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
