"""One run folder of ours: run.json says what was asked for, outcome.json how it ended, job.out what happened.

The log can only take validity away from what the outcome file allows.

What is written of it is result.json, the versioned record with the raw samples that every number can be recomputed from, and metrics.txt with
a line `key: value` per column of the JUBE table, which JUBE reads by the pattern `^key: (.*)$`.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from nlp_bench import marker, schemas, seal
from nlp_bench.config.run import Run, value_of
from nlp_bench.config.scheduler import LOCAL
from nlp_bench.config.table import check_types
from nlp_bench.config.values import clock
from nlp_bench.errors import NlpBenchError, explained
from nlp_bench.escape import one_line
from nlp_bench.files import read_json, read_object, refuse_types
from nlp_bench.immutable import immutable
from nlp_bench.last_start import enough_at, says_finished
from nlp_bench.logs.reader import OURS, read_log
from nlp_bench.logs.record import Attempt, Log, Records
from nlp_bench.measure import REPORT_TOKENS, Fields, Json
from nlp_bench.measure.anytime import Bound, percent, replay
from nlp_bench.measure.contradiction import Subject, voiding
from nlp_bench.measure.energy import with_energy_and_machine
from nlp_bench.measure.foreign import entry_of, log_reasons, qualifications, with_own_events
from nlp_bench.measure.judgement import plain_number
from nlp_bench.measure.log_end import several_starts
from nlp_bench.measure.machine import read_nodes
from nlp_bench.measure.reconcile import against_seals, against_training
from nlp_bench.measure.result import SEVERAL_STARTS, RunResult, why_broken
from nlp_bench.measure.series import finite
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.throughput import Throughput, measure_records, time_to_report_s
from nlp_bench.measure.window import LogConventions
from nlp_bench.measure.workload import lookup, workload_of
from nlp_bench.outcome import Outcome, read_word
from nlp_bench.reason import Reason, recorded
from nlp_bench.seal import LOG, OUTCOME, RUN

NOTHING_LOGGED = Log(dialect=None, attempts=(), num_bytes=0)  # of a run without a job.out
LARGEST = 10**15  # no count of a run is larger; an integer of 400 digits overflows a float


@immutable
class FolderMeasurement:
    """What one run folder gave: run.json, outcome.json and environment.json ({}: none) unchanged, and the result."""

    run: Json
    ended: Json
    environment: Json
    entry: RunResult


Judge = Callable[[RunResult, Fields, Fields], RunResult]
"""Holds a result to rules, by run.json and outcome.json: `rules.apply`."""


@immutable
class Requested:
    """What run.json asks for, as far as the measurement needs it."""

    overrides: Overrides  # the sizes, as a person would give them on the command line: the log has less weight
    iterations: int
    log_interval: int
    goes_on: bool  # from a checkpoint
    until: float | None  # share to which the mean time was to be known for an early end; None: all iterations
    enough_at: int | None  # the iteration after which the log says that `until` was met

    def throughput(self, log: Log, attempt: Attempt) -> Throughput | None:
        """Measure the records of `attempt`, which is one of `log`, with these sizes; None when none has a time."""
        done = 0  # a program that goes on warms up too, in whichever iteration is its first
        if self.goes_on and attempt.records:
            done = (int(attempt.records[0].iteration) - 1) // self.log_interval * self.log_interval
        conventions = LogConventions(log_interval=self.log_interval, counts_from=done + 1, events=log.events)
        return measure_records(attempt.records, sizes_of(attempt, self.overrides), conventions)

    def bound(self, records: Records) -> Bound | None:
        """Return what `records` prove about the mean time by the rule of --until; None where it was not asked for or they are few."""
        if self.until is None or not len(records):
            return None
        lines = zip(records.column("iteration").astype(int).tolist(), records.column("elapsed_s").tolist(), strict=True)
        return replay(lines, self.until, self.log_interval)

    def owed_iterations(self, records: Records) -> int:
        """Return the iterations that must be in the log: all, or those up to where --until was met, by its words and its times."""
        bound = self.bound(records) if self.enough_at is not None else None
        return min(self.enough_at or self.iterations, self.iterations) if bound and bound.is_proven else self.iterations


def goes_on(run: Fields) -> bool:
    """Say whether run.json asks to go on from a checkpoint, so that the log begins after iteration 1."""
    given = lookup(run, "tuning.train_args")
    return isinstance(given, list) and value_of(map(str, given), "--load") is not None


def requested(folder: Path, run: Json) -> Requested:
    """Return what the run.json of `folder` asks for; raises NlpBenchError that names the file, the field and the value."""
    path = folder / RUN

    def positive(dotted: str) -> int:
        value = lookup(run, dotted)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST:
            raise NlpBenchError(
                f"{path}: {dotted} is {value!r}, expected a whole number from 1 to 10^15; make it with: nlp-bench check"
            )
        return value

    until = lookup(run, "tuning.until")
    share = percent(f"{path}: tuning.until", until) if isinstance(until, str) else None
    return Requested(
        overrides=Overrides(
            sequence_length=positive("batch.sequence_length"),
            global_batch_size=positive("batch.global_batch_size"),
            num_gpus=None if lookup(run, "parallel.num_gpus") is None else positive("parallel.num_gpus"),
            is_of_run=True,
        ),
        iterations=positive("training.iterations"),
        log_interval=positive("training.log_interval"),
        goes_on=goes_on(run),
        until=share,
        enough_at=enough_at(folder) if share is not None else None,
    )


def measure_folder(
    folder: Path,
    source: str,
    *,
    ended: Json | None = None,
    redacted: frozenset[str] = frozenset(),
    judge: Judge | None = None,
) -> FolderMeasurement:
    """Measure the run in `folder`; the result is called `source`. `ended` stands in for an outcome.json that is not there yet.

    `redacted` names files of a bundle in which secrets were blacked out: their hashes are no longer those of the chain of evidence.
    `judge` holds the result to rules before its energy is computed: a run without a number has none. Raises NlpBenchError when run.json or
    outcome.json is missing, a file is unreadable, or the log of a VALID run was packed; every end of the run is a result.
    """
    try:
        return _measured(folder, source, ended, redacted, judge)
    except OSError as error:  # a disk, or a file server that has lost the file
        raise NlpBenchError(f"cannot read {error.filename or folder}: {explained(error)}") from error


def _measured(
    folder: Path, source: str, ended: Json | None, redacted: frozenset[str], judge: Judge | None
) -> FolderMeasurement:
    run = _run(folder)
    asked = requested(folder, run)
    check_types(Run, run, f"{folder / 'run.json'}: run")
    ended = ended or _outcome(folder)
    refuse_types({"reasons": [], **ended}, folder / OUTCOME, reasons=list | None)
    given = read_word(ended.get("outcome"), folder / OUTCOME)
    if given is Outcome.VALID:  # no other end has a number to lose
        seal.refuse_packed(folder)
    is_there = (folder / LOG).is_file()
    sealed = seal.sealed_log_of(folder / LOG) if is_there else seal.NO_LOG
    log = with_own_events(read_log(str(folder / LOG), only=OURS), sealed) if is_there else NOTHING_LOGGED
    attempt = log.attempts[-1] if log.attempts else Attempt()
    attempt = replace(attempt, records=attempt.records.chosen(attempt.records.whole))
    records = attempt.records
    seals = seal.check(folder, is_valid=given is Outcome.VALID, redacted=redacted, log=sealed, run=run)
    outcome, why = _objection(folder, ended, given, seals, redacted) or (given, None)
    if outcome is Outcome.VALID:
        outcome, why = next(_against_log(folder, asked, log, records), (outcome, why))
    # What was changed carries no number, but is held against itself, which tells where.
    is_changed = any(link.state is seal.State.BROKEN for link in seals)
    seen = asked.throughput(log, attempt) if outcome is Outcome.VALID or is_changed else None
    about = Subject(
        log=log,
        attempt=attempt,
        others=log.attempts[:-1],
        overrides=asked.overrides,
        workload=workload_of(run, log.settings, attempt),
        seals=tuple(against_seals(sealed, attempt, is_alone=False)),
        is_ours=True,
    )
    known: Json = {"total_iterations": asked.iterations, "model": lookup(run, "model.name"), "seals": seals}
    known |= {} if is_there else {"num_records": None, "provenance": None}

    def notes(first: Reason | None) -> Iterator[Reason]:
        yield from (Reason(one.code, one_line(one.text)) for one in recorded(ended))
        for text in run.get("deviations") or []:
            yield Reason("deviation", f"not the benchmark as defined: {one_line(text)}")
        yield from _notes(asked, log, records, None if first or outcome is not Outcome.VALID else seen)

    entry = entry_of(source, about, seen, outcome, why, notes, attempts=log.numbered(log.attempts), **known)
    if entry.throughput:
        entry = replace(entry, until=asked.bound(records))
    entry = judge(entry, run, ended) if judge else entry
    environment = read_object(folder / "environment.json")
    entry = with_energy_and_machine(entry, log, run=run, environment=environment, nodes=read_nodes(folder))
    return FolderMeasurement(run=run, ended=ended, environment=environment, entry=entry)


def _run(folder: Path) -> Json:
    alone = f"nlp-bench report - < {shlex.quote(str(folder / 'job.out'))}"
    _refuse_missing(
        folder / RUN,
        "run.json is missing, or not seen from here yet, so nobody can say whether the run is whole; "
        f"look again in a minute, or put it back (the log alone, as anybody's: {alone})",
    )
    return read_json(folder / RUN, schemas.RUN)


def _refuse_missing(path: Path, why: str) -> None:
    if path.exists():
        return
    if found := seal.packed(path):
        every = f"{shlex.quote(str(path.parent))}/*{found.suffix}"
        raise NlpBenchError(
            f"{path} was packed; unpack the records of the run and repeat: {seal.UNPACK[found.suffix]} {every}"
        )
    raise NlpBenchError(f"{path.parent}: {why}")


def _outcome(folder: Path) -> Json:
    remedy = f"decide it with: nlp-bench sync {shlex.quote(str(folder))}"
    _refuse_missing(folder / OUTCOME, f"there is no outcome.json, the run may not have ended; {remedy}")
    return marker.read_outcome(folder)


def _objection(
    folder: Path, ended: Json, given: Outcome, seals: tuple[seal.Finding, ...], redacted: frozenset[str]
) -> tuple[Outcome, Reason] | None:
    """Return what the records say against the outcome that is given: a changed one, an exit status, a broken link."""
    changed = None if seal.OUTCOME in redacted else marker.contradiction(folder)
    if changed:
        return Outcome.INVALID, Reason("changed-outcome", changed)
    if given is not Outcome.VALID:
        return None
    status = ended.get("exit_status")
    if isinstance(status, int) and status and not says_finished(folder):
        text = f"outcome.json says VALID, and that the job ended with exit status {status}"
        return Outcome.FAILED, Reason("exit-status", text)
    broken = "; ".join(one_line(finding.text) for finding in seals if finding.state is seal.State.BROKEN)
    why = Reason("broken-seal", f"the chain of evidence is broken: {broken}")
    return (Outcome.INVALID, why) if broken else None


def _against_log(folder: Path, asked: Requested, log: Log, records: Records) -> Iterator[tuple[Outcome, Reason]]:
    """Yield what the log says against VALID; `records` are the whole ones of the last attempt."""
    if log is NOTHING_LOGGED:
        odd = "job.out is no regular file (a pipe, a folder, a link to nothing), and was not read; put the log itself there"
        yield Outcome.INCOMPLETE, Reason("no-log", odd if os.path.lexists(folder / LOG) else "there is no job.out")
    if broken := why_broken(records):
        yield Outcome.INVALID, broken
    if log.damage:
        yield Outcome.INCOMPLETE, Reason("damaged", f"job.out could not be read whole; {one_line(log.damage)}")
    if nothing_trained := voiding(against_training(records, None, is_ours=True)):
        yield Outcome.INVALID, nothing_trained.reason
    last = records[-1].iteration if records else 0
    if not records or last < asked.owed_iterations(records):
        text = f"the last whole line of the log is iteration {last} of {asked.iterations}"
        yield Outcome.INCOMPLETE, Reason("stops-early", text)
    if not records.has("lm_loss").any():
        yield Outcome.INVALID, Reason("no-loss", "no line of the log has a loss")
    elif (lacks := records.lacks("lm_loss")).any():
        line = records.numbers[int(np.argmax(lacks))]
        text = f"{lacks.sum()} of {len(records)} lines have no loss, the first of them line {line}: the trainer prints one in each"
        yield Outcome.INVALID, Reason("no-loss", text)
    yield from _other_run(asked, records)
    if not records.has("elapsed_s").any():
        yield Outcome.INVALID, Reason("no-time", "no line of the log has an elapsed time that could be used")
    if log.refusal:
        yield Outcome.INVALID, Reason("refused-by-dialect", log.refusal.reason)


def _other_run(asked: Requested, records: Records) -> Iterator[tuple[Outcome, Reason]]:
    """Yield where the lines tell of another run than run.json asks for."""
    total, batch = records[-1].total_iterations if records else None, asked.overrides.global_batch_size
    if total and total != asked.iterations:
        text = f"the lines of the log count to iteration {total}, run.json asks for {asked.iterations}"
        yield Outcome.INVALID, Reason("other-run", text)
    other = records.has("global_batch_size") & (records.column("global_batch_size") != batch)
    if other.any():
        record = records[int(np.argmax(other))]
        ran = f"iteration {record.iteration} ran with global batch size {record.global_batch_size}"
        yield Outcome.INVALID, Reason("other-run", f"{ran}, run.json asks for {batch}")


def _notes(asked: Requested, log: Log, records: Records, measured: Throughput | None) -> list[Reason]:
    """Return what to know about a measurement: lines left out, several attempts, no interval."""
    found = log_reasons(log)
    if len(log.attempts) > 1:
        end, what = (records[-1].iteration, "measured") if measured else (None, "judged")
        found.append(Reason(SEVERAL_STARTS, several_starts(len(log.attempts), end, f"the last is {what}")))
    num_expected = -(-asked.owed_iterations(records) // asked.log_interval)  # the last iteration is always logged
    if asked.goes_on and records:
        num_expected -= (int(records[0].iteration) - 1) // asked.log_interval
    if not measured:
        return found
    if len(records) < num_expected:
        found.append(Reason("missing-lines", f"{len(records)} of {num_expected} expected lines are whole"))
    if asked.until is not None:
        bound, word = asked.bound(records), f"{100 * asked.until:g} % were asked for"
        text = f"{word}: {bound.text()}" if bound else f"{word}, and the log has too few lines to bound the mean"
        found.append(Reason("until", text))
    return found + qualifications(measured)


SCHEMA = "nlp-bench/result/1"
ENDED = ("outcome", "evidence", "exit_status", "job_id", "ended", "attempt", "attempts")
_IDENTITY = ("model", "system", "launch", "parallel", "batch", "training", "nlp_bench")


def result_record(measured: FolderMeasurement) -> Json:
    """Return the record of nlp-bench/result/1: `run` as in nlp-bench/report/1, `identity` of run.json, `ended` of outcome.json, `samples`.

    These hold iteration, elapsed_s (seconds per iteration) and lm_loss of each believed line; a loss that JSON does not have is its word.
    """
    return {
        "schema": SCHEMA,
        "tokens": REPORT_TOKENS,
        "run": measured.entry.to_json(REPORT_TOKENS),
        "identity": {key: measured.run[key] for key in _IDENTITY if key in measured.run},
        "ended": {key: measured.ended.get(key) for key in ENDED},
        "samples": [
            {"iteration": each.iteration, "elapsed_s": each.elapsed_s, "lm_loss": plain_number(each.lm_loss)}
            for each in measured.entry.records
        ],
    }


FROM_RUN = {
    "system": "system.name",
    "version": "system.version",
    "accelerator": "system.accelerator",
    "queue": "launch.queue",
    "job_time": "launch.timelimit",
    "model": "model.name",
    "model_size": "model.parameters_billion",
    "gpus_per_node": "parallel.gpus_per_node",
    "micro_batch_size": "batch.micro_batch_size",
    "gas": "batch.gradient_accumulation_steps",
    "nodes": "parallel.nodes",
    "batch_size": "batch.global_batch_size",
    "pipeline_parallel": "parallel.pipeline",
    "tensor_parallel": "parallel.tensor",
    "context_parallel": "parallel.context",
    "recompute": "training.recompute",
    "trainer": "tuning.trainer",
}
"""Key of the line to field of run.json."""

_ELSEWHERE = ("trainer", "megatron_lm_repo", "megatron_lm_commit", "num_layers_per_virtual_pipeline_stage")
"""Switches that have columns of their own, or need none."""


def metrics_text(measured: FolderMeasurement, *, job_elapsed_s: int | None = None) -> str:
    """Return the lines of one run, none for what is unknown or not allowed because it is not VALID; `job_elapsed_s` is what the job (of a chain the last one) took."""
    entry = measured.entry
    values: dict[str, object] = {
        "outcome": entry.outcome.value,
        "reason": "; ".join(entry.reason_texts) or None,
        "job_id": measured.ended.get("job_id"),
        **{key: lookup(measured.run, dotted) for key, dotted in FROM_RUN.items()},
        "job_elapsed": clock(job_elapsed_s) if job_elapsed_s is not None else None,
        "iterations": entry.records[-1].iteration if entry.records else None,
        "virtual_pipeline": entry.workload.value("virtual_pipeline_model_parallel_size"),
        "tuning": switches(lookup(measured.run, "tuning")),
        **(_numbers(entry, entry.throughput) if entry.throughput else {}),
    }
    # The partition that the job ran in may not be the one asked for: one of several, or after `scontrol update`.
    if lookup(measured.run, "launch.launcher") != LOCAL:
        values["queue"] = lookup(measured.environment, "variables.SLURM_JOB_PARTITION") or values["queue"]
    return metric_lines(values)


def metric_lines(values: Mapping[str, object]) -> str:
    """Return a line `key: value` for each value that is known, without commas: JUBE's csv does not quote."""
    known = {key: one_line(value) for key, value in values.items() if value not in (None, "")}
    return "".join(f"{key}: {text.replace(',', ';')}\n" for key, text in known.items())


