"""All kinds of rules: what is trained, how, how the run went and ended, and how long the training would take."""

import fnmatch
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nlp_bench.config.model import Model
from nlp_bench.errors import UsageError, nearest
from nlp_bench.logs.common import ARGUMENTS
from nlp_bench.measure.entry import has_placeholder_loss, why_broken
from nlp_bench.measure.findings import Evidence, Status
from nlp_bench.measure.folder import goes_on
from nlp_bench.measure.limit import FAIL, PASS, sustained_time_ci95_s, verdict_of
from nlp_bench.measure.series import median
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.throughput import REPORT_TOKENS, time_to_report_s
from nlp_bench.measure.workload import OURS, Setting, Value, Workload, lookup
from nlp_bench.rules.rule import (
    NAMED_SHAPE,
    Rule,
    Subject,
    above_zero,
    decided,
    expect,
    frozen_values,
    missing,
    one_of,
    same,
    share,
)

SECTIONS = ("architecture", "training")
RELEASE = re.compile(r"\d+(\.\d+)*(\.post\d+)?(?:\+(?P<local>[A-Za-z0-9._-]+))?")
"""A final release with an optional local label, in the words of PEP 440: no .dev, a, b or rc."""
COMMIT = "nlp_bench_commit"
_OF_LINES = (
    "nccl_version",
    "nccl_transport",
    "torch_version",
    "megatron_core_version",
    "cuda_version",
    "python_version",
)
KNOWN = (*OURS, *sorted(ARGUMENTS), *_OF_LINES)
"""Names that a rule may use; those that end with _version or _kernel too."""
STEADY_INTERVAL, STEADY, REFERENCE = "steady-interval", "steady", "reference"
SUSTAINED_INTERVAL, SUSTAINED = "sustained-interval", "sustained"


def known_setting(key: str, name: str) -> None:
    """Raise UsageError, naming the nearest, where no run can state `name`."""
    if name not in KNOWN and not name.endswith(("_version", "_kernel")):
        raise UsageError(f"{key}: {name!r} is no setting of a run{nearest(name, list(KNOWN))}")


# What is trained.


@dataclass(frozen=True, kw_only=True)
class ModelRule(Rule):
    """The run trains one of the models of the rules: by its name in run.json, else by the shape that the log prints."""

    def _look(self, subject: Subject) -> list[Evidence]:
        expected = f"one of {', '.join(subject.models)}"
        if subject.named is not None:
            return [decided("model", subject.named, expected, "run.json", passes=subject.named in subject.models)]
        shape = {name: stated[-1] for name in NAMED_SHAPE if (stated := subject.stated(name))}
        if not shape:
            return [missing("model", expected, "no shape is stated")]
        words = ", ".join(f"{name} {found.value}" for name, found in shape.items())
        words = f"{subject.model.name}: {words}" if subject.model else words
        source = next(iter(shape.values())).source
        return [decided("model", words, expected, source, passes=subject.model is not None)]


@dataclass(frozen=True, kw_only=True)
class EqualsModel(Rule):
    """What run.json and the log state is what the model file states: nothing is written twice."""

    section: str
    """Section of the model file whose values are frozen: architecture or training."""
    without: tuple[str, ...] = ()
    """Names of `measure.workload` in this section that are not frozen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("section", self.section, SECTIONS)

    def names(self, model: Model) -> dict[str, Value]:
        """Return the frozen values by their names in `measure.workload`."""
        return {name: value for name, value in frozen_values(model, self.section).items() if name not in self.without}

    def _look(self, subject: Subject) -> list[Evidence]:
        if subject.model is None:
            return [missing("model", f"one of {', '.join(subject.models)}", "no frozen values to compare with")]
        wanted = self.names(subject.model)
        return [one for name, value in wanted.items() for one in expect(name, subject.stated(name), value)]


@dataclass(frozen=True, kw_only=True)
class ParameterCount(Rule):
    """The number of parameters that the log prints is that of the shape: a small model under a large name is found."""

    tolerance: float
    """Largest relative difference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("tolerance", self.tolerance)

    def _look(self, subject: Subject) -> list[Evidence]:
        shape = shaped(_claimed(subject)).shape
        if shape is None:
            return [missing("num_parameters", "the count by the shape", "the shape is not fully known")]
        wanted = shape.parameters
        expected = f"{wanted} by the shape, to {100 * self.tolerance:g} %"
        found = subject.logged("num_parameters")  # what is derived from the shape is another fact (least_parameters)
        if not found or isinstance(found.value, str):
            return [missing("num_parameters", expected)]
        passes = abs(float(found.value) - wanted) <= self.tolerance * wanted
        return [decided("num_parameters", found.value, expected, found.source, passes=passes)]


