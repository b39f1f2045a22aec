"""What a run was of (workload, configuration, machine) and observed of their speed; several runs of one configuration as one measurement.

Run-to-run differences (which nodes, which links, which clocks) are usually larger than the scatter within a run, and no single
run can show them. Sources: Student's t over the steady means (`estimate.over_runs`); a run beyond the others by the externally
studentised residual with Bonferroni's correction (Grubbs 1969, doi:10.1080/00401706.1969.10490657).
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import compress
from operator import not_
from typing import Any, NamedTuple, Protocol, TypeVar

from nlp_bench.escape import one_line, some
from nlp_bench.immutable import immutable
from nlp_bench.logs.record import FIRST_RECORDS, Records
from nlp_bench.measure.contradiction import contradicting
from nlp_bench.measure.estimate import LEVEL, Estimate, Uncertainty, least, over_runs, student_t, variance_ratio_tail
from nlp_bench.measure.limit import (
    VERDICTS,
    decided,
    verdict_of,
    why_broken_otherwise,
    why_unsound,
)
from nlp_bench.measure.log_end import Shown
from nlp_bench.measure.result import AGAINST_LOG, SEVERAL_STARTS, RunResult
from nlp_bench.measure.throughput import times_to_report_s
from nlp_bench.measure.trace import TIMES, Kin, Trace, kin_of, trace_of
from nlp_bench.measure.window import TARGET, num_more
from nlp_bench.measure.workload import FREE, FROZEN, Setting, Value, sets_apart
from nlp_bench.outcome import Outcome
from nlp_bench.reason import SHARED_NODES, Reason
from nlp_bench.show.table import percentage

MACHINE = ("system", "accelerator", "gpu", "num_gpus")  # where it ran
DATA = "mock_data"  # random tokens in place of data, which no file system has to deliver
NAMES = (*FROZEN, *FREE, "model", *MACHINE, DATA)  # what makes two runs repeats of each other
# Neither the run.json of such a run nor the rows of older histories say it.
_UNSAID = ("recompute_granularity", "none")
_SIZES = {"seq_length": "sequence_length", "global_batch_size": "global_batch_size", "num_gpus": "num_gpus"}
"""Sizes that a number is computed with: name of the setting to attribute of the entry."""

Identity = tuple[tuple[str, Value], ...]
Each = TypeVar("Each")


def grouped(found: Iterable[Each], key: Callable[[Each], object]) -> list[list[Each]]:
    """Return those with equal keys together, in the order of their first ones."""
    groups: dict[object, list[Each]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def settings_of(entry: RunResult) -> dict[str, Setting]:
    """Return all of NAMES that is known of a run, for batch, sequence and GPUs what its number was computed with; of a log without a run.json what else sets it apart."""
    names = NAMES if entry.workload.asked else (*NAMES, *filter(sets_apart, entry.workload.logged))
    found = {name: setting for name in names if (setting := entry.workload.configured(name))}
    for name, attribute in (*_SIZES.items(), ("model", "model"), ("accelerator", "accelerator")):
        value = getattr(entry, attribute)
        if value is not None and (name not in found or found[name].value != value):
            origin = entry.provenance.quantities.get(attribute) if entry.provenance else None
            found[name] = Setting(value, (origin.source if origin else None) or "run.json")
    if "num_gpus" in found:  # one number under two names
        found.pop("world_size", None)
    if DATA in found and found[DATA].value is not True:
        del found[DATA]
    return found


def identity_of(settings: Mapping[str, Setting]) -> Identity:
    """Return workload, configuration and machine as sorted pairs, whole numbers without a decimal point: stable between versions."""
    known = ((name, _plain(settings[name].value)) for name in settings if name in NAMES or sets_apart(name))
    return tuple(sorted(pair for pair in known if pair != _UNSAID))


def _plain(value: Value) -> Value:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def nearest(own: Identity, others: Iterable[Identity], *, agreeing: bool = False) -> Identity | None:
    """Return the other configuration that has most in common with `own`, the first of several; with `agreeing` of those that state nothing else alone."""
    apart = {other: set(other) ^ set(own) for other in others if other != own}
    found = [other for other, pairs in apart.items() if not agreeing or len(dict(pairs)) == len(pairs)]
    return min(found, key=lambda other: len(apart[other]), default=None)


def apart_words(before: Identity, after: Identity) -> str:
    """Return what sets a configuration apart from one before it."""
    one, two = dict(before), dict(after)
    names = [name for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)]
    values = ((name, *(one_line(side.get(name, "not stated")) for side in (one, two))) for name in names)
    return some((f"{name}: {was} -> {now}" for name, was, now in values), 5)


def digest_of(known: Identity) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of an identity's JSON."""
    text = json.dumps(known, ensure_ascii=True, separators=(",", ":"))
    return _sha256(text)[:12]


