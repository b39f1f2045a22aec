"""How long anything of a run may take, and how often it is tried: no run waits for ever."""

import argparse
import math
from dataclasses import dataclass, fields, replace

from nlp_bench.config.options import add_fields, option
from nlp_bench.config.values import duration
from nlp_bench.errors import UsageError

MAX_RETRIES = 10


def _whole_seconds(text: str) -> int:
    return round(duration("s", least=0)(text))


def _minutes(text: str) -> int:
    return math.ceil(duration("min")(text))


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 0 up; write 10") from None


def _retries(text: str) -> int:
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {MAX_RETRIES}")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one run; each has a default that a benchmark run does not meet."""

    join_timeout_s: float | None = option("--join-timeout", "--join", read=duration("s"), metavar="SECONDS")
    """How long a node waits for the others (default: by the number of nodes, 600 at most)."""
    collective_timeout_min: int | None = option("--collective-timeout", read=_minutes, metavar="MINUTES")
    """How long a rank waits in a collective (default: the trainer's, 10)."""
    stall_factor: float = option("--stall-factor", read=_factor, metavar="K", default=10.0)
    """End a run whose log is silent for K times its longest interval (10; 0: never)."""
    stall_least_s: float = option("--stall-least", read=duration("s", least=0), metavar="SECONDS", default=300.0)
    """Silence that is never a stall, however short the intervals are (300)."""
    stall_start_s: float = option("--stall-start", read=duration("s", least=0), metavar="SECONDS", default=3600.0)
    """Silence allowed before the second line of the log, behind its last one, and around checkpoints (3600)."""
    notice_s: int = option("--notice", read=_whole_seconds, metavar="SECONDS", default=0)
    """So long before the time limit the ranks stop behind their iteration, with a checkpoint where --save is given (0: never)."""
    max_pending_s: float | None = option("--max-pending", read=duration("s", least=0), metavar="SECONDS")
    """Cancel a job that has waited so long in the queue (0: never)."""
    retries: int = option("--retries", read=_retries, metavar="N", default=0)
    """Further jobs where a node failed or the job was preempted (0); no other end is tried again."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (0 <= value < math.inf):
                raise UsageError(f"limits.{field.name}: {value!r} is not a number from 0 up")
        if self.retries > MAX_RETRIES:
            raise UsageError(f"limits.retries: {self.retries} is more than {MAX_RETRIES}; look at the nodes instead")

    def join_s(self, nodes: int, *, is_packed: bool) -> float:
        """Return the seconds for which `nodes` nodes wait for each other; a container's image may have to be fetched first."""
        if self.join_timeout_s is not None:
            return self.join_timeout_s
        return 600.0 if is_packed else min(600.0, 60.0 + 10.0 * nodes)

    def silence_s(self, interval_s: float, *, has_pauses: bool) -> float:
        """Return the silence of a log, in seconds, that is no stall yet where its lines are `interval_s` apart.

        `has_pauses`: at the start, behind the last line and around checkpoints. Infinity where nothing is taken for a stall.
        """
        if not self.stall_factor:
            return math.inf
        usual_s = max(self.stall_least_s, self.stall_factor * interval_s)
        return max(usual_s, self.stall_start_s) if has_pauses else usual_s


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that bound a run."""
    group = parser.add_argument_group("how long anything may take, and how often")
    add_fields(group, Limits, [field.name for field in fields(Limits)])


def with_limits(limits: Limits, options: argparse.Namespace) -> Limits:
    """Return `limits` with those that the options name."""
    given = {field.name: getattr(options, field.name) for field in fields(Limits)}
    return replace(limits, **{name: value for name, value in given.items() if value is not None})
