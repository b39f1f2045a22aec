"""What the checks examine (the machine, the system file that describes it, the planned run), and what one of them finds."""

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path

from nlp_bench.build.environment import build_folder
from nlp_bench.config import catalog, machine
from nlp_bench.config.options import spellings
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.config.system import System, is_inherited
from nlp_bench.data import default_folder
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import temporary_folder
from nlp_bench.immutable import immutable
from nlp_bench.launch.scheduler.slurm import CONFIG, cluster_name, is_absent
from nlp_bench.machine.nvml import Nvml, NvmlError
from nlp_bench.programs import Answer, answers, ask

SET_UP = "pip install 'nlp-bench[train]'; or, with an environment of its own, a working folder: nlp-bench init DIR"
"""How an installed package gets what a training needs."""
DRIVER_S = 30.0
"""Seconds for the start of NVML: a few without the persistence daemon; with a GPU that has fallen off its bus it may hang."""


@immutable
class Place:
    """Everything that a check may examine; no check changes any of it."""

    root: Path  # the checkout of nlp-bench
    runs: Path  # folder in which runs will be written
    system: System | None  # the machine's description; None where none fits
    no_system: str = ""
    system_name: str = ""  # the name or path that it was found by
    run: Run | None = None  # the planned run, resolved without Slurm; None where that is not possible
    no_run: str = ""
    model: str = "tiny"
    slurm: Answer  # the answer of `scontrol show config`
    nvml: Nvml | None = None  # the GPUs of this node; None without a driver
    no_nvml: str = ""
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The environment; the system's own [environment] is laid over it, as a job does."""
    again: str = "nlp-bench doctor"  # the command that asks about the same run, to which --checks or --nodes is added
    files: Path = Path("/")  # where this node's file system begins (another folder in tests)

    def bash(self, script: str, otherwise: str = SET_UP) -> str:
        """Return the command that runs a script of the checkout; `otherwise` where there is only the installed package."""
        return f"bash {shlex.quote(str(self.root))}/{script}" if catalog.has_workflow() else otherwise

    def set_up(self) -> str:
        """Return the command that makes the virtual environment."""
        return self.bash(f"benchmark/env/setup_venv.sh --system {shlex.quote(self.system_name or 'NAME')}")

    @property
    def is_slurm(self) -> bool:
        """Whether the run is to be submitted to Slurm."""
        if self.run is not None:
            return self.run.launch.launcher == "slurm"
        return self.system.launcher == "slurm" if self.system else self.slurm.is_good

    @property
    def accelerator(self) -> str:
        """The word cuda or cpu; "auto" is cuda where NVML lists a GPU."""
        if self.run is not None:
            return self.run.system.accelerator
        word = self.system.accelerator if self.system else "auto"
        return ("cuda" if self.nvml and self.nvml.handles else "cpu") if word == "auto" else word

    @property
    def is_inside(self) -> bool:
        """Whether this process runs inside an allocation of Slurm, and not on a login node."""
        return "SLURM_JOB_ID" in self.variables

    @property
    def is_login_node(self) -> bool:
        """Whether the ranks will run on other nodes than this one."""
        return self.is_slurm and not self.is_inside

    @property
    def has_image(self) -> bool:
        """Whether the ranks run in a container image, which brings its own software."""
        return self.system is not None and bool(self.system.container.image)

    @property
    def no_gpu_here(self) -> str:
        """Why the GPUs of this node are not checked; empty where they are."""
        if self.nvml is not None and self.nvml.handles:
            return ""
        if self.accelerator != "cuda":
            return "the ranks run on the CPU"
        if not self.is_login_node:
            return ""
        return f"{self.no_nvml or 'the driver lists no GPU'}; look at the compute nodes: {self.again} --nodes all"

    def written_folders(self) -> dict[str, Path]:
        """Return what is written where: the run folder, the index cache of the data, the build, temporary files.

        For a folder that does not exist yet it is the nearest one above it that does.
        """
        cache = self.runs / self.run.data.cache if self.run and self.run.data.cache else default_folder(self.root)
        wanted = {"runs": self.runs, "data": cache, "build": build_folder(self.root)}
        with contextlib.suppress(NlpBenchError):  # `writable` says so
            wanted["temporary"] = temporary_folder()
        every = {name: path.absolute() for name, path in wanted.items()}
        return {name: next(p for p in (path, *path.parents) if os.path.isdir(p)) for name, path in every.items()}  # noqa: PTH112  # false in a closed folder


