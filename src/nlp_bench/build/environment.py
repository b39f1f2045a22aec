"""What a build depends on, and the variables by which ranks find it. torch is not imported: every job start runs this."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.build.providers import NAMES
from nlp_bench.config import catalog
from nlp_bench.files import read_object, real
from nlp_bench.immutable import immutable
from nlp_bench.machine.node import text_of
from nlp_bench.machine.nvml import Nvml, NvmlError
from nlp_bench.packages import installed_version, states
from nlp_bench.programs import answers

PACKAGES = ("torch", "megatron-core", "numpy")
"""What a training imports; a site's own torch may be another version (software.system_site_packages)."""
SCHEMA = "nlp-bench/build/1"
MANIFEST = "build.json"
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
SITE = "site-packages"
RECORD = "NLP_BENCH_BUILD_RECORD"
"""Variable with the path of the build's record: ranks switch off the kernels that failed in it."""
DRIVER_S = 20.0  # time limit for the driver to name its GPU: it may hang when the GPU has fallen off the bus


@immutable
class Machine:
    """The software and the GPU that compiled kernels depend on."""

    nlp_bench: str  # version of this program: its operators are compiled too
    python: str  # Python's tag for compiled modules, for example cpython-311
    torch: str  # version of torch; "absent" without it
    megatron_core: str  # version of megatron-core; "absent" without it
    cuda: str  # CUDA version that torch was built for; "none" for a CPU build
    arch: str  # compute capability of the GPU, for example 9.0; "cpu" where there is none


@immutable
class Apex:
    """The Apex that is compiled."""

    source: str  # Git URL or folder
    commit: str


@immutable
class Extras:
    """Libraries that are compiled in addition to torch's own kernels."""

    apex: Apex | None = None
    transformer_engine: str = ""  # Transformer Engine as a requirement of pip; empty: none


def _pins() -> dict[str, str]:
    """Return the versions of benchmark/env/constraints.txt that are for this Python, by package."""
    text = text_of(catalog.part("benchmark/env/constraints.txt"))
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)(.*)", text, re.MULTILINE)
    return {package: version for package, version, marker in lines if not marker or sys.version_info >= (3, 11)}


def _changed(found: Mapping[str, str | None]) -> dict[str, str]:
    """Return the pins of the installed packages that are there in another version."""
    plain = {package: version.partition("+")[0] for package, version in found.items() if version}  # 2.13.0+cpu
    return {p: version for p, version in _pins().items() if plain.get(p, version) != version}


def unpinned(found: Mapping[str, str | None]) -> list[str]:
    """Return, in words, each of the installed packages whose version is not the pinned one of benchmark/env/constraints.txt."""
    return [f"{p} {found[p]}, pinned is {version}" for p, version in _changed(found).items()]


def put_back() -> list[str]:
    """Return, as words for pip, the pins of all packages that this Python has in another version; for setup_venv.sh."""
    found = {package: installed_version(package) for package in _pins()}
    return [f"{package}=={version}" for package, version in _changed(found).items()]


def this_machine(arch: str | None = None) -> Machine:
    """Return this machine; `arch` replaces the GPU that the driver names, to build on a node without one."""
    cuda = states("torch", "cuda") or "none"
    named = arch or (answers({"gpu": _compute_capability}, DRIVER_S).get("gpu") if cuda != "none" else None)
    return Machine(
        nlp_bench=__version__,
        python=sys.implementation.cache_tag or "unknown",
        torch=installed_version("torch") or "absent",
        megatron_core=installed_version("megatron-core") or "absent",
        cuda=cuda,
        arch=named or "cpu",
    )


def _compute_capability() -> str | None:
    """Return the compute capability of the first GPU, None without a driver or a GPU."""
    try:
        nvml = Nvml()
        major, minor = nvml.ask("nvmlDeviceGetCudaComputeCapability", nvml.handles[0])
    except (NvmlError, IndexError):
        return None
    return f"{major}.{minor}"


def folder_name(machine: Machine, extras: Extras) -> str:
    """Return `kernels-` and 12 hexadecimal digits, a hash of `machine` and `extras`."""
    parts = json.dumps([asdict(machine), asdict(extras)], sort_keys=True)
    return f"kernels-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def build_folder(root: Path) -> Path:
    """Return the folder of the builds of the checkout `root`."""
    return real(os.environ.get("NLP_BENCH_BUILD_DIR") or root / "build")


def finished_builds(parent: Path) -> dict[Path, dict[str, Any]]:
    """Return the records of the finished builds in `parent`, by their folders."""
    records = {path.parent: read_object(path) for path in sorted(parent.glob(f"kernels-*/{MANIFEST}"))}
    return {folder: record for folder, record in records.items() if record.get("schema") == SCHEMA}


def failed_trials(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trials of a build's record whose kernels gave wrong results."""
    trials = record.get("verified")
    found = trials if isinstance(trials, list) else []
    return [trial for trial in found if isinstance(trial, dict) and not trial.get("passed")]


def fitting_build(builds: dict[Path, dict[str, Any]], machine: Machine) -> Path | None:
    """Return the folder of the newest of `builds` that is for `machine`: the one that the ranks use; None where there is none."""
    fitting = [folder for folder, record in builds.items() if record.get("machine") == asdict(machine)]
    return max(fitting, key=lambda path: (path / MANIFEST).stat().st_mtime, default=None)


def build_environment(root: Path) -> dict[str, str]:
    """Return the variables for the newest finished build for this machine; empty when there is none.

    `root` is the checkout; NLP_BENCH_BUILD_DIR replaces its folder `build`.
    """
    builds = finished_builds(build_folder(root))
    folder = fitting_build(builds, this_machine()) if builds else None
    if folder is None:
        return {}
    # One of a colleague's, which may only be read, would end every rank at the first kernel that is not in it.
    variables = {name: str(folder / cache) for name, cache in CACHES.items() if os.access(folder / cache, os.W_OK)}
    if failed_trials(builds[folder]):
        variables[RECORD] = str(folder / MANIFEST)
    if (folder / SITE).is_dir():
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / SITE), os.environ.get("PYTHONPATH")]))
    return variables


def build_warning(environment: dict[str, str]) -> str | None:
    """Return the warning for a job's log where kernels failed in the build that `build_environment` found, else None."""
    return warning(read_object(Path(environment[RECORD]))) if RECORD in environment else None


def warning(record: dict[str, Any]) -> str | None:
    """Return the warning for the log of every job, or None where all kernels of a build's record are right."""
    wrong = [f"{NAMES[trial['provider']]} {trial['kernel']}" for trial in failed_trials(record)]
    if not wrong:
        return None
    return f"WARNING: kernels gave wrong results in the build and are switched off: {', '.join(wrong)}; the number may be too low"
