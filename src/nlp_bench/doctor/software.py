"""Checks of software and data: which machine this is, Python, JUBE, environment, kernels, locks, training data."""

import fcntl
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

from nlp_bench.build.environment import (
    PACKAGES,
    build_folder,
    failed_trials,
    finished_builds,
    fitting_build,
    this_machine,
    unpinned,
)
from nlp_bench.config import catalog, machine
from nlp_bench.config.system import Container
from nlp_bench.data import default_folder
from nlp_bench.data.indexed import check_places
from nlp_bench.doctor.place import Finding, Place, failed, ok, skipped, warning
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import age_s
from nlp_bench.launch.arguments import check_arguments
from nlp_bench.launch.scheduler.slurm import cluster_name
from nlp_bench.launch.script import environment_folder, no_image
from nlp_bench.machine.node import text_of
from nlp_bench.packages import hiding, installed_version, is_of_pythonpath, not_loadable
from nlp_bench.programs import ask

VERSION = sys.version_info[:2]
OLDEST, NEWEST = (3, 10), (3, 13)
"""As pyproject.toml and setup_venv.sh have it: what megatron-core and torch support at the pinned versions."""
TESTED = ("2.5.1", "2.7.1")
"""The versions of JUBE that the tests run benchmark/jube/nlp_benchmark.yaml with, from `jube run` to the table."""
STALE_S = 600.0  # age in seconds from which a lock of torch's without a running compiler counts as stale


def system(place: Place) -> Finding:
    """Report which system file is used; a run that cannot be resolved would be refused by `nlp-bench check` as well."""
    if place.system is None:
        return failed(place.no_system, remedy="nlp-bench doctor --system NAME (the files of benchmark/systems)")
    name, run = place.system.name, place.run
    if run is None:
        remedy = shlex.join(["nlp-bench", "check", "--model", place.model, "--system", place.system_name, "--offline"])
        return failed(f"model {place.model} cannot run on {name}: {place.no_run}", remedy=remedy)
    ranks = f"{run.parallel.nodes} node(s) x {run.parallel.gpus_per_node} {run.system.accelerator} rank(s)"
    what, launcher = f"{name}, model {run.model.name}", f"{ranks}, launcher {run.launch.launcher}"
    is_of_variable = place.system_name == os.environ.get("NLP_BENCH_SYSTEM")
    if is_of_variable and (doubt := machine.doubt(place.system, cluster_name(place.slurm.out))):
        return warning(f"{what}: {doubt}", launcher, remedy="unset NLP_BENCH_SYSTEM, or name one with --system")
    return ok(what, launcher)


def python(place: Place) -> Finding:
    """Refuse a Python that is not supported; warn where the reader of logs is not compiled for it."""
    what = f"Python {platform.python_version()}"
    if not OLDEST <= VERSION <= NEWEST:
        remedy = "load another Python module or set NLP_BENCH_PYTHON, then bash benchmark/env/setup_venv.sh"
        return failed(f"{what} is not one of 3.10 to 3.13", sys.executable, remedy=remedy)
    if find_spec("nlp_bench.logs._scan") is None:  # built by pip, looked for and not loaded
        return warning(
            f"{what}; the compiled reader of logs is missing, logs are read more slowly",
            sys.executable,
            remedy=place.bash("benchmark/env/setup_venv.sh", "nlp-bench build --scanner"),
        )
    return ok(what, sys.executable)


