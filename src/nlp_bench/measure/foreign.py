"""A log without a run folder of ours to results: what the log does not say comes from the command line, and is never guessed.

Of a log alone its lines have to show how its run ended (`log_end.end_of_log`), and that its rate can be true (`why_implausible`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from nlp_bench.config.accelerators import bound_of
from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.logs.end_marks import decisive
from nlp_bench.logs.nearest import nearest
from nlp_bench.logs.quantity import COUNTS_ELSE, OPTIONS, UNNUMBERED
from nlp_bench.logs.reader import Progress, read_log
from nlp_bench.logs.record import Attempt, Log, Records
from nlp_bench.logs.source import open_log
from nlp_bench.measure.contradiction import Claims, Subject, doubts, voiding
from nlp_bench.measure.efficiency import LEAST_FLOPS
from nlp_bench.measure.log_end import LogEnd, Shown, end_of_log, several_starts
from nlp_bench.measure.provenance import provenance_of
from nlp_bench.measure.reconcile import against_seals, reconcile
from nlp_bench.measure.result import SEVERAL_STARTS, RunResult, has_placeholder_loss, supplied_sizes, why_broken
from nlp_bench.measure.series import finite, median
from nlp_bench.measure.sizes import Overrides, Sizes, sizes_of
from nlp_bench.measure.throughput import Throughput, measure_records
from nlp_bench.measure.window import conventions_of
from nlp_bench.measure.workload import OF_SPEED, Value, heading, workload_of
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.seal import NO_LOG, SealedLog, read_sealed_log

_WORDS = {
    "sequence_length": "sequence length",
    "global_batch_size": "global batch size",
    "num_devices": "number of GPUs",
    "tokens": "tokens per iteration",
}
NO_LINE = "no-training-line"  # code of the reason of a log of which nothing is read
NOTHING = frozenset(
    {"empty-file", "unknown-columns", NO_LINE}
)  # codes of the reason of a file that has nothing of training
MANY_ATTEMPTS, SHORT_ATTEMPT = 5, 3  # so many starts of so few records each are no restarts
ANY_PEAK_TFLOPS = 50_000.0  # above this no device that is sold computes in any format (2026)
LARGE_PARAMETERS = 1e9
LARGE_MODEL_S = 0.005  # launching the kernels of LARGE_PARAMETERS, forward and backward, takes longer than this


def measure_log(
    path: str,
    overrides: Overrides,
    progress: Progress | None = None,
    judge: Callable[[RunResult], RunResult] = lambda result: result,
) -> list[RunResult]:
    """Return one result per configuration in the log at `path` (`-` is standard input).

    Raises UsageError when it cannot be opened; a log that gives no number is a result with outcome REFUSED. `judge` holds each to rules
    before its energy is computed.
    """
    log = read_log(path, pattern=overrides.pattern, progress=progress)
    source = "standard input" if path == "-" else one_line(path)
    if log.refusal or not log.attempts:
        return [judge(_with_nearest(_refused(source, log, overrides), path, overrides))]
    sealed = _sealed_log(path, log)
    log = with_own_events(log, sealed)
    results = [_result(source, log, attempts, overrides, sealed) for attempts in _configurations(log)]
    return [_with_energy_and_machine(judge(result), log) for result in _told_apart(results)]


def _configurations(log: Log) -> list[list[Attempt]]:
    """Return the attempts by what they trained and how: a job may try one configuration after the other."""
    groups: dict[tuple[object, ...], list[tuple[dict[str, Value], list[Attempt]]]] = {}
    has_changed = any(len(facts) > 1 for facts in log.changes.values())
    for attempt in log.attempts:
        last, length = attempt.records[-1], attempt.fact("sequence_length")
        sizes = (
            last.total_iterations,
            last.global_batch_size,
            last.sequence_length or length,
            attempt.fact("num_devices"),
            attempt.fact("tokens"),
        )
        settings = workload_of(None, log.settings_of(attempt)).values(OF_SPEED) if has_changed else {}
        alike = groups.setdefault(sizes, [])
        for known, attempts in alike:
            if all(known.get(name, value) == value for name, value in settings.items()):
                known.update(settings)
                attempts.append(attempt)
                break
        else:
            alike.append((settings, [attempt]))
    return [attempts for alike in groups.values() for _, attempts in alike]


def _told_apart(results: list[RunResult]) -> list[RunResult]:
    """Return the results of one log; of several each with a remark on where it stands and which settings set it apart."""
    known = [result.workload.values(OF_SPEED) for result in results]
    names = [name for name in OF_SPEED if len({values.get(name) for values in known}) > 1]
    told = []
    for result, values in zip(results, known, strict=True):
        words = (f"{heading(name)} {_plain(values.get(name, 'not stated'))}" for name in names)
        where = f"this one is from line {result.records[0].line_number} on"
        text = "; ".join(filter(None, (f"the log has {len(results)} configurations", where, ", ".join(words))))
        told.append(replace(result, remarks=(text, *result.remarks)))
    return told if len(told) > 1 else results


def _plain(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else one_line(value)


def _with_energy_and_machine(result: RunResult, log: Log) -> RunResult:
    """Return `result` with its energy and machine, of which most logs say nothing."""
    if not (result.records.has("joules_per_device").any() or any(name.startswith("nccl_") for name in log.settings)):
        return result
    from nlp_bench.measure.energy import with_energy_and_machine  # noqa: PLC0415  # it takes as long as reading a short log

    return with_energy_and_machine(result, log)


def _sealed_log(path: str, log: Log) -> SealedLog:
    """Read the log a second time for the hashes of our trainer; one without its opening line, and standard input, are not read again."""
    if "run_sha256" not in log.settings or path == "-":
        return NO_LOG
    with open_log(path) as source:
        return read_sealed_log(
            line for block in source.blocks() for line in BytesIO(block.data[block.begin : block.end])
        )


def with_own_events(log: Log, sealed: SealedLog) -> Log:
    """Return `log` with those evaluations, checkpoints and profiled iterations alone that a sealed line speaks of.

    What others write in between is covered by no hash of the trainer, so that it must not take an iteration out of the number.
    """
    if not sealed.parts:
        return log
    return replace(log, events=tuple(event for event in log.events if event.line_number in sealed.marking_lines))


def _refused(source: str, log: Log, overrides: Overrides) -> RunResult:
    reason = _why_nothing(log, overrides)
    if log.refusal:
        options = " and ".join(map(_option, log.refusal.missing))
        reason = Reason("refused-by-dialect", log.refusal.reason + f"; not in the log: {options}" * bool(options))
    mark, ended = decisive(log.ends), list[Reason]()
    if mark and mark.outcome is not Outcome.VALID:
        ended = [Reason("end-mark", f"line {mark.line_number}: {one_line(mark.text)}")]
    left_out = (each for each in log_reasons(log) if each.code != reason.code)
    return RunResult(
        source=source,
        dialect=log.dialect,
        outcome=Outcome.REFUSED,
        reasons=(reason, *ended, *_of_dialect(log), *left_out),
        num_records=sum(len(attempt.records) for attempt in log.attempts),
        attempts=log.numbered(log.attempts),
        provenance=provenance_of(log, None, None, None, overrides),
    )


def _with_nearest(result: RunResult, path: str, overrides: Overrides) -> RunResult:
    """Return a refusal of a log without a training line with the line that comes nearest, and the `--pattern` that was seen to read it."""
    first = result.reasons[0]
    if (
        first.code not in {NO_LINE, "unknown-columns"} or overrides.pattern or not Path(path).is_file()
    ):  # a pipe is read once
        return result
    with open_log(path) as source:
        near = nearest(line for block in source.blocks() for line in block.lines())
    if near is None:
        return result
    said = first.text
    if near.pattern is not None:
        tried = measure_log(path, replace(overrides, pattern=(near.pattern,)))
        option = f"--pattern={quote(near.pattern)}"
        if rates := [each.steady for each in tried if each.steady]:
            of_all = ", if its rate is that of all devices" if "(?P<tokens_per_second>" in near.pattern else ""
            said = f"{option} reads it and gives {rates[0]:.6g} tokens/s{of_all}"
        elif tried[0].reasons[0].code == "no-size" and "(give" in tried[0].reasons[0].text:
            said = f"{option} reads its times; {tried[0].reasons[0].text}"
    return replace(result, reasons=(Reason(NO_LINE, f"{near.words}; {said}"), *result.reasons[1:]))


def _of_dialect(log: Log, *, is_doubted: bool = False) -> list[Reason]:
    """Return what the dialect says of its numbers, with its doubts unless they are among the contradictions."""
    return [Reason("dialect", text) for text in (*log.remarks, *(() if is_doubted else log.doubts))]


def _why_nothing(log: Log, overrides: Overrides) -> Reason:
    if log.damage:
        return Reason("damaged", f"no training line; {one_line(log.damage)}")
    if not log.num_bytes:
        return Reason("empty-file", "the file is empty")
    if overrides.pattern and not log.num_unreadable:
        return Reason(NO_LINE, "no line matches --pattern; it is searched for in lines without their colours")
    if log.table:
        return Reason("unknown-columns", one_line(log.table))
    torn = f" ({log.num_unreadable} begin like one, but are cut, spliced, or lack a word, such as a unit)"
    return Reason(
        NO_LINE,
        f"no whole training line of a known dialect{torn if log.num_unreadable else ''}; --dialects lists the dialects, "
        "--pattern describes other lines; a progress bar is on standard error, perhaps in a file of its own",
    )


def log_reasons(log: Log) -> list[Reason]:
    """Return what was left out of a log."""
    text = f"{log.num_unreadable} training line(s) cannot be read whole: of these at most finished fields are used"
    said = {"unreadable-lines": text if log.num_unreadable else "", "damaged": one_line(log.damage or "")}
    return [Reason(code, text) for code, text in said.items() if text]


def _result(source: str, log: Log, attempts: Sequence[Attempt], overrides: Overrides, sealed: SealedLog) -> RunResult:
    attempt = max(attempts, key=lambda a: len(a.records))
    records, sizes, ending = attempt.records, sizes_of(attempt, overrides), end_of_log(log, attempts, attempt)
    supplied, against = supplied_sizes(attempt, sizes, overrides)
    outcome, measured = ending.outcome, None
    if why := _why_broken(records, attempts[-1].records if ending.finished_at is not None else records):
        outcome = Outcome.INVALID
    elif not outcome.has_number:
        why = ending.reason
    else:
        why = _mixed(log) or (None if sizes.is_measurable else Reason("no-size", why_no_size(attempt, sizes)))
        measured = None if why else measure_records(records, sizes, conventions_of(log, attempt))
        why = why or _why_none(log, attempt, sizes, measured)
        outcome = Outcome.REFUSED if why else outcome
    qualified = [*qualifications(measured), *_of_warm_up(attempt, measured, log.counts_from)] if measured else []
    seen = None if why else measured

    def notes(first: Reason | None) -> Iterator[Reason]:
        yield from (*_of_dialect(log, is_doubted=bool(seen)), *against, *log_reasons(log))
        if len(attempts) > 1 and (first is None or first.code != "several-writers"):
            where = f"iterations {records[0].iteration} to {records[-1].iteration}, from line {records[0].line_number}"
            chosen = f"the longest is {'judged' if first else 'measured'} ({where})"
            yield Reason(SEVERAL_STARTS, several_starts(len(attempts), ending.finished_at, chosen))
        yield from qualified

    run = Subject(
        log=log,
        attempt=attempt,
        others=[other for other in attempts if other is not attempt],
        overrides=overrides,
        workload=workload_of(None, log.settings_of(attempt), attempt),
        silent_s=ending.silent_s,
        seals=tuple(against_seals(sealed, attempt, is_alone=True)),
    )
    remarks = (*filter(None, [ending.remark]), *_remarks(attempt, sizes))
    numbered = log.numbered(attempts)
    return entry_of(
        source, run, seen, outcome, why, notes, ending, remarks=remarks, attempts=numbered, sizes_supplied=supplied
    )


def _why_none(log: Log, attempt: Attempt, sizes: Sizes, measured: Throughput | None) -> Reason | None:
    """Return why what was measured is no number of a training, None where it is one."""
    if measured is None:
        return Reason("no-size", "no record has a time and a number of tokens that a training can have")
    if measured.num_records == 1 and measured.window.last_iteration <= log.counts_from:
        at_first = f"that of the first iteration ({log.counts_from}), which is warm-up"
        mean = "the mean since the start, warm-up included, of one dict that nothing confirms"
        text = f"the only time is {mean if UNNUMBERED in attempt.facts else at_first}; a longer log is needed"
        return Reason("only-warm-up", text)
    return why_implausible(attempt, sizes, measured.steady)


def entry_of(  # noqa: PLR0913, PLR0917  # each is a part of the result
    source: str,
    run: Subject,
    seen: Throughput | None,
    outcome: Outcome,
    why: Reason | None,
    notes: Callable[[Reason | None], Iterable[Reason]],
    ending: LogEnd | None = None,
    **known: Any,
) -> RunResult:
    """Return the result of a run by its log; what contradicts the number that was `seen` voids it, or is one of its reasons.

    `notes` returns further reasons, by why there is no number; `known` goes before what the log says.
    """
    found, slower = reconcile(Claims(**vars(run), measured=seen)) if seen else ((), ())
    void = voiding(found)
    if void and not why:
        outcome, why = Outcome.INVALID, void.reason
    if ending and ending.outcome is Outcome.VALID and doubts(found):
        ending = replace(ending, outcome=Outcome.MEASURED, shown=Shown.CONTRADICTED)
        outcome = ending.outcome if outcome is Outcome.VALID else outcome
    number = None if why or not outcome.has_number else seen
    reasons = [why, *notes(why), *(each.reason for each in found if each is not void)]
    reasons += [ending.reason] if ending and not why else []
    records, sizes = run.records, seen.sizes if seen else sizes_of(run.attempt, run.overrides)
    of_log: dict[str, Any] = {
        "num_records": len(records),
        "total_iterations": records[-1].total_iterations if records else None,
        "accelerator": str(run.workload.value("accelerator") or "") or None,
        "provenance": provenance_of(run.log, run.attempt, sizes, number, run.overrides),
    }
    return RunResult(
        source=source,
        dialect=run.log.dialect,
        outcome=outcome,
        reasons=tuple(filter(None, reasons)),
        contradictions=found,
        slower_statements=slower,
        global_batch_size=sizes.global_batch_size,
        sequence_length=sizes.sequence_length,
        num_gpus=sizes.num_devices,
        records=records,
        throughput=number,
        workload=run.workload,
        ending=ending,
        **(of_log | known),
    )


def _why_broken(measured: Records, end: Records) -> Reason | None:
    """Return why nothing was trained: a training that ends with a loss of NaN did not, whichever of its attempts is the longest."""
    found = (why_broken(records) for records in (measured, end) if not has_placeholder_loss(records))
    return next(filter(None, found), None)


def _mixed(log: Log) -> Reason | None:
    """Say that several programs or processes wrote into the log at once, or that it is turned round, where iterations jump back all the time."""
    lines = [attempt.records.numbers for attempt in log.attempts]
    ends = [0, *(int(numbers.max()) for numbers in lines)]
    # A program that crashes again and again starts anew each time.
    lengths = [
        len(numbers)
        for end, numbers in zip(ends, lines, strict=False)
        if bisect_right(log.starts, end) == bisect_right(log.starts, int(numbers.min()))
    ]
    if len(lengths) < MANY_ATTEMPTS or 2 * sum(n for n in lengths if n <= SHORT_ATTEMPT) <= log.num_records:
        return None
    return Reason(
        "several-writers",
        f"the iterations jump back {len(lines) - 1} times in {log.num_records} records: several programs or processes write into this "
        "log at once, or its newest line stands first; separate them, then give one at a time, or turn the log round, as in "
        "`tac LOG | nlp-bench report -`",
    )


def _option(name: str) -> str:
    return f"{_WORDS[name]} (give {OPTIONS[name]} N)"


def _what_is_missing(attempt: Attempt, sizes: Sizes) -> str:
    """Say which fact is missing, and the option that supplies it."""

    def has(*names: str) -> bool:
        return any(attempt.records.has(name).any() for name in names)

    if sizes.rate_counts and not has("elapsed_s", "clock_s", "samples_per_second"):
        line = attempt.facts[COUNTS_ELSE].line_number
        return f"the tokens per second of the log (line {line}) count {sizes.rate_counts}: no option makes them those of the training"
    if has("tokens_per_second_per_device", "tokens_per_device"):
        rates = attempt.records.column("tokens_per_second_per_device")
        rate = float(np.nanmean(rates)) if np.isfinite(rates).any() else None
        stated = f"the log states {rate:.2f} tokens per second of one device; " if rate else ""
        other = f"; or {_option('global_batch_size')} and {_option('sequence_length')}" if has("elapsed_s") else ""
        return f"{stated}not in the log: {_option('num_devices')}{other}"
    has_samples = has("samples_per_second", "samples_per_second_per_device")
    if not has_samples and not has("elapsed_s", "clock_s"):
        return "the log has no elapsed times: no tokens per second can be computed, and no option can supply them"
    lacks = {
        "num_devices": has("samples_per_second_per_device") and not sizes.num_devices,
        "sequence_length": not sizes.sequence_length,
        "global_batch_size": not has_samples and not sizes.global_batch_size,
    }
    missing = [_option(name) for name, is_missing in lacks.items() if is_missing]
    return f"not in the log: {' and '.join(missing)}" if missing else "no record has both a time and a size in tokens"


def why_no_size(attempt: Attempt, sizes: Sizes) -> str:
    """Say which fact is missing, or stated twice in different ways, and the option that supplies it."""
    twice = [
        f"{_WORDS[name]} is {float(fact.value):g} in line {fact.line_number} and {float(fact.other.value):g} in line {fact.other.line_number}"
        for name in _WORDS
        if (fact := attempt.facts.get(name)) and fact.other
    ]
    why = _what_is_missing(attempt, sizes)
    return f"{why}; it contradicts itself, so that neither counts: {', '.join(twice)}" if twice else why


def why_implausible(attempt: Attempt, sizes: Sizes, tokens_per_second: float) -> Reason | None:
    """Return why `tokens_per_second` (whole machine) cannot be true by what the log says of model and devices, else None.

    A training step needs at least 6 floating-point operations per parameter and token (Kaplan et al. 2020,
    https://arxiv.org/abs/2001.08361, section 2.1: forward 2, backward 4); attention and recompute come on top.
    """
    # A log that states no count may show the shape: what GPT layers of it have at least.
    parameters, devices = attempt.fact("parameters") or attempt.fact("least_parameters"), sizes.num_devices
    both = (median(finite(attempt.records.column(name))) for name in ("model_tflops", "tflops"))
    stated, text = next((tflops for tflops in both if tflops > 0), 0.0), None
    if stated > ANY_PEAK_TFLOPS:
        text = f"the log states {stated:.0f} TFLOP/s per device, more than any device has"
    elif parameters:
        # The family of the device and what none of it exceeds in any format, the fastest variant of a word that means several.
        device, bound = attempt.facts.get("device"), None
        with suppress(NlpBenchError):  # without the data files of the checkout the bound of all devices holds
            bound = bound_of(str(device.value)) if device else None
        name, peak = bound or ("any device", ANY_PEAK_TFLOPS)
        needed = LEAST_FLOPS * parameters * tokens_per_second / devices / 1e12 if devices else 0.0
        elapsed = median(finite(sizes.elapsed_s))
        if sizes.has_times and parameters >= LARGE_PARAMETERS and elapsed < LARGE_MODEL_S:
            words = f"an iteration of {elapsed * 1000:.3g} ms for {parameters / 1e9:.3g} billion parameters"
            text = f"{words} is the dispatch, not the work"
        elif needed > peak:
            formula = (
                f"{LEAST_FLOPS} x {parameters:.4g} parameters x {tokens_per_second:.2f} tokens/s / {devices} devices"
            )
            text = f"{formula} = {needed:.0f} TFLOP/s per device, more than the {peak:.0f} of {name}"
    return Reason("implausible", f"implausible: {text}") if text else None


def qualifications(measured: Throughput) -> list[Reason]:
    """Return what qualifies a number: no interval, a speed that is not steady."""
    said = [Reason("no-interval", measured.why_no_interval)] if measured.why_no_interval else []
    return [*said, *measured.steadiness.warnings()]


def _of_warm_up(attempt: Attempt, measured: Throughput, counts_from: int) -> Iterator[Reason]:
    if measured.num_records == 1 and measured.window.first_iteration <= counts_from < measured.window.last_iteration:
        yield Reason("warm-up-inside", "the only interval holds the first iteration, so that warm-up is inside")
    elif len(attempt.records) == 1 and attempt.records[0].iteration > counts_from and not attempt.count("log_interval"):
        text = f"the only record may stand for all iterations up to {attempt.records[0].iteration}, warm-up included"
        yield Reason("warm-up-inside", text)


def _remarks(attempt: Attempt, sizes: Sizes) -> list[str]:
    remarks = []
    if sizes.rate_counts and sizes.is_measurable:
        remarks.append(f"the tokens per second of the lines count {sizes.rate_counts}, and are not used")
    known = {"sequence_length": sizes.sequence_length, "global_batch_size": sizes.global_batch_size}
    options = " and ".join(f"{OPTIONS[name]} N" for name, value in known.items() if not value)
    if options and sizes.is_measurable and not sizes.has_times and attempt.records.has("stamp_s").any():
        remarks.append(
            "the log states rates and no size of an iteration, so that time which every iteration leaves out does not show: "
            f"give {options}, and the times of day of its lines are held against its rates"
        )
    if has_placeholder_loss(attempt.records):
        line = attempt.records[0].line_number
        remarks.append(f"line {line} prints nan before there is a loss; all later ones are finite")
    skipped = np.nansum(attempt.records.column("num_skipped"))
    if skipped > 0:
        remarks.append(f"{int(skipped)} iteration(s) skipped the update of the weights")
    return remarks
