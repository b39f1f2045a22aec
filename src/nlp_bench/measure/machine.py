"""What the machine of a run really was and did, from its nodes' records, environment.json and the log; and what is wrong with it.

A warning is a fact that makes the number another one than its reader thinks: a limited or throttled GPU, a fallback to TCP, another
NCCL than the installed one, nodes that differ, nodes that left no record.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench.files import read_object
from nlp_bench.logs.record import Fact
from nlp_bench.machine.nvml import THROTTLE_REASONS
from nlp_bench.measure.gpu_state import GpuState, gpu_states
from nlp_bench.measure.node_records import NodeRecord
from nlp_bench.measure.workload import lookup
from nlp_bench.show.escape import one_line

CLOCK_SPREAD = 0.05
"""GPUs whose mean clock is further from the median than this do not run alike."""
NO_RECORDS = "no machine records: the recorder was switched off (NLP_BENCH_SAMPLE_S=0) or could not write"
NO_TRANSPORT = "transport not recorded; run with NCCL_DEBUG=INFO"
POWER_CAP, UNEVEN = THROTTLE_REASONS[0x04], 0.25
"""A full load at the power limit is normal, and a warning only where the limit is lowered or the GPUs' shares differ by so much."""
_MAX_NAMED = 3
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, kw_only=True)
class MachineTruth:
    """One run's machine."""

    summary: Mapping[str, Any] = field(default_factory=dict)
    """Facts by name; a count per word where nodes or GPUs may differ."""
    warnings: tuple[str, ...] = ()
    """What to know before the number is believed; stands beside it."""
    notes: tuple[str, ...] = ()
    """What is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return the `machine` object of nlp-bench/report/1."""
        return {**self.summary, "warnings": list(self.warnings), "notes": list(self.notes)}


def machine_of(
    nodes: Sequence[NodeRecord],
    settings: Mapping[str, Fact],
    *,
    run: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    window: tuple[float, float] | None = None,
) -> MachineTruth | None:
    """Return what is known of the machine, None where nothing is.

    `settings` is what the log prints, `run` run.json, `environment` environment.json, `window` the times of day between which the
    samples count (None: all of them).
    """
    log = _Log.of(settings)
    if not (nodes or log.is_known or environment):
        return None
    states = gpu_states(nodes, window)
    packages = lookup(environment or {}, "packages")
    packages = packages if isinstance(packages, dict) else {}
    num_nodes = lookup(run or {}, "parallel.nodes")
    is_on_gpus = lookup(run or {}, "system.accelerator") == "cuda"
    has_network = isinstance(num_nodes, int) and num_nodes > 1
    warnings = [
        *(_records(nodes, num_nodes) if isinstance(num_nodes, int) else ()),
        *_differences(nodes),
        *_limits(states),
        *_throttling(states),
        *_clocks(states),
        *_nccl(log, packages, nodes, has_network=has_network),
    ]
    summary = {
        **_nodes(nodes),
        **_gpus(states),
        **log.to_json(_nccl_package(packages, nodes)),
        **_software(run, environment, packages),
    }
    notes = [NO_RECORDS] if run and not nodes and "clock_spread_s" in settings else []  # older runs have neither
    notes += [NO_TRANSPORT] if is_on_gpus and not (log.transport or log.channels) else []
    notes += (
        [_throttled(states, POWER_CAP)] if any(POWER_CAP in s.throttled for s in states) and _is_normal(states) else []
    )
    return MachineTruth(summary=summary, warnings=tuple(warnings), notes=tuple(notes))


def read_environment(run_dir: Path) -> Mapping[str, Any] | None:
    """Return environment.json, None where it is not there or no object."""
    return read_object(run_dir / "environment.json") or None