def _claimed(subject: Subject) -> Workload:
    """Return the shape that the run is said to have: by run.json before the log, by the model file where neither says it."""
    model = frozen_values(subject.model, "architecture") if subject.model else {}
    shape = {name: Setting(value, "model file") for name, value in model.items()}
    one_rank = {"tensor_model_parallel_size": Setting(1, "not known")}  # it only pads the vocabulary
    return Workload(logged={**one_rank, **shape, **subject.workload.logged, **subject.workload.asked})


# How it is trained.


@dataclass(frozen=True, kw_only=True)
class Precision(Rule):
    """The number format is at least as accurate as the model file's."""

    order: tuple[tuple[str, ...], ...]
    """Formats from the most to the least accurate; those in one list count as equal."""

    def _look(self, subject: Subject) -> list[Evidence]:
        if subject.model is None:
            return [missing("precision", "at least the model's", "the model is not known")]
        baseline = subject.model.training.precision
        rank = {word: index for index, words in enumerate(self.order) for word in words}
        if baseline not in rank:
            return [missing("precision", f"{baseline} or better", f"{baseline} is not in the rule's order")]
        better = [word for words in self.order[: rank[baseline] + 1] for word in words]
        expected = f"one of {', '.join(better)}"
        stated = subject.stated("precision")
        if not stated:
            return [missing("precision", expected)]
        return [decided("precision", one.value, expected, one.source, passes=one.value in better) for one in stated]


def version_of(package: str) -> str:
    """Return the name of a package's version among the settings: torch_version."""
    return f"{package.lower().replace('-', '_')}_version"


@dataclass(frozen=True, kw_only=True)
class Released(Rule):
    """Packages are released versions, no development builds."""

    packages: tuple[str, ...]
    """Names as the log's `versions` line has them."""
    local: tuple[str, ...] = ()
    """Labels behind a + that releases are published with; * stands for anything."""

    def _look(self, subject: Subject) -> list[Evidence]:
        return [self._of(name, subject) for name in self.packages]

    def _of(self, package: str, subject: Subject) -> Evidence:
        name, expected = version_of(package), f"a released version of {package}"
        found = subject.logged(name)
        if found is None:
            return missing(name, expected)
        version = RELEASE.fullmatch(str(found.value))
        label = version["local"] if version else None
        passes = version is not None and (label is None or any(fnmatch.fnmatch(label, one) for one in self.local))
        return decided(name, str(found.value), expected, found.source, passes=passes)


@dataclass(frozen=True, kw_only=True)
class Stated(Rule):
    """Versions and commits are stated, so that others can build the same."""

    packages: tuple[str, ...] = ()
    """Packages whose version the log must state."""
    commit: bool = False
    """Whether run.json must state the commit of nlp-bench, without changes."""

    def _look(self, subject: Subject) -> list[Evidence]:
        found = []
        for name in map(version_of, self.packages):
            setting = subject.logged(name)
            stated = decided(name, str(setting.value), "a version", setting.source, passes=True) if setting else None
            found.append(stated or missing(name, "a version"))
        return [*found, self._commit(subject)] if self.commit else found

    @staticmethod
    def _commit(subject: Subject) -> Evidence:
        expected = "a commit without changes"
        if subject.run is None:
            return missing(COMMIT, expected)
        commit = lookup(subject.run, "nlp_bench.commit")
        if commit is None or str(commit) == "unknown":
            return missing(COMMIT, expected, "run.json states none")
        return decided(COMMIT, str(commit), expected, "run.json", passes="+" not in str(commit))