def environment(place: Place) -> Finding:  # noqa: C901, PLR0911  # one answer per case
    """Fail where setup_venv.sh did not complete; warn of versions that are not the pinned ones."""
    remedy = place.set_up()
    if place.system and place.system.container.image:
        return _image(place, place.system.container)
    folder = environment_folder(place.root)
    mark, python = folder / "nlp-bench.key", folder / "bin" / "python"
    try:
        is_finished, has_python = mark.exists(), python.exists()
    except PermissionError as error:
        what = f"{folder} is closed to uid {os.getuid()}: {os.path.realpath(error.filename)}: {error.strerror}"
        anew = f"make it with a Python that all may read (NLP_BENCH_PYTHON): {remedy}"
        return failed(what, remedy=f"open the way to it (chmod go+x), or {anew}")
    if not folder.is_dir() and catalog.has_workflow():
        return failed(f"no virtual environment at {folder}", remedy=remedy)
    if not folder.is_dir():
        folder = Path(sys.prefix)  # what is installed next to the package is used
    elif not is_finished:
        tail = text_of(folder / "pip.err").splitlines()[-1:]
        return failed(f"{folder} was not finished: it has no mark nlp-bench.key", *tail, remedy=remedy)
    elif not has_python:
        return failed(f"{python} is gone: its Python was removed or its module is not loaded", remedy=remedy)
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):  # not on macOS
        what = f"{folder} is mounted noexec, where no package can be loaded"
        return failed(what, remedy="put the checkout, or NLP_BENCH_VENV, elsewhere")
    found = {package: installed_version(package) for package in PACKAGES}
    facts = [f"{package} {version or 'absent'}" for package, version in found.items()]
    missing = [package for package, version in found.items() if version is None]
    if missing:
        return failed(f"{', '.join(missing)} cannot be imported by this Python", str(folder), *facts, remedy=remedy)
    try:
        # Its version is found, be it another Python's or without a library that is new enough.
        if is_of_pythonpath("numpy") or os.environ.get("LD_LIBRARY_PATH"):
            import_module("numpy")
    except ImportError as error:
        why, _, how = str(not_loadable(error) or f"numpy cannot be loaded: {error}").partition("\n  ")
        return failed(why, str(folder), *facts, remedy=how or remedy)
    others = unpinned(found)
    others += [f"{one}; rm -r {shlex.quote(str(folder))} before you set it up anew" for one in _gone()]
    if other := hiding("torch"):
        leads = f"PYTHONPATH leads to torch {found['torch']} in {other}, which trains instead of the installed one"
        others = [leads, *others]
        remedy = "unset PYTHONPATH, or unload the module that sets it (module list, module unload)"
    if others and not (place.system and place.system.software.system_site_packages):
        return warning("; ".join(others), str(folder), *facts, remedy=remedy)
    return ok(f"finished: {', '.join(facts)}", str(folder))


def _image(place: Place, container: Container) -> Finding:
    if place.is_slurm and container.runtime == "pyxis":
        answer = ask("srun", "--help")
        if answer.is_good and "--container-image" not in answer.out:
            why = "pyxis, the container.runtime of the system file, is not installed here"
            return failed(f"srun has no --container-image: {why}", remedy="ask the site for it, or for apptainer")
    if why := no_image(container):
        return warning(why, remedy=f"ls -l {shlex.quote(container.image)}")
    return skipped("the ranks run in a container image, which brings its own")


def _gone() -> Iterator[str]:
    """Say that installed files are not there, by every twentieth one: a scratch file system removes what nobody has read for months."""
    parts: list[metadata.PackagePath] = []
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(package)
            parts += (found.files or ()) if found.read_text("RECORD") else ()  # pip's own list
    code = [file for file in parts[::20] if file.suffix in {".py", ".so"} and not {"test", "tests"} & {*file.parts}]
    gone = [file for file in code if not Path(file.locate()).exists()]
    if gone:
        yield f"files of its packages are gone ({gone[0]}, for one): something cleans up this file system"


def jube(place: Place) -> Finding:  # one answer per case
    """Check whether `jube` starts: 2.5.1 imports distutils, which Python 3.12 no longer has, so it fails there at once."""
    search = f"{place.variables.get('PATH', '')}:{environment_folder(place.root) / 'bin'}"
    answer = ask("env", f"PATH={search}", "jube", "--version")
    output = f"{answer.out}\n{answer.err}"
    newest = "pip install the source archive of the tag REL-2.7.1 of https://github.com/FZJ-JSC/JUBE (it is not on PyPI), or: module load JUBE"
    without = "without JUBE: nlp-bench submit, then nlp-bench report"
    if answer.code == 127:
        script = place.bash("benchmark/run.sh", "")
        installs = f"{script} installs it; or " if script else ""
        return failed("jube is not on PATH", remedy=f"{installs}{newest}; {without}")
    if not answer.is_good:
        last = ([line for line in output.splitlines() if line.strip()] or [answer.text])[-1]
        if "distutils" not in output:
            return failed(f"jube does not start: {last}", remedy=f"{newest}; {without}")
        return failed(
            "this JUBE needs Python 3.11 or older: it imports distutils, which Python 3.12 does not have",
            last,
            remedy=f"JUBE 2.7.1 runs under Python 3.12 and 3.13: {newest}; {without}",
        )
    found = re.search(r"version\s+(\d+(?:\.\d+)+)", output)
    if not found:
        return warning("jube starts, but says no version", answer.text, remedy="jube --version")
    tested = f"the tests run the workflow with {' and '.join(TESTED)}"
    if found[1] not in TESTED:
        return warning(f"JUBE {found[1]}; {tested}, not with this one", remedy=f"if it refuses the file: {newest}")
    return ok(f"JUBE {found[1]}; {tested}", f"this Python is {VERSION[0]}.{VERSION[1]}")