def look_around(request: Request, *, runs: Path | None = None) -> Place:
    """Return the place that `request` names, or that this machine is.

    Raises UsageError for a model or a system that does not exist: a wrong argument is no finding.
    """
    root = catalog.root()
    catalog.load_model(request.model or "tiny")
    named = request.system or os.environ.get("NLP_BENCH_SYSTEM")
    slurm = _slurm()
    system, no_system = _system(request, named, slurm)
    run, no_run = None, no_system
    if system:
        try:
            run, no_run = resolve(replace(request, system=named or system.name), ask_scheduler=False), ""
        except NlpBenchError as error:
            no_run = str(error)
    silent = (None, f"NVIDIA's driver does not answer within {DRIVER_S:g} s: dmesg | grep -i nvrm; tell the site")
    nvml, no_nvml = answers({"nvml": _nvml}, DRIVER_S).get("nvml", silent)
    stated = system.environment.items() if system else ()
    asked = {one.name: word for one in fields(request) if (word := getattr(request, one.name)) is not None}
    words = [word for name in asked for word in (spellings(Request, name)[0], str(asked[name]))]
    return Place(
        root=root,
        runs=(runs or root / "reports" / "runs").absolute(),
        system=system,
        no_system=no_system,
        system_name=named or (system.name if system else ""),
        run=run,
        no_run=no_run,
        model=request.model or "tiny",
        slurm=slurm,
        nvml=nvml,
        no_nvml=no_nvml,
        again=shlex.join(["nlp-bench", "doctor", *words]),
        variables={**os.environ, **{n: v for n, v in stated if not is_inherited(n, v)}},
    )


def _slurm() -> Answer:
    named = os.environ.get("SLURM_CONF")
    if named and not Path(named).exists():  # scontrol would look for one in the network
        return Answer(code=None, err=f"SLURM_CONF={named} does not exist")
    return ask(*CONFIG)


def _system(request: Request, named: str | None, slurm: Answer) -> tuple[System | None, str]:
    if named:
        return catalog.load_system(named), ""
    if request.launcher == "local":
        return catalog.load_system("local"), ""
    try:
        name = machine.detect_system(cluster_name(slurm.out))
    except UsageError as error:
        return None, str(error)
    if name == "local" and not slurm.is_good and not is_absent(slurm):  # a Slurm that is down is not no Slurm
        return None, f"system: Slurm is installed but does not answer ({slurm.text}); name one with --system"
    return catalog.load_system(name), ""


def _nvml() -> tuple[Nvml | None, str]:
    try:
        return Nvml(), ""
    except NvmlError as error:
        return None, str(error)


OK, SKIPPED, WARNING, FAILED = "ok", "skipped", "warning", "failed"
STATUSES = (OK, SKIPPED, WARNING, FAILED)
"""From harmless to bad. A skipped check says why; a warning costs speed or may end a run; what failed will end it."""


@immutable
class Finding:
    """The result of one check."""

    status: str  # one of STATUSES
    summary: str  # one sentence: what was found, or why it was not checked
    evidence: tuple[str, ...] = ()  # what was seen: values with their source
    remedy: str = ""  # a command to type or a thing to change; never empty where something failed


def ok(summary: str, *evidence: str) -> Finding:
    """Return that all is in order; without a summary only the evidence counts, among other findings."""
    return Finding(status=OK, summary=summary, evidence=evidence)


def skipped(why: str) -> Finding:
    """Return that there is nothing to check here, or no means to."""
    return Finding(status=SKIPPED, summary=why)


def warning(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run may be slower, or may fail."""
    return Finding(status=WARNING, summary=summary, evidence=evidence, remedy=remedy)


def failed(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run will fail."""
    return Finding(status=FAILED, summary=summary, evidence=evidence, remedy=remedy)


def together(found: Sequence[Finding]) -> Finding:
    """Return one finding out of several: the worst status, the sentences and remedies that have it, all evidence."""
    worst = max((one.status for one in found if one.status != SKIPPED), key=STATUSES.index, default=SKIPPED)
    decisive = [one for one in found if one.status == worst]
    milder = [one.summary for one in found if one.status == WARNING and worst == FAILED]
    return Finding(
        status=worst,
        summary="; ".join(dict.fromkeys(one.summary for one in decisive if one.summary)),
        evidence=(*(line for one in found for line in one.evidence), *milder),
        remedy="; ".join(dict.fromkeys(one.remedy for one in decisive if one.remedy)),
    )
