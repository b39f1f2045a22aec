"""What the machine of a run really was and did, from its nodes' records, environment.json and the log; and what is wrong with it.

The nodes' records are machine/NODE.json and machine/NODE.samples.csv, read so that no fault of theirs costs the run. A warning is a fact
that makes the number another one than its reader thinks: a limited or throttled GPU, a fallback to TCP, another NCCL than the installed
one, nodes that differ, nodes that left no record.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line, some
from nlp_bench.files import opened, read_json
from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column, Fact
from nlp_bench.machine import form
from nlp_bench.machine.node import SLOW_VARIABLES
from nlp_bench.machine.nvml import THROTTLE_REASONS
from nlp_bench.measure import Fields, Json, Texts
from nlp_bench.measure.estimate import Pair
from nlp_bench.measure.workload import lookup
from nlp_bench.walk import MACHINE

MAX_BYTES = 256 * 2**20  # a larger file of samples is none of ours: a day of 16 GPUs has 60 MB
CLOCK_SPREAD = 0.05  # GPUs whose mean clock is further from the median than this do not run alike
NO_RECORDS = "no machine records: the recorder was switched off (NLP_BENCH_SAMPLE_S=0) or could not write"
NO_TRANSPORT = "transport not recorded; run with NCCL_DEBUG=INFO"
POWER_CAP, UNEVEN = THROTTLE_REASONS[0x04], 0.25
"""A full load at the power limit is normal, and a warning only where the limit is lowered or the GPUs' shares differ by so much."""
_ALIKE = {
    "cpu": "nodes have different CPU models",
    "kernel": "nodes have different kernels",
    "driver": "nodes have different drivers",
    "gpus": "GPUs are of different models",
}
_MAX_NAMED = 3
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


@immutable
class NodeRecord:
    """One node. What it says comes from a file that anybody may have written: each value is looked at before it is used."""

    name: str
    facts: Fields  # NODE.json, {} where it cannot be read
    columns: Mapping[str, Column]  # NODE.samples.csv; NaN: an empty cell
    problem: str | None  # why facts or samples are missing

    @property
    def times(self) -> Column:
        """Seconds since 1970 of the samples."""
        return self.columns.get(form.TIME, np.empty(0))

    def objects(self, name: str) -> list[Fields]:
        """Return the objects of a list of NODE.json, [] where there is no such list."""
        found = self.facts.get(name)
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

    def gpus(self) -> list[Fields]:
        """Return the GPUs that ranks used."""
        return [gpu for gpu in self.objects("gpus") if gpu.get("is_used") and isinstance(gpu.get("index"), int)]

    def text(self, dotted: str) -> str | None:
        """Return the word at `dotted` in NODE.json in one line, None where there is none."""
        value = lookup(self.facts, dotted)
        return one_line(value)[:300] or None if isinstance(value, str) else None


Nodes = Sequence[NodeRecord]


def number(value: object) -> float | None:
    """Return `value` as a finite number of at least 0, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if value >= 0 else None


def read_nodes(run_dir: Path) -> Nodes:
    """Return the nodes that recorded anything, by name; a file that cannot be read is that node's `problem`."""
    folder = run_dir / MACHINE
    endings = (form.SAMPLES, form.ERROR, form.FACTS)
    try:
        files = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return ()
    names = {name.removesuffix(end) for end in endings for name in files if name.endswith(end)}
    return tuple(_read(folder, name) for name in sorted(names))


def _read(folder: Path, name: str) -> NodeRecord:
    problems, facts, columns = list[str](), Json(), dict[str, Column]()
    try:
        facts = read_json(folder / (name + form.FACTS), form.SCHEMA)
    except NlpBenchError as error:
        problems.append(one_line(error))
    try:
        columns = _columns(folder / (name + form.SAMPLES))
    except (OSError, ValueError) as error:
        problems.append(f"no samples ({one_line(error)})")
    failed = folder / (name + form.ERROR)
    if failed.exists():
        problems.append(f"the recorder failed, see {MACHINE}/{one_line(failed.name)}")
    return NodeRecord(name=one_line(name), facts=facts, columns=columns, problem="; ".join(problems) or None)


