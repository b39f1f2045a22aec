"""Variables of the caller's environment that belong to another job or configure another program: a run does not get them, for run.json cannot tell.

Torchrun takes every option that it is not given from PET_<OPTION> (torch/distributed/argparse_util.py), the form of a log line from
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; sbatch, srun, squeue and scancel take theirs from SBATCH_*, SLURM_*, SQUEUE_*, SCANCEL_*
(their manuals, "INPUT ENVIRONMENT VARIABLES"). A terminal that was opened inside a job keeps that job's numbers after its end.
"""

import re
from collections.abc import Collection, Mapping

from nlp_bench.config.scheduler import get_scheduler, scheduler_names
from nlp_bench.config.system import System, is_inherited
from nlp_bench.errors import UsageError
from nlp_bench.escape import some
from nlp_bench.redact import is_secret

OF_RANKS = re.compile(
    r"PET_\w+|TORCHELASTIC_\w+|(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|ROLE_NAME|MASTER_(ADDR|PORT)|PYTHON_EXEC"
    r"|OMP_PLACES|OMP_PROC_BIND|GOMP_CPU_AFFINITY|KMP_AFFINITY"
)
"""What torchrun reads, or sets for its ranks; and where OpenMP puts the threads, which `[binding]` decides: all ranks on one core, for example."""


def of_jobs() -> "re.Pattern[str]":
    """Return what any scheduler sets in a job, and what its submission reads."""
    return re.compile("|".join(f"(?:{get_scheduler(name).job_variables.pattern})" for name in scheduler_names()))


def taken_out(environment: Mapping[str, str], kind: "re.Pattern[str]", kept: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that `without` removes: those of `kind`, except `kept` and those that select a scheduler. Secrets are masked."""
    return {
        name: "***" if is_secret(name, value) else value
        for name, value in sorted(environment.items())
        if kind.fullmatch(name)
        and name not in kept
        and not any(name in get_scheduler(one).connection for one in scheduler_names())
    }


def without(environment: Mapping[str, str], kind: "re.Pattern[str]", kept: Collection[str] = ()) -> dict[str, str]:
    """Return `environment` without the variables of `kind`."""
    out = taken_out(environment, kind, kept)
    return {name: value for name, value in environment.items() if name not in out}


def message(out: Collection[str]) -> str:
    """Return one line for a person about variables that were taken out: all names, or the first of many."""
    return f"not handed on, for run.json does not know them: {some(sorted(out), 6)}"


def variables(system: System, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the system's variables, those that it inherits with their value in `environment`.

    Raises UsageError for one that is not set there.
    """
    asked = system.environment.items()
    values = {name: environment.get(name) if is_inherited(name, value) else value for name, value in asked}
    found = {name: value for name, value in values.items() if value is not None}
    if missing := [name for name in values if name not in found]:
        raise UsageError(
            f"system.environment.{missing[0]}: {system.name} takes it from your environment, where it is not set; "
            f"export {missing[0]} first"
        )
    return found
