"""All kinds of rules: what is trained, how, how the run went and ended, and how long the training would take."""

import fnmatch
import re
from dataclasses import field

import numpy as np

from nlp_bench.config.model import Model
from nlp_bench.errors import UsageError, nearest
from nlp_bench.immutable import immutable
from nlp_bench.logs.common import ARGUMENTS
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.measure.contradiction import contradicting
from nlp_bench.measure.folder import goes_on
from nlp_bench.measure.judgement import RuleEvidence, Status, evidence
from nlp_bench.measure.limit import VERDICTS, sustained_time_ci95_s, verdict_of
from nlp_bench.measure.log_end import Shown
from nlp_bench.measure.restated import is_silent
from nlp_bench.measure.result import has_placeholder_loss, why_broken
from nlp_bench.measure.series import median
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import OURS, Setting, Value, Workload, lookup
from nlp_bench.rules.rule import (
    NAMED_SHAPE,
    Rule,
    Subject,
    above_zero,
    checked,
    decided,
    each,
    expect,
    frozen_values,
    missing,
    same,
    share,
    words,
)  # fmt: skip

SECTIONS = ("architecture", "training")
RELEASE = re.compile(r"\d+(\.\d+)*(\.post\d+)?(?:\+(?P<local>[A-Za-z0-9._-]+))?")
"""A final release with an optional local label, in the words of PEP 440: no .dev, a, b or rc."""
COMMIT = "nlp_bench_commit"
_VERSIONS = ("torch_version", "megatron_core_version", "cuda_version", "python_version")
KNOWN = (*OURS, *sorted(ARGUMENTS), "nccl_version", "nccl_transport", *_VERSIONS)
"""Names that a rule may use; those that end with _version or _kernel too."""
STEADY_INTERVAL, STEADY, REFERENCE = "steady-interval", "steady", "reference"
SUSTAINED_INTERVAL, SUSTAINED = "sustained-interval", "sustained"


def known_setting(key: str, name: str) -> None:
    """Raise UsageError, naming the nearest, where no run can state `name`."""
    if name not in KNOWN and not name.endswith(("_version", "_kernel")):
        raise UsageError(f"{key}: {name!r} is no setting of a run{nearest(name, list(KNOWN))}")


# What is trained.


@immutable
class ModelRule(Rule, word="model"):
    """The run trains one of the models of the rules: by its name in run.json, else by the shape that the log prints."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        expected = f"one of {', '.join(subject.models)}"
        if subject.named is not None:
            return [decided("model", subject.named, expected, "run.json", passes=subject.named in subject.models)]
        shape = {name: stated[-1] for name in NAMED_SHAPE if (stated := subject.stated(name))}
        if not shape:
            return [missing("model", expected, "no shape is stated")]
        trained = ", ".join(f"{name} {found.value}" for name, found in shape.items())
        trained = f"{subject.model.name}: {trained}" if subject.model else trained
        source = next(iter(shape.values())).source
        return [decided("model", trained, expected, source, passes=subject.model is not None)]


@immutable
class EqualsModel(Rule, word="equals-model"):
    """What run.json and the log state is what the model file states: nothing is written twice."""

    section: str = checked(words(*SECTIONS))  # section whose values are frozen: architecture or training
    without: tuple[str, ...] = ()  # names of `measure.workload` in this section that are not frozen

    def names(self, model: Model) -> dict[str, Value]:
        """Return the frozen values by their names in `measure.workload`."""
        return {name: value for name, value in frozen_values(model, self.section).items() if name not in self.without}

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        if subject.model is None:
            return [missing("model", f"one of {', '.join(subject.models)}", "no frozen values to compare with")]
        wanted = self.names(subject.model)
        return [one for name, value in wanted.items() for one in expect(name, subject.stated(name), value)]


@immutable
class ParameterCount(Rule, word="parameter-count"):
    """The number of parameters that the log prints is that of the shape: a small model under a large name is found."""

    tolerance: float = checked(share)  # largest relative difference

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        # The shape that the run is said to have: by run.json before the log, by the model file where neither says it.
        model = frozen_values(subject.model, "architecture") if subject.model else {}
        claimed = {name: Setting(value, "model file") for name, value in model.items()}
        one_rank = {"tensor_model_parallel_size": Setting(1, "not known")}  # it only pads the vocabulary
        workload = subject.entry.workload
        shape = shaped(Workload(logged={**one_rank, **claimed, **workload.logged, **workload.asked})).shape
        if shape is None:
            return [missing("num_parameters", "the count by the shape", "the shape is not fully known")]
        wanted = shape.parameters
        expected = f"{wanted} by the shape, to {100 * self.tolerance:g} %"
        found = subject.logged("num_parameters")  # what is derived from the shape has another name (least_parameters)
        if not found or isinstance(found.value, str):
            return [missing("num_parameters", expected)]
        passes = abs(float(found.value) - wanted) <= self.tolerance * wanted
        return [decided("num_parameters", found.value, expected, found.source, passes=passes)]


# How it is trained.


@immutable
class Precision(Rule, word="precision"):
    """The number format is at least as accurate as the model file's."""

    order: tuple[tuple[str, ...], ...]  # formats from the most to the least accurate; those in one list count as equal

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        if subject.model is None:
            return [missing("precision", "at least the model's", "the model is not known")]
        baseline = subject.model.training.precision
        rank = {word: index for index, formats in enumerate(self.order) for word in formats}
        if baseline not in rank:
            return [missing("precision", f"{baseline} or better", f"{baseline} is not in the rule's order")]
        better = [word for formats in self.order[: rank[baseline] + 1] for word in formats]
        return each("precision", subject.stated("precision"), f"one of {', '.join(better)}", better.__contains__)


