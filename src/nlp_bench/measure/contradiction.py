"""Two statements of one log (or of a log and its run.json) that cannot both be true, with what follows from it."""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from nlp_bench.escape import some
from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Attempt, Log, Records
from nlp_bench.measure import Json
from nlp_bench.measure.series import Numbers
from nlp_bench.measure.sizes import Overrides, Sizes, Spans
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.workload import Workload
from nlp_bench.reason import SHARED_NODES, Reason

Lines = Sequence[int] | Numbers
GROSS = 1.25  # factor from which a slower time by another statement of the same log voids the number
MAX_LINES = 20  # so many lines are named as evidence


class Weight(str, Enum):
    """What follows from a contradiction, the lightest first."""

    REMARK = "remark"  # it is reported, and nothing else follows
    DOUBT = "doubt"  # the number stays, and proves nothing against a limit
    VOID = "void"  # there is no number: the outcome is INVALID


class Code(str, Enum):
    """Which statements disagree, in words for who reads this; `docs/evidence.md` has the tolerance and the weight of each."""

    WHAT_IS_COUNTED = "what the program counts is not what was trained, or, where the program is not known, a guess"
    RATES_VS_TIME = "samples/s or tokens/s against batch and time"
    FLOPS_VS_TIME = "FLOP/s against the time of the same line"
    FLOPS_VS_SHAPE = "FLOP/s against what the model's shape in the arguments gives at the logged time"
    ENERGY_VS_TIME = "joules per iteration against watts and time"
    STAMPS_VS_TIME_FAST = "less time passed between the lines than they log"
    STAMPS_VS_TIME_SLOW = "from line to line more time passed than they log"
    WALL_CLOCK_OUTSIDE = "time between the lines that none of them logs, at single places"
    SAMPLES_VS_BATCH = "consumed samples against batch and iterations"
    TOKENS_VS_SAMPLES = "consumed tokens against consumed samples and sequence length"
    ARGUMENTS_VS_LINES = "the program's own dump of its arguments against its lines"
    ARGUMENTS_VS_ARGUMENTS = "a size that the arguments state twice, or that the program itself refuses together"
    ARGUMENTS_VS_RUN = "the dump of the arguments against the run.json of the run"
    MISSING_LINES = "iterations in the middle that no line gives a time for"
    SILENT_LINES = "lines that lack what nearly all others say of their rate"
    UNREADABLE_LINES = "training lines that cannot be read whole: many, or at equal distances"
    IMPLAUSIBLY_FAST = "single iterations far faster than those around them"
    OTHER_SCALE = "times that change for good by a factor of 100 or more within a log"
    ATTEMPTS_DIFFER = "several starts of one training, of different speed"
    RANKS_DIFFER = "two processes that print different times for one iteration"
    SEAL_VS_LINES = "the hash with which the trainer closed its log against the lines that it covers"
    SKIPPED_UPDATES = "iterations that did not update the weights"
    IMPOSSIBLE_VALUES = "a loss, gradient, loss scale or learning rate that no training has"
    REPEATED_LINES = "lines with the time and the loss of another line, to the last digit"
    LOSS_DOES_NOT_MOVE = "one and the same loss in every line"


@immutable(kw_only=False)
class Contradiction:
    """One thing that cannot be true together with the number."""

    code: Code
    weight: Weight
    text: str  # one sentence with both values
    lines: Lines = ()
    """Lines of the log that show it, counted from 1, the first MAX_LINES of them; empty where it is true of the log as a whole."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(int(line) for line in self.lines[:MAX_LINES]))

    @property
    def reason(self) -> Reason:
        """The same as a reason of the run."""
        return Reason(self.code.name.lower().replace("_", "-"), self.text)

    def to_json(self) -> Json:
        """Return one object of `contradictions` in nlp-bench/report/1."""
        return {"code": self.code.name, "weight": self.weight.name, "text": self.text, "lines": list(self.lines)}


Contradictions = Iterator[Contradiction]


@immutable(kw_only=False)
class SlowerStatement:
    """A statement by which the run takes longer than its number says, within the tolerance of the checks."""

    source: str  # what states it
    slower: float  # factor on the steady time, at least
    is_start: bool = False  # whether it is another start of the training


@immutable
class Subject:
    """One training as a log tells of it, and what else is known of it."""

    log: Log
    attempt: Attempt  # the start of the program that counts
    others: Sequence[Attempt] = ()  # other starts of the same training in the same log
    overrides: Overrides
    workload: Workload
    silent_s: float = 0.0  # `LogEnd.silent_s`
    seals: tuple[Contradiction, ...] = ()  # what the trainer's closing hash says, of a log without its run folder
    is_ours: bool = False  # whether our own trainer ran, with a run.json: its statements are of one measurement

    @property
    def records(self) -> Records:
        """The lines of the start that counts."""
        return self.attempt.records


@immutable
class Claims(Subject):
    """What the checks compare: a training, and the number that was measured."""

    measured: Throughput

    @property
    def sizes(self) -> Sizes:
        """Tokens and seconds of every line."""
        return self.measured.sizes

    @property
    def spans(self) -> Spans:
        """The lines that have both."""
        return self.measured.spans

    def weigh(self, slower: float) -> Weight:
        """Return the weight of a statement by which the run takes `slower` times as long. A run of ours prints all from one measurement: what disagrees was changed afterwards."""
        return Weight.VOID if self.is_ours else weigh(slower)


def weigh(slower: float) -> Weight:
    """Return the weight of such a statement in anybody's log."""
    return Weight.VOID if slower > GROSS else Weight.DOUBT


def voiding(found: Iterable[Contradiction]) -> Contradiction | None:
    """Return the first that voids the number."""
    return next((each for each in found if each.weight is Weight.VOID), None)


def doubts(found: Iterable[Contradiction]) -> list[Contradiction]:
    """Return those that keep a limit from being proven, the gravest first."""
    graves = [each for each in found if each.weight is not Weight.REMARK]
    return sorted(graves, key=lambda each: each.weight is not Weight.VOID)


def contradicting(found: Iterable[Reason]) -> list[Reason]:
    """Return those of a run's doubts that make its number untrue: they keep a limit from being proven, too.

    The number of a run on shared nodes is true of that run: it kept its limit or did not. Which of two
    machines or configurations is faster is not known.
    """
    return [each for each in found if each.code != SHARED_NODES]


def so_do_others(lines: Lines) -> str:
    """Return `; so does line 4` of the lines behind the first; nothing for a single one."""
    return f"; so do{'es' if len(lines) == 2 else ''} {named(lines[1:])}" if len(lines) > 1 else ""


def named(lines: Lines) -> str:
    """Return `line 3` or `lines 3, 5, 9 and 12 more`."""
    return f"line{'s' if len(lines) > 1 else ''} {some(lines, 3)}"