def build(place: Place) -> Finding:
    """Look for a finished build that fits, and kernels that failed in it; torch's own kernels need none."""
    parent = build_folder(place.root)
    finished = finished_builds(parent)
    if place.is_login_node and place.accelerator == "cuda":
        return skipped(f"{len(finished)} finished build(s) in {parent}; which one fits, the compute nodes know")
    remedy = place.bash("src/compile_build.sh", "nlp-bench build")
    half = sorted(path.name for path in parent.glob("kernels-*") if path not in finished)
    facts = [f"never finished: {', '.join(half)}"] if half else []
    folder = fitting_build(finished, this_machine(None if place.accelerator == "cuda" else "cpu"))
    if folder is None:
        others = (
            f"{len(finished)} build(s) are for other versions or GPUs" if finished else f"no finished build in {parent}"
        )
        return warning(f"{others}: the ranks compile or do without", *facts, remedy=remedy)
    bad = ", ".join(str(trial.get("kernel", "?")) for trial in failed_trials(finished[folder]))
    if bad:
        what = f"{folder.name}: {bad} failed when compared with torch, and are switched off"
        return warning(what, *facts, remedy=remedy)
    return ok(f"{folder.name} fits", *facts)


def locks(place: Place) -> Iterator[Finding]:
    """Report the holders of locks, and locks that will never be released.

    Ours are held by flock, which Linux releases with the process, so that the file alone means nothing. torch's
    (torch.utils.file_baton) are files whose existence is the lock: left by a killed compilation, every later rank waits for ever
    (Megatron-LM issues 63, 82, 998).
    """
    venv = Path(place.variables.get("NLP_BENCH_VENV") or place.root / ".venv").absolute()
    data = default_folder(place.root)
    builds = sorted(build_folder(place.root).glob(".kernels-*.lock"))
    own = [*builds, Path(f"{venv}.lock"), data.parent / f".{data.name}.lock"]
    present = [lock for lock in own if lock.is_file()]
    for lock in present:
        yield from _examine_lock(place, lock)
    home, named = place.variables.get("HOME", ""), place.variables.get("TORCH_EXTENSIONS_DIR")
    extensions = Path(named or f"{home}/.cache/torch_extensions")
    try:
        compiling = sorted(extensions.glob("**/lock"))[:20] if named or home else []
    except OSError as error:  # another user's
        compiling = []
        yield skipped(f"{error.filename} cannot be looked at: {error.strerror}")
    for lock in compiling:
        old_s = age_s(lock)
        if old_s < STALE_S:
            yield warning(f"torch compiles an extension: {lock} is {old_s:.0f} s old", remedy="wait for its end")
        else:
            what = f"{lock} is {old_s / 60:.0f} min old: a compilation was killed, and every rank would wait for it"
            yield failed(what, remedy=f"rm {shlex.quote(str(lock))}")
    yield ok(f"{len(present)} lock file(s), none held")


def _examine_lock(place: Place, lock: Path) -> Iterator[Finding]:
    try:
        with lock.open("r") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released at once: nothing waits for it
    except BlockingIOError:
        pid = _holder(place, lock)
        command = command_of(place, pid)[:120] if pid else "its command line cannot be seen here"
        who = f"process {pid}" if pid else "a process of another node"
        yield warning(f"{who} holds {lock}", command, remedy=f"wait for it, or look at it: ps -fp {pid or 'PID'}")
    except OSError as error:
        what = f"{lock}: {error.strerror}: nobody can tell whether it is held"
        yield warning(what, remedy=f"ls -l {shlex.quote(str(lock))}")


def _holder(place: Place, lock: Path) -> int | None:
    """Return the process that holds a lock on this node: /proc/locks names inode and pid (proc(5))."""
    state = lock.stat()
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    found = re.search(rf"FLOCK\s+\S+\s+WRITE\s+(\d+)\s+{device}\b", text_of(place.files / "proc/locks"))
    return int(found.group(1)) or None if found else None


def command_of(place: Place, pid: int) -> str:
    """Return the command line of a process; empty where it cannot be seen."""
    return text_of(place.files / f"proc/{pid}/cmdline").replace("\0", " ").strip()


def data(place: Place) -> Finding:
    """Check the files against their index, the index itself, and both against the tokenizer, as `submit` does."""
    if place.run is None:
        return skipped("no run, so no data (see system)")
    if not place.run.data.path:
        return skipped("mock data need no file")
    remedy = "nlp-bench data" if place.run.data.invented else "nlp-bench data prepare; or name others with --data-path"
    prefixes = place.run.data.prefixes
    try:
        check_arguments(place.run, files=True)
        for prefix in prefixes:
            check_places(prefix)
    except NlpBenchError as error:
        return failed(str(error), remedy=remedy)
    return ok(f"{len(prefixes)} pair(s) of .bin and .idx are whole", *prefixes)
