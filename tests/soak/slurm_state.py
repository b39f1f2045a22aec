"""One job of the soak while it goes: where it lies, what the oracle has seen of it, what was done to it."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench.launch.once import folder_comment
from soak.slurm_plan import Plan


@dataclass(frozen=True, kw_only=True)
class Witness:
    """One line of the oracle, written by the training itself."""

    word: str  # "begin" or "end": its last iteration is done
    job: str  # Slurm's number
    start: int  # how often Slurm had started the job anew
    time_s: float  # unix time


@dataclass(kw_only=True)
class Going:
    plan: Plan  # what was planned
    run_dir: Path  # its run folder
    oracle: Path  # the file of the oracle, in another folder
    met: set[str] = field(default_factory=set)  # faults that have met it, its own and those of its neighbours
    is_done_to: bool = False  # whether its own fault has been tried
    submitted_s: float | None = None  # unix time of its first submit
    ended_s: float | None = None  # unix time at which its outcome was first seen
    holes: list[tuple[float, float]] = field(default_factory=list)  # from when to when Slurm has suspended it

    @property
    def comment(self) -> str:
        """What the comments of its Slurm jobs begin with."""
        return folder_comment(self.run_dir)

    def saw(self) -> list[Witness]:
        try:
            lines = self.oracle.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [Witness(word=w[0], job=w[1], start=int(w[2]), time_s=float(w[3])) for w in words if len(w) == 4]

    def record(self, name: str) -> dict[str, Any]:
        """Return one of its JSON records, {} while there is none."""
        try:
            found = json.loads((self.run_dir / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def job_id(self) -> str | None:
        found = self.record("submit.json").get("job_id")
        return str(found) if found else None

    def has_ended(self) -> bool:
        """Whether there is an outcome; the first time is kept."""
        if self.ended_s is None and (self.run_dir / "outcome.json").exists():
            self.ended_s = time.time()
        return self.ended_s is not None