@dataclass(frozen=True, kw_only=True)
class RealData(Rule):
    """The training reads data: random tokens cost no reading."""

    def _look(self, subject: Subject) -> list[Evidence]:
        expected = "data that is read, no mock data"
        stated = []
        mock, read = subject.logged("mock_data"), subject.logged("data_path")
        if mock and mock.value is True:
            stated.append(Setting("mock data", mock.source))
        elif read:
            stated.append(read)
        asked = lookup(subject.run, "data.path") if subject.run else None
        if asked is not None:
            stated.append(Setting(str(asked) or "mock data", "run.json"))
        if not stated:
            return [missing("data", expected)]
        return [decided("data", one.value, expected, one.source, passes=one.value != "mock data") for one in stated]


@dataclass(frozen=True, kw_only=True)
class SettingRule(Rule):
    """One setting is within bounds, wherever it is stated."""

    name: str
    """Name of the setting, of `measure.workload`."""
    equals: int | float | str | bool | None = None
    one_of: tuple[int | float | str, ...] = ()
    contains: str | None = None
    """Words that the value holds, upper or lower case."""
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known_setting("name", self.name)
        if all(value in {None, ()} for value in (self.equals, self.one_of, self.contains, self.at_least, self.at_most)):
            raise UsageError("equals: missing; give equals, one_of, contains, at_least or at_most")

    def _look(self, subject: Subject) -> list[Evidence]:
        words = [] if self.equals is None else [f"{self.equals}"]
        words += [f"one of {', '.join(map(str, self.one_of))}"] if self.one_of else []
        words += [f"with {self.contains!r} in it"] if self.contains is not None else []
        words += [f"at least {self.at_least:g}"] if self.at_least is not None else []
        words += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        expected = " and ".join(words)
        stated = subject.stated(self.name)
        if not stated:
            return [missing(self.name, expected)]
        return [decided(self.name, one.value, expected, one.source, passes=self._holds(one.value)) for one in stated]

    def _holds(self, value: Value) -> bool:
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        low, high = self.at_least, self.at_most
        return (
            (self.equals is None or same(value, self.equals))
            and (not self.one_of or any(same(value, one) for one in self.one_of))
            and (self.contains is None or self.contains.lower() in str(value).lower())
            and (low is None or (number is not None and number >= low))
            and (high is None or (number is not None and number <= high))
        )


