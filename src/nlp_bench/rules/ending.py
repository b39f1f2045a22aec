"""Rules on how the run went and ended: losses, skipped iterations, the last iteration, the exit status, the lines of the log."""

from dataclasses import dataclass, field

import numpy as np

from nlp_bench.measure.asked import goes_on
from nlp_bench.measure.entry import has_placeholder_loss, why_broken
from nlp_bench.measure.findings import Evidence, Status
from nlp_bench.measure.summary import median
from nlp_bench.rules.rule import Rule, above_zero, decided, missing, share
from nlp_bench.rules.subject import Subject


@dataclass(frozen=True, kw_only=True)
class FiniteLoss(Rule):
    """No logged loss is NaN or infinite, no iteration is counted as NaN."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at every logged interval."""
        records, expected = subject.records, "a finite number in every line"
        broken = None if subject.run is None and has_placeholder_loss(records) else why_broken(records)
        if broken:
            return [decided("lm_loss", broken.text, expected, _lines(subject), passes=False)]
        if not records.has("lm_loss").any():
            return [missing("lm_loss", expected)]
        count = int(records.has("lm_loss").sum())
        return [decided("lm_loss", f"finite in {count} line(s)", expected, _lines(subject), passes=True)]


@dataclass(frozen=True, kw_only=True)
class SkippedIterations(Rule):
    """Few iterations skipped the update: a skipped one does less work."""

    allowed_share: dict[str, float] = field(default_factory=dict)
    """Largest share of all iterations, by number format."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for word, value in self.allowed_share.items():
            share(f"allowed_share.{word}", value)

    def look(self, subject: Subject) -> list[Evidence]:
        """Count the skipped iterations of every logged interval."""
        skipped = subject.records.column("num_skipped")
        if not np.isfinite(skipped).any():
            return [missing("skipped_iterations", "a count in the log")]
        count, total = int(np.nansum(skipped)), _num_iterations(subject)
        precision = str(subject.workload.value("precision"))
        allowed = self.allowed_share.get(precision)
        if allowed is None and count:
            known = ", ".join(self.allowed_share) or "none"
            why = f"{count} are skipped, and what {precision} may skip the rule does not say"
            return [missing("skipped_iterations", f"a number format with a share ({known})", why)]
        expected = f"at most {100 * (allowed or 0):g} % of {total} iterations"
        passes = count <= (allowed or 0) * total
        return [decided("skipped_iterations", count, expected, _lines(subject), passes=passes)]


@dataclass(frozen=True, kw_only=True)
class FinalIteration(Rule):
    """The last iteration that was asked for is in the log."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Compare the last logged iteration with run.json, else with what the lines say."""
        records, asked = subject.records, subject.asked("train_iters")
        wanted = asked.value if asked else records[-1].total_iterations if records else None
        if not records or not isinstance(wanted, int):
            return [missing("last_iteration", "the last iteration" if wanted is None else str(wanted))]
        last = records[-1]
        source = f"log line {last.line_number}"
        stop = subject.entry.until
        if last.iteration < wanted and stop and stop.is_proven:
            expected = f"{wanted}, or where the mean is known to {100 * stop.within:g} %"
            return [decided("last_iteration", last.iteration, expected, source, passes=True)]
        if last.iteration < wanted and not asked:  # an excerpt of a log shows neither that it ended nor that it did not
            return [missing("last_iteration", str(wanted), f"the log stops at {last.iteration}, {source}")]
        return [decided("last_iteration", last.iteration, str(wanted), source, passes=last.iteration >= wanted)]


@dataclass(frozen=True, kw_only=True)
class ExitStatus(Rule):
    """The job ended with exit status 0, by the scheduler or the launcher, and not only by its log."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look into outcome.json."""
        ended, name = subject.ended, "outcome.json"
        if ended is None:
            return [missing("exit_status", "0")]
        outcome, status = ended.get("outcome"), ended.get("exit_status")
        found = [decided("outcome", str(outcome), "VALID", name, passes=outcome == "VALID")]
        if not isinstance(status, int):
            return [*found, missing("exit_status", "0", f"{name} states none")]
        return [*found, decided("exit_status", status, "0", name, passes=status == 0)]


@dataclass(frozen=True, kw_only=True)
class WholeLog(Rule):
    """No logged interval is missing between the first and the last: a log without its slow lines is found."""

    missing_share: float = 0.0
    """Largest share of the intervals that may be missing, torn lines included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("missing_share", self.missing_share)

    def look(self, subject: Subject) -> list[Evidence]:
        """Look for gaps in the iterations."""
        iterations = subject.records.column("iteration")
        expected = f"at most {100 * self.missing_share:g} % of the intervals"
        if len(iterations) < 3:
            return [missing("missing_intervals", expected, "fewer than 3 lines")]
        steps = np.diff(iterations)
        every = self._log_interval(subject, steps)
        gaps = np.maximum(np.rint(steps / every) - 1, 0)
        # Only a run of ours is known to begin with its first iteration, unless it goes on from a checkpoint.
        begins = subject.run is not None and not goes_on(subject.run)
        before = max(np.rint(iterations[0] / every) - 1, 0) if begins else 0
        count, total = int(gaps.sum() + before), int(gaps.sum() + before) + len(iterations)
        first = int(np.argmax(gaps))
        where = f", the first after iteration {iterations[first]:.0f}" if gaps.any() else ""
        value = f"{count} of {total}{where}"
        passes = count <= self.missing_share * total
        return [decided("missing_intervals", value, expected, _lines(subject), passes=passes)]

    @staticmethod
    def _log_interval(subject: Subject, steps: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
        stated = subject.stated("log_interval")
        value = stated[-1].value if stated else None
        return float(value) if isinstance(value, int) and value > 0 else max(median(steps), 1.0)


@dataclass(frozen=True, kw_only=True)
class Window(Rule):
    """The steady window holds enough logged intervals; too few show neither that a run keeps the other rules nor that it does not."""

    at_least: int
    """Logged intervals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero("at_least", self.at_least)

    def look(self, subject: Subject) -> list[Evidence]:
        """Count the intervals of the window."""
        measured, expected = subject.entry.throughput, f"at least {self.at_least}"
        if measured is None:
            return [missing("intervals_in_window", expected, "nothing was measured")]
        count = len(measured.window.spans)
        source = f"iterations {measured.window.first_iteration} to {measured.window.last_iteration}"
        status = Status.PASS if count >= self.at_least else Status.NOT_SHOWN
        return [Evidence(name="intervals_in_window", status=status, value=count, expected=expected, source=source)]


def _num_iterations(subject: Subject) -> int:
    iterations = subject.records.column("iteration")
    steps = np.diff(iterations)
    first = median(steps) if len(steps) else 1.0
    return int(iterations[-1] - iterations[0] + first)


def _lines(subject: Subject) -> str | None:
    numbers = subject.records.numbers
    return f"log lines {numbers[0]} to {numbers[-1]}" if len(numbers) else None