def _version_of(package: str, subject: Subject) -> tuple[str, list[Setting]]:
    """Return the name of a package's version among the settings (torch_version), and what the log says of it."""
    name = f"{package.lower().replace('-', '_')}_version"
    found = subject.logged(name)
    return name, [Setting(str(found.value), found.source)] if found else []


@immutable
class Released(Rule, word="released"):
    """Packages are released versions, no development builds."""

    packages: tuple[str, ...]  # names as the log's `versions` line has them
    local: tuple[str, ...] = ()  # labels after a + that releases are published with; * matches any

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        return [
            one
            for package in self.packages
            for one in each(*_version_of(package, subject), f"a released version of {package}", self._is_released)
        ]

    def _is_released(self, version: Value) -> bool:
        found = RELEASE.fullmatch(str(version))
        label = found["local"] if found else None
        return found is not None and (label is None or any(fnmatch.fnmatch(label, one) for one in self.local))


@immutable
class Stated(Rule, word="stated"):
    """Versions and commits are stated, so that others can build the same."""

    packages: tuple[str, ...] = ()
    commit: bool = False  # whether run.json must state the commit of nlp-bench, without changes

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        versions = (_version_of(package, subject) for package in self.packages)
        found = [one for version in versions for one in each(*version, "a version", lambda _: True)]
        if not self.commit:
            return found
        commit = lookup(subject.run, "nlp_bench.commit") if subject.run is not None else None
        if commit is None or str(commit) == "unknown":
            why = None if subject.run is None else "run.json states none"
            return [*found, missing(COMMIT, "a commit without changes", why)]
        passes = "+" not in str(commit)
        return [*found, decided(COMMIT, str(commit), "a commit without changes", "run.json", passes=passes)]


@immutable
class RealData(Rule, word="real-data"):
    """The training reads data: random tokens cost no reading."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        mock, read = subject.logged("mock_data"), subject.logged("data_path")
        asked = lookup(subject.run, "data.path") if subject.run else None
        # What was read, by its source; an empty path is mock data.
        stated = [("", mock.source)] if mock and mock.value is True else [(read.value, read.source)] if read else []
        stated += [(str(asked), "run.json")] if asked is not None else []
        expected = "data that is read, no mock data"
        found = [decided("data", path or "mock data", expected, source, passes=bool(path)) for path, source in stated]
        return found or [missing("data", expected)]


@immutable
class SettingRule(Rule, word="setting"):
    """One setting is within bounds, wherever it is stated."""

    name: str = checked(known_setting)
    equals: int | float | str | bool | None = None
    one_of: tuple[int | float | str, ...] = ()
    contains: str | None = None  # text that the value contains, in upper or lower case
    at_least: float | None = None
    at_most: float | None = None

    def refuse_wrong(self, where: str) -> None:
        """Also refuse a rule without bounds."""
        super().refuse_wrong(where)
        if all(value in {None, ()} for value in (self.equals, self.one_of, self.contains, self.at_least, self.at_most)):
            raise UsageError(f"{where}.equals: missing; give equals, one_of, contains, at_least or at_most")

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        said = [] if self.equals is None else [f"{self.equals}"]
        said += [f"one of {', '.join(map(str, self.one_of))}"] if self.one_of else []
        said += [f"with {self.contains!r} in it"] if self.contains is not None else []
        said += [f"at least {self.at_least:g}"] if self.at_least is not None else []
        said += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        return each(self.name, subject.stated(self.name), " and ".join(said), self._holds)

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


@immutable
class Agreement(Rule, word="agreement"):
    """Run.json and the log say the same of every setting that both state: the log of another run is found."""

    at_least: int = 1  # settings that both must state
    without: tuple[str, ...] = checked(known_setting, ())

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        name = "settings_in_common"
        if subject.run is None:
            return [missing(name, "all alike", "there is no run.json")]
        both = [
            (setting, logged, asked.value)
            for setting in (*subject.entry.workload.asked, "train_iters")
            if setting not in self.without and (asked := subject.asked(setting)) and (logged := subject.logged(setting))
        ]
        differing = [(setting, logged, asked) for setting, logged, asked in both if not same(logged.value, asked)]
        if differing:
            return [one for setting, logged, asked in differing for one in expect(setting, [logged], asked)]
        expected = f"at least {self.at_least}, all alike"
        if len(both) < self.at_least:
            return [missing(name, expected, f"run.json and the log have {len(both)}")]
        return [decided(name, len(both), expected, "run.json and the log", passes=True)]


# How the run went and ended.


@immutable
class FiniteLoss(Rule, word="finite-loss"):
    """No logged loss is NaN or infinite, no iteration is counted as NaN."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        records, expected = subject.records, "a finite number in every line"
        broken = None if subject.run is None and has_placeholder_loss(records) else why_broken(records)
        count = int(records.has("lm_loss").sum())
        if not (broken or count):
            return [missing("lm_loss", expected)]
        lacking = int(records.lacks("lm_loss").sum())
        if not broken and is_silent(lacking, len(records)):
            return [missing("lm_loss", expected, f"{lacking} of {len(records)} lines have no loss")]
        shown = broken.text if broken else f"finite in {count} line(s)"
        return [decided("lm_loss", shown, expected, subject.lines, passes=not broken)]