def _sha256(text: str) -> str:
    import hashlib  # noqa: PLC0415  # OpenSSL's library, which one log alone does not need

    return hashlib.sha256(text.encode()).hexdigest()


def digest(entry: RunResult) -> str:
    """Return a short name of what a run was of: equal for repeats."""
    return digest_of(identity_of(settings_of(entry)))


def is_known(settings: Mapping[str, Setting]) -> bool:
    """Return whether so much is known of a run (sizes, model by name or shape) that an equal one is a repeat: logs that state nothing are all equal."""
    has_model = "model" in settings or ("num_layers" in settings and "hidden_size" in settings)
    return has_model and all(name in settings for name in _SIZES)


class Starts(NamedTuple):
    """That the log of a run has several starts of its training, of which one is measured."""

    text: str  # the sentence
    slower: float  # factor on the time of the run if its slowest start counted; 1 where none is slower

    @classmethod
    def of(cls, entry: RunResult) -> "Starts | None":
        """Return it, None for a log of one start."""
        text = next((reason.text for reason in entry.reasons if reason.code == SEVERAL_STARTS), None)
        slower = (each.slower for each in entry.slower_statements if each.is_start)
        return cls(text, max(slower, default=1.0)) if text else None


@immutable
class Observation:
    """One run, as one observation of the speed of its configuration."""

    source: str
    outcome: Outcome
    seconds_per_token: float | None = None  # inverse of the steady rate, None where there is no number
    estimate: Estimate | None = None  # the same with its uncertainty within the run, None where that cannot be given
    num_intervals: int | None = None
    sustained_tokens_per_second: float | None = None  # over the wall clock, None where the log has none
    ending_seconds_per_token: float | None = None  # at the slower speed of its end, None where it is none
    settings: Mapping[str, Setting] = field(default_factory=dict)  # what is known of its workload and machine
    program: str | None = None  # the dialect of its log: two programs are no repeats of each other
    reasons: tuple[str, ...] = ()  # why there is no number, or what to know about it
    doubts: tuple[Reason, ...] = ()  # `RunResult.doubts`
    stopped: str | None = None  # how its log says that it was ended before its last iteration; None where it does not
    starts: Starts | None = None  # None where its log has one start
    overruled: Identity = ()  # sizes that its log states, where a person gave others
    opening: str | None = None  # what `opening_of` gives for its first records
    trace: Trace | None = None  # lines by which a copy or a part of it is known
    key: str | None = None  # which run it is, by the content of its files, where it was requested
    entry: RunResult | None = field(default=None, compare=False, repr=False)
    """What it was observed in; None for one of the history."""

    @classmethod
    def of(cls, entry: RunResult) -> "Observation":
        """Return what an entry of a report observed."""
        measured = entry.throughput
        return cls(
            source=entry.source,
            outcome=entry.outcome,
            seconds_per_token=1 / measured.steady if measured else None,
            estimate=measured.estimate if measured else None,
            num_intervals=measured.window.num_records if measured else None,
            sustained_tokens_per_second=entry.sustained,
            ending_seconds_per_token=measured.ending_seconds_per_token if measured else None,
            settings=settings_of(entry),
            program=entry.dialect,
            reasons=entry.reason_texts,
            doubts=entry.doubts,
            stopped=entry.ending.text if entry.ending and entry.ending.shown in _STOPPED else None,
            starts=Starts.of(entry),
            overruled=tuple((each.name, each.logged) for each in entry.sizes_supplied if each.logged is not None),
            opening=opening_of(entry.records),
            trace=entry.trace or (trace_of(entry.records) if measured else None),
            entry=entry,
        )

    @cached_property
    def marks(self) -> frozenset[object]:
        """What two different runs do not have in common to the last digit: the number with all it is made of, and the first records."""
        rate = self.estimate or self.seconds_per_token
        numbers = (rate, self.num_intervals, self.sustained_tokens_per_second) if rate else None
        return frozenset({numbers, self.opening} - {None})


