"""One machine: its nodes, scheduler, software and environment; the only place for site facts."""

import re
from dataclasses import dataclass, field, fields

from nlp_bench.config import checks, scheduler
from nlp_bench.config.binding import Binding
from nlp_bench.errors import UsageError
from nlp_bench.redact import is_secret


@dataclass(frozen=True, kw_only=True)
class Detect:
    """How the machine is recognised when no system is named."""

    hostname: str | None = None
    """Regular expression that the host name must match at its start."""
    slurm_cluster: str | None = None
    """ClusterName of its Slurm."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.hostname or "")
        except re.error as error:
            raise UsageError(f"system.detect.hostname: {self.hostname!r} is no regular expression: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The accelerator, from its data sheet."""

    name: str
    """Product name."""
    memory_gib: float
    """Memory as its name says it, in GiB: 80 for an H100 80GB."""
    peak_bf16_tflops: float
    """Dense bf16 peak in 10^12 FLOP/s."""
    compute_capability: str = ""
    """Architecture that kernels are compiled for, for example "8.0", where the build sees no GPU (a login node)."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The fabric between nodes."""

    links_per_node: int | None = None
    """Network adapters of one node."""
    link_gbit_per_s: float | None = None
    """Rate of one adapter in Gbit/s and direction."""
    master_addr_suffix: str = ""
    """Appended to a node's name in Slurm to get the name of its fast address; empty: Slurm's NodeAddr is used."""
    rendezvous: str = "c10d"
    """torchrun's backend: c10d orders nodes by address as a word, static by Slurm's own order."""

    def __post_init__(self) -> None:
        checks.one_of("system.network.rendezvous", self.rendezvous, ("c10d", "static"))


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """What the job script asks Slurm for; an empty string leaves the line out."""

    queue: str = ""
    """Partition."""
    account: str = ""
    """Account that is charged."""
    exclusive: bool = False
    """Ask for whole nodes."""
    gres: str = ""
    """Generic resource of the GPUs; "gpu" becomes gpu:N with the ranks per node."""
    gpus_per_node_option: bool = False
    """Ask with --gpus-per-node=N (for sites that do not use gres)."""
    cpus_per_task: int | None = None
    """CPU cores of the one task per node."""
    mem: str = ""
    """Memory per node, "0" for all."""
    hint: str = ""
    """Slurm's --hint, for example nomultithread."""
    job_name_prefix: str = "nlp-bench-"
    """Stands before the model's name in the job's name."""
    sbatch_args: tuple[str, ...] = ()
    """Further #SBATCH options, one word each."""
    srun_args: tuple[str, ...] = ()
    """Further srun options, one word each."""
    dependency: str = ""
    """Slurm's --dependency, for example singleton."""
    oversize: str = "refuse"
    """A job larger than the partition: refuse it, or queue it."""

    def __post_init__(self) -> None:
        checks.one_of("system.slurm.oversize", self.oversize, ("refuse", "queue"))
        if self.gres and self.gpus_per_node_option:
            raise UsageError(
                f"system.slurm: gres = {self.gres!r} and gpus_per_node_option both ask for the GPUs; a site takes one of the two"
            )
        scheduler.get_scheduler("slurm").check_options(self)


@dataclass(frozen=True, kw_only=True)
class Container:
    """An image that the ranks run in; the empty image means none."""

    image: str = ""
    """Path or address of the image."""
    runtime: str = "pyxis"
    """pyxis (srun --container-image) or apptainer (apptainer exec)."""
    mounts: tuple[str, ...] = ()
    """Further mounts, "outside:inside" or one path for both; the repository, the run folder and the data are always mounted."""
    python: str = "python3"
    """Python inside the image."""
    writable: bool = False
    """The image's file system can be written to; what is written is lost at the end (pyxis --container-writable, apptainer
    --writable-tmpfs)."""
    home: bool = False
    """Mount the home folder, with whatever lies in its .local/lib."""
    entrypoint: bool | None = None
    """pyxis: run the image's entry point first (true), do not (false), or as the site has set it (left out)."""
    args: tuple[str, ...] = ()
    """Further options of srun's pyxis or of apptainer exec, one word each."""

    def __post_init__(self) -> None:
        checks.one_of("system.container.runtime", self.runtime, ("pyxis", "apptainer"))
        if self.entrypoint is not None and self.runtime != "pyxis":
            raise UsageError(
                "system.container.entrypoint: `apptainer exec` runs no entry point; leave it out, or set what the entry "
                "point would set in [environment]"
            )


