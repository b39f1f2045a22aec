"""The job script: from a run to the text of submit.job, out of the template jube/submit.job.in."""

import os
import re
import shlex
import sys
from pathlib import Path

from nlp_bench.build.environment import build_folder
from nlp_bench.config import catalog
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import BUILT_IN, get_scheduler
from nlp_bench.config.system import Container, System, is_inherited
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import real
from nlp_bench.launch.nodes.torchrun import torchrun_command, unknown_rendezvous
from nlp_bench.redact import without_secrets
from nlp_bench.seal import MADE_FOR

PURGE = "module purge || echo 'nlp-bench: module purge did not unload all modules' >&2"
"""A module that stays (sticky ones, a site's default) ends purge with 1, and harms nothing; one that cannot be loaded ends the job."""


def software_lines(system: System) -> list[str]:
    """Return `module load` and `export` lines, each word quoted, in the order of the system file."""
    modules = system.software.modules
    lines = [PURGE, *(f"module load {shlex.quote(name)}" for name in modules)] if modules else []
    for name, value in system.environment.items():
        # A word that begins with = ("exactly this", for NCCL) would look like a comparison.
        quoted = f"'{value}'" if value.startswith("=") and shlex.quote(value) == value else shlex.quote(value)
        lines.append(f"export {name}" if is_inherited(name, value) else f"export {name}={quoted}")
    return lines


IMAGE = re.compile(
    r"/|(?:library|docker|shub|oras|instance|https?)://|(?:docker-archive|docker-daemon|oci|oci-archive):"
)
"""What Apptainer takes for an image that is no file of the current folder. Source: `apptainer exec --help`."""
ENTRYPOINT = {None: [], True: ["--container-entrypoint"], False: ["--no-container-entrypoint"]}


def no_image(container: Container) -> str:
    """Say that the file of the image is not there; empty where it is, or the image has an address."""
    if container.image.startswith("/") and not os.path.exists(container.image):  # noqa: PTH110  # Path's own raises for a closed folder
        return f"the container's image {container.image} is not seen on this machine: the nodes need it there"
    return ""


def container_words(run: Run, root: Path, run_dir: Path) -> list[str]:
    """Return what stands before `nlp-bench launch`: nothing, srun's pyxis options, or `apptainer exec ...`.

    Sources of the options: pyxis's README and wiki page Usage (--container-image, -mounts, -writable, -entrypoint, -mount-home),
    Apptainer's `exec --help` (--nv, --bind, --writable-tmpfs, --no-home). Raises UsageError for a mount that they would misread.
    """
    container = run.system.container
    if not container.image:
        return []
    if container.image.endswith((".sqsh", ".sif")) and not container.image.startswith("/"):
        raise UsageError(
            f"system.container.image: {container.image!r} is no absolute path, and the job starts in the run's folder; "
            "write its absolute path"
        )
    if container.runtime != "pyxis" and not IMAGE.match(container.image):
        raise UsageError(
            f"system.container.image: {container.image!r} is a file of the job's folder for {container.runtime}; write its absolute path, or "
            "an address, such as docker://nvcr.io/nvidia/pytorch:24.05-py3"
        )
    mounts = ",".join(_mounts(run, root, run_dir))
    if container.runtime == "pyxis":
        return [
            f"--container-image={container.image}",
            f"--container-mounts={mounts}",
            "--container-mount-home" if container.home else "--no-container-mount-home",
            *(["--container-writable"] if container.writable else []),
            *ENTRYPOINT[container.entrypoint],
            *container.args,
        ]
    nv = ["--nv"] if run.system.accelerator == "cuda" else []
    home = [] if container.home else ["--no-home"]
    writable = ["--writable-tmpfs"] if container.writable else []
    return [container.runtime, "exec", *nv, *home, *writable, "--bind", mounts, *container.args, container.image]


def _mounts(run: Run, root: Path, run_dir: Path) -> list[str]:
    """Return "outside:inside" of each mount: repository, run folder, data and where links of theirs lead, a checkout of Megatron-LM, the system's own.

    A folder inside another one needs no mount of its own: the cache of the index, which may not exist yet, stands beside its data.
    """
    prefixes = run.data.prefixes
    files = [Path(prefix + end) for prefix in prefixes for end in (".bin", ".idx")]
    data = [Path(prefix).parent for prefix in prefixes] + [real(file).parent for file in files]
    cache = [Path(run.data.cache)] if data and Path(run.data.cache).is_absolute() else []
    upstream = [Path(run.tuning.megatron_lm_repo)] if run.tuning.megatron_lm_repo else []
    folders = list(dict.fromkeys([root, run_dir, *data, *cache, *upstream]))
    outermost = [str(folder) for folder in folders if not set(folder.parents) & set(folders)]
    for folder in outermost:
        if "," in folder or ":" in folder:
            raise UsageError(
                f"system.container: {folder} cannot be mounted: a comma or colon divides mounts; rename it"
            )
    for mount in run.system.container.mounts:
        if "," in mount or not mount.startswith("/"):
            raise UsageError(
                f"system.container.mounts: {mount!r} is no absolute path or outside:inside; one mount is one word of the list"
            )
    own = [mount if ":" in mount else f"{mount}:{mount}" for mount in run.system.container.mounts]
    return [*(f"{folder}:{folder}" for folder in outermost), *own]


TOKEN = re.compile(r"#([A-Z][A-Z_]*)#")
SHELL_FUNCTIONS = "set +u  # the shell functions of environment modules read unset variables"
OPTIONS = tuple(filter(None, (get_scheduler(name).directive for name in BUILT_IN)))  # begin the template's options


