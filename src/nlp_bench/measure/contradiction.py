"""Two statements of one log (or of a log and its run.json) that cannot both be true, with what follows from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.reason import Reason

Lines = Sequence[int] | NDArray[np.int64]

GROSS = 1.25
"""A number that another statement of the same log makes so many times slower is taken away."""
MAX_LINES = 20
"""So many lines are named as evidence."""


class Weight(str, Enum):
    """What follows from a contradiction, the lightest first."""

    REMARK = "remark"
    """It is said, and nothing else follows."""
    DOUBT = "doubt"
    """The number stays, and proves nothing against a limit."""
    VOID = "void"
    """There is no number: the outcome is INVALID."""


class Code(str, Enum):
    """Which statements disagree; `docs/evidence.md` has the tolerance and the weight of each."""

    RATES_VS_TIME = "rates vs time"
    """Samples/s or tokens/s against batch and time."""
    FLOPS_VS_TIME = "flops vs time"
    """FLOP/s against the time of the same line."""
    FLOPS_VS_SHAPE = "flops vs shape"
    """FLOP/s against what the model's shape in the arguments gives at the logged time."""
    ENERGY_VS_TIME = "energy vs time"
    """Joules per iteration against watts and time."""
    STAMPS_VS_TIME_FAST = "stamps vs time, fast"
    """Less time passed between the lines than they log."""
    STAMPS_VS_TIME_SLOW = "stamps vs time, slow"
    """From line to line more time passed than they log."""
    WALL_CLOCK_OUTSIDE = "wall clock outside"
    """Time between the lines that none of them logs, at single places."""
    WALL_CLOCK_HOLE = "wall clock hole"
    """The node's recorder stood still together with the training: the job was suspended or frozen."""
    SAMPLES_VS_BATCH = "samples vs batch"
    """Consumed samples against batch and iterations."""
    TOKENS_VS_SAMPLES = "tokens vs samples"
    """Consumed tokens against consumed samples and sequence length."""
    ARGUMENTS_VS_LINES = "arguments vs lines"
    """The program's own dump of its arguments against its lines."""
    ARGUMENTS_VS_ARGUMENTS = "arguments vs arguments"
    """Arguments that the program itself refuses together."""
    ARGUMENTS_VS_RUN = "arguments vs run.json"
    """The dump of the arguments against the run.json of the run."""
    MISSING_LINES = "missing lines"
    """Iterations in the middle that no line gives a time for."""
    SILENT_LINES = "silent lines"
    """Lines that lack what nearly all others say of their rate."""
    IMPOSSIBLE_TIMES = "impossible times"
    """Times and rates of 0, below 0, or not finite."""
    IMPLAUSIBLY_FAST = "implausibly fast"
    """Single iterations far faster than those around them."""
    ATTEMPTS_DIFFER = "attempts differ"
    """Several starts of one training, of different speed."""
    RANKS_DIFFER = "ranks differ"
    """Two processes that print different times for one iteration."""
    SEAL_VS_LINES = "seal vs lines"
    """The hash with which the trainer closed its log against the lines that it covers."""
    SKIPPED_UPDATES = "skipped updates"
    """Iterations that did not update the weights."""
    LEARNING_RATE_ZERO = "learning rate zero"
    """A learning rate of 0 in every line."""
    REPEATED_LINES = "repeated lines"
    """Lines with the time and the loss of another line, to the last digit."""
    LOSS_DOES_NOT_MOVE = "loss does not move"
    """One and the same loss in every line."""


@dataclass(frozen=True)
class Contradiction:
    """One thing that cannot be true together with the number."""

    code: Code
    weight: Weight
    text: str
    """One sentence with both values."""
    lines: Lines = ()
    """Lines of the log that show it, counted from 1, the first MAX_LINES of them; empty where it is true of the log as a whole."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(int(line) for line in self.lines[:MAX_LINES]))

    @property
    def reason(self) -> Reason:
        """The same as a reason of the run."""
        return Reason(self.code.name.lower().replace("_", "-"), self.text)

    def to_json(self) -> dict[str, Any]:
        """Return one object of `contradictions` in nlp-bench/report/1."""
        return {"code": self.code.name, "weight": self.weight.name, "text": self.text, "lines": list(self.lines)}


@dataclass(frozen=True)
class Otherwise:
    """Another statement of the time, too near for a contradiction."""

    words: str
    """What states it."""
    slower: float
    """So many times the steady time, at the kindest."""


def voiding(found: Iterable[Contradiction]) -> Contradiction | None:
    """Return the first that takes the number away."""
    return next((each for each in found if each.weight is Weight.VOID), None)


def doubts(found: Iterable[Contradiction]) -> list[Contradiction]:
    """Return those that leave nothing proven, the gravest first."""
    graves = [each for each in found if each.weight is not Weight.REMARK]
    return sorted(graves, key=lambda each: each.weight is not Weight.VOID)


def weigh(slower: float, *, is_ours: bool) -> Weight:
    """Return the weight of a statement by which the run takes `slower` times as long as its number says.

    A run of ours prints all statements from one measurement: whatever disagrees was changed afterwards.
    """
    return Weight.VOID if is_ours or slower > GROSS else Weight.DOUBT


def named(lines: Lines) -> str:
    """Return `line 3` or `lines 3, 5, 9 and 12 more`."""
    shown = ", ".join(map(str, lines[:3]))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return f"line{'s' if len(lines) > 1 else ''} {shown}{more}"