@immutable
class SkippedIterations(Rule, word="skipped-iterations"):
    """Few iterations skipped the update: a skipped one does less work."""

    allowed_share: dict[str, float] = field(default_factory=dict, metadata={"check": share})
    """Largest share of all iterations, by number format."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        name = "skipped_iterations"
        skipped, iterations = subject.records.column("num_skipped"), subject.records.column("iteration")
        if not np.isfinite(skipped).any():
            return [missing(name, "a count in the log")]
        first = median(np.diff(iterations)) if len(iterations) > 1 else 1.0
        count, total = int(np.nansum(skipped)), int(iterations[-1] - iterations[0] + first)
        precision = str(subject.entry.workload.value("precision"))
        allowed = self.allowed_share.get(precision)
        if allowed is None and count:
            known = ", ".join(self.allowed_share) or "none"
            why = f"{count} are skipped, and what {precision} may skip the rule does not say"
            return [missing(name, f"a number format with a share ({known})", why)]
        expected = f"at most {100 * (allowed or 0):g} % of {total} iterations"
        return [decided(name, count, expected, subject.lines, passes=count <= (allowed or 0) * total)]


@immutable
class FinalIteration(Rule, word="final-iteration"):
    """The last requested iteration is in the log."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        name, records, asked = "last_iteration", subject.records, subject.asked("train_iters")
        wanted = asked.value if asked else records[-1].total_iterations if records else None
        if not records or not isinstance(wanted, int):
            return [missing(name, "the last iteration" if wanted is None else str(wanted))]
        last = records[-1]
        source, stop = f"log line {last.line_number}", subject.entry.until
        if last.iteration < wanted and stop and stop.is_proven:
            expected = f"{wanted}, or where the mean is known to {100 * stop.within:g} %"
            return [decided(name, last.iteration, expected, source, passes=True)]
        if last.iteration < wanted and not asked:  # an excerpt of a log shows neither that it ended nor that it did not
            return [missing(name, str(wanted), f"the log stops at {last.iteration}, {source}")]
        return [decided(name, last.iteration, str(wanted), source, passes=last.iteration >= wanted)]


