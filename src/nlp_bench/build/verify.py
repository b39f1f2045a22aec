"""Verifies every kernel: each is run once, in a process per provider, and compared with plain torch."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from nlp_bench.build.providers import NAMES
from nlp_bench.files import parse_json
from nlp_bench.immutable import immutable
from nlp_bench.show.table import Column, as_text

KERNELS = {
    "torch": (
        "norm", "activation", "dropout add", "rotary", "cross entropy", "attention", "weight gradient", "adamw", "grad norm",
    ),
    "apex": ("norm", "weight gradient", "adamw", "grad norm"),
    "te": ("norm", "attention", "adamw", "grad norm"),
}  # fmt: skip
"""Kernels that are tried, by provider; all providers use torch's for the rest of a layer."""
MODULE = "nlp_bench.train.kernels.trial"
LIMIT_S = 600


@immutable
class Trial:
    """The result of one kernel."""

    provider: str  # te, apex or torch
    kernel: str
    difference: float | None
    """|got - expected| / |expected| in 2-norms, the greatest of result and gradients; None where the kernel gave no result."""
    passed: bool
    error: str | None = None  # why there is no result


def verify(site: Path | None, log: Path, providers: Iterable[str] | None = None) -> list[Trial]:
    """Try every kernel of `providers` (default: all installed ones); `site` is a folder that is put first in the search path.

    The stderr of the kernels' processes goes to `log`.
    """
    environment = dict(os.environ)
    if site is not None and site.is_dir():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), environment.get("PYTHONPATH")]))
    trials: list[Trial] = []
    for provider in _installed(environment) if providers is None else providers:
        left = list(KERNELS[provider])
        while left:  # a process that dies is started again with the kernels after the one that killed it
            tried = _run(provider, left, environment, log)
            trials += tried
            left = left[len(tried) :]
    return trials


def _installed(environment: dict[str, str]) -> list[str]:
    code = "from nlp_bench.build.providers import missing; print(*(p for p in ('apex', 'te') if not missing(p)))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout.split()
    return ["torch", *found]


def _run(provider: str, names: list[str], environment: dict[str, str], log: Path) -> list[Trial]:
    command = [sys.executable, "-W", "ignore", "-m", MODULE, provider, *names]
    with log.open("ab") as stream:
        try:
            ended = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=stream, text=True, timeout=LIMIT_S, env=environment, check=False
            )
            text, end = ended.stdout, f"the process ended with status {ended.returncode}"
        except subprocess.TimeoutExpired as error:
            output, end = error.stdout or "", f"no answer within {LIMIT_S} s"
            text = output if isinstance(output, str) else output.decode(errors="replace")
    lines = [parse_json(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    done = [Trial(provider=provider, **line) for line in lines if "starts" not in line]
    if len(done) < len(names):
        fault = f"{end}; see {log}"
        done.append(Trial(provider=provider, kernel=names[len(done)], difference=None, passed=False, error=fault))
    return done


def table(trials: Sequence[Trial]) -> list[str]:
    """Return one line per kernel: provider, kernel, difference, verdict."""
    verdicts = [
        "ok" if one.passed else f"WRONG: switched off{f' ({one.error})' if one.error else ''}" for one in trials
    ]
    columns = [
        Column(heading="provider", cells=[NAMES[one.provider] for one in trials], is_text=True),
        Column(heading="kernel", cells=[one.kernel for one in trials], is_text=True),
        Column(heading="difference", cells=["none" if one.difference is None else f"{one.difference:.1e}" for one in trials]),
        Column(heading="verdict", cells=verdicts, is_text=True),
    ]  # fmt: skip
    return as_text(columns, has_rule=False)