class Doubted(Protocol):
    """A run with its doubts: an entry of a report, or an observation."""

    @property
    def source(self) -> str:
        """The run."""

    @property
    def doubts(self) -> tuple[Reason, ...]:
        """`RunResult.doubts`."""


MAX_DOUBTED = 3  # runs of one kind of doubt that are named
_WHAT = {
    SHARED_NODES: "ran on nodes shared with other jobs",
    AGAINST_LOG: "{have} a size by hand that the log contradicts",
}
_REMEDY = {SHARED_NODES: "--exclusive asks for whole nodes"}
"""Of the doubts that are alike in all runs, so that one sentence is enough for them."""


def why_doubted(runs: Iterable[Doubted]) -> list[str]:
    """Return why what rests on these runs is not proven, once for each kind of doubt: `a, b and 3 more ran on nodes shared with other jobs`."""
    sources: dict[str, list[str]] = {}
    for run in runs:
        for doubt in run.doubts:
            sources.setdefault(_WHAT.get(doubt.code, "{have} a contradicted number"), []).append(run.source)
    return [_of_runs(names, what) for what, names in sources.items()]


def doubt_lines(runs: Iterable[Doubted], left_out: Iterable[Doubted] = ()) -> list[str]:
    """Return the doubts of the runs that a table rests on, and of those `left_out` of it, a sentence each; one that is alike in several runs once."""
    lines = []
    for begin, group in (("", runs), ("left out: ", left_out)):
        pairs = [(run.source, doubt) for run in group for doubt in run.doubts]
        lines += [f"{begin}{source}: {doubt.text}" for source, doubt in pairs if doubt.code not in _REMEDY]
        for code, remedy in _REMEDY.items():
            if names := [source for source, doubt in pairs if doubt.code == code]:
                lines.append(f"{begin}{_of_runs(names, _WHAT[code])} ({remedy})")
    return list(dict.fromkeys(lines))


def _of_runs(sources: Iterable[str], what: str) -> str:
    names = dict.fromkeys(sources)
    return f"{some(names, MAX_DOUBTED)} {what.format(have='has' if len(names) == 1 else 'have')}"


_STOPPED = (Shown.ENDED_FROM_OUTSIDE, Shown.STOPS_EARLY, Shown.CRASHED)
_DIFFERENT = 4  # distinct times that the first records must hold: rounded ones may be equal in two runs
_NEIGHBOURS, _PAIRS = 50, 100_000
"""Runs next in speed with which each is compared line by line, and comparisons in all: of ten thousand runs each is with its ten next ones."""


def opening_of(records: Records) -> str | None:
    """Return what the first records have that no other run's have (a log that was copied, packed or cut still begins so); None where they are few or do not differ."""
    columns = [records.columns[name][:FIRST_RECORDS].tolist() for name in TIMES if name in records.columns]
    times = next((column for column in columns if all(map(math.isfinite, column))), None)
    if times is None or len(times) < FIRST_RECORDS or len(set(times)) < _DIFFERENT:
        return None
    first = (records.column("iteration")[:FIRST_RECORDS].tolist(), times)
    return _sha256(repr(first))[:16]


def _shared_marks(one: Observation, two: Observation) -> frozenset[object]:
    """Return the marks that two observations have in common, without first records of whole seconds where both logs are equally long."""
    shared, traces = one.marks & two.marks, (one.trace, two.trace)
    is_coarse = all(trace and trace.is_coarse for trace in traces)
    is_long = len({trace.last.iteration for trace in traces if trace}) == 1
    return shared - {one.opening} if is_coarse and is_long else shared


def kin_between(one: Observation, two: Observation) -> Kin | None:
    """Return why two observations are of one run, None where nothing shows it."""
    if shared := _shared_marks(one, two):
        return Kin.BEGINNING if shared == {one.opening} else Kin.NUMBERS
    return kin_of(one.trace, two.trace)


