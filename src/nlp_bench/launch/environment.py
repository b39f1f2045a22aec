"""The shell lines that load a machine's software: the same ones in the job script and in activate.bash."""

import shlex
from collections.abc import Mapping

from nlp_bench.config.system import System, is_inherited
from nlp_bench.errors import UsageError


def software_lines(system: System) -> list[str]:
    """Return `module load` and `export` lines, each word quoted, in the order of the system file."""
    lines = []
    if system.software.modules:
        lines += ["module purge", *(f"module load {shlex.quote(name)}" for name in system.software.modules)]
    return lines + [_export(name, value) for name, value in system.environment.items()]


def variables(system: System, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the system's variables, those that it inherits with the value that they have in `environment`.

    Raises UsageError for one that is not set there.
    """
    missing = [
        name for name, value in system.environment.items() if is_inherited(name, value) and name not in environment
    ]
    if missing:
        raise UsageError(
            f"system.environment.{missing[0]}: {system.name} takes it from your environment, where it is not set; "
            f"export {missing[0]} first"
        )
    return {
        name: environment[name] if is_inherited(name, value) else value for name, value in system.environment.items()
    }


def _export(name: str, value: str) -> str:
    return f"export {name}" if is_inherited(name, value) else f"export {name}={_quoted(value)}"


def _quoted(value: str) -> str:
    """Return `value` as one shell word; one that begins with = ("exactly this", for NCCL) would look like a comparison."""
    return f"'{value}'" if value.startswith("=") and shlex.quote(value) == value else shlex.quote(value)
