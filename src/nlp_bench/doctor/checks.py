"""The checks: a table, one evaluator, and their findings as a record and as text.

A check is a function of the place that changes nothing and returns one finding, or yields several of which the worst counts.
"""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from nlp_bench.bytecode import cut_bytecode
from nlp_bench.clock import now
from nlp_bench.config.origin import origin
from nlp_bench.doctor import hardware, scheduler, software
from nlp_bench.doctor.place import FAILED, OK, SKIPPED, STATUSES, WARNING, Finding, Place, failed, together
from nlp_bench.errors import NlpBenchError, UsageError, nearest
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.programs import answers

SCHEMA = "nlp-bench/doctor/1"
WITHIN_S = 60.0  # seconds for all checks together: system calls to a file server or a driver that hangs never return


@immutable(kw_only=False)
class Check:
    """One row of the table."""

    well: str  # what is in order when it is ok
    look: Callable[[Place], Finding | Iterator[Finding]]
    per_node: bool = False  # whether `doctor --nodes` runs it on each node as well: its answer differs between nodes


CHECKS = {
    "system": Check("the system file of this machine is found, and the run can be resolved", software.system),
    "python": Check("Python 3.10 to 3.13, and the compiled reader of logs", software.python, per_node=True),
    "environment": Check("the virtual environment is finished and holds the pinned versions", software.environment),
    "jube": Check("a JUBE that starts under this Python", software.jube),
    "slurm": Check("Slurm answers, and how fast", scheduler.slurm),
    "partition": Check("the partition exists, is up, and gives the nodes and the time", scheduler.partition),
    "job": Check("sbatch would take the job script (sbatch --test-only)", scheduler.job),
    "allocation": Check("inside an allocation: as many nodes as the run asks for", scheduler.allocation),
    "names": Check("the nodes' addresses can be resolved, this one's too", scheduler.names, per_node=True),
    "gpus": Check("as many GPUs of the right kind as the system file says", hardware.gpus, per_node=True),
    "gpu_health": Check("ECC errors, retired pages, remapped rows, throttling, NVLink", hardware.gpu_health, per_node=True),
    "gpu_processes": Check("nobody else computes on the GPUs", hardware.gpu_processes, per_node=True),
    "cuda": Check("torch's CUDA fits the driver", hardware.cuda, per_node=True),
    "nccl": Check("NCCL is there, and the interfaces of *_SOCKET_IFNAME exist", hardware.nccl, per_node=True),
    "fabric": Check("InfiniBand ports are up, as many and as fast as the system file says", hardware.fabric, per_node=True),
    "limits": Check("locked memory, open files, shared memory", hardware.limits, per_node=True),
    "build": Check("a finished build of the kernels for this machine", software.build),
    "locks": Check("nobody holds, and nobody left, a lock of build, environment or data", software.locks),
    "disk": Check("room and inodes where runs, data and builds are written", hardware.disk, per_node=True),
    "writable": Check("a file can be written, flushed and removed there", hardware.writable, per_node=True),
    "clock": Check("the clock is synchronised and agrees with the file server", hardware.clock, per_node=True),
    "data": Check("the training data are whole, and no git-lfs pointers", software.data),
}  # fmt: skip
PER_NODE = tuple(name for name, check in CHECKS.items() if check.per_node)


@immutable
class Examined:
    """One check and what it found."""

    name: str  # the check's name, as --checks takes it
    finding: Finding
    elapsed_s: float

    def to_json(self) -> dict[str, Any]:
        """Return its object of nlp-bench/doctor/1."""
        found = asdict(self.finding) | {"evidence": list(self.finding.evidence), "remedy": self.finding.remedy or None}
        return {"name": self.name, **found, "elapsed_s": round(self.elapsed_s, 3)}


def chosen(words: str | None) -> list[str]:
    """Return the checks that `words` ("jube,disk") name, all where it is None; raises UsageError for an unknown one."""
    if words is None:
        return list(CHECKS)
    names = [word.strip() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in CHECKS:
            raise UsageError(f"--checks: {name!r} is no check{nearest(name, list(CHECKS))}")
    if not names:
        raise UsageError(f"--checks: names no check; they are: {' '.join(CHECKS)}")
    return list(dict.fromkeys(names))


def examine(place: Place, names: Iterable[str]) -> list[Examined]:
    """Run the checks `names` at once and return what they found, in that order; each has an answer after WITHIN_S seconds at most."""
    running = {name: partial(_examined, place, name) for name in names}
    found = answers(running, WITHIN_S)
    silent = failed(
        f"no answer within {WITHIN_S:g} s: a file server, a driver or a name service hangs",
        remedy="df, nvidia-smi, getent hosts: what of these hangs as well? tell the site; the others: nlp-bench doctor --checks A,B",
    )
    return [found.get(name) or Examined(name=name, finding=silent, elapsed_s=WITHIN_S) for name in running]


def _examined(place: Place, name: str) -> Examined:
    start, again = time.monotonic(), f"mend that, then ask again: {place.again} --checks {name}"
    try:
        found = CHECKS[name].look(place)
        finding = found if isinstance(found, Finding) else together(list(found))
    except NlpBenchError as error:  # a refusal has its remedy in its text
        finding = failed(str(error), remedy=again)
    except Exception as error:  # noqa: BLE001  # a check that breaks must not hide what the others find
        broke = failed(
            f"the check itself broke: {type(error).__name__}: {error}",
            remedy=f"run the others without it, and please report this: {place.again} --checks {name}",
        )
        why = cut_bytecode(error)
        finding = failed(why, remedy=again) if why else broke
    return Examined(name=name, finding=finding, elapsed_s=time.monotonic() - start)


def is_bad(examined: Iterable[Examined]) -> bool:
    """Return whether a check failed."""
    return any(one.finding.status == FAILED for one in examined)


def record(place: Place, examined: Sequence[Examined], *, nodes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object that `doctor --format json` prints; `nodes` is what a test of nodes found, null without one."""
    return {
        "schema": SCHEMA,
        "created": now(),
        "nlp_bench": asdict(origin()),
        "host": socket.gethostname(),
        "system": place.system.name if place.system else None,
        "model": place.model,
        "root": str(place.root),
        "checks": [one.to_json() for one in examined],
        "nodes": nodes,
    }


def table(examined: Sequence[Examined], *, is_verbose: bool = False) -> str:
    """Return one line per check; evidence and remedy below those that are not ok, below all when verbose."""
    width = max((len(one.name) for one in examined), default=0)
    indent = " " * (width + 11)
    lines = []
    for one in examined:
        found = one.finding
        lines.append(f"{found.status:<8} {one.name:<{width}}  {one_line(found.summary)}")
        if is_verbose or found.status in {WARNING, FAILED}:
            lines += [f"{indent}{one_line(text)}" for text in found.evidence if text]
        if found.remedy and found.status != OK:
            lines.append(f"{indent}next: {one_line(found.remedy)}")
    return "\n".join(lines)


def counts(examined: Sequence[Examined]) -> str:
    """Return how many checks ended with which status."""
    found = [one.finding.status for one in examined]
    text = ", ".join(f"{found.count(status)} {status}" for status in STATUSES if status in found)
    bad = ", ".join(one.name for one in examined if one.finding.status == FAILED)
    nothing = "; nothing was looked at" if set(found) <= {SKIPPED} else ""
    return text + (f"; failed: {bad}" if bad else "") + nothing
