"""One model on several machines: equal work, the best configuration of each, or why there is none."""

from collections.abc import Callable, Sequence

from nlp_bench.config.system import System
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.problem import Problem
from nlp_bench.plan.ranking import Answer, Row, ranking


@immutable
class Side:
    """One machine of a comparison."""

    system: System
    answer: Answer | None  # None where the machine is refused
    refusal: str = ""  # why it is

    @property
    def problem(self) -> Problem | None:
        """The question to the planner; None where the machine is refused."""
        return self.answer.problem if self.answer else None

    @property
    def best(self) -> Row | None:
        """The best configuration that surely fits."""
        return self.answer.rows[0] if self.answer and self.answer.rows else None

    @property
    def reason(self) -> str | None:
        """Why there is no configuration; None where there is one."""
        if self.best is not None:
            return None
        least = self.answer.smallest if self.answer else None
        return self.refusal if least is None else f"none surely fits: the least memory is {least.memory}"


def compare(systems: Sequence[System], make: Callable[[System], Problem]) -> tuple[Side, ...]:
    """Plan on each of the systems, for which `make` puts the question: the fastest first, then those without a configuration."""
    sides = [_side(system, make) for system in systems]
    return tuple(sorted(sides, key=lambda side: side.best.report_s if side.best else float("inf")))


def _side(system: System, make: Callable[[System], Problem]) -> Side:
    try:
        return Side(system=system, answer=ranking(make(system), top=1))
    except UsageError as error:  # of this machine: the others are planned all the same
        return Side(system=system, answer=None, refusal=" ".join(str(error).split()))
