"""Checks of one node's hardware and file systems: GPUs, NCCL, InfiniBand, limits, disks, clock."""

import contextlib
import ctypes
import os
import re
import resource
import shlex
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from nlp_bench.build.environment import this_machine
from nlp_bench.doctor.place import Finding, Place, failed, ok, skipped, warning
from nlp_bench.doctor.software import command_of
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import temporary_folder
from nlp_bench.launch.nodes.resources import VISIBLE
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.machine.node import NCCL_PACKAGES, SLOW_VARIABLES, infiniband, text_of
from nlp_bench.machine.nvml import THROTTLE_REASONS, Nvml, visible_gpus
from nlp_bench.packages import installed_version

UNCORRECTED, VOLATILE = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: since the driver was loaded
MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS
BUSY_BYTES = 2**30  # memory in use on a GPU without a visible process: more than a driver and its services need
FILES_PER_RANK = 1024  # open files of a rank: sockets to its peers, libraries, data; the usual soft limit
SHM_BYTES_PER_RANK = 32 * 2**20
"""NCCL's and torch's buffers in /dev/shm; a container's usual 64 MiB are too few for four ranks."""
NEEDED_BYTES, WANTED_BYTES = 100 * 2**20, 5 * 2**30
"""A run without checkpoints writes a few MB of log and records, and may end in the middle below the first; the second is for a kernel
build or the index cache of a large corpus."""
NEEDED_INODES, WANTED_INODES = 1000, 20_000
"""Each rank has a folder of its own; a build or a virtual environment has thousands of files."""
PROBE_BYTES = 2**20
SLOW_S = 2.0  # seconds to write and flush 1 MiB
STA_UNSYNC = 0x0040  # adjtimex(2): no time service disciplines the clock
MAX_SKEW_S = 2.0
"""Records of nodes and of the file server are compared in whole seconds; more than this makes a run look ended or stale."""


def gpus(place: Place) -> Finding:  # noqa: PLR0911  # one answer per case
    """Compare what NVML and CUDA_VISIBLE_DEVICES show with the ranks per node and the system file's GPU."""
    if place.no_gpu_here:
        return skipped(place.no_gpu_here)
    nvml = place.nvml
    if nvml is None or not nvml.handles:
        what = f"the ranks need GPUs: {place.no_nvml or 'the driver lists none'}"
        return failed(what, remedy="nvidia-smi; else --system of a CPU machine")
    kinds = [nvml.maybe("nvmlDeviceGetName", handle) or "unknown" for handle in nvml.handles]
    what = f"{len(kinds)} x {' / '.join(dict.fromkeys(kinds))}"
    variables = [
        f"{name}={place.variables[name]}" for name in (VISIBLE, *Slurm.gpu_variables) if name in place.variables
    ]
    facts = [f"driver {nvml.driver()['driver']}", *variables]
    if place.accelerator != "cuda":
        return skipped(f"the ranks run on the CPU; this node has {what}")
    shown = visible_gpus(place.variables.get(VISIBLE), nvml) or []
    wanted = place.run.parallel.gpus_per_node if place.run else len(shown)
    if len(shown) < wanted:
        remedy = "nvidia-smi -L; ask Slurm for all GPUs of the node (system.slurm.gres), or start fewer ranks per node"
        return failed(f"{wanted} rank(s) per node, but {len(shown)} GPU(s) are visible", what, *facts, remedy=remedy)
    used = [kinds[index] for index in shown[:wanted] if index is not None] or kinds
    if len(set(used)) > 1:
        remedy = "choose alike ones with CUDA_VISIBLE_DEVICES"
        return warning("the GPUs of the ranks are not alike", *used, remedy=remedy)
    sheet = place.system.gpu.name if place.system and place.system.gpu else ""
    if sheet and not is_like(sheet, used[0]):
        remedy = "correct [gpu] of benchmark/systems, on which efficiency and predictions rest"
        return warning(f"the system file says {sheet}, NVML says {used[0]}", what, *facts, remedy=remedy)
    return ok(what, *facts)


def is_like(sheet: str, name: str) -> bool:
    """Return whether the first word with a digit of a data sheet's name ("A100-SXM4-40GB") is a word of the driver's name."""
    words, told = (text.lower().replace("-", " ").split() for text in (sheet, name))
    model = next((word for word in words if any(sign.isdigit() for sign in word)), None)
    return model in told if model else sheet.lower() in name.lower()