@dataclass(frozen=True, kw_only=True)
class Agreement(Rule):
    """Run.json and the log say the same of every setting that both state: the log of another run is found."""

    at_least: int = 1
    """Settings that both must state."""
    without: tuple[str, ...] = ()
    """Settings that are not compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.without:
            known_setting("without", name)

    def _look(self, subject: Subject) -> list[Evidence]:
        if subject.run is None:
            return [missing("settings_in_common", "all alike", "there is no run.json")]
        both: list[tuple[str, Setting, Value]] = [
            (name, logged, asked.value)
            for name in (*subject.workload.asked, "train_iters")
            if name not in self.without and (asked := subject.asked(name)) and (logged := subject.logged(name))
        ]
        differing = [
            e for name, logged, asked in both if not same(logged.value, asked) for e in expect(name, [logged], asked)
        ]
        if differing:
            return differing
        expected = f"at least {self.at_least}, all alike"
        if len(both) < self.at_least:
            return [missing("settings_in_common", expected, f"run.json and the log have {len(both)}")]
        return [decided("settings_in_common", len(both), expected, "run.json and the log", passes=True)]


# How the run went and ended.


@dataclass(frozen=True, kw_only=True)
class FiniteLoss(Rule):
    """No logged loss is NaN or infinite, no iteration is counted as NaN."""

    def _look(self, subject: Subject) -> list[Evidence]:
        records, expected = subject.records, "a finite number in every line"
        broken = None if subject.run is None and has_placeholder_loss(records) else why_broken(records)
        if broken:
            return [decided("lm_loss", broken.text, expected, _lines(subject), passes=False)]
        count = int(records.has("lm_loss").sum())
        if not count:
            return [missing("lm_loss", expected)]
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

    def _look(self, subject: Subject) -> list[Evidence]:
        skipped, iterations = subject.records.column("num_skipped"), subject.records.column("iteration")
        if not np.isfinite(skipped).any():
            return [missing("skipped_iterations", "a count in the log")]
        first = median(np.diff(iterations)) if len(iterations) > 1 else 1.0
        count, total = int(np.nansum(skipped)), int(iterations[-1] - iterations[0] + first)
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

    def _look(self, subject: Subject) -> list[Evidence]:
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

    def _look(self, subject: Subject) -> list[Evidence]:
        ended, name = subject.ended, "outcome.json"
        if ended is None:
            return [missing("exit_status", "0")]
        outcome, status = ended.get("outcome"), ended.get("exit_status")
        found = decided("outcome", str(outcome), "VALID", name, passes=outcome == "VALID")
        if not isinstance(status, int):
            return [found, missing("exit_status", "0", f"{name} states none")]
        return [found, decided("exit_status", status, "0", name, passes=status == 0)]


@dataclass(frozen=True, kw_only=True)
class WholeLog(Rule):
    """No logged interval is missing between the first and the last: a log without its slow lines is found."""

    missing_share: float = 0.0
    """Largest share of the intervals that may be missing, torn lines included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("missing_share", self.missing_share)

    def _look(self, subject: Subject) -> list[Evidence]:
        iterations = subject.records.column("iteration")
        expected = f"at most {100 * self.missing_share:g} % of the intervals"
        if len(iterations) < 3:
            return [missing("missing_intervals", expected, "fewer than 3 lines")]
        steps = np.diff(iterations)
        every = _log_interval(subject, steps)
        gaps = np.maximum(np.rint(steps / every) - 1, 0)
        # Only a run of ours is known to begin with its first iteration, unless it goes on from a checkpoint.
        begins = subject.run is not None and not goes_on(subject.run)
        before = max(np.rint(iterations[0] / every) - 1, 0) if begins else 0
        count = int(gaps.sum() + before)
        total = count + len(iterations)
        where = f", the first after iteration {iterations[int(np.argmax(gaps))]:.0f}" if gaps.any() else ""
        passes = count <= self.missing_share * total
        return [decided("missing_intervals", f"{count} of {total}{where}", expected, _lines(subject), passes=passes)]


def _log_interval(subject: Subject, steps: NDArray[np.float64]) -> float:
    stated = subject.stated("log_interval")
    value = stated[-1].value if stated else None
    return float(value) if isinstance(value, int) and value > 0 else max(median(steps), 1.0)


def _lines(subject: Subject) -> str | None:
    numbers = subject.records.numbers
    return f"log lines {numbers[0]} to {numbers[-1]}" if len(numbers) else None


# What was measured.


