"""How long anything of a run may take, and how often it is tried: no run waits for ever."""

import argparse
import math
from dataclasses import dataclass, fields, replace

from nlp_bench.config.request import UNSET
from nlp_bench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one run; each has a default that a benchmark run does not meet."""

    join_timeout_s: float | None = None
    """Seconds that a node waits for the others; None: by the number of nodes, 600 at most."""
    collective_timeout_min: int | None = None
    """Minutes after which a collective that a rank has not joined fails; None: the trainer's default (10)."""
    stall_factor: float = 10.0
    """A log that is silent for so many times its longest interval ends the run; 0: it never does."""
    stall_least_s: float = 300.0
    """Seconds of silence that are never a stall, however short the intervals are."""
    stall_start_s: float = 3600.0
    """Seconds of silence allowed before the second line of the log, behind its last one, and where checkpoints are written."""
    notice_s: int = 0
    """Seconds before the time limit at which the ranks are asked to stop behind their iteration; 0: they are not asked."""
    max_pending_s: float | None = None
    """Seconds that the job may wait in the queue before it is cancelled; None or 0: as long as it takes."""
    retries: int = 0
    """Further jobs for a run that a failed node or a preemption has ended."""

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


MAX_RETRIES = 10
OPTIONS = {
    "--retries": ("retries", "N", "further jobs where a node failed or the job was preempted (0); no other end is tried again"),
    "--max-pending": ("max_pending_s", "SECONDS", "cancel a job that has waited so long in the queue (0: never)"),
    "--notice": ("notice_s", "SECONDS", "so long before the time limit stop behind the iteration, with a checkpoint where --save is given"),
    "--join-timeout": ("join_timeout_s", "SECONDS", "how long a node waits for the others"),
    "--collective-timeout": ("collective_timeout_min", "MINUTES", "how long a rank waits in a collective (10)"),
    "--stall-factor": ("stall_factor", "K", "end a run whose log is silent for K times its longest interval (10; 0: never)"),
    "--stall-least": ("stall_least_s", "SECONDS", "silence that is never a stall (300)"),
    "--stall-start": ("stall_start_s", "SECONDS", "silence allowed before the second line of the log and around checkpoints (3600)"),
}  # fmt: skip


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that bound a run."""
    group = parser.add_argument_group("how long anything may take, and how often")
    for option, (name, word, text) in OPTIONS.items():
        group.add_argument(option, dest=name, metavar=word, help=text)


def with_limits(limits: Limits, options: argparse.Namespace) -> Limits:
    """Return `limits` with those that the options name; raises UsageError naming the option otherwise."""
    values: dict[str, float] = {}
    for option, (name, _, _) in OPTIONS.items():
        text = getattr(options, name, None)
        if text is None or text in UNSET:
            continue
        is_whole = name in {"retries", "notice_s", "collective_timeout_min"}
        try:
            values[name] = int(text) if is_whole else float(text)
        except ValueError as error:
            kind = "whole number" if is_whole else "number"
            raise UsageError(f"{option}: {text!r} is not a {kind} from 0 up") from error
    return replace(limits, **values)  # type: ignore[arg-type]
