"""Running the checks: each to its end, whatever it meets."""

import importlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from nlp_bench.bounded import answers
from nlp_bench.doctor.checks import CHECKS
from nlp_bench.doctor.finding import FAILED, Finding, failed
from nlp_bench.doctor.place import Place
from nlp_bench.errors import NlpBenchError, UsageError, nearest

WITHIN_S = 60.0
"""Seconds for all checks together: a file server or a driver that hangs answers no question at all, and no system call has a bound."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """One check and what it found."""

    name: str
    """The check's name, as --checks takes it."""
    finding: Finding
    """What it found."""
    elapsed_s: float
    """Seconds that it took."""


def chosen(words: str | None) -> list[str]:
    """Return the checks that `words` ("jube,disk") name, all without it; raises UsageError for an unknown one."""
    if words is None:
        return list(CHECKS)
    names = [word.strip() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in CHECKS:
            raise UsageError(
                f"--checks: {name!r} is no check{nearest(name, list(CHECKS))}; they are: {' '.join(CHECKS)}"
            )
    if not names:
        raise UsageError(f"--checks: names no check; they are: {' '.join(CHECKS)}")
    return list(dict.fromkeys(names))


def examine(place: Place, names: Iterable[str]) -> list[Examined]:
    """Run the checks `names` at once and return what they found, in that order; each has an answer after WITHIN_S seconds at most."""
    asked = {name: partial(_one, place, name) for name in names}
    for name in (
        asked
    ):  # before the threads: Python locks modules while it imports them, and two threads can wait for each other
        _module(name)
    found = answers(asked, WITHIN_S)
    return [found.get(name) or _silent(name) for name in asked]


def _silent(name: str) -> Examined:
    finding = failed(
        f"no answer within {WITHIN_S:g} s: a file server, a driver or a name service hangs",
        remedy="df, nvidia-smi, getent hosts: what of these hangs as well? tell the site; the others: nlp-bench doctor --checks A,B",
    )
    return Examined(name=name, finding=finding, elapsed_s=WITHIN_S)


def is_bad(examined: Iterable[Examined]) -> bool:
    """Return whether a check failed."""
    return any(one.finding.status == FAILED for one in examined)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"nlp_bench.doctor.checks.{name}")


def _one(place: Place, name: str) -> Examined:
    begin = time.monotonic()
    try:
        finding: Finding = _module(name).check(place)
    except NlpBenchError as error:  # what a room refuses in its own words, remedy included
        finding = failed(str(error), remedy=f"mend that, then ask again: nlp-bench doctor --checks {name}")
    except Exception as error:  # noqa: BLE001  # a doctor that stumbles over one organ still looks at the others
        finding = failed(
            f"the check itself broke: {type(error).__name__}: {error}",
            remedy=f"run the others without it, and please report this: nlp-bench doctor --checks {name}",
        )
    return Examined(name=name, finding=finding, elapsed_s=time.monotonic() - begin)
