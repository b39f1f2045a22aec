"""How a run ended: one enumeration for the launcher, the measurement, the report and JUBE."""

from enum import Enum
from pathlib import Path

from nlp_bench.errors import NlpBenchError


class Outcome(str, Enum):
    """The end of a run. Only VALID and MEASURED carry a number."""

    VALID = "VALID"  # ended well, trained, whole: every requested iteration is in the log, each loss there and finite
    MEASURED = "MEASURED"  # somebody's log with a number, not shown to be VALID; never a run of ours
    INVALID = "INVALID"  # ran, but the number must not be used: a NaN or infinite loss, or a broken rule
    REFUSED = "REFUSED"  # the log cannot give tokens per second; the reason names what is missing and its option
    INCOMPLETE = "INCOMPLETE"  # stopped without an error before the iterations that run.json requests
    FAILED = "FAILED"  # a rank or the launcher ended with an error
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # GPU or host memory was exhausted
    TIMEOUT = "TIMEOUT"  # the scheduler's time limit ended the run
    CANCELLED = "CANCELLED"  # a person or the scheduler cancelled the job
    PREEMPTED = "PREEMPTED"  # the scheduler took the nodes for another job
    NODE_FAIL = "NODE_FAIL"  # a node failed
    UNKNOWN = "UNKNOWN"  # the scheduler no longer knows the job and it left no record

    @property
    def has_number(self) -> bool:
        """Return whether a run that ended so may carry a number."""
        return self in {Outcome.VALID, Outcome.MEASURED}


def read_word(word: object, path: Path) -> Outcome:
    """Return how outcome.json says that a run ended; raises NlpBenchError naming `path`, the word and those that exist."""
    known = [outcome.value for outcome in Outcome if outcome is not Outcome.MEASURED]
    if word not in known:
        raise NlpBenchError(f"{path}: outcome is {word!r}, expected one of {', '.join(known)}")
    return Outcome(word)
