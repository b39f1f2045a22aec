"""Slurm's job states, each with what it means for a run. Source: the section JOB STATE CODES of squeue's manual."""

from nlp_bench.outcome import Outcome

RUNNING = "running"
WAITING = "waiting"
DONE = "done"

GONE = "GONE"
"""Our own word in place of a state: Slurm answers, but no longer knows the job."""

MEANING: dict[str, Outcome | str] = {
    "PENDING": WAITING,
    "CONFIGURING": WAITING,
    "REQUEUED": WAITING,
    "REQUEUE_FED": WAITING,
    "REQUEUE_HOLD": WAITING,
    "RESV_DEL_HOLD": WAITING,
    "RUNNING": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "STOPPED": RUNNING,
    "SUSPENDED": RUNNING,
    "COMPLETING": RUNNING,
    "COMPLETED": DONE,
    "FAILED": Outcome.FAILED,
    "SPECIAL_EXIT": Outcome.FAILED,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
}


def meaning(word: str) -> Outcome | str:
    """Return WAITING, RUNNING, DONE (ended, exit status decides) or the Outcome; an unknown word is UNKNOWN.

    Takes Slurm's spellings: "CANCELLED by 1000", "CANCELLED+", lower case.
    """
    parts = word.upper().replace("+", " ").split()
    return MEANING.get(parts[0], Outcome.UNKNOWN) if parts else Outcome.UNKNOWN