@dataclass(frozen=True, kw_only=True)
class Window(Rule):
    """The steady window holds enough logged intervals; too few show neither that a run keeps the other rules nor that it does not."""

    at_least: int
    """Logged intervals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero("at_least", self.at_least)

    def _look(self, subject: Subject) -> list[Evidence]:
        measured, expected = subject.entry.throughput, f"at least {self.at_least}"
        if measured is None:
            return [missing("intervals_in_window", expected, "nothing was measured")]
        window = measured.window
        source = f"iterations {window.first_iteration} to {window.last_iteration}"
        status = Status.PASS if window.num_records >= self.at_least else Status.NOT_SHOWN
        name = "intervals_in_window"
        return [Evidence(name=name, status=status, value=window.num_records, expected=expected, source=source)]


@dataclass(frozen=True, kw_only=True)
class TimeLimit(Rule):
    """The time is at most a limit; both times are shown, one decides."""

    limit_s: float
    tokens: int = REPORT_TOKENS
    """Tokens of the hypothetical training."""
    decides: str
    """steady-interval, sustained-interval: the whole 95 % interval of that time; steady, sustained, reference: the value alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero("limit_s", self.limit_s)
        above_zero("tokens", self.tokens)
        one_of("decides", self.decides, (STEADY_INTERVAL, SUSTAINED_INTERVAL, STEADY, SUSTAINED, REFERENCE))

    def _look(self, subject: Subject) -> list[Evidence]:
        entry, limit = subject.entry, f"at most {self.limit_s:g} s"
        if not entry.has_number:
            return [missing("time_to_report_s", limit, "nothing was measured")]
        measured = entry.throughput
        sources = {STEADY: "published", SUSTAINED: "published", REFERENCE: "published"}
        if measured:
            window, found = measured.window, measured.sustained
            sources = {
                STEADY: f"iterations {window.first_iteration} to {window.last_iteration}",
                SUSTAINED: f"iterations {found.first_iteration} to {found.last_iteration}, {found.clock}"
                if found
                else "not known",
                REFERENCE: "all logged times, warm-up included",
            }
        rates = {STEADY: entry.steady, SUSTAINED: entry.sustained, REFERENCE: entry.reference}
        shown = []
        for name, source in sources.items():
            value = time_to_report_s(self.tokens, rates[name])
            status = expected = None
            if name == self.decides.removesuffix("-interval"):
                status, expected = self._decision(subject, value)
            value = None if value is None else round(value, 3)
            name = f"time_to_report_{name}_s"  # noqa: PLW2901
            shown.append(Evidence(name=name, status=status, value=value, expected=expected, source=source))
        return shown

    def _decision(self, subject: Subject, value: float | None) -> tuple[Status, str]:
        """Return what the time that decides says, and what was expected of it."""
        limit = f"at most {self.limit_s:g} s"
        if self.decides not in {STEADY_INTERVAL, SUSTAINED_INTERVAL}:
            if value is None:
                return Status.NOT_SHOWN, limit
            return Status.PASS if value <= self.limit_s else Status.FAIL, limit
        verdict = verdict_of(subject.entry, self.tokens, self.limit_s)
        word, interval = verdict.word, subject.entry.time_ci95_s(self.tokens)
        if self.decides == SUSTAINED_INTERVAL:
            word, interval = verdict.sustained or "", sustained_time_ci95_s(subject.entry, self.tokens)
        words = f"{interval[0]:.2f} to {interval[1]:.2f} s" if interval else "not known"
        status = {PASS: Status.PASS, FAIL: Status.FAIL}.get(word, Status.NOT_SHOWN)
        return status, f"{limit} over the whole 95 % interval, which is {words}"


CHECKS: dict[str, type[Rule]] = {
    "model": ModelRule,
    "equals-model": EqualsModel,
    "parameter-count": ParameterCount,
    "precision": Precision,
    "released": Released,
    "stated": Stated,
    "real-data": RealData,
    "finite-loss": FiniteLoss,
    "skipped-iterations": SkippedIterations,
    "final-iteration": FinalIteration,
    "exit-status": ExitStatus,
    "whole-log": WholeLog,
    "window": Window,
    "agreement": Agreement,
    "time-limit": TimeLimit,
    "setting": SettingRule,
}
"""By the word that a rule file uses."""