def of_these(runs: Iterable[Observation], others: Sequence[Observation]) -> list[Observation]:
    """Return those of `runs` that are a run of `others`, whole or in part."""
    return [run for run in runs if any(kin_between(run, other) for other in others)]


def different_runs(runs: Iterable[Observation]) -> tuple[list[Observation], list[tuple[Observation, Kin]]]:
    """Return the runs, each once, and their copies and parts, in their order. Of a run whose log was cut the longest counts."""
    given = list(runs)
    longest_first = sorted(range(len(given)), key=lambda at: -(given[at].num_intervals or 0))
    rank = {at: place for place, at in enumerate(longest_first)}
    heads = list(range(len(given)))  # those that are of one run lead to the longest of them
    kin: dict[int, Kin] = {}  # of each that is no head why it is not

    def head_of(at: int) -> int:
        while heads[at] != at:
            at = heads[at]
        return at

    def join(one: int, two: int, why: Kin | None) -> None:
        one, two = sorted((head_of(one), head_of(two)), key=rank.__getitem__)
        if why and one != two:
            heads[two], kin[two] = one, why

    # What is equal to the last digit, in time that grows with the number of runs.
    met: dict[object, int] = {}
    for at in longest_first:
        for mark in given[at].marks:
            first = met.setdefault(mark, at)
            join(first, at, kin_between(given[first], given[at]))
    # What is of one run line by line, and the parts of one log.
    alone = [at for at in longest_first if at not in kin]
    alone.sort(key=lambda at: given[at].seconds_per_token or 0.0)
    near = min(_NEIGHBOURS, max(3, _PAIRS // max(len(alone), 1)))
    for place, one in enumerate(alone):
        for two in alone[place + 1 : place + 1 + near]:
            join(one, two, kin_of(given[one].trace, given[two].trace))
    return [run for at, run in enumerate(given) if at not in kin], [(given[at], kin[at]) for at in sorted(kin)]


USUAL_RUNS = 5  # runs that a first measurement should have: with 5 the factor of Student's t is 2.8, with 2 it is 12.7
MAX_RUNS = 10_000
TOO_ALIKE, LEAST_TIMES = 1e-6, 10.0
"""Level of the test whether runs differ by less than independent ones can, and how many times less it is at least: noise that alternates is overestimated."""


@immutable
class Pool:
    """All runs of one configuration."""

    runs: tuple[Observation, ...]  # those with a number, each once
    without_number: tuple[Observation, ...] = ()  # those of the same configuration that ended otherwise
    copies: tuple[Observation, ...] = ()  # the same runs under a second name, whole or in part: no repeats
    kin: tuple[Kin, ...] = ()  # of each of `copies`, why it is one
    left_out: tuple[Observation, ...] = ()  # other runs of the same configuration that are MEASURED, and not taken
    shared: tuple[Observation, ...] = ()  # those that `without_shared` has left out

    @property
    def settings(self) -> Mapping[str, Setting]:
        """What is known of the configuration, as the first run states it."""
        return (*self.runs, *self.without_number)[0].settings

    @cached_property
    def identity(self) -> Identity:
        """Workload, configuration and machine."""
        return identity_of(self.settings)

    @cached_property
    def seconds_per_token(self) -> tuple[float, ...]:
        """Of each run."""
        return tuple(run.seconds_per_token for run in self.runs if run.seconds_per_token)

    @cached_property
    def over_runs(self) -> Estimate | None:
        """The mean over two or more runs with the scatter between them; None for one, and where they differ not at all or impossibly little."""
        return None if self.is_too_alike else over_runs(self.seconds_per_token)

    @cached_property
    def is_too_alike(self) -> bool:
        """Whether the runs differ by so much less than the noise within them alone would make it that they are hardly independent (F test)."""
        cv, noise, squares = self.run_to_run_cv, self.noise_cv, [part.noise**2 for part in self._uncertainties]
        if not (cv and noise and noise > LEAST_TIMES * cv and all(squares)):
            return False
        # Satterthwaite's degrees of freedom of the mean variance.
        parts = zip(squares, self._uncertainties, strict=True)
        degrees = math.fsum(squares) ** 2 / math.fsum(square**2 / part.degrees for square, part in parts)
        return variance_ratio_tail((noise / cv) ** 2, degrees, len(squares) - 1) < TOO_ALIKE

    @property
    def _uncertainties(self) -> list[Uncertainty]:
        return [run.estimate.uncertainty for run in self.runs if run.estimate and run.estimate.uncertainty]

    @property
    def noise_cv(self) -> float | None:
        """As `within_run_cv`, without stalls, which may come at the same iterations of each run; None where it is not known of every run."""
        parts = self._uncertainties
        is_known = parts and len(parts) == len(self.runs)
        return math.sqrt(math.fsum(part.noise**2 for part in parts) / len(parts)) if is_known else None

    @property
    def estimate(self) -> Estimate | None:
        """The best that is known: over runs, and for one run within it."""
        return self.runs[0].estimate if len(self.runs) == 1 else self.over_runs

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all runs / their time at equal tokens (the harmonic mean of the rates), None without a run."""
        seconds = self.seconds_per_token
        return len(seconds) / math.fsum(seconds) if seconds else None

    @property
    def run_to_run_cv(self) -> float | None:
        """Sample standard deviation of the runs' times per token / mean; None for fewer than two runs."""
        return _cv(self.seconds_per_token)

    @property
    def spread(self) -> float | None:
        """`run_to_run_cv` where an interval over runs can be made of it, else None: runs that are (nearly) equal to the last digit hide their scatter."""
        return self.run_to_run_cv if self.over_runs else None

    @property
    def within_run_cv(self) -> float | None:
        """Root mean square of the scatter within the runs, to be compared with `run_to_run_cv`; None where no run has one."""
        found = [run.estimate.standard_error / run.estimate.seconds_per_token for run in self.runs if run.estimate]
        return math.sqrt(math.fsum(value**2 for value in found) / len(found)) if found else None

    @property
    def olympic_tokens_per_second(self) -> float | None:
        """Without the fastest and the slowest run (MLPerf's way to score); None for fewer than three runs."""
        kept = sorted(self.seconds_per_token)[1:-1]
        return len(kept) / math.fsum(kept) if kept else None

    def without_shared(self) -> "Pool":
        """Return the pool without its runs on shared nodes, unless all are: one such night leaves the others what they are.

        A contradicted run stays, since it may be the slow one.
        """
        are_shared = [bool(run.doubts and not contradicting(run.doubts)) for run in self.runs]
        if all(are_shared) or not any(are_shared):
            return self
        shared, others = (tuple(compress(self.runs, which)) for which in (are_shared, map(not_, are_shared)))
        return replace(self, runs=others, shared=shared)

    @property
    def is_doubted(self) -> bool:
        """Whether there is a doubt about one of its runs, so that they prove nothing."""
        return any(run.doubts for run in self.runs)

    @property
    def start_lines(self) -> list[str]:
        """Which of its runs have several starts in their logs, a sentence each."""
        return [f"{run.source}: {run.starts.text}" for run in self.runs if run.starts]

    @property
    def slower_by_starts(self) -> float:
        """Factor on the time of its runs if the slowest start in each log counted."""
        slower = [(run.seconds_per_token or 0.0) * run.starts.slower for run in self.runs if run.starts]
        own = [run.seconds_per_token or 0.0 for run in self.runs if run.starts]
        return 1 + (math.fsum(slower) - math.fsum(own)) / math.fsum(self.seconds_per_token)

    @cached_property
    def slower_by_ends(self) -> float:
        """Factor on the time of its runs if each took as long as it does at its end."""
        ends = [run.ending_seconds_per_token or run.seconds_per_token or 0.0 for run in self.runs]
        return math.fsum(ends) / math.fsum(self.seconds_per_token)

    @property
    def end_lines(self) -> list[str]:
        """Say how many of its runs end at a slower speed, in a sentence; empty where none does."""
        number = sum(run.ending_seconds_per_token is not None for run in self.runs)
        if not number:
            return []
        runs = f"{number} of {len(self.runs)} {'run ends' if len(self.runs) == 1 else 'runs end'}"
        slower = f"by {percentage(self.slower_by_ends - 1, 1)} in the mean of all"
        return [f"{runs} at a slower speed, {slower}: a longer run has to show which one lasts"]

    @property
    def copy_lines(self) -> list[str]:
        """Why each of its copies is none of the runs, a sentence each."""
        return [f"{run.source}: {why.value}" for run, why in zip(self.copies, self.kin, strict=True)]

    @property
    def outliers(self) -> list[Observation]:
        """Runs beyond what the others allow, each at 5 % / number of runs; none among fewer than three."""
        values = self.seconds_per_token
        if len(values) < 3 or not (cv := _cv(values)):
            return []
        mean, far = math.fsum(values) / len(values), _far(cv, len(values))
        beyond = [index for index, value in enumerate(values) if abs(value / mean - 1) > far]
        # Where the others are equal to the last digit their rounding hides how much they differ.
        return [self.runs[at] for at in beyond if (_cv([*values[:at], *values[at + 1 :]]) or 0.0) > 1e-12]

    @cached_property
    def num_more_runs(self) -> int | None:
        """Further runs that give an interval of at most +- TARGET if they scatter as these do; None for one run, for equal ones, and beyond about MAX_RUNS."""
        spread, runs = self.spread, len(self.runs)
        if spread is None:
            return None
        number = least(
            lambda n: student_t(0.5 + LEVEL / 2, n - 1) * spread / math.sqrt(n) <= TARGET, runs, 2 * MAX_RUNS
        )
        return None if number is None else number - runs

    def time_interval_s(self, tokens: int) -> tuple[float, float] | None:
        """Return the 95 % interval over runs of the time in seconds, shortest first."""
        return times_to_report_s(tokens, self.over_runs.interval() if self.over_runs else None)

    def verdict(self, tokens: int, limit_s: float) -> tuple[str, str | None]:
        """Return PASS, FAIL or NOT PROVEN for the runs as one measurement, and why they prove nothing: what keeps a run's verdict open, its own interval apart, keeps theirs open."""
        entries = [run.entry for run in self.runs if run.entry]
        unsound = [f"{run.source}: {each.text}" for run in self.runs for each in contradicting(run.doubts)]
        unsound = unsound or [f"{entry.source}: {why}" for entry in entries for why in why_unsound(entry)]
        interval_s = self.time_interval_s(tokens)
        unsound += [] if interval_s or unsound else ["no 95 % interval over runs"]
        mean_s = tokens * math.fsum(self.seconds_per_token) / len(self.runs)
        broken = ((entry.source, why_broken_otherwise(entry, tokens, limit_s)) for entry in entries)
        reasons = [f"{source}: {text}" for source, text in broken if text]
        alone = {run.source: _word(run, tokens, limit_s) for run in self.left_out}
        slow = (source for source, word in alone.items() if word and VERDICTS[word].proves == "miss")
        reasons += [f"{source}: a run of this configuration that is left out breaks the limit" for source in slow]
        word, why = decided(interval_s, limit_s, unsound, reasons, mean_s * self.slower_by_ends)
        return word, next(iter(why), None)


def _cv(values: Sequence[float]) -> float | None:
    number = len(values)
    if number < 2:
        return None
    mean = math.fsum(values) / number
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1)) / mean