@dataclass(frozen=True)
class _Log:
    """What NCCL said in the log."""

    version: str | None
    transport: str | None
    channels: str | None

    @classmethod
    def of(cls, settings: Mapping[str, Fact]) -> "_Log":
        words = [settings.get(name) for name in ("nccl_version", "nccl_transport", "nccl_channels")]
        return cls(*(one_line(word.value)[:100] if word else None for word in words))

    @property
    def is_known(self) -> bool:
        return bool(self.version or self.transport or self.channels)

    def to_json(self, package: str | None) -> dict[str, Any]:
        return {
            "nccl": {
                "loaded": self.version,
                "package": package,
                "transport": self.transport,
                "channels": self.channels.split(", ") if self.channels else None,
            }
        }


def _nodes(nodes: Sequence[NodeRecord]) -> dict[str, Any]:
    ports = [port for node in nodes for port in node.objects("infiniband")]
    kinds = (", ".join(one_line(port.get(name) or "?") for name in ("link_layer", "rate", "state")) for port in ports)
    slurm = next((node.text("slurm", "node_list") for node in nodes if node.text("slurm", "node_list")), None)
    modules = [node.facts.get("modules") for node in nodes]
    named = next((words for words in modules if isinstance(words, list) and words), [])
    return {
        "nodes": [node.name for node in nodes],
        "slurm_node_list": slurm,
        "cpu": _counted(node.text("cpu", "model") for node in nodes),
        "kernel": _counted(node.text("kernel") for node in nodes),
        "driver": _counted(node.text("driver") for node in nodes),
        "cuda_driver": _counted(node.text("cuda_driver") for node in nodes),
        "infiniband": _counted(kinds),
        "modules": [one_line(word)[:200] for word in named[:200]],
    }


def _gpus(states: Sequence[GpuState]) -> dict[str, Any]:
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
    reasons = {reason for state in states for reason in state.throttled}
    return {
        "gpus": _counted(state.name for state in states),
        "power_limit_w": _counted(f"{state.limit_w:g}" if state.limit_w else None for state in states),
        "default_power_limit_w": _counted(f"{state.default_w:g}" if state.default_w else None for state in states),
        "mean_sm_clock_mhz": {"lowest": min(clocks), "highest": max(clocks)} if clocks else None,
        "throttled_share": {reason: max(s.throttled.get(reason, 0.0) for s in states) for reason in sorted(reasons)},
    }


def _software(
    run: Mapping[str, Any] | None, environment: Mapping[str, Any] | None, packages: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "packages": {one_line(name): one_line(version) for name, version in packages.items() if version is not None},
        # What ran; a record of before it was kept has what was submitted.
        "commit": lookup(environment or {}, "nlp_bench.commit") or lookup(run or {}, "nlp_bench.commit"),
    }


def _counted(words: Any) -> dict[str, int]:
    return dict(sorted(Counter(word for word in words if word).items()))


def _records(nodes: Sequence[NodeRecord], num_nodes: int) -> Iterator[str]:
    if not nodes:
        return  # a run of before there were records, or one that was told to keep none
    if len(nodes) < num_nodes:
        yield f"machine records of {num_nodes - len(nodes)} of {num_nodes} nodes are missing (there: {_named([n.name for n in nodes])})"
    for node in [node for node in nodes if node.problem][:_MAX_NAMED]:
        yield f"machine record of node {node.name}: {node.problem}"


def _differences(nodes: Sequence[NodeRecord]) -> Iterator[str]:
    """Say where the nodes are not alike."""
    for words, path in (("CPU models", ("cpu", "model")), ("kernels", ("kernel",)), ("drivers", ("driver",))):
        found = _counted(node.text(*path) for node in nodes)
        if len(found) > 1:
            yield f"the nodes have different {words}: {_shared(found)}"
    found = _counted(one_line(gpu.get("name") or "") for node in nodes for gpu in node.gpus())
    if len(found) > 1:
        yield f"the GPUs are of different models: {_shared(found)}"


def _limits(states: Sequence[GpuState]) -> Iterator[str]:
    groups: dict[tuple[float, float], list[str]] = {}
    for state in states:
        if state.limit_w and state.default_w and state.limit_w < 0.995 * state.default_w:
            groups.setdefault((state.limit_w, state.default_w), []).append(state.where)
    for (limit_w, default_w), names in groups.items():
        yield f"{_named(names)} limited to {limit_w:g} of {default_w:g} W"