def gpu_health(place: Place) -> Iterator[Finding]:
    """Fail for memory errors that will end a run, warn of what slows a GPU down.

    NVML's nvmlDeviceGetRetiredPagesPendingStatus is for boards before Ampere, nvmlDeviceGetRemappedRows (corrected, uncorrected,
    pending, failed) for those since. Remedies: NVIDIA's "GPU Memory Error Management" and "Dynamic Page Retirement".
    """
    nvml = place.nvml
    if place.no_gpu_here or nvml is None or not nvml.handles:
        yield skipped(place.no_gpu_here or f"no GPU to ask: {place.no_nvml or 'the driver lists none'}")
        return
    for index in range(len(nvml.handles)):
        yield from _gpu(nvml, index)
    links = [_links(nvml, handle) for handle in nvml.handles]
    if len(set(links)) > 1:
        shown = ", ".join(map(str, links))
        yield warning(f"active NVLinks differ between the GPUs: {shown}", remedy="nvidia-smi nvlink --status")
    facts = [f"active NVLinks per GPU: {links[0]}"] if links[0] is not None and len(set(links)) == 1 else []
    yield ok(f"{len(links)} GPU(s) without a remembered fault, not throttled", *facts)


def _gpu(nvml: Nvml, index: int) -> Iterator[Finding]:
    handle, name = nvml.handles[index], f"GPU {index}"
    reset = f"ask the site to reset the GPU (nvidia-smi -i {index} --gpu-reset) or to take the node out"
    errors = nvml.maybe("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE)
    if errors:
        yield failed(f"{name}: {errors} uncorrected ECC error(s) since the driver was loaded", remedy=reset)
    if nvml.maybe("nvmlDeviceGetRetiredPagesPendingStatus", handle):
        yield failed(f"{name}: a memory page waits to be retired", remedy=reset)
    *_, is_pending, is_broken = nvml.maybe("nvmlDeviceGetRemappedRows", handle) or (0, 0)
    if is_broken:
        yield failed(f"{name}: remapping a memory row failed", remedy="the board has to be replaced: tell the site")
    if is_pending:
        yield failed(f"{name}: a memory row waits to be remapped", remedy=reset)
    gpu = nvml.gpu(index)
    if gpu["ecc_mode"] is False:
        yield warning(f"{name}: ECC is off: a flipped bit would not be noticed", remedy=f"nvidia-smi -i {index} -e 1")
    limit, usual = gpu["power_limit_w"], gpu["default_power_limit_w"]
    if limit and usual and limit < usual:
        remedy = f"nvidia-smi -i {index} -pl {usual:g}"
        yield warning(f"{name}: power limit {limit:g} W instead of {usual:g} W", remedy=remedy)
    _, power, clock, throttle, celsius = nvml.sample(handle)
    reasons = [text for bit, text in THROTTLE_REASONS.items() if int(throttle or 0) & bit]
    if reasons:
        seen = f"{name}: {clock or '?'} MHz, {power or '?'} W, {celsius or '?'} degrees Celsius"
        remedy = f"nvidia-smi -i {index} -q -d PERFORMANCE"
        yield warning(f"{name} is slowed: {', '.join(reasons)}", seen, remedy=remedy)


def _links(nvml: Nvml, handle: Any) -> int | None:
    states = [nvml.maybe("nvmlDeviceGetNvLinkState", handle, link) for link in range(MAX_LINKS)]
    known = [state for state in states if state is not None]
    return sum(known) if known else None


def gpu_processes(place: Place) -> Finding:
    """Warn of processes on the GPUs that are unrelated to this one: they take memory and time from a measurement."""
    nvml = place.nvml
    if place.no_gpu_here or nvml is None or not nvml.handles:
        return skipped(place.no_gpu_here or f"no GPU to ask: {place.no_nvml or 'the driver lists none'}")
    seen, quiet = [], []
    for index, handle in enumerate(nvml.handles):
        running = nvml.maybe("nvmlDeviceGetComputeRunningProcesses", handle) or []
        others = [process.pid for process in running if process.pid not in {os.getpid(), os.getppid()}]
        commands = {pid: command_of(place, pid)[:80] or "not to be seen here" for pid in others}
        seen += [f"GPU {index}: process {pid} ({command})" for pid, command in commands.items()]
        memory = nvml.maybe("nvmlDeviceGetMemoryInfo", handle)
        if not others and memory and memory.used > BUSY_BYTES:
            used = f"{memory.used / 2**30:.1f} GiB"
            quiet.append(f"GPU {index}: {used} are in use by processes that are not shown")
    if not seen and not quiet:
        return ok(f"nobody computes on the {len(nvml.handles)} GPU(s)")
    remedy = "nvidia-smi; wait for their end, or ask for the node alone (--exclusive)"
    return warning(f"{len(seen) or 'unseen'} process(es) of others on the GPUs", *seen[:16], *quiet, remedy=remedy)


def cuda(place: Place) -> Finding:  # noqa: PLR0911  # one answer per case
    """Compare torch's CUDA with the driver's, without importing torch.

    NVIDIA, "CUDA Compatibility": a program of CUDA 12.x runs on any driver that supports 12.0 or newer (minor version
    compatibility), not on one of an older major version.
    """
    machine = this_machine("cpu")  # named, so that the driver is not queried: NVML has answered already
    torch = f"torch {machine.torch}"
    if machine.torch == "absent":
        return failed("torch is not installed for this Python", remedy=place.set_up())
    if place.accelerator != "cuda":
        return skipped(f"{torch} on the CPU")
    if place.has_image:
        return skipped("torch is the container image's")
    if machine.cuda == "none":
        return failed(f"{torch} is a build without CUDA", remedy=place.set_up())
    if place.nvml is None:
        return skipped(f"{torch} is built for CUDA {machine.cuda}; no driver here to compare with")
    driver = place.nvml.driver()
    known, facts = driver["cuda_driver"], (f"driver {driver['driver']}", torch)
    if known is None:
        return warning("the driver does not say which CUDA it supports", *facts, remedy="nvidia-smi")
    major = known.split(".")[0]
    if int(major) >= int(machine.cuda.split(".")[0]):
        return ok(f"torch for CUDA {machine.cuda}, driver for CUDA {known}", *facts)
    remedy = f"pin a torch for CUDA {major} in benchmark/env/constraints.txt, or ask the site for a newer driver"
    return failed(f"torch is built for CUDA {machine.cuda}, the driver supports {known}", *facts, remedy=remedy)


def nccl(place: Place) -> Iterator[Finding]:
    """Compare the interfaces that the environment names for NCCL and gloo with those of this node.

    NCCL_SOCKET_IFNAME is a list of beginnings of names; "=" before it: whole names; "^": all but these (NVIDIA's NCCL user guide,
    "Environment Variables"). gloo's GLOO_SOCKET_IFNAME is a list of whole names (PyTorch, torch.distributed).
    """
    here = sorted(path.name for path in (place.files / "sys/class/net").glob("*"))
    found = [one for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") for one in _interface(place, name, here)]
    slow = [name for name, value in SLOW_VARIABLES.items() if place.variables.get(name) == value]
    found += [warning(f"{n}={SLOW_VARIABLES[n]} slows the training down", remedy=f"unset {n}") for n in slow]
    yield from found
    if place.accelerator == "cuda":
        yield ok("NCCL and its interfaces are there")
        if not place.has_image:
            yield _nccl_package(place)
    else:
        yield ok("interfaces are there") if found else skipped("the ranks run on the CPU, and no interface is set")


def _nccl_package(place: Place) -> Finding:
    version = next((f"{p} {v}" for p in NCCL_PACKAGES if (v := installed_version(p))), None)
    if version or (place.system and place.system.software.system_site_packages):
        return ok("", version or "NCCL comes with the site's torch")
    remedy = "python -c 'import torch; print(torch.cuda.nccl.version())'"
    return warning("no NCCL package is installed with torch", remedy=remedy)


def _interface(place: Place, name: str, here: Sequence[str]) -> Iterator[Finding]:
    value = place.variables.get(name, "")
    if not value:
        return
    is_whole = value.startswith("=") or name.startswith("GLOO")
    words = [word.partition(":")[0] for word in value.lstrip("=").split(",") if word]
    fitting = [i for i in here for word in words if (i == word if is_whole else i.startswith(word))]
    where = f"{name}={value}; this node has: {', '.join(here) or 'none that is told'}"
    if fitting or value.startswith("^"):
        yield ok("", where)
    elif place.is_login_node:
        what = f"{name} names {value}, which this login node does not have"
        yield warning(what, where, remedy=f"{place.again} --nodes all")
    else:
        remedy = f"ip -brief link; correct {name} in [environment] of benchmark/systems"
        yield failed(f"{name} names {value}, which this node does not have", where, remedy=remedy)


def fabric(place: Place) -> Finding:
    """Compare the active InfiniBand (or RoCE) ports with the system file's links per node and their rate."""
    ports = infiniband(place.files)
    network = place.system.network if place.system else None
    wanted = network.links_per_node if network else None
    if not ports:
        return _no_ports(place, wanted)
    facts = [f"{p['device']} port {p['port']}: {p['state']}, {p['rate']}, {p['link_layer']}" for p in ports]
    up = [port for port in ports if port["state"] == "ACTIVE"]
    if wanted is not None and len(up) < wanted and not place.is_login_node:
        remedy = "ibstat; take the node out of the job: --sbatch-arg=--exclude=NODE"
        return failed(f"{len(up)} of {wanted} links are active", *facts, remedy=remedy)
    if not up:
        return failed("no port is active", *facts, remedy="ibstat; tell the site")
    rate = network.link_gbit_per_s if network else None
    slow = [f"{port['device']} {port['rate']}" for port in up if rate and (_rate(port["rate"]) or rate) < rate]
    if slow and len(up) - len(slow) < (wanted or len(up)):
        remedy = "ibstat; a cable or a port has come up at a lower rate: tell the site"
        return warning(f"slower than {rate:g} Gbit/s: {', '.join(slow)}", *facts, remedy=remedy)
    return ok(f"{len(up)} of {len(ports)} port(s) active", *facts)


def _no_ports(place: Place, wanted: int | None) -> Finding:
    if (place.files / "sys/class/cxi").is_dir():
        return skipped("the adapters are Slingshot's (/sys/class/cxi), which have no InfiniBand ports")
    if wanted is None or not place.is_slurm:
        return skipped("no InfiniBand here, and none is expected")
    if place.is_login_node:
        return skipped(f"no InfiniBand on this login node; look at the compute nodes: {place.again} --nodes all")
    return failed(f"{wanted} link(s) per node are expected, Linux lists none", remedy="ibstat; tell the site")


def _rate(text: str | None) -> float | None:
    found = re.match(r"([\d.]+) Gb/sec", text or "")
    return float(found.group(1)) if found else None


def limits(place: Place) -> Iterator[Finding]:
    """Warn of limits that end a run in the middle: those of this shell, which Slurm passes on or replaces."""
    locked, files = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = {limit: "unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (locked, files)}
    yield ok("", f"locked memory {text[locked]}, open files {text[files]}")
    if infiniband(place.files) and locked != resource.RLIM_INFINITY:
        what = f"locked memory is limited to {locked}: InfiniBand cannot register its buffers"
        yield warning(what, remedy="ulimit -l unlimited, or ask the site")
    if files != resource.RLIM_INFINITY and files < FILES_PER_RANK:
        yield warning(f"only {files} open files are allowed", remedy=f"ulimit -n {4 * FILES_PER_RANK}")
    cpu_s, most_bytes = resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_AS)[0]
    if cpu_s != resource.RLIM_INFINITY:
        remedy = "ulimit -t unlimited (Grid Engine: h_cpu), or start it in a job without the limit"
        yield warning(f"a process may use {cpu_s} s of CPU time: a rank that has used it up is killed", remedy=remedy)
    if most_bytes != resource.RLIM_INFINITY:
        what = f"a process may have {most_bytes / 2**30:.1f} GiB of address space: torch, and CUDA above all, reserve far more than they use, and fail"
        remedy = "ulimit -v unlimited (Grid Engine: h_vmem, PBS: vmem); ask for memory that is used instead"
        yield warning(what, remedy=remedy)
    quota, seen = _cpu_quota(place), len(os.sched_getaffinity(0))
    if quota and quota < seen:
        what = f"{seen} CPUs are seen here, but {quota:g} of them may be used: ranks and their threads are started for all, and wait for each other"
        remedy = "give the container whole CPUs (docker: --cpuset-cpus in place of --cpus; Kubernetes: a higher limit)"
        yield warning(what, remedy=remedy)
    shm = place.files / "dev/shm"
    if shm.is_dir():
        space = os.statvfs(shm)
        free, ranks = space.f_bavail * space.f_frsize, place.run.parallel.gpus_per_node if place.run else 1
        yield ok("", f"{shm} {free / 2**30:.1f} GiB free")
        if free < ranks * SHM_BYTES_PER_RANK:
            remedy = "remove what others left there; in a container: --shm-size=8g"
            yield warning(f"{shm} has {free / 2**20:.0f} MiB for {ranks} rank(s)", remedy=remedy)
    yield ok("locked memory, open files and shared memory suffice")


def _cpu_quota(place: Place) -> float | None:
    """Return the CPUs that the control group of this container may use, None where nothing limits them: cgroup v2's cpu.max, v1's cfs_quota_us."""
    group = place.files / "sys/fs/cgroup"
    older = " ".join(text_of(group / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    quota, *period = (text_of(group / "cpu.max") or older).split() or [""]
    return int(quota) / int(period[0]) if quota.isdigit() else None


def disk(place: Place) -> Iterator[Finding]:
    """Compare what is free with what a run, a build and a cache need; a quota shows in `writable` only when it is reached."""
    by_folder: dict[Path, list[str]] = {}
    for name, folder in place.written_folders().items():
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        space = os.statvfs(folder)
        free, inodes, has_inodes = space.f_bavail * space.f_frsize, space.f_favail, bool(space.f_files)
        where, word = f"{' and '.join(names)}: {folder}", shlex.quote(str(folder))
        remedy = f"df -h {word}; df -i {word}; remove old runs, or name another folder"
        yield ok("", f"{where}: {free / 2**30:.1f} GiB free, {inodes if has_inodes else 'unlimited'} inodes")
        if free < NEEDED_BYTES:
            yield failed(f"{where} has {free / 2**20:.0f} MiB left", remedy=remedy)
        elif free < WANTED_BYTES:
            yield warning(f"{where} has {free / 2**30:.1f} GiB left", remedy=remedy)
        if has_inodes and inodes < WANTED_INODES:  # without: a file system that makes them as it goes
            say = failed if inodes < NEEDED_INODES else warning
            yield say(f"{where} has {inodes} inodes left", remedy=remedy)
    yield ok("room and inodes suffice")


def writable(place: Place) -> Iterator[Finding]:
    """Write and remove 1 MiB where runs, data and builds are written: only that shows rights, read-only mounts and quotas reliably."""
    folders = dict.fromkeys(place.written_folders().values())
    try:
        temporary_folder()
    except NlpBenchError as error:
        what, _, remedy = str(error).partition("; ")
        yield failed(what, remedy=remedy)
    for folder in folders:
        word, start = shlex.quote(str(folder)), time.monotonic()
        remedy = f"ls -ld {word}; df -h {word}; quota -s; or name another folder (--runs; for the build NLP_BENCH_BUILD_DIR; for data --data-path)"
        step = "create a file"
        try:
            with _probe(folder) as file:
                step = "write 1 MiB"
                left = memoryview(bytes(PROBE_BYTES))
                while left:  # where room ends, a part is written before the error comes
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
        except OSError as error:
            yield failed(f"{folder}: cannot {step}: {error.strerror}", remedy=remedy)
            continue
        elapsed_s = time.monotonic() - start
        if elapsed_s > SLOW_S:
            remedy = "a file system under load: start later, or write elsewhere"
            yield warning(f"{folder}: 1 MiB took {elapsed_s:.1f} s", remedy=remedy)
        else:
            yield ok("", f"{folder}: 1 MiB in {1e3 * elapsed_s:.0f} ms")
    yield ok(f"{len(folders)} folder(s) can be written")


def _probe(folder: Path) -> IO[bytes]:
    """Open a new file for writing, which is removed when it is closed, whatever happens."""
    return tempfile.NamedTemporaryFile(buffering=0, prefix=".nlp-bench-doctor.", dir=folder)


def clock(place: Place) -> Iterator[Finding]:
    """Warn of a clock that is not synchronised, and of one that differs from the file server's, as a file written now shows."""
    state = ctypes.create_string_buffer(512)  # more than struct timex takes; with modes = 0 adjtimex(2) only reads
    try:
        code = ctypes.CDLL(None).adjtimex(state)
    except (OSError, AttributeError):
        code = -1
    _modes, _offset, _freq, maxerror_us, _esterror, status = struct.unpack_from("I4li", state)
    if code >= 0 and status & STA_UNSYNC:  # below 0: a sandbox that forbids the call
        remedy = "chronyc tracking, or timedatectl; ask the site to start chrony"
        yield warning("no time service keeps this clock", "adjtimex: STA_UNSYNC", remedy=remedy)
    elif code >= 0:
        yield ok("", f"adjtimex: at most {maxerror_us / 1e6:.3f} s off")
    folder = place.written_folders()["runs"]
    with contextlib.suppress(OSError), _probe(folder) as file:  # `writable` says so
        before = time.time()
        file.write(b"\n")
        os.fsync(file.fileno())
        changed, after = os.fstat(file.fileno()).st_mtime, time.time()
        skew = max(before - changed, changed - after, 0.0)
        if skew > MAX_SKEW_S:
            what = f"the file server of {folder} is {skew:.1f} s off this node's clock"
            yield warning(what, remedy="date; chronyc tracking; tell the site")
        else:
            yield ok("", f"the file server of {folder} is {skew:.2f} s off")
    yield ok("synchronised, and as the file server's")