def _far(cv: float, number: int) -> float:
    """Return how far from the mean of all, as a share of it, a run is beyond what the others allow: Grubbs's critical value.

    It is the externally studentised residual (the run against mean and deviation of the others) at Student's t with `number` - 2 degrees.
    """
    critical = student_t(1 - 0.025 / number, number - 2)
    return cv * (number - 1) / math.sqrt(number * ((number - 2) / critical**2 + 1))


def pooled(observations: Iterable[Observation], *, trust: bool = False, allow_measured: bool = False) -> list[Pool]:
    """Group runs into repeats of one configuration, in the order of their first runs.

    A run of which too little is known (`is_known`) stays alone; with `trust` the user vouches that equal means repeated. So does one
    that is MEASURED, unless `allow_measured` takes it too; logs of two programs are no repeats of each other, nor are logs that state
    different sizes because a person gave all of them the same one.
    """

    def is_apart(run: Observation) -> bool:
        return run.outcome is Outcome.MEASURED and not allow_measured

    def configuration(run: Observation) -> object:
        if not (trust or is_known(run.settings)):
            return id(run)  # alone
        program = None if run.seconds_per_token is None else run.program  # one that died early may have no dialect
        return program, identity_of(run.settings), run.overruled

    runs = list(observations)
    apart = {configuration(group[0]): group for group in grouped(filter(is_apart, runs), configuration)}
    groups = _with_early_deaths(grouped(runs, lambda run: id(run) if is_apart(run) else configuration(run)))
    left_out = ([] if is_apart(group[0]) or not apart else apart.get(configuration(group[0]), []) for group in groups)
    return [_pool(group, others) for group, others in zip(groups, left_out, strict=True)]