@dataclass(frozen=True, kw_only=True)
class Software:
    """What is loaded before anything runs."""

    modules: tuple[str, ...] = ()
    """Environment modules, loaded in this order after `module purge`."""
    system_site_packages: bool = False
    """The virtual environment sees the modules' Python packages (a site's own PyTorch)."""
    apex: str = ""
    """Git address or folder of Apex, which the build then compiles; empty: torch's own kernels are used."""
    transformer_engine: str = ""
    """What pip installs for Transformer Engine, for example "transformer_engine[pytorch]==2.11.0"; empty: none."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout that this machine prefers for one model; missing fields keep the model's defaults."""

    nodes: int | None = None
    """Nodes of the job."""
    gpus_per_node: int | None = None
    """Ranks per node."""
    tensor_parallel: int | None = None
    """Ranks that share each layer."""
    pipeline_parallel: int | None = None
    """Stages that the layers are cut into."""
    micro_batch_size: int | None = None
    """Samples in one forward pass."""
    gradient_accumulation_steps: int | None = None
    """Micro batches per optimizer step and pipeline."""
    timelimit: str | None = None
    """Time limit of the job, HH:MM:SS."""

    def __post_init__(self) -> None:
        numbers = {f"system__layout__{field.name}": getattr(self, field.name) for field in fields(self)}
        checks.positive(**{name: value for name, value in numbers.items() if isinstance(value, int)})


@dataclass(frozen=True, kw_only=True)
class System:
    """One system file of benchmark/systems."""

    name: str
    """The file's name without .toml; also the tag."""
    description: str
    """One line for people."""
    version: str = ""
    """Version of the machine's software stack; the result table's column `version`."""
    launcher: str
    """The scheduler (slurm), or local, unless a tag says otherwise."""
    accelerator: str
    """cuda, cpu, or auto: cuda where nvidia-smi lists a GPU."""
    gpus_per_node: int | str
    """Ranks per node: GPUs, or CPU ranks; auto counts them."""
    detect: Detect = field(default_factory=Detect)
    """How it is recognised."""
    gpu: Gpu | None = None
    """The accelerator's data sheet."""
    network: Network = field(default_factory=Network)
    """The fabric."""
    slurm: Slurm = field(default_factory=Slurm)
    """Slurm's settings."""
    container: Container = field(default_factory=Container)
    """The container image, if any."""
    binding: Binding = field(default_factory=Binding)
    """How the ranks of a node share its CPUs."""
    software: Software = field(default_factory=Software)
    """Modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables exported before the ranks start; NAME = "$NAME" is taken from the environment of whoever submits."""
    layout: dict[str, Layout] = field(default_factory=dict)
    """Preferred layouts by model name."""

    def __post_init__(self) -> None:
        checks.file_name("system.name", self.name)
        for name, value in self.environment.items():
            _check_variable(name, value)
        further = (self.software.apex, self.software.transformer_engine, *self.slurm.srun_args, *self.container.args)
        checks.no_secret("system", " ".join((self.container.image, *further)))
        scheduler.check_name("system.launcher", self.launcher)
        if self.launcher not in scheduler.BUILT_IN:
            scheduler.get_scheduler(self.launcher).check_options(self.slurm)
        checks.one_of("system.accelerator", self.accelerator, ("cuda", "cpu", "auto"))
        if self.launcher != scheduler.LOCAL and "auto" in {self.accelerator, self.gpus_per_node}:
            raise UsageError(
                "system: auto counts the GPUs of this machine, which with a scheduler is the login node; "
                'write accelerator = "cuda" or "cpu" and the number gpus_per_node'
            )
        if isinstance(self.gpus_per_node, str):
            checks.one_of("system.gpus_per_node", self.gpus_per_node, ("auto",))
        else:
            checks.positive(system__gpus_per_node=self.gpus_per_node)


def is_inherited(name: str, value: str) -> bool:
    """Return whether the file keeps the variable's name only: its value comes from the environment of whoever submits."""
    return value in {f"${name}", f"${{{name}}}"}


def _check_variable(name: str, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"system.environment: {name!r} is no name of a variable; use letters, digits and _")
    if "\0" in value:
        raise UsageError(f"system.environment.{name}: holds a NUL byte, which no variable can")
    if is_secret(name, value):
        raise UsageError(
            f"system.environment.{name}: looks like a secret, which would be copied into run.json and submit.job; write "
            f'{name} = "${name}" and export {name} before you submit'
        )
