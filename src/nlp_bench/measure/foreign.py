"""Anybody's log to entries: what the log does not say comes from the command line, and is never guessed."""

from collections.abc import Callable, Sequence

import numpy as np

from nlp_bench.logs.endings import decisive
from nlp_bench.logs.quantity import OPTIONS
from nlp_bench.logs.reader import Progress, read_log
from nlp_bench.logs.record import Attempt, Log
from nlp_bench.measure.contradiction import doubts, voiding
from nlp_bench.measure.ending import LogEnd, end_of
from nlp_bench.measure.entry import RunResult, has_placeholder_loss, why_broken
from nlp_bench.measure.habits import habits_of
from nlp_bench.measure.otherwise import otherwise
from nlp_bench.measure.plausible import why_implausible
from nlp_bench.measure.provenance import provenance_of
from nlp_bench.measure.reconcile import Statements, reconcile
from nlp_bench.measure.sealed import against_seals, sealed_log, with_own_events
from nlp_bench.measure.sizes import Overrides, Sizes, sizes_of
from nlp_bench.measure.supplied import against_log, supplied_sizes
from nlp_bench.measure.throughput import Throughput, measure_records
from nlp_bench.measure.workload import workload_of
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.seal import SealedLog
from nlp_bench.show.escape import one_line

_WORDS = {
    "sequence_length": "sequence length",
    "global_batch_size": "global batch size",
    "num_devices": "number of GPUs",
}
NOTHING = frozenset({"empty-file", "no-training-line"})
"""Codes of the reason where a file has nothing to do with training."""
MANY_ATTEMPTS, SHORT_ATTEMPT = 5, 3
"""So many starts of so few records each are no restarts."""


def measure_log(
    path: str,
    overrides: Overrides,
    progress: Progress | None = None,
    judge: Callable[[RunResult], RunResult] = lambda result: result,
) -> list[RunResult]:
    """Return one entry per configuration in the log at `path` (`-` is standard input).

    Raises UsageError when it cannot be opened; a log that gives no number is an entry with outcome REFUSED. `judge` holds each to rules
    before its energy is computed.
    """
    log = read_log(path, pattern=overrides.pattern, progress=progress)
    source = "standard input" if path == "-" else one_line(path)
    if log.refusal or not log.attempts:
        return [judge(_refused(source, log, overrides))]
    sealed = sealed_log(path, log)
    log = with_own_events(log, sealed)
    groups: dict[tuple[object, ...], list[Attempt]] = {}
    for attempt in log.attempts:
        groups.setdefault(_configuration(attempt), []).append(attempt)
    return [_with_machine(judge(_entry(source, log, attempts, overrides, sealed)), log) for attempts in groups.values()]


def _with_machine(entry: RunResult, log: Log) -> RunResult:
    """Return `entry` with its energy and machine, of which most logs say nothing."""
    if not (entry.records.has("joules_per_device").any() or any(name.startswith("nccl_") for name in log.settings)):
        return entry
    from nlp_bench.measure.beside import with_machine  # noqa: PLC0415  # it takes as long as reading a short log

    return with_machine(entry, log)


def _refused(source: str, log: Log, overrides: Overrides) -> RunResult:
    reason = _why_nothing(log)
    if log.refusal:
        options = [_option(name) for name in log.refusal.missing]
        missing = f"; not in the log: {' and '.join(options)}" if options else ""
        reason = Reason("refused-by-dialect", log.refusal.reason + missing)
    mark = decisive(log.ends)
    is_failure = mark is not None and mark.outcome is not Outcome.VALID
    ended = [Reason("end-mark", f"line {mark.line_number}: {one_line(mark.text)}")] if mark and is_failure else []
    return RunResult(
        source=source,
        dialect=log.dialect,
        outcome=Outcome.REFUSED,
        reasons=(reason, *ended, *_remarks_of(log), *(each for each in log_reasons(log) if each.code != reason.code)),
        num_records=sum(len(attempt.records) for attempt in log.attempts),
        attempts=log.numbered(log.attempts),
        provenance=provenance_of(log, None, None, None, overrides),
    )