def _with_early_deaths(groups: list[list[Observation]]) -> list[list[Observation]]:
    """Join runs that died before their log stated everything to the first configuration that contradicts nothing known of them."""
    dead = [group for group in groups if all(run.seconds_per_token is None and is_known(run.settings) for run in group)]
    living = [group for group in groups if group not in dead]
    for group in dead:
        known = {name: setting.value for name, setting in group[0].settings.items()}
        for other in living:
            if known.items() <= {name: setting.value for name, setting in other[0].settings.items()}.items():
                other.extend(group)
                groups = [each for each in groups if each is not group]
                break
    return groups


def _pool(group: Sequence[Observation], others: Sequence[Observation]) -> Pool:
    runs, copies = different_runs(run for run in group if run.seconds_per_token is not None)
    failed = tuple(run for run in group if run.seconds_per_token is None)
    kin = tuple(why for _, why in copies)
    different = different_runs([*runs, *others])[0] if others else ()
    left_out = tuple(run for run in different if run.outcome is Outcome.MEASURED)
    return Pool(
        runs=tuple(runs), without_number=failed, copies=tuple(run for run, _ in copies), kin=kin, left_out=left_out
    )


def pool_lines(found: Pool) -> list[str]:
    """Return the remarks on the repeats, one sentence each."""
    lines = []
    if len(found.runs) > 1:
        lines += [_mean_line(found), _more_line(found)]
        lines += [
            f"{run.source}: a run beyond what the others allow; look for what was different" for run in found.outliers
        ]
    elif found.runs:
        run = found.runs[0]
        more = num_more(run.estimate, run.num_intervals) if run.estimate and run.num_intervals else None
        lines.append(
            "one run only: how much runs differ from each other is not known; "
            f"run {USUAL_RUNS - 1} more (repeats: {USUAL_RUNS})"
            + (f"; within this run {more} more logged intervals give +-{100 * TARGET:g} %" if more else "")
        )
    lines += found.copy_lines
    if found.runs and found.without_number:
        total = len(found.runs) + len(found.without_number)
        lines.append(f"{len(found.without_number)} of {total} runs of this configuration ended without a number")
    return lines


