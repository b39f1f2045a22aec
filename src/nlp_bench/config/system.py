"""One machine: its nodes, scheduler, software and environment; the only place for site facts."""

import re
from dataclasses import field, fields

from nlp_bench.config import scheduler
from nlp_bench.config.model import Layout, Model
from nlp_bench.config.options import Checked, one_of, within
from nlp_bench.config.request import SlurmOptions
from nlp_bench.config.table import file_name, no_secret
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.redact import is_secret

MODES = ("all", "single", "single_unique", "unique_interleaved", "unique_contiguous")
"""Ways to share out the cores near the GPUs."""
MEMORY_GIB = (0.1, 16384)
"""Least and most memory of a GPU: what is beyond is stated in another unit."""

FABRICS = ("nvlink-domain", "infiniband", "efa", "slingshot", "omni-path", "ethernet", "unknown")
"""What joins the nodes of a machine."""


@immutable
class Binding(Checked, where="system.binding"):
    """How the CPUs of a node are shared out among its ranks."""

    mode: str = one_of("auto", "none", *MODES, default="auto")
    """auto: unique_contiguous for ranks with a GPU, none for CPU ranks. none: leave the ranks as Slurm started them.
    all: every core near the GPU, shared by the ranks of its neighbourhood. single, single_unique: one core near the GPU, shared or
    of its own. unique_interleaved, unique_contiguous: an own share of these cores, every n-th of them or a run of neighbours."""
    scope: str = one_of("node", "socket", default="node")
    """What "near the GPU" is: its NUMA node, or its whole socket (the NUMA node first, then a share of those without a GPU)."""
    cores: str = one_of("all_logical", "single_logical", default="all_logical")
    """all_logical: with each core all its hardware threads; single_logical: the first one only."""
    balanced: bool = True
    """With the unique modes: the same number of cores for each rank, the smallest one that fits everywhere."""
    min_cores: int = 1  # Cores that a rank must get; with fewer, nothing is bound and the log says so.
    max_cores: int | None = None  # Cores that a rank gets at most; left out: no limit.
    memory: str = one_of("local", "preferred", "bind", default="local")
    """local: Linux takes pages near the CPU that touches them first, so they follow the cores. preferred: first from
    one NUMA node, the GPU's own where the rank has cores there; bind: only from the nodes of the rank's cores (set_mempolicy)."""

    def _check(self) -> None:
        if self.max_cores is not None and self.max_cores < self.min_cores:
            raise UsageError(f"system.binding: max_cores = {self.max_cores} is less than min_cores = {self.min_cores}")
        if self.mode.startswith("single") and self.min_cores > 1:
            raise UsageError(
                f"system.binding: mode {self.mode} gives each rank one core, but min_cores = {self.min_cores}; "
                "take another mode or leave min_cores out"
            )

    def mode_for(self, accelerator: str) -> str:
        """Return the mode with `auto` resolved for ranks on `accelerator` (cuda or cpu)."""
        if self.mode != "auto":
            return self.mode
        return "unique_contiguous" if accelerator == "cuda" else "none"


@immutable
class Detect:
    """How the machine is recognised when no system is named."""

    hostname: str | None = None  # Regular expression that the host name must match at its start.
    slurm_cluster: str | None = None  # ClusterName of its Slurm.

    def __post_init__(self) -> None:
        try:
            re.compile(self.hostname or "")
        except re.error as error:
            raise UsageError(f"system.detect.hostname: {self.hostname!r} is no regular expression: {error}") from error


@immutable
class Gpu(Checked, where="system.gpu"):
    """The accelerator, from its data sheet."""

    name: str  # Product name.
    memory_gib: float = within(*MEMORY_GIB, "GiB")  # Memory as its name says it, in GiB: 80 for an H100 80GB.
    peak_bf16_tflops: float = within(0.001, 100_000, "TFLOP/s")  # Dense bf16 peak in 10^12 FLOP/s.
    compute_capability: str = ""
    """Architecture that kernels are compiled for, for example "8.0", where the build sees no GPU (a login node)."""


@immutable
class Network(Checked, where="system.network"):
    """The fabric between nodes."""

    links_per_node: int | None = within(1, 1024, "adapters", default=None)  # Network adapters of one node.
    link_gbit_per_s: float | None = within(0.01, 100_000, "Gbit/s", default=None)
    """Rate of one adapter in Gbit/s and direction."""
    fabric: str = one_of(*FABRICS, default="unknown")
    """What joins the nodes; nvlink-domain: NVLink beyond a node (NVL72). `plan` says where no measurement has it."""
    master_addr_suffix: str = ""
    """Appended to a node's name in Slurm to get the name of its fast address; empty: Slurm's NodeAddr is used."""
    rendezvous: str = one_of("c10d", "static", default="c10d")
    """torchrun's backend: c10d orders nodes by address as a word, static by Slurm's own order."""