def _throttling(states: Sequence[GpuState]) -> Iterator[str]:
    for reason in sorted({reason for state in states for reason in state.throttled}):
        if reason == POWER_CAP and _is_normal(states):
            continue
        yield _throttled(states, reason)


def _is_normal(states: Sequence[GpuState]) -> bool:
    shares = [state.throttled.get(POWER_CAP, 0.0) for state in states]
    return max(shares) - min(shares) < UNEVEN and not any(_limits(states))


def _throttled(states: Sequence[GpuState], reason: str) -> str:
    slowed = sorted((s for s in states if s.throttled.get(reason)), key=lambda s: -s.throttled[reason])
    share = f"{100 * slowed[0].throttled[reason]:.0f} % of the samples"
    many = f"{len(slowed)} of {len(states)} GPUs, most {slowed[0].where}" if len(slowed) > 1 else slowed[0].where
    return f"throttled by {reason}: {many} in {share}"


def _clocks(states: Sequence[GpuState]) -> Iterator[str]:
    clocks = sorted((state.sm_clock_mhz, state.where) for state in states if state.sm_clock_mhz)
    if len(clocks) < 2:
        return
    middle = clocks[len(clocks) // 2][0]
    slow = [where for clock, where in clocks if clock < (1 - CLOCK_SPREAD) * middle]
    if slow:
        yield f"clocks differ: {_named(slow)} ran at {clocks[0][0]:.0f} MHz or more, the median GPU at {middle:.0f} MHz"


def _nccl_package(packages: Mapping[str, Any], nodes: Sequence[NodeRecord]) -> str | None:
    installed = [version for name, version in sorted(packages.items()) if name.startswith("nvidia-nccl") and version]
    return one_line(installed[-1]) if installed else next((v for n in nodes if (v := n.text("nccl_package"))), None)


def _nccl(log: _Log, packages: Mapping[str, Any], nodes: Sequence[NodeRecord], *, has_network: bool) -> Iterator[str]:
    package = _nccl_package(packages, nodes)
    if package and log.version and _release(package) != _release(log.version):
        yield f"NCCL {log.version} was loaded, the installed package is {package}"
    up = [port for node in nodes for port in node.objects("infiniband") if port.get("state") == "ACTIVE"]
    is_socket = log.transport == "Socket" or (log.transport is None and "NET/Socket" in (log.channels or ""))
    if is_socket and has_network and up:
        devices = _named(sorted({one_line(port.get("device") or "?") for port in up}))
        yield f"NCCL uses TCP sockets (NET/Socket) although InfiniBand is up ({devices})"


def _release(version: str) -> str:
    found = _RELEASE.match(version)
    return found.group() if found else version


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _shared(found: Mapping[str, int]) -> str:
    words = [f"{count} x {word}" for word, count in found.items()]
    return _named(words)


def machine_lines(truth: MachineTruth | None) -> Iterator[str]:
    """Return the machine in a few lines for `--explain`."""
    if truth is None:
        return
    known = truth.summary
    nodes = known.get("nodes") or []
    if nodes:
        what = [f"{len(nodes)} node(s) ({_named(nodes)})"]
        what += [_shared(known[name]) for name in ("gpus", "cpu") if known.get(name)]
        what += [
            f"{name.replace('_', ' ')} {', '.join(known[name])}" for name in ("driver", "kernel") if known.get(name)
        ]
        yield "; ".join(what)
    nccl = known["nccl"]
    said = [
        f"NCCL {nccl['loaded']} loaded" if nccl["loaded"] else "",
        f"transport {nccl['transport']}" if nccl["transport"] else "",
    ]
    said += [f"channels via {', '.join(nccl['channels'])}" if nccl["channels"] else "", *truth.notes]
    software = [f"{name} {version}" for name, version in known.get("packages", {}).items()]
    software += [f"nlp-bench commit {one_line(known['commit'])[:60]}"] if known.get("commit") else []
    software += [f"modules {' '.join(known['modules'][:20])}"] if known.get("modules") else []
    yield from filter(None, ("; ".join(filter(None, said)), ", ".join(software)))