def switches(tuning: object) -> str | None:
    """Return the switches that are on, `name` or `name=value`: in a sweep over one of them the rows differ here alone."""
    if not isinstance(tuning, dict):
        return None
    words = []
    for name, value in tuning.items():
        if name not in _ELSEWHERE and value not in (None, False, "", []):
            said = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(name if value is True else f"{name}={said}")
    return " ".join(words)


def _numbers(entry: RunResult, throughput: Throughput) -> dict[str, object]:
    losses = entry.records.column("lm_loss")[entry.records.has("lm_loss")]
    ends = {"first_loss": losses[0], "last_loss": losses[-1]} if len(losses) else {}
    flops = finite(entry.records.column("tflops"))
    # The old table's column is JUBE's mean over all lines, warm-up included.
    rates: dict[str, float | None] = {"avg_tflops_per_gpu": float(flops.mean()) if len(flops) else None}
    for kind, rate in {"": entry.reference, "_steady": entry.steady, "_sustained": entry.sustained}.items():
        rates[f"tokens_per_second{kind}"] = rate
        rates[f"time_to_report{kind}_in_seconds"] = time_to_report_s(REPORT_TOKENS, rate)
    rates["ci95_low"], rates["ci95_high"] = entry.ci95 or (None, None)
    rates["tokens_per_second_per_gpu"] = entry.tokens_per_second_per_gpu
    window, times = throughput.window, throughput.seconds_per_iteration
    return {
        **{name: f"{loss:.6E}" for name, loss in ends.items()},
        **{name: f"{rate:.2f}" for name, rate in rates.items() if rate is not None},
        "seconds_per_iteration_mean": f"{times.mean:.4f}" if times else None,
        "window": f"{window.first_iteration}-{window.last_iteration}",
        "quality": entry.quality.value if entry.quality else None,
    }