def _remarks_of(log: Log) -> list[Reason]:
    return [Reason("dialect", text) for text in log.remarks]


def _why_nothing(log: Log) -> Reason:
    if log.damage:
        return Reason("damaged", f"no training line; {one_line(log.damage)}")
    if not log.num_bytes:
        return Reason("empty-file", "the file is empty")
    torn = f" ({log.num_torn} cut or spliced)" if log.num_torn else ""
    return Reason(
        "no-training-line",
        f"no whole training line of a known dialect{torn}, and none that states tokens per second; "
        "--dialects lists the dialects, --pattern describes other lines",
    )


def _configuration(attempt: Attempt) -> tuple[object, ...]:
    last = attempt.records[-1]
    return (
        last.total_iterations,
        last.global_batch_size,
        last.sequence_length or attempt.fact("sequence_length"),
        attempt.fact("num_devices"),
    )


def log_reasons(log: Log) -> list[Reason]:
    """Return what was left out of a log."""
    said = {
        "cut-lines": log.num_torn
        and f"{log.num_torn} cut or spliced record(s): of these at most finished fields are used",
        "impossible-values": log.num_impossible
        and f"{log.num_impossible} time(s) or rate(s) of 0, below 0 or not finite are left out",
        "damaged": log.damage and one_line(log.damage),
    }
    return [Reason(code, text) for code, text in said.items() if text]


def _entry(source: str, log: Log, attempts: Sequence[Attempt], overrides: Overrides, sealed: SealedLog) -> RunResult:
    attempt = max(attempts, key=lambda a: len(a.records))
    records, last = attempt.records, attempt.records[-1]
    sizes = sizes_of(attempt, overrides)
    supplied = supplied_sizes(attempt, sizes, overrides)
    reasons = [*_remarks_of(log), *against_log(supplied, attempt, sizes, overrides), *log_reasons(log)]
    if len(attempts) > 1:
        where = f"iterations {records[0].iteration} to {last.iteration}, from line {records[0].line_number}"
        text = f"{len(attempts)} attempts of this training in the log; the longest is measured ({where})"
        reasons.append(Reason("several-attempts", text))
    broken = None if has_placeholder_loss(records) else why_broken(records)
    ending = end_of(log, attempts, attempt)
    ended = None if ending.outcome.has_number else ending.reason
    refusal = _mixed(log) or (None if sizes.is_measurable else Reason("no-size", why_not(attempt, sizes)))
    is_refused = broken or ended or refusal
    throughput = None if is_refused else measure_records(records, sizes, habits_of(log, attempt))
    if throughput:
        refusal = _only_warm_up(throughput, log.counts_from) or why_implausible(attempt, sizes, throughput.steady)
        reasons += _about(attempt, throughput, log.counts_from)
    workload = workload_of(None, log.settings, attempt)
    said = (
        Statements(
            log=log,
            attempt=attempt,
            others=[other for other in attempts if other is not attempt],
            measured=throughput,
            overrides=overrides,
            workload=workload,
            seals=tuple(against_seals(sealed, attempt, is_alone=True)),
        )
        if throughput and not refusal
        else None
    )
    found = reconcile(said) if said else ()
    void = voiding(found)
    if doubts(found):
        ending = ending.doubted()
    first = broken or ended or refusal or (void.reason if void else None)
    reasons += [each.reason for each in found if each is not void]
    reasons += [ending.reason] if ending.reason and not first else []
    return RunResult(
        source=source,
        dialect=log.dialect,
        outcome=_outcome(ending, is_invalid=bool(broken or void), is_refused=bool(refusal) or not throughput),
        reasons=tuple([first, *reasons] if first else reasons),
        contradictions=found,
        otherwise=otherwise(said) if said else (),
        remarks=(*([ending.remark] if ending.remark else []), *_remarks(attempt)),
        ending=ending,
        num_records=len(records),
        total_iterations=last.total_iterations,
        global_batch_size=sizes.global_batch_size,
        sequence_length=sizes.sequence_length,
        num_gpus=sizes.num_devices,
        records=records,
        attempts=log.numbered(attempts),
        throughput=None if first else throughput,
        workload=workload,
        sizes_supplied=supplied,
        provenance=provenance_of(log, attempt, sizes, None if first else throughput, overrides),
    )


