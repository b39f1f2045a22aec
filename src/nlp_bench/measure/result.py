"""The result of one run: who, how it ended and why, window, rates, what its rules found, and the verdict on a limit.

It is made once, by `foreign` from a log or by `folder` from a run of ours, and rendered anywhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.logs.record import LOSS_NAN, NO_RECORDS, Attempt, Records
from nlp_bench.measure import Json, Texts
from nlp_bench.measure.anytime import Bound
from nlp_bench.measure.contradiction import Contradiction, SlowerStatement, doubts
from nlp_bench.measure.curves import Curves
from nlp_bench.measure.efficiency import NOTHING_GIVEN, Efficiency, Given, efficiency_of
from nlp_bench.measure.estimate import Pair
from nlp_bench.measure.log_end import LogEnd
from nlp_bench.measure.provenance import Provenance
from nlp_bench.measure.quality import Quality, quality_of
from nlp_bench.measure.sizes import SAME_COUNT, Overrides, Sizes, sizes_of, stated, times_of
from nlp_bench.measure.throughput import Summary, Throughput, time_to_report_s, times_to_report_s
from nlp_bench.measure.trace import Trace
from nlp_bench.measure.workload import Workload
from nlp_bench.outcome import Outcome
from nlp_bench.reason import SHARED_NODES, Reason, texts
from nlp_bench.seal import Finding

if TYPE_CHECKING:
    from nlp_bench.measure.energy import Energy
    from nlp_bench.measure.judgement import Judgement
    from nlp_bench.measure.limit import Verdict
    from nlp_bench.measure.machine import MachineTruth

SEVERAL_STARTS = "several-attempts"
"""Code of a reason: the log has several starts of the training, of which one is measured."""
AGAINST_LOG = "option-against-log"  # the code of a reason: a size that a person gave is not that of the log
NO_WORKLOAD = Workload()
_PARTS = ("machine", "efficiency", "until", "rules", "ending")
_TOLERANCE = 0.03  # between the tokens that the options give and those that the log counts


@immutable
class Published:
    """One row of a published table: kept to be checked, never used as a result. Numbers that are held against a recomputed value keep the digits that were printed."""

    table: str
    line: int  # line of the row in the file
    source: str
    iterations: int | None = None
    log_interval: int | None = None
    perfect_linear: str | None = None  # tokens per second of perfect linear scaling
    speed_up: str | None = None  # speed-up over the smallest size, as the table has it
    stated_speed_up: str | None = None  # speed-up as the text around the table has it
    train_tokens: int | None = None  # tokens of the training that the days are for
    train_days: str | None = None  # days of that training, as the table has it
    stated_train_days: str | None = None  # days as the text around the table has it


@immutable(kw_only=False)
class Supplied:
    """One value of the command line that the log does not show, or contradicts: every format of a report marks it."""

    name: str
    """Name of the quantity: sequence_length, global_batch_size, num_gpus, gpu or precision; pattern for a description of its lines."""
    value: int | str
    logged: int | str | None  # what the log says instead, None where it says nothing
    changes_rate: bool  # whether tokens per second would be another number, or none, without it

    @property
    def words(self) -> str:
        """The option with what the log says of it, in a few words."""
        said = "not in the log" if self.logged is None else f"the log says {self.logged}"
        return f"--{self.name.replace('_', '-')} {self.value} ({said})"

    @property
    def cell(self) -> str:
        """The same for a column: no spreadsheet takes it for a formula."""
        return f"{self.name}={self.value}" + ("" if self.logged is None else f" (log: {self.logged})")


def supplied_sizes(attempt: Attempt, sizes: Sizes, overrides: Overrides) -> tuple[tuple[Supplied, ...], list[Reason]]:
    """Return what of `overrides` the log does not state in the same way, and a reason for each that contradicts the log; `sizes` are those that were used."""
    supplied = [Supplied("pattern", text, None, changes_rate=True) for text in overrides.pattern]
    given = overrides.counts
    if not given:
        return tuple(supplied), []
    (logged, tokens), rates, said = stated(attempt), sizes.tokens / sizes.elapsed_s, list[str]()
    for name, value in given.items():
        if logged[name] == value:
            continue
        without = sizes_of(attempt, Overrides(**{**vars(overrides), name: None}))
        changes = not np.array_equal(rates, without.tokens / without.elapsed_s, equal_nan=True)
        supplied.append(Supplied(name, value, logged[name], changes))
        if logged[name]:
            option = f"--{name.replace('_', '-')} {value}"
            said.append(f"the option {option} is used although the log says {logged[name]}")
    product = sizes.sequence * float(sizes.global_batch_size or np.nan)
    ratio = times_of(product, tokens)
    if not said and abs(ratio - 1) > _TOLERANCE:
        unused = "; what it counts is used" if abs(ratio - 1) > SAME_COUNT else ""
        said.append(f"the options give {ratio:.4g} times the tokens that the log itself counts{unused}")
    return tuple(supplied), [Reason(AGAINST_LOG, text) for text in said]


@immutable
class RunResult:
    """One run. Only a VALID or MEASURED one carries numbers: anything else is refused when it is made."""

    source: str  # where it was read: the path as the caller named it
    dialect: str | None = None  # dialect of the log, "reference-table" for published values, None when unknown
    outcome: Outcome
    reasons: tuple[Reason, ...] = ()  # why there is no number, or what to know about it
    contradictions: tuple[Contradiction, ...] = ()  # what speaks against the number; `reasons` has the sentences
    slower_statements: tuple[SlowerStatement, ...] = ()
    """Statements of the log by which the run takes longer, within the tolerances; they count where the limit lies between."""
    remarks: Texts = ()  # what a reader of the text should know and a program can see in the other fields
    num_records: int | None = None  # logged intervals that were believed
    total_iterations: int | None = None  # iterations that the training would run to
    global_batch_size: int | None = None  # samples per iteration, the last one where it changes
    sequence_length: int | None = None
    num_gpus: int | None = None  # GPUs (or CPU ranks) of the whole run
    accelerator: str | None = None  # cuda or cpu, as run.json or else the log says
    model: str | None = None  # name of the model, where a run.json or a table tells it
    records: Records = NO_RECORDS  # the logged intervals of the attempt that was measured
    attempts: Mapping[int, Records] = field(default_factory=dict)
    """Those of every attempt of this training, by its number in the file, from 1; no part of the record."""
    throughput: Throughput | None = None
    published_tokens_per_second: float | None = None  # a published reference value without a log
    provenance: Provenance | None = None  # where the numbers come from, None where no log was read
    workload: Workload = NO_WORKLOAD
    energy: "Energy | None" = None  # energy of the window or why there is none, None where nothing was recorded
    machine: "MachineTruth | None" = None  # what the machine really was, None where nobody says
    given: Given = NOTHING_GIVEN
    sizes_supplied: tuple[Supplied, ...] = ()  # sizes of the command line that the log does not show, or contradicts
    seals: tuple[Finding, ...] = ()  # links of the chain of evidence; none for a log of somebody else
    rules: "Judgement | None" = None  # what the rules of the benchmark say of it, None where it was held to none
    verdict: "Verdict | None" = None  # whether it is proven to keep a limit, None where none was given
    until: Bound | None = None  # what is known of the mean time by --until, None where it was not asked for
    curves: Curves | None = None  # some points of each plot, where plots were asked for; no part of the record
    trace: Trace | None = None  # lines by which another log of the run is known, without `records`; not in the record
    ending: LogEnd | None = None  # how the run ended, by its log; None with an outcome.json, and without a log
    published: Published | None = None  # what a published table says besides the rate, None for a measured run

    def __post_init__(self) -> None:
        numbers = (self.throughput, self.published_tokens_per_second, self.until, self.curves)
        if not self.outcome.has_number and any(number is not None for number in numbers):
            raise ValueError(f"{self.source}: a run that ended {self.outcome.value} carries a number")

    def without_number(self, outcome: Outcome, *reasons: Reason) -> "RunResult":
        """Return it with `outcome` and `reasons` before its own, without its number and all that was worked out of that."""
        provenance = self.provenance and replace(
            self.provenance, window_first_record=None, window_last_record=None, arithmetic=None
        )
        nothing: Json = dict.fromkeys(("throughput", "published_tokens_per_second", "until", "curves", "energy"))
        return replace(self, outcome=outcome, reasons=(*reasons, *self.reasons), provenance=provenance, **nothing)

    @property
    def reason_texts(self) -> Texts:
        """The sentences of `reasons`."""
        return tuple(texts(self.reasons))

    @property
    def doubts(self) -> tuple[Reason, ...]:
        """Why nothing that rests on the number is proven: it is contradicted, by its log or by a size given by hand, or its nodes were not its own."""
        said = (reason for reason in self.reasons if reason.code in {AGAINST_LOG, SHARED_NODES})
        return (*(found.reason for found in doubts(self.contradictions)), *said) if self.has_number else ()

    @property
    def has_number(self) -> bool:
        """Say whether the run has any tokens per second."""
        return self.reference is not None or self.throughput is not None

    @property
    def reference(self) -> float | None:
        """Tokens per second by the published formula."""
        return self.throughput.reference if self.throughput else self.published_tokens_per_second

    @property
    def steady(self) -> float | None:
        """Tokens per second over the steady window."""
        return self.throughput.steady if self.throughput else None

    @cached_property
    def ci95(self) -> Pair | None:
        """95 % interval of `steady`."""
        return self.throughput.ci95 if self.throughput else None

    @cached_property
    def quality(self) -> Quality | None:
        """How good `steady` is, None without it."""
        return quality_of(self.throughput) if self.throughput else None

    @property
    def sustained(self) -> float | None:
        """Tokens per second over the wall clock, nothing left out."""
        found = self.throughput.sustained if self.throughput else None
        return found.tokens_per_second if found else None

    @property
    def rate(self) -> float | None:
        """The tokens per second that the run stands for: the steady value, or the reference where there is no other."""
        return self.steady or self.reference

    @property
    def tokens_per_second_per_gpu(self) -> float | None:
        """`steady` / GPUs, None where either is unknown."""
        return self.steady / self.num_gpus if self.steady and self.num_gpus else None

    @property
    def supplied(self) -> tuple[Supplied, ...]:
        """All values of the command line that the log does not show, or contradicts."""
        said = {name: (value, self.workload.value(name)) for name, value in vars(self.given).items() if value}
        accelerators = (  # not in the log, or contradicting it; no rate depends on it
            Supplied(name, value, str(logged)[:80] if logged else None, changes_rate=False)
            for name, (value, logged) in said.items()
            if value != logged
        )
        return (*self.sizes_supplied, *accelerators)

    @cached_property
    def efficiency(self) -> Efficiency | None:
        """FLOP/s per GPU and their share of the peak, None without a rate."""
        return efficiency_of(self)

    def time_ci95_s(self, tokens: int) -> Pair | None:
        """Return the 95 % interval of the time in seconds, shortest first."""
        return times_to_report_s(tokens, self.ci95)

    def to_json(self, tokens: int) -> Json:
        """Return one object of `runs` in nlp-bench/report/1."""
        measured = self.throughput
        ci95, time_ci95_s = self.ci95, self.time_ci95_s(tokens)
        seconds = measured.seconds_per_iteration if measured else None
        sustained, estimate = (measured.sustained, measured.estimate) if measured else (None, None)
        verdict = {"limit": self.verdict.word, "verdict": self.verdict.to_json()} if self.verdict else {}
        return {
            "source": self.source,
            "dialect": self.dialect,
            "outcome": self.outcome.value,
            "quality": self.quality and self.quality.value,
            "reasons": list(self.reason_texts),
            "contradictions": [found.to_json() for found in self.contradictions],
            **({"doubts": [asdict(doubt) for doubt in self.doubts]} if self.doubts else {}),
            "num_records": self.num_records,
            "global_batch_size": self.global_batch_size,
            "sequence_length": self.sequence_length,
            "num_gpus": self.num_gpus,
            "supplied": [asdict(each) for each in self.supplied],
            "tokens_per_second": {
                "reference": self.reference,
                "steady": self.steady,
                "ci95": ci95 and list(ci95),
            },
            "time_to_report_s": {
                "reference": time_to_report_s(tokens, self.reference),
                "steady": time_to_report_s(tokens, self.steady),
                "ci95": time_ci95_s and list(time_ci95_s),
            },
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "seconds_per_iteration": asdict(seconds) if seconds else dict.fromkeys(one.name for one in fields(Summary)),
            "window": measured and measured.window.to_json(),
            "steady_state": asdict(measured.steadiness) | {"num_more": measured.num_more} if measured else None,
            "sustained": sustained and sustained.to_json(tokens),
            "uncertainty": asdict(estimate.uncertainty) if estimate and estimate.uncertainty else None,
            "sensitivity": [choice.to_json(tokens) for choice in measured.sensitivity] if measured else [],
            "provenance": self.provenance and self.provenance.to_json(),
            "workload": self.workload.to_json(),
            "energy": self.energy and self.energy.to_json(tokens),
            **{name: (part := getattr(self, name)) and part.to_json() for name in _PARTS},
            "seals": [finding.to_json() for finding in self.seals],
            **verdict,
        }


def why_broken(records: Records) -> Reason | None:
    """Return what `LogRecord.why_broken` says of the first broken record, with its line; None when all are sound."""
    record = records.first_broken()
    return Reason("loss-not-finite", f"{record.why_broken()} (line {record.line_number})") if record else None


def has_placeholder_loss(records: Records) -> bool:
    """Say whether the loss is NaN in the line of the first iteration alone: some programs print one before there is any.

    A NaN that was trained with stays: every later loss would be NaN too, so finite ones in all later lines tell the two apart.
    """
    if len(records) < 2 or records[0].iteration > 1 or records.columns.get("lm_loss", [0.0])[0] != LOSS_NAN:
        return False
    rest = records[1:]
    return not records[0].num_nan and bool(rest.has("lm_loss").all()) and rest.first_broken() is None


def supplied_lines(found: Iterable[tuple[str, Iterable[Supplied]]], most: int = 3) -> list[str]:
    """Return the legend of the stars: what was supplied by hand, once, with the runs that it is about (their number where there are many)."""
    sources: dict[str, list[str]] = {}
    for source, supplied in found:
        if what := "; ".join(each.words for each in supplied):
            sources.setdefault(what, []).append(source)
    return [
        f"* supplied by hand: {what}: " + (", ".join(names) if len(names) <= most else f"{len(names):,} runs")
        for what, names in sources.items()
    ]


def refuse_against_log(entries: Iterable["RunResult"]) -> None:
    """Raise UsageError where an option contradicts the log: `report` says so next to its number, other commands would pass on the number alone."""
    found = [f"{one.source}: {each.text}" for one in entries for each in one.reasons if each.code == AGAINST_LOG]
    if found:
        raise UsageError(f"{'; '.join(found[:3])}. Leave the option out: it is for what a log does not state")
