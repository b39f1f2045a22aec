"""The shell lines that load a machine's software: the same ones in the job script and in activate.bash."""

import shlex

from nlp_bench.config.system import System


def software_lines(system: System) -> list[str]:
    """Return `module load` and `export` lines, each word quoted, in the order of the system file."""
    lines = []
    if system.software.modules:
        lines += ["module purge", *(f"module load {shlex.quote(name)}" for name in system.software.modules)]
    return lines + [f"export {name}={_quoted(value)}" for name, value in system.environment.items()]


def _quoted(value: str) -> str:
    """Return `value` as one shell word; one that begins with = ("exactly this", for NCCL) would look like a comparison."""
    return f"'{value}'" if value.startswith("=") and shlex.quote(value) == value else shlex.quote(value)