def _columns(path: Path) -> dict[str, Column]:
    """Return the columns of a CSV. Raises OSError, or ValueError for what is no table of numbers with a time."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_BYTES >> 20} MiB")
    # A line without its line feed was cut as the node went down; a cut number looks like a smaller one.
    with opened(path) as stream:
        first, *lines = stream.read(MAX_BYTES).decode("ascii", "replace").rpartition("\n")[0].splitlines() or [""]
    names = first.split(",")
    if names[0] != form.TIME or len(set(names)) < len(names):
        raise ValueError(f"{path.name} does not begin with the column {form.TIME}")
    rows = [cells for line in lines if len(cells := line.split(",")) == len(names)]
    table = np.array([[_cell(cell) for cell in cells] for cells in rows], dtype=np.float64).reshape(-1, len(names))
    table = table[np.isfinite(table[:, 0])]
    return {name: table[:, index] for index, name in enumerate(names)}


def _cell(text: str) -> float:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return math.nan
    return value if 0 <= value < 1e18 else math.nan


@immutable
class GpuState:
    """One GPU that ranks used, as it stood in the window; None where it is not known."""

    where: str  # "GPU 3 on node n2"
    name: str
    limit_w: float | None  # power limit in force
    default_w: float | None  # the product's own limit
    sm_clock_mhz: float | None  # mean over the samples
    throttled: Mapping[str, float]  # reason (`nvml.THROTTLE_REASONS`) to its share of the samples, above 0


def _states(node: NodeRecord, window: Pair | None) -> Iterator[GpuState]:
    begin, end = window or (-np.inf, np.inf)
    inside = (node.times >= begin) & (node.times <= end)

    def samples(name: str) -> Column:
        column = node.columns.get(name)
        return np.empty(0) if column is None else column[inside & np.isfinite(column)]

    for gpu in node.gpus():
        index = gpu["index"]
        clocks, bits = samples(f"gpu{index}_sm_clock_mhz"), samples(f"gpu{index}_throttle_reasons").astype(np.int64)
        shares = {reason: float(np.mean(bits & bit > 0)) for bit, reason in THROTTLE_REASONS.items() if len(bits)}
        yield GpuState(
            where=f"GPU {index} on node {node.name}",
            name=one_line(gpu.get("name") or "")[:100],
            limit_w=number(gpu.get("power_limit_w")),
            default_w=number(gpu.get("default_power_limit_w")),
            sm_clock_mhz=float(clocks.mean()) if len(clocks) else None,
            throttled={reason: share for reason, share in shares.items() if share},
        )


@immutable
class MachineTruth:
    """One run's machine."""

    summary: Fields  # facts; counts per word where nodes or GPUs differ
    warnings: Texts  # what to know before the number is believed; stands with it
    notes: Texts  # what is not known

    def to_json(self) -> Json:
        """Return the `machine` object of nlp-bench/report/1."""
        return {**self.summary, "warnings": list(self.warnings), "notes": list(self.notes)}


