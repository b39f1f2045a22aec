"""Anybody's log to entries: what the log does not say comes from the command line, and is never guessed."""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Attempt, Log, LogRecord
from nlp_bench.measure.entry import RunEntry, one_line, why_broken
from nlp_bench.measure.throughput import measure_records
from nlp_bench.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What a person adds to a log, or says against it."""

    sequence_length: int | None = None
    """Tokens per sample, `--sequence-length`."""
    global_batch_size: int | None = None
    """Samples per iteration, `--global-batch-size`."""
    num_gpus: int | None = None
    """GPUs of the whole run, `--num-gpus`."""


def measure_log(path: str, overrides: Overrides) -> list[RunEntry]:
    """Return one entry per configuration in the log at `path` (`-` is standard input).

    Raises UsageError when it cannot be opened; a log that gives no number is an entry with outcome REFUSED.
    """
    log = read_log(path)
    source = "standard input" if path == "-" else one_line(path)
    if not log.attempts:
        return [RunEntry(source=source, outcome=Outcome.REFUSED, reasons=(_why_nothing(log),), num_records=0)]
    groups: dict[tuple[object, ...], list[Attempt]] = {}
    for attempt in log.attempts:
        groups.setdefault(_configuration(attempt), []).append(attempt)
    return [_entry(source, log, attempts, overrides) for attempts in groups.values()]


def _why_nothing(log: Log) -> str:
    if log.damage:
        return f"no training line before {one_line(log.damage)}"
    if not log.num_bytes:
        return "the file is empty"
    torn = f" ({log.num_torn} cut or spliced)" if log.num_torn else ""
    return f"no whole training line of a known dialect{torn}; known: megatron-lm (`iteration N/ M | … elapsed time per iteration`)"


def _configuration(attempt: Attempt) -> tuple[object, ...]:
    last = attempt.records[-1]
    arguments = attempt.arguments
    return last.total_iterations, last.global_batch_size, arguments.get("seq_length"), arguments.get("world_size")


def log_reasons(log: Log) -> list[str]:
    """Return what was left out of a log, one sentence each."""
    reasons = []
    if log.num_torn:
        reasons.append(f"{log.num_torn} cut or spliced record(s): of these at most finished fields are used")
    if log.num_impossible:
        reasons.append(f"{log.num_impossible} elapsed time(s) of 0, below 0 or not finite are left out")
    if log.damage:
        reasons.append(one_line(log.damage))
    return reasons


def _entry(source: str, log: Log, attempts: Sequence[Attempt], overrides: Overrides) -> RunEntry:
    attempt = max(attempts, key=lambda a: len(a.records))
    records, last = attempt.records, attempt.records[-1]
    sequence = overrides.sequence_length or attempt.arguments.get("seq_length")
    # The dump may hold the batch of a ramp-up's end; a line's own value is what ran.
    batch = overrides.global_batch_size or last.global_batch_size or attempt.arguments.get("global_batch_size")
    if overrides.global_batch_size:
        records = tuple(_with_batch(record, overrides.global_batch_size) for record in records)
    reasons = [*_overridden(attempt, overrides), *log_reasons(log)]
    if len(attempts) > 1:
        where = f"iterations {records[0].iteration} to {last.iteration}, from line {records[0].line_number}"
        reasons.append(f"{len(attempts)} attempts of this training in the log; the longest is measured ({where})")
    refusal = _refusal(records, sequence, batch)
    broken = why_broken(records)
    outcome = Outcome.INVALID if broken else Outcome.REFUSED if refusal else Outcome.VALID
    throughput = None
    if outcome is Outcome.VALID and sequence:
        throughput = measure_records(
            records,
            sequence_length=sequence,
            global_batch_size=batch,
            log_interval=attempt.arguments.get("log_interval"),
        )
    if throughput and throughput.why_no_interval:
        reasons.append(throughput.why_no_interval)
    return RunEntry(
        source=source,
        dialect=log.dialect,
        outcome=outcome,
        reasons=tuple([broken or refusal or "", *reasons] if broken or refusal else reasons),
        remarks=tuple(_remarks(attempt)),
        num_records=len(records),
        total_iterations=last.total_iterations,
        global_batch_size=batch,
        sequence_length=sequence,
        num_gpus=overrides.num_gpus or attempt.arguments.get("world_size"),
        records=records,
        throughput=throughput,
    )


def _with_batch(record: LogRecord, batch: int) -> LogRecord:
    from dataclasses import replace  # noqa: PLC0415  # rarely needed

    return replace(record, global_batch_size=batch)


def _refusal(records: Sequence[LogRecord], sequence: int | None, batch: int | None) -> str | None:
    missing = []
    if not any(record.elapsed_s for record in records):
        return "the log has no elapsed times: no tokens per second can be computed, and no option can supply them"
    if not sequence:
        missing.append("sequence length (give --sequence-length N)")
    if not batch:
        missing.append("global batch size (give --global-batch-size N)")
    return f"not in the log: {' and '.join(missing)}" if missing else None


def _overridden(attempt: Attempt, overrides: Overrides) -> list[str]:
    """Return what the options say against the log: it changes the number, so every format carries it."""
    last = attempt.records[-1]
    said = {
        "--sequence-length": (overrides.sequence_length, attempt.arguments.get("seq_length")),
        "--global-batch-size": (overrides.global_batch_size, last.global_batch_size),
        "--num-gpus": (overrides.num_gpus, attempt.arguments.get("world_size")),
    }
    return [
        f"{option} {given} is used although the log says {logged}"
        for option, (given, logged) in said.items()
        if given and logged and given != logged
    ]


def _remarks(attempt: Attempt) -> list[str]:
    remarks = []
    last = attempt.records[-1]
    if last.total_iterations and last.iteration < last.total_iterations:
        remarks.append(f"the log stops at iteration {last.iteration} of {last.total_iterations}")
    if any(record.num_skipped for record in attempt.records):
        skipped = sum(record.num_skipped or 0 for record in attempt.records)
        remarks.append(f"{skipped} iteration(s) skipped the update of the weights")
    return remarks