@immutable
class ExitStatus(Rule, word="exit-status"):
    """The job ended with exit status 0, by the scheduler or the launcher, and not only by its log."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        ended, name = subject.ended, "outcome.json"
        if ended is None:
            return [missing("exit_status", "0")]
        outcome, status = ended.get("outcome"), ended.get("exit_status")
        found = decided("outcome", str(outcome), "VALID", name, passes=outcome == "VALID")
        if not isinstance(status, int):
            return [found, missing("exit_status", "0", f"{name} states none")]
        return [found, decided("exit_status", status, "0", name, passes=status == 0)]


@immutable
class WholeLog(Rule, word="whole-log"):
    """No logged interval is missing between the first and the last: a log without its slow lines is found."""

    missing_share: float = checked(share, 0.0)  # largest share of the intervals that may be missing, torn ones included

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        iterations = subject.records.column("iteration")
        expected = f"at most {100 * self.missing_share:g} % of the intervals"
        if len(iterations) < 3:
            return [missing("missing_intervals", expected, "fewer than 3 lines")]
        steps = np.diff(iterations)
        stated = [one.value for one in subject.stated("log_interval")][-1:]
        is_stated = bool(stated) and isinstance(stated[0], int) and stated[0] > 0
        every = float(stated[0]) if is_stated else max(median(steps), 1.0)
        gaps = np.maximum(np.rint(steps / every) - 1, 0)
        # Only a run of ours is known to begin with its first iteration, unless it goes on from a checkpoint.
        begins = subject.run is not None and not goes_on(subject.run)
        count = int(gaps.sum() + (max(np.rint(iterations[0] / every) - 1, 0) if begins else 0))
        total = count + len(iterations)
        where = f", the first after iteration {iterations[int(np.argmax(gaps))]:.0f}" if gaps.any() else ""
        passes, ending = count <= self.missing_share * total, subject.entry.ending
        if passes and ending and ending.shown is Shown.EXCERPT:
            return [missing("missing_intervals", expected, f"the log begins at iteration {iterations[0]:.0f}")]
        return [decided("missing_intervals", f"{count} of {total}{where}", expected, subject.lines, passes=passes)]


# What was measured.


@immutable
class Window(Rule, word="window"):
    """The steady window holds enough logged intervals; too few show neither that a run keeps the other rules nor that it does not."""

    at_least: int = checked(above_zero)

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        name, expected, measured = "intervals_in_window", f"at least {self.at_least}", subject.entry.throughput
        if measured is None:
            return [missing(name, expected, "nothing was measured")]
        found = measured.window
        source = f"iterations {found.first_iteration} to {found.last_iteration}"
        status = Status.PASS if found.num_records >= self.at_least else Status.NOT_SHOWN
        return [evidence(name, status, found.num_records, expected, source)]


@immutable
class TimeLimit(Rule, word="time-limit"):
    """The time is at most a limit; both times are shown, one decides."""

    limit_s: float = checked(above_zero)
    tokens: int = checked(above_zero, REPORT_TOKENS)
    decides: str = checked(words(STEADY_INTERVAL, SUSTAINED_INTERVAL, STEADY, SUSTAINED, REFERENCE))
    """steady-interval, sustained-interval: the whole 95 % interval of that time; steady, sustained, reference: the value alone.
    Of a run whose log contradicts its number none decides."""

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        entry, measured = subject.entry, subject.entry.throughput
        if not entry.has_number:
            return [missing("time_to_report_s", f"at most {self.limit_s:g} s", "nothing was measured")]
        sources = dict.fromkeys((STEADY, SUSTAINED, REFERENCE), "published")
        if measured:
            found, over = measured.sustained, "iterations {0.first_iteration} to {0.last_iteration}".format
            going = f"{over(found)}, {found.clock.value}" if found else "not known"
            sources = {STEADY: over(measured.window), SUSTAINED: going, REFERENCE: "all logged times, warm-up included"}
        shown, deciding = [], self.decides.removesuffix("-interval")
        for kind, source in sources.items():
            value = time_to_report_s(self.tokens, getattr(entry, kind))
            status, expected = self._decision(subject, value) if kind == deciding else (None, None)
            value = None if value is None else round(value, 3)
            shown.append(evidence(f"time_to_report_{kind}_s", status, value, expected, source))
        return shown

    def _decision(self, subject: Subject, value: float | None) -> tuple[Status, str]:
        """Return the status by the time that decides, and what was expected of it."""
        limit = f"at most {self.limit_s:g} s"
        if self.decides not in {STEADY_INTERVAL, SUSTAINED_INTERVAL}:
            if value is None:
                return Status.NOT_SHOWN, limit
            if contradicting(subject.entry.doubts):
                return Status.NOT_SHOWN, f"{limit}, by a number that its log does not contradict"
            return Status.PASS if value <= self.limit_s else Status.FAIL, limit
        verdict = verdict_of(subject.entry, self.tokens, self.limit_s)
        word, interval = verdict.word, subject.entry.time_ci95_s(self.tokens)
        if self.decides == SUSTAINED_INTERVAL:
            word, interval = verdict.sustained or "", sustained_time_ci95_s(subject.entry, self.tokens)
        bounds = f"{interval[0]:.2f} to {interval[1]:.2f} s" if interval else "not known"
        status = VERDICTS[word].status if word else Status.NOT_SHOWN
        return status, f"{limit} over the whole 95 % interval, which is {bounds}"