def environment_folder(root: Path) -> Path:
    """Return the virtual environment that is current: NLP_BENCH_VENV or .venv with its link followed."""
    named = os.environ.get("NLP_BENCH_VENV")
    if named and not named.startswith("/"):  # as benchmark/env/python.bash has it
        raise UsageError(
            f"NLP_BENCH_VENV={named} does not begin with /, so that each folder would have an environment of its own: "
            f"export NLP_BENCH_VENV={shlex.quote(os.path.abspath(named))}"  # noqa: PTH100  # its link is not followed
        )
    return real(named or root / ".venv")


def interpreter(root: Path) -> str:
    """Return the Python of the virtual environment, or the running one where there is none (--print)."""
    python = environment_folder(root) / "bin" / "python"  # itself a link, which must stay one
    return str(python) if python.exists() else sys.executable


def job_script(  # noqa: PLR0913  # one fact each
    run: Run,
    *,
    root: Path,
    run_dir: Path,
    template: str | None = None,
    python: str | None = None,
    code: Path | None = None,
    run_sha256: str | None = None,
) -> str:
    """Return the text of the job script, from the `template` jube/submit.job.in and for the `interpreter` of `root` unless others are given.

    `code` is what the job imports in place of the checkout, which still holds the compiled kernels. `run_sha256` is of the run.json that the
    job is for: it refuses another one.
    A line of options whose token has no value disappears, a token with several values repeats its line; the options of other
    schedulers than the run's are left out.
    Raises NlpBenchError when the template holds a token that is not known.
    """
    scheduler = get_scheduler(run.launch.launcher)
    tokens = scheduler.tokens(run) | _commands(run, root, run_dir, python or interpreter(root))
    tokens["MADE_FOR"] = [f"export {MADE_FOR}={run_sha256}"] if run_sha256 else []
    if code:
        tokens["ROOT"], tokens["PYTHONPATH"] = [shlex.quote(str(code))], [shlex.quote(str(code / "src"))]
        tokens["BUILDS"] = [f"export NLP_BENCH_BUILD_DIR={shlex.quote(str(build_folder(root)))}"]
    lines: list[str] = []
    template = catalog.part("jube/submit.job.in").read_text(encoding="utf-8") if template is None else template
    for line in template.splitlines():
        if not line.startswith(OPTIONS) or line.startswith(scheduler.directive or " "):
            lines += _render(line, tokens)
    return "\n".join([*lines[:1], *scheduler.header(run), *lines[1:]]) + "\n"


def _render(line: str, tokens: dict[str, list[str]]) -> list[str]:
    names = TOKEN.findall(line)
    for name in names:
        if name not in tokens:
            raise NlpBenchError(f"submit.job.in: unknown token #{name}# (known: {', '.join(sorted(tokens))})")
    if not names:
        return [line]
    if len(names) == 1 and (line.startswith(OPTIONS) or line == f"#{names[0]}#"):
        return [line.replace(f"#{names[0]}#", value) for value in tokens[names[0]]]
    text = TOKEN.sub(lambda found: " ".join(tokens[found.group(1)]), line)
    # Without a starter its blank goes too.
    return [text.replace("   ", "  ", 1) if line.startswith("  #STARTER#") else text]


def _commands(run: Run, root: Path, run_dir: Path, python: str) -> dict[str, list[str]]:
    parallel, scheduler = run.parallel, get_scheduler(run.launch.launcher)
    here = shlex.join([python, "-m", "nlp_bench"])
    inside = run.system.container.python if run.system.container.image else python
    software = software_lines(run.system)
    starter = [*scheduler.starter(run), *container_words(run, root, run_dir)]
    title = f"model {run.model.name}, tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}, global batch"
    return {
        "TITLE": [f"{title} {run.batch.global_batch_size}"],
        "TORCHRUN": command_lines(torchrun_command(run, unknown_rendezvous(run), run_dir, python=inside)),
        "NLP_BENCH": [here],
        "LAUNCH": [shlex.join([inside, "-m", "nlp_bench"])],
        "JOB_ID": [scheduler.job_id_variable],
        "RESTARTS": [scheduler.restarts_variable],
        "STARTER": [shlex.join(starter)] if starter else [],
        "RUN_DIR": [shlex.quote(str(run_dir))],
        "ROOT": [shlex.quote(str(root))],
        "PYTHONPATH": [shlex.quote(str(root / "src"))],
        "BUILDS": [],
        "SOFTWARE": [SHELL_FUNCTIONS, *software, "set -u"] if software else [],
    }


WIDTH = 100  # columns at which the command in the script wraps


def command_lines(command: list[str]) -> list[str]:
    """Return a command as a comment of quoted words, wrapped between options, without secrets.

    A path has a line of its own: the other lines do not depend on where a checkout lies.
    """
    options: list[str] = []
    for before, word in zip(["", *command], command, strict=False):
        quoted = one_line(shlex.quote(word))
        if before.startswith("-") and not word.startswith("-"):
            options[-1] += f" {quoted}"
        else:
            options.append(quoted)
    lines = ["#  "]
    for option in without_secrets("\n".join(options)).split("\n"):
        is_long = len(f"{lines[-1]} {option} \\") > WIDTH
        is_split = len(lines) > 1 and (is_long or "/" in option or "/" in lines[-1])
        if is_split or option.startswith("-m "):
            lines.append("#    ")
        lines[-1] += f" {option}"
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]