def _mean_line(found: Pool) -> str:
    interval = found.over_runs.interval() if found.over_runs else None
    words = f"{len(found.runs)} runs: {found.tokens_per_second:.2f} tokens/s"
    words += f", 95 % interval over runs {interval[0]:.2f} to {interval[1]:.2f}" if interval else ", no interval"
    words += f"; runs differ by {percentage(found.run_to_run_cv)} (coefficient of variation)"
    if (within := found.within_run_cv) is not None:
        words += f", the scatter within each alone would make it {percentage(within)}"
    olympic = found.olympic_tokens_per_second if len(found.runs) >= USUAL_RUNS else None
    return words + (f"; without the fastest and the slowest {olympic:.2f} tokens/s" if olympic else "")


def too_alike_line(found: Pool) -> str | None:
    """Return that the runs are no independent repeats, None where they may be."""
    if not found.is_too_alike:
        return None
    return (
        f"no independent repeats: each alone has a noise of {percentage(found.noise_cv)}, and that of {len(found.runs)} runs makes them differ by no more "
        f"than {percentage(found.run_to_run_cv)} in fewer than one of a million cases (copies with other digits?); what runs differ by "
        "is not in them, and they prove nothing: give runs of their own jobs"
    )


def _more_line(found: Pool) -> str:
    more, aim = found.num_more_runs, f"+-{100 * TARGET:g} %"
    if line := too_alike_line(found):
        return line
    if found.spread is None:
        return "the runs do not differ in the digits that are printed: their rounding hides how much they do"
    if more is None:
        return f"more than {MAX_RUNS} runs would be needed for {aim}"
    return f"run {more} more for {aim}, if they scatter as these do" if more else f"{aim} is reached"


