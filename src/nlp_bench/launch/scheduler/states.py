"""Slurm's job states, each with what it means for a run.

Source: the section JOB STATE CODES of squeue's manual, Slurm 22.05 to 25.05: the newer words are EXPEDITING, LAUNCH_FAILED,
POWER_UP_NODE, RECONFIG_FAIL and UPDATE_DB.
"""

from nlp_bench.outcome import Outcome

RUNNING = "running"
WAITING = "waiting"
DONE = "done"

GONE = "GONE"
"""Our own word in place of a state: Slurm answers, but no longer knows the job."""

MEANING: dict[str, Outcome | str] = {
    "PENDING": WAITING,
    "CONFIGURING": WAITING,
    "EXPEDITING": WAITING,
    "POWER_UP_NODE": WAITING,
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
    "UPDATE_DB": RUNNING,
    "COMPLETING": RUNNING,
    "COMPLETED": DONE,
    "FAILED": Outcome.FAILED,
    "SPECIAL_EXIT": WAITING,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "LAUNCH_FAILED": Outcome.NODE_FAIL,
    "RECONFIG_FAIL": Outcome.NODE_FAIL,
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
}

HELD = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
"""States that only a person ends, by `scontrol release`."""

REASONS: dict[str, Outcome] = {
    "TimeLimit": Outcome.TIMEOUT,
    "Deadline": Outcome.TIMEOUT,
    "NodeDown": Outcome.NODE_FAIL,
    "OutOfMemory": Outcome.OUT_OF_MEMORY,
}
"""Slurm's reasons that name the end of a job whose state is still COMPLETING. Source: JOB REASON CODES of squeue's manual."""


def is_known(word: str) -> bool:
    """Whether the table has this word, in any of Slurm's spellings."""
    parts = word.upper().replace("+", " ").split()
    return bool(parts) and parts[0] in MEANING


def meaning(word: str) -> Outcome | str:
    """Return WAITING, RUNNING, DONE (ended, exit status decides) or the Outcome; an unknown word is UNKNOWN.

    Takes Slurm's spellings: "CANCELLED by 1000", "CANCELLED+", lower case.
    """
    parts = word.upper().replace("+", " ").split()
    return MEANING.get(parts[0], Outcome.UNKNOWN) if parts else Outcome.UNKNOWN