def machine_of(
    nodes: Nodes,
    settings: Mapping[str, Fact],
    *,
    run: Fields,
    environment: Fields,
    window: Pair | None = None,
) -> MachineTruth | None:
    """Return what is known of the machine by its nodes, what the log prints, run.json and environment.json ({}: none), between two times of day; None: nothing."""
    nccl = {
        name: one_line(word.value)[:100] if (word := settings.get(f"nccl_{name}")) else None
        for name in ("version", "transport", "channels")
    }
    if not (nodes or any(nccl.values()) or environment):
        return None
    states = [state for node in nodes for state in _states(node, window)]
    packages = lookup(environment, "packages")
    packages = packages if isinstance(packages, dict) else {}
    installed = [version for name, version in sorted(packages.items()) if name.startswith("nvidia-nccl") and version]
    package = one_line(installed[-1]) if installed else _first(nodes, "nccl_package")
    num_nodes = lookup(run, "parallel.nodes")
    num_nodes = num_nodes if isinstance(num_nodes, int) else None
    reasons = sorted({reason for state in states for reason in state.throttled})
    shares = [state.throttled.get(POWER_CAP, 0.0) for state in states] or [0.0]
    is_normal = max(shares) - min(shares) < UNEVEN and not any(_limits(states))
    known = {**_of_nodes(nodes), **_of_gpus(states, reasons)}
    warnings = (
        *_environment(run, environment),
        *_of_records(nodes, num_nodes, known),
        *_limits(states),
        *(_throttled(states, reason) for reason in reasons if reason != POWER_CAP or not is_normal),
        *_clocks(states),
        *_nccl(nccl, package, nodes, has_network=(num_nodes or 1) > 1),
    )
    summary = {
        **known,
        "nccl": {
            "loaded": nccl["version"],
            "package": package,
            "transport": nccl["transport"],
            "channels": nccl["channels"].split(", ") if nccl["channels"] else None,
        },
        "packages": {one_line(name): one_line(version) for name, version in packages.items() if version is not None},
        # What ran; a record of before it was kept has what was submitted.
        "commit": lookup(environment, "nlp_bench.commit") or lookup(run, "nlp_bench.commit"),
    }
    notes = [NO_RECORDS] if run and not nodes and "clock_spread_s" in settings else []  # older runs have neither
    if lookup(run, "system.accelerator") == "cuda" and not (nccl["transport"] or nccl["channels"]):
        notes.append(NO_TRANSPORT)
    if POWER_CAP in reasons and is_normal:
        notes.append(_throttled(states, POWER_CAP))
    return MachineTruth(summary=summary, warnings=warnings, notes=tuple(notes))


def _environment(run: Fields, environment: Fields) -> Iterator[str]:
    """Yield that the job ran on another cluster than the one that its system file describes, and what was left set that slows it down."""
    described, ran = lookup(run, "system.detect.slurm_cluster"), lookup(environment, "variables.SLURM_CLUSTER_NAME")
    if described and ran and ran != described:
        name = one_line(lookup(run, "system.name"))
        yield f"system {name} describes the cluster {one_line(described)}, and the job ran on {one_line(ran)}"
    variables = lookup(environment, "variables")
    if slow := [f"{name}={value}" for name, value in SLOW_VARIABLES.items() if lookup(variables, name) == value]:
        yield f"{some(slow, _MAX_NAMED)} was set, which is for debugging and slows the training down"


def _first(nodes: Nodes, dotted: str) -> str | None:
    return next(filter(None, (node.text(dotted) for node in nodes)), None)


def _of_nodes(nodes: Nodes) -> Json:
    ports = [port for node in nodes for port in node.objects("infiniband")]
    kinds = (", ".join(one_line(port.get(name) or "?") for name in ("link_layer", "rate", "state")) for port in ports)
    modules = [node.facts.get("modules") for node in nodes]
    named = next((words for words in modules if isinstance(words, list) and words), [])
    counted = {"cpu": "cpu.model", "kernel": "kernel", "driver": "driver", "cuda_driver": "cuda_driver"}
    return {
        "nodes": [node.name for node in nodes],
        "slurm_node_list": _first(nodes, "slurm.node_list"),
        **{name: _counted(node.text(dotted) for node in nodes) for name, dotted in counted.items()},
        "infiniband": _counted(kinds),
        "modules": [one_line(word)[:200] for word in named[:200]],
    }


def _of_gpus(states: Sequence[GpuState], reasons: Sequence[str]) -> Json:
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
    return {
        "gpus": _counted(state.name for state in states),
        "power_limit_w": _counted(f"{state.limit_w:g}" if state.limit_w else None for state in states),
        "default_power_limit_w": _counted(f"{state.default_w:g}" if state.default_w else None for state in states),
        "mean_sm_clock_mhz": {"lowest": min(clocks), "highest": max(clocks)} if clocks else None,
        "throttled_share": {reason: max(s.throttled.get(reason, 0.0) for s in states) for reason in reasons},
    }


def _counted(words: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(word for word in words if word).items()))