def repeats(entries: Sequence[RunResult], *, allow_measured: bool = False) -> list[Pool]:
    """Return the configurations that were run more than once with a number; a copy that is given as a repeat is reported too."""
    pools = pooled(map(Observation.of, entries), allow_measured=allow_measured) if len(entries) > 1 else []
    return [found for found in pools if len(found.runs) > 1 or found.copies]


def apart_line(entries: Sequence[RunResult]) -> str | None:
    """Return that logs of one configuration are not pooled since they are MEASURED, None where there are none."""
    measured = [entry for entry in entries if entry.outcome is Outcome.MEASURED]
    number = sum(len(found.runs) for found in repeats(measured, allow_measured=True) if len(found.runs) > 1)
    words = "logs of one configuration are MEASURED, and so no repeats of each other; pool them with --allow-measured"
    return f"{number} {words}" if number else None


def repeat_lines(pools: Sequence[Pool], tokens: int, limit_s: float | None) -> list[str]:
    """Return the remarks on each configuration that was repeated, its verdict last."""
    lines = []
    for found in pools:
        said = (*pool_lines(found), *_left_out_lines(found, tokens, limit_s), pool_words(found, tokens, limit_s))
        lines += [f"repeats of {found.runs[0].source}: {line}" for line in said]
    return lines


def _left_out_lines(found: Pool, tokens: int, limit_s: float | None) -> list[str]:
    each = []
    for run in found.left_out:
        word = _word(run, tokens, limit_s) if limit_s is not None else None
        rate = 1 / (run.seconds_per_token or math.inf)
        each.append(f"{run.source} at {rate:.2f} tokens/s{f': {word}' if word else ''}")
    words = f"{len(each)} runs of this configuration are" if len(each) > 1 else "1 run of this configuration is"
    return [f"{words} MEASURED and left out ({some(each, 3)})"] if each else []


def _word(run: Observation, tokens: int, limit_s: float) -> str | None:
    """Return the verdict on one run alone."""
    return verdict_of(run.entry, tokens, limit_s).word if run.entry else None


def pool_words(found: Pool, tokens: int, limit_s: float | None) -> str:
    """Return the time of one configuration, and its verdict where there is a limit."""
    rate, interval_s = found.tokens_per_second, found.time_interval_s(tokens)
    words = f"{tokens:,} tokens take {tokens / rate:.2f} s at the steady rate" if rate else "no time"
    words += f" ({interval_s[0]:.2f} to {interval_s[1]:.2f} s, 95 % over runs)" if interval_s else ""
    if limit_s is not None:
        word, why = found.verdict(tokens, limit_s)
        words += f"; limit of {limit_s:g} s: {word}{f' ({why})' if why else ''}"
    return words


def pool_json(found: Pool, tokens: int, limit_s: float | None) -> dict[str, Any]:
    """Return one of the objects of `repeats` in nlp-bench/report/1."""
    interval, interval_s = found.over_runs.interval() if found.over_runs else None, found.time_interval_s(tokens)
    rate = found.tokens_per_second
    record: dict[str, Any] = {
        "configuration": digest_of(found.identity),
        "sources": [run.source for run in found.runs],
        "without_number": [run.source for run in found.without_number],
        "copies": [run.source for run in found.copies],
        "tokens_per_second": {"mean": rate, "ci95": list(interval) if interval else None},
        "time_to_report_s": {"mean": tokens / rate if rate else None, "ci95": list(interval_s) if interval_s else None},
        "run_to_run_cv": found.run_to_run_cv,
        "within_run_cv": found.within_run_cv,
        "num_more_runs": found.num_more_runs,
        "outliers": [run.source for run in found.outliers],
    }
    if limit_s is not None:
        word, why = found.verdict(tokens, limit_s)
        record |= {"limit": word, "limit_reasons": [why] if why else []}
    return record
