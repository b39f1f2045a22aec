"""Which CPUs and which memory each rank of a node gets: the table [binding] of a system file.

The words are those of `numa_mapping` in NVIDIA's BigNLP and NeMo-Megatron launchers (their guide, section "General
Configuration"), whose meaning is that of NVIDIA/gpu_affinity; `auto`, `none` and `memory` are ours.
"""

from dataclasses import dataclass

from nlp_bench.config import checks
from nlp_bench.errors import UsageError

MODES = ("all", "single", "single_unique", "unique_interleaved", "unique_contiguous")
"""Ways to share out the cores near the GPUs."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """How the CPUs of a node are shared out among its ranks."""

    mode: str = "auto"
    """auto: unique_contiguous for ranks with a GPU, none for CPU ranks. none: leave the ranks as Slurm started them.
    all: every core near the GPU, shared by the ranks of its neighbourhood. single, single_unique: one core near the GPU, shared or
    of its own. unique_interleaved, unique_contiguous: an own share of these cores, every n-th of them or a run of neighbours."""
    scope: str = "node"
    """What "near the GPU" is: its NUMA node, or its whole socket (the NUMA node first, then a share of those without a GPU)."""
    cores: str = "all_logical"
    """all_logical: with each core all its hardware threads; single_logical: the first one only."""
    balanced: bool = True
    """With the unique modes: the same number of cores for each rank, the smallest one that fits everywhere."""
    min_cores: int = 1
    """Cores that a rank must get; with fewer, nothing is bound and the log says so."""
    max_cores: int | None = None
    """Cores that a rank gets at most; left out: no limit."""
    memory: str = "local"
    """local: Linux takes pages near the CPU that touches them first, so they follow the cores. preferred, bind: first or
    only from the NUMA nodes of the rank's cores (set_mempolicy)."""

    def __post_init__(self) -> None:
        checks.one_of("system.binding.mode", self.mode, ("auto", "none", *MODES))
        checks.one_of("system.binding.scope", self.scope, ("node", "socket"))
        checks.one_of("system.binding.cores", self.cores, ("all_logical", "single_logical"))
        checks.one_of("system.binding.memory", self.memory, ("local", "preferred", "bind"))
        checks.positive(system__binding__min_cores=self.min_cores)
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
