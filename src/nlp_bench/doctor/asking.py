"""Questions to other programs: bounded in time, and "cannot ask" told apart from "says no"."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

ANSWER_S = 12.0
"""Seconds for an answer; Slurm's commands give up on a silent controller by themselves after about 9."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a program said."""

    code: int | None
    """Exit status; None where it is not there, did not start or did not end in time."""
    out: str
    """Its stdout."""
    err: str
    """Its stderr, or why there is no exit status."""
    elapsed_s: float
    """Seconds until it had answered."""

    @property
    def is_good(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.code == 0

    @property
    def said(self) -> str:
        """What it said, in one line of at most 300 characters."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:300]


def ask(
    *command: str, timeout_s: float = ANSWER_S, stdin: str = "", variables: Mapping[str, str] | None = None
) -> Answer:
    """Run `command` and return what it said; a fault is an answer, too: nothing is raised."""
    begin = time.monotonic()
    if shutil.which(command[0]) is None:
        return Answer(code=None, out="", err=f"{command[0]} is not on PATH", elapsed_s=0.0)
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            env=None if variables is None else dict(variables),
        )
    except subprocess.TimeoutExpired:
        why = f"`{' '.join(command)}` did not answer within {timeout_s:g} s"
        return Answer(code=None, out="", err=why, elapsed_s=time.monotonic() - begin)
    except OSError as error:
        why = f"{command[0]} does not start: {error.strerror}"
        return Answer(code=None, out="", err=why, elapsed_s=time.monotonic() - begin)
    return Answer(code=done.returncode, out=done.stdout, err=done.stderr, elapsed_s=time.monotonic() - begin)