def _of_records(nodes: Nodes, num_nodes: int | None, known: Fields) -> Iterator[str]:
    """Say what records are missing, and where the nodes or GPUs, by their counts in `known`, are not alike."""
    if nodes and num_nodes is not None:  # else it is a run of before there were records, or that was to keep none
        if len(nodes) < num_nodes:
            there = some((node.name for node in nodes), _MAX_NAMED)
            yield f"machine records of {num_nodes - len(nodes)} of {num_nodes} nodes are missing (there: {there})"
        for node in [node for node in nodes if node.problem][:_MAX_NAMED]:
            yield f"machine record of node {node.name}: {node.problem}"
    for name, words in _ALIKE.items():
        if len(known[name]) > 1:
            yield f"the {words}: {_shared(known[name])}"


def _limits(states: Sequence[GpuState]) -> Iterator[str]:
    groups: dict[Pair, list[str]] = {}
    for state in states:
        if state.limit_w and state.default_w and state.limit_w < 0.995 * state.default_w:
            groups.setdefault((state.limit_w, state.default_w), []).append(state.where)
    return (
        f"{some(names, _MAX_NAMED)} limited to {limit:g} of {default:g} W" for (limit, default), names in groups.items()
    )


def _throttled(states: Sequence[GpuState], reason: str) -> str:
    slowed = sorted((s for s in states if s.throttled.get(reason)), key=lambda s: -s.throttled[reason])
    share = f"{100 * slowed[0].throttled[reason]:.0f} % of the samples"
    many = f"{len(slowed)} of {len(states)} GPUs, most {slowed[0].where}" if len(slowed) > 1 else slowed[0].where
    return f"throttled by {reason}: {many} in {share}"


def _clocks(states: Sequence[GpuState]) -> Iterator[str]:
    clocks = sorted((state.sm_clock_mhz, state.where) for state in states if state.sm_clock_mhz)
    middle = clocks[len(clocks) // 2][0] if clocks else 0.0
    if slow := [where for clock, where in clocks if clock < (1 - CLOCK_SPREAD) * middle]:
        yield f"clocks differ: {some(slow, _MAX_NAMED)} ran at {clocks[0][0]:.0f} MHz or more, the median GPU at {middle:.0f} MHz"


def _nccl(said: Mapping[str, str | None], package: str | None, nodes: Nodes, *, has_network: bool) -> Iterator[str]:
    version, transport = said["version"], said["transport"]
    releases = {found.group() if (found := _RELEASE.match(name)) else name for name in (package, version) if name}
    if package and len(releases) > 1:
        yield f"NCCL {version} was loaded, the installed package is {package}"
    up = [port for node in nodes for port in node.objects("infiniband") if port.get("state") == "ACTIVE"]
    is_socket = transport == "Socket" or (transport is None and "NET/Socket" in (said["channels"] or ""))
    if is_socket and has_network and up:
        devices = some(sorted({one_line(port.get("device") or "?") for port in up}), _MAX_NAMED)
        yield f"NCCL uses TCP sockets (NET/Socket) although InfiniBand is up ({devices})"


def _shared(found: Mapping[str, int]) -> str:
    return some((f"{count} x {word}" for word, count in found.items()), _MAX_NAMED)


def machine_lines(truth: MachineTruth | None) -> Iterator[str]:
    """Yield the machine in a few lines for `--explain`."""
    if truth is None:
        return
    known, nccl = truth.summary, truth.summary["nccl"]
    if nodes := known["nodes"]:
        what = [f"{len(nodes)} node(s) ({some(nodes, _MAX_NAMED)})"]
        what += [_shared(known[name]) for name in ("gpus", "cpu") if known[name]]
        what += [f"{name} {', '.join(known[name])}" for name in ("driver", "kernel") if known[name]]
        yield "; ".join(what)
    said = [f"NCCL {nccl['loaded']} loaded"] if nccl["loaded"] else []
    said += [f"transport {nccl['transport']}"] if nccl["transport"] else []
    said += [f"channels via {', '.join(nccl['channels'])}"] if nccl["channels"] else []
    software = [f"{name} {version}" for name, version in known["packages"].items()]
    software += [f"nlp-bench commit {one_line(known['commit'])[:60]}"] if known["commit"] else []
    software += [f"modules {' '.join(known['modules'][:20])}"] if known["modules"] else []
    yield from filter(None, ("; ".join([*said, *truth.notes]), ", ".join(software)))