@immutable
class Slurm(SlurmOptions, Checked, where="system.slurm"):
    """What the job script asks Slurm for; an empty string leaves the line out."""

    queue: str = ""  # Partition.
    account: str = ""  # Account that is charged.
    gpus_per_node_option: bool = False  # Ask with --gpus-per-node=N (for sites that do not use gres).
    hint: str = ""  # Slurm's --hint, for example nomultithread.
    oversize: str = one_of("refuse", "queue", default="refuse")
    """A job larger than the partition: refuse it, or queue it."""

    def _check(self) -> None:
        if self.gres and self.gpus_per_node_option:
            raise UsageError(
                f"system.slurm: gres = {self.gres!r} and gpus_per_node_option both ask for the GPUs; a site takes one of the two"
            )
        scheduler.get_scheduler("slurm").check_options(self)


@immutable
class Container(Checked, where="system.container"):
    """An image that the ranks run in; the empty image means none."""

    image: str = ""  # Path or address of the image.
    runtime: str = one_of("pyxis", "apptainer", "singularity", default="pyxis")
    """pyxis (srun --container-image), apptainer (apptainer exec), or singularity: the same, where the program has its old name."""
    mounts: tuple[str, ...] = ()
    """Further mounts, "outside:inside" or one path for both; the repository, the run folder and the data are always mounted."""
    python: str = "python3"  # Python inside the image.
    writable: bool = False
    """The image's file system can be written to; what is written is lost at the end (pyxis --container-writable, apptainer
    --writable-tmpfs)."""
    home: bool = False  # Mount the home folder, with whatever lies in its .local/lib.
    entrypoint: bool | None = None
    """pyxis: run the image's entry point first (true), do not (false), or as the site has set it (left out)."""
    args: tuple[str, ...] = ()  # Further options of srun's pyxis or of apptainer exec, one word each.

    def _check(self) -> None:
        if self.entrypoint is not None and self.runtime != "pyxis":
            raise UsageError(
                "system.container.entrypoint: `apptainer exec` runs no entry point; leave it out, or set what the entry "
                "point would set in [environment]"
            )


@immutable
class Software:
    """What is loaded before anything runs."""

    modules: tuple[str, ...] = ()  # Environment modules, loaded in this order after `module purge`.
    system_site_packages: bool = False
    """The virtual environment sees the modules' Python packages (a site's own PyTorch)."""
    apex: str = ""  # Git address or folder of Apex, which the build then compiles; empty: torch's own kernels are used.
    transformer_engine: str = ""
    """What pip installs for Transformer Engine, for example "transformer_engine[pytorch]==2.11.0"; empty: none."""


@immutable
class System(Checked, where="system"):
    """One system file of benchmark/systems."""

    name: str  # The file's name without .toml; also the tag.
    description: str  # One line for people.
    version: str = ""  # Version of the machine's software stack; the result table's column `version`.
    launcher: str  # The scheduler (slurm), or local, unless a tag says otherwise.
    accelerator: str = one_of("cuda", "cpu", "auto")
    """cuda, cpu, or auto: cuda where nvidia-smi lists a GPU that CUDA_VISIBLE_DEVICES does not hide."""
    gpus_per_node: int | str = one_of("auto")  # Ranks per node: GPUs, or CPU ranks; auto counts them.
    detect: Detect = field(default_factory=Detect)  # How it is recognised.
    gpu: Gpu | None = None  # The accelerator's data sheet.
    network: Network = field(default_factory=Network)  # The fabric.
    slurm: Slurm = field(default_factory=Slurm)  # Slurm's settings.
    container: Container = field(default_factory=Container)  # The container image, if any.
    binding: Binding = field(default_factory=Binding)  # How the ranks of a node share its CPUs.
    software: Software = field(default_factory=Software)  # Modules.
    environment: dict[str, str] = field(default_factory=dict)
    """Variables exported before the ranks start; NAME = "$NAME" is taken from the environment of whoever submits, no other $ is replaced."""
    layout: dict[str, Layout] = field(default_factory=dict)  # Preferred layouts by model name.

    def _check(self) -> None:
        file_name("system.name", self.name)
        tables = ("network", "slurm", "container", "binding", "software")
        homes = {key.name: table for table in tables for key in fields(getattr(self, table))}
        for name, value in self.environment.items():
            _check_variable(name, value)
            if name in homes:  # a line that was added at the end of a file whose last table is [environment]
                raise UsageError(
                    f"system.environment.{name}: is no variable but a key of [{homes[name]}]; move its line below [{homes[name]}]"
                )
        further = (self.software.apex, self.software.transformer_engine, *self.slurm.srun_args, *self.container.args)
        no_secret("system", " ".join((self.container.image, *further)))
        scheduler.check_name("system.launcher", self.launcher)
        scheduler.get_scheduler(self.launcher).check_options(self.slurm)
        if self.launcher != scheduler.LOCAL and "auto" in {self.accelerator, self.gpus_per_node}:
            raise UsageError(
                "system: auto counts the GPUs of this machine, which with a scheduler is the login node; "
                'write accelerator = "cuda" or "cpu" and the number gpus_per_node'
            )

    def layout_of(self, model: Model) -> Layout:
        """Return the layout of a run without options: this machine's for the model, else the model's own."""
        own = vars(self.layout.get(model.name, Layout()))
        return Layout(
            **{name: getattr(model.defaults, name, None) if one is None else one for name, one in own.items()}
        )


def is_inherited(name: str, value: str) -> bool:
    """Return whether the file has the variable's name only: its value comes from the environment of the submission."""
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
