"""How a run ended: decided from Slurm's word, the exit status and the log together, then written once.

outcome.json is the record; the marker `ready` (JUBE's done file) is written after it and carries its hash. A training
step always ends in `ready`, with the outcome inside, so that a failed point stays a row of JUBE's table.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.clock import now
from nlp_bench.config.run import Run
from nlp_bench.files import read_json, write_json, write_text
from nlp_bench.launch.evidence import Evidence, gather
from nlp_bench.launch.states import GONE, meaning
from nlp_bench.outcome import Outcome, read_word

MARKER = "ready"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one run ended."""

    outcome: Outcome
    """The word."""
    reasons: list[str] = field(default_factory=list)
    """Why, in sentences for a person."""
    evidence: str | None = None
    """The line of the log that shows it."""

    def text(self) -> str:
        """Return outcome, reasons and evidence in one line."""
        said = [*self.reasons, *([self.evidence] if self.evidence else [])]
        return self.outcome.value + (f": {'; '.join(said)}" if said else "")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known when a run has ended."""

    iterations: int
    """Iterations that run.json asks for."""
    exit_status: int | None
    """Exit status of the job; None where it is lost."""
    state: str | None
    """Slurm's word; None where there is no Slurm or it does not answer."""
    signalled: bool
    """Whether the job script was told to stop."""
    started: bool
    """Whether the job wrote a log at all."""
    log: Evidence
    """What the log says."""


def decide(run: Run, run_dir: Path, *, exit_status: int | None, state: str | None, signalled: bool = False) -> Ending:
    """Decide how a run ended; `state` is Slurm's word, None where there is no Slurm or it does not answer.

    The first rule that speaks decides, in this order: what Slurm did to the job, what Slurm wrote into its log, a loss
    that is not finite, the exit status, what the log lacks.
    """
    facts = Facts(
        iterations=run.training.iterations,
        exit_status=exit_status,
        state=state,
        signalled=signalled,
        started=(run_dir / "job.out").exists(),
        log=gather(run_dir),
    )
    for rule in (_slurm_state, _slurm_notice, _not_finite, _exit_status, _short):
        ending = rule(facts)
        if ending is not None:
            return ending
    return Ending(outcome=Outcome.VALID)


def _slurm_state(facts: Facts) -> Ending | None:
    word = meaning(facts.state) if facts.state and facts.state != GONE else None
    if not isinstance(word, Outcome) or word is Outcome.FAILED:
        return None
    before = "" if facts.started else " before it started"
    return Ending(outcome=word, reasons=[f"Slurm: {facts.state}{before}"], evidence=facts.log.slurm)


def _slurm_notice(facts: Facts) -> Ending | None:
    if facts.exit_status == 0:
        return None
    word = facts.log.slurm_outcome or (Outcome.CANCELLED if facts.signalled else None)
    if word is None:
        return None
    return Ending(outcome=word, reasons=["the job was ended from outside"], evidence=facts.log.slurm)


def _not_finite(facts: Facts) -> Ending | None:
    if facts.log.not_finite is None:
        return None
    return Ending(outcome=Outcome.INVALID, reasons=[facts.log.not_finite], evidence=facts.log.error)


def _exit_status(facts: Facts) -> Ending | None:
    failed = facts.state is not None and meaning(facts.state) is Outcome.FAILED
    if facts.exit_status in {0, None} and not failed:
        return None
    word = Outcome.OUT_OF_MEMORY if facts.log.out_of_memory else Outcome.FAILED
    status = f"Slurm: {facts.state}" if facts.exit_status is None else _in_words(facts.exit_status)
    last = f"last iteration {facts.log.last_iteration or 'none'}"
    return Ending(outcome=word, reasons=[f"{status}, {last}"], evidence=facts.log.error)


def _in_words(status: int) -> str:
    """Return an exit status for a person; Python counts a signal negative, a shell from 128 up."""
    signal_number = -status if status < 0 else status - 128
    return f"killed by signal {signal_number}" if 0 < signal_number < 65 else f"exit status {status}"


def _short(facts: Facts) -> Ending | None:
    last = facts.log.last_iteration
    if facts.exit_status is None:
        return Ending(outcome=Outcome.UNKNOWN, reasons=[f"the exit status is lost; last iteration {last or 'none'}"])
    if (last or 0) >= facts.iterations:
        return None
    reason = f"last iteration {last or 'none'} of {facts.iterations}"
    return Ending(outcome=Outcome.INCOMPLETE, reasons=[reason], evidence=facts.log.error)


def write_ending(run_dir: Path, ending: Ending, *, exit_status: int | None, job_id: str | None) -> None:
    """Write outcome.json and then the marker, unless an earlier decision stands."""
    path = run_dir / "outcome.json"
    if not path.exists():
        record: dict[str, Any] = {
            "schema": schemas.OUTCOME,
            "outcome": ending.outcome.value,
            "reasons": ending.reasons,
            "evidence": ending.evidence,
            "exit_status": exit_status,
            "job_id": job_id,
            "ended": now(),
        }
        write_json(path, record)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_text(run_dir / MARKER, f"{read_json(path, schemas.OUTCOME)['outcome']} sha256:{digest}\n")


def read_ending(run_dir: Path) -> Ending | None:
    """Return the decision that stands, or None while there is none."""
    path = run_dir / "outcome.json"
    if not path.exists():
        return None
    record = read_json(path, schemas.OUTCOME)
    outcome = read_word(record["outcome"], path)
    return Ending(outcome=outcome, reasons=list(record["reasons"]), evidence=record["evidence"])