def _outcome(ending: LogEnd, *, is_invalid: bool, is_refused: bool) -> Outcome:
    if is_invalid:
        return Outcome.INVALID
    return Outcome.REFUSED if is_refused and ending.outcome.has_number else ending.outcome


def _mixed(log: Log) -> Reason | None:
    """Say that several programs or processes wrote into the log at once, where iterations jump back all the time."""
    lengths = [len(attempt.records) for attempt in log.attempts]
    if len(lengths) < MANY_ATTEMPTS or np.median(lengths) > SHORT_ATTEMPT:
        return None
    words = f"the iterations jump back {len(lengths) - 1} times in {sum(lengths)} records"
    text = f"{words}: several programs or processes write into this log at once; separate them, then give one at a time"
    return Reason("several-writers", text)


def _option(name: str) -> str:
    return f"{_WORDS[name]} (give {OPTIONS[name]} N)"


def why_not(attempt: Attempt, sizes: Sizes) -> str:
    """Say which fact is missing, and the option that supplies it."""
    records = attempt.records
    has: Callable[[str], bool] = lambda name: bool(np.isfinite(records.column(name)).any())  # noqa: E731
    if has("tokens_per_second_per_device") or has("tokens_per_device"):
        rate = sizes.tokens_per_second_per_device
        stated = f"the log states {rate:.2f} tokens per second of one device; " if rate else ""
        other = "" if not has("elapsed_s") else f"; or {_option('global_batch_size')} and {_option('sequence_length')}"
        return f"{stated}not in the log: {_option('num_devices')}{other}"
    missing = []
    if has("samples_per_second_per_device") and not sizes.num_devices:
        missing.append("num_devices")
    has_samples = has("samples_per_second") or has("samples_per_second_per_device")
    if not has_samples and not has("elapsed_s") and not has("clock_s"):
        return "the log has no elapsed times: no tokens per second can be computed, and no option can supply them"
    if not sizes.sequence_length:
        missing.append("sequence_length")
    if not has_samples and not sizes.global_batch_size:
        missing.append("global_batch_size")
    if not missing:
        return "no record has both a time and a size in tokens"
    return f"not in the log: {' and '.join(_option(name) for name in missing)}"


def _only_warm_up(measured: Throughput, counts_from: int) -> Reason | None:
    """Say that the first iteration alone was timed, where that is so: a number of it would be one of the start-up."""
    window = measured.window
    if len(measured.spans) > 1 or window.last_iteration > counts_from:
        return None
    text = f"the only time is that of the first iteration ({counts_from}), which is warm-up; a longer log is needed"
    return Reason("only-warm-up", text)


def _about(attempt: Attempt, measured: Throughput, counts_from: int) -> list[Reason]:
    """Return what qualifies a number: no interval, warm-up inside."""
    said = [Reason("no-interval", measured.why_no_interval)] if measured.why_no_interval else []
    said += measured.steadiness.warnings()
    if len(measured.spans) == 1 and measured.window.first_iteration <= counts_from < measured.window.last_iteration:
        said.append(Reason("warm-up-inside", "the only interval holds the first iteration, so that warm-up is inside"))
    elif len(attempt.records) == 1 and attempt.records[0].iteration > counts_from and not attempt.count("log_interval"):
        text = f"the only record may stand for all iterations up to {attempt.records[0].iteration}, warm-up included"
        said.append(Reason("warm-up-inside", text))
    return said


def _remarks(attempt: Attempt) -> list[str]:
    remarks = []
    if has_placeholder_loss(attempt.records):
        remarks.append(
            f"line {attempt.records[0].line_number} prints nan before there is a loss; all later ones are finite"
        )
    skipped = np.nansum(attempt.records.column("num_skipped"))
    if skipped > 0:
        remarks.append(f"{int(skipped)} iteration(s) skipped the update of the weights")
    return remarks
