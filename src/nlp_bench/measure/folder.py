"""One run folder of ours: run.json says what was asked for, outcome.json how it ended, job.out what happened."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlp_bench import marker, schemas, seal
from nlp_bench.config.run import Run
from nlp_bench.config.table import check_types
from nlp_bench.errors import NlpBenchError, explained
from nlp_bench.files import read_json, refuse_types
from nlp_bench.last_start import enough_at, says_finished
from nlp_bench.logs.reader import OURS, read_log
from nlp_bench.logs.record import Attempt, Log
from nlp_bench.measure.asked import Asked
from nlp_bench.measure.beside import with_machine
from nlp_bench.measure.contradiction import voiding
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.node_records import NodeRecord, read_nodes
from nlp_bench.measure.otherwise import otherwise
from nlp_bench.measure.provenance import Provenance, provenance_of
from nlp_bench.measure.reconcile import Statements, reconcile
from nlp_bench.measure.sealed import against_seals, with_own_events
from nlp_bench.measure.sizes import sizes_of
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.verdict import judge_log, notes
from nlp_bench.measure.workload import Workload, lookup, workload_of
from nlp_bench.outcome import Outcome, read_word
from nlp_bench.reason import Reason
from nlp_bench.show.escape import one_line


@dataclass(frozen=True, kw_only=True)
class FolderMeasurement:
    """What one run folder gave."""

    run: dict[str, Any]
    """run.json, unchanged."""
    ended: dict[str, Any]
    """outcome.json, unchanged."""
    entry: RunResult
    """What was measured."""


Judge = Callable[[RunResult, Mapping[str, Any], Mapping[str, Any]], RunResult]
"""Holds a result to rules, by run.json and outcome.json: `rules.apply`."""


def measure_folder(
    folder: Path,
    source: str,
    *,
    ended: dict[str, Any] | None = None,
    redacted: frozenset[str] = frozenset(),
    judge: Judge | None = None,
) -> FolderMeasurement:
    """Measure the run in `folder`; the entry is called `source`. `ended` stands in for an outcome.json that is not there yet.

    `redacted` names files of a bundle in which secrets were blacked out: their hashes are no longer those of the chain of evidence.
    `judge` holds the result to rules before its energy is computed: a run without a number has none.

    Raises NlpBenchError when run.json or outcome.json is missing, or a file is unreadable; every end of the run is an entry.
    """
    try:
        return _measured(folder, source, ended, redacted, judge)
    except OSError as error:  # a disk, or a file server that has lost the file
        raise NlpBenchError(f"cannot read {error.filename or folder}: {explained(error)}") from error


def _measured(
    folder: Path, source: str, ended: dict[str, Any] | None, redacted: frozenset[str], judge: Judge | None
) -> FolderMeasurement:
    run = read_json(folder / "run.json", schemas.RUN)
    asked = Asked.of(run, folder / "run.json")
    asked = replace(asked, enough_at=enough_at(folder) if asked.until is not None else None)
    check_types(Run, run, f"{folder / 'run.json'}: run")
    ended = ended or _outcome(folder)
    refuse_types({"reasons": [], **ended}, folder / "outcome.json", reasons=list | None)
    given = read_word(ended.get("outcome"), folder / "outcome.json")
    reasons = [Reason("ended", one_line(text)) for text in ended.get("reasons") or []]
    log, sealed = _read(folder)
    attempt = _last_attempt(log)
    records = attempt.records
    seals = seal.check(folder, is_valid=given is Outcome.VALID, redacted=redacted, log=sealed)
    outcome, why = _objection(folder, ended, given, seals, redacted) or (given, None)
    if outcome is Outcome.VALID:
        outcome, why = judge_log(asked, log, records)
    seen = asked.throughput(log, attempt) if log and (outcome is Outcome.VALID or _is_changed(seals)) else None
    throughput = seen if outcome is Outcome.VALID else None
    workload = workload_of(run, log.settings if log else {}, attempt)
    nodes = read_nodes(folder)
    said = _statements(asked, log, attempt, seen, workload=workload, sealed=sealed, nodes=nodes)
    found = reconcile(said) if said else ()
    void = voiding(found)
    if void and throughput:
        outcome, why, throughput = Outcome.INVALID, void.reason, None
    entry = RunResult(
        source=source,
        dialect=log.dialect if log else None,
        outcome=outcome,
        reasons=(*([why] if why else []), *reasons, *_deviations(run), *notes(asked, log, records, throughput, found)),
        contradictions=found,
        otherwise=otherwise(said) if said else (),
        num_records=len(records) if log else None,
        total_iterations=asked.iterations,
        global_batch_size=asked.global_batch_size,
        sequence_length=asked.sequence_length,
        num_gpus=asked.num_gpus,
        accelerator=lookup(run, "system.accelerator"),
        model=lookup(run, "model.name"),
        records=records,
        attempts=log.numbered(log.attempts) if log else {},
        seals=seals,
        throughput=throughput,
        until=asked.bound(records) if throughput else None,
        workload=workload,
        provenance=_provenance(asked, log, attempt, throughput),
    )
    entry = judge(entry, run, ended) if judge else entry
    return FolderMeasurement(run=run, ended=ended, entry=with_machine(entry, log, run_dir=folder, run=run, nodes=nodes))


def _deviations(run: dict[str, Any]) -> list[Reason]:
    said = (one_line(deviation) for deviation in run.get("deviations") or [])
    return [Reason("deviation", f"not the benchmark as defined: {text}") for text in said]


def _is_changed(seals: tuple[seal.Finding, ...]) -> bool:
    """Say whether a link is broken: what was changed carries no number, but is held against itself, which tells where."""
    return any(link.state is seal.State.BROKEN for link in seals)


def _outcome(folder: Path) -> dict[str, Any]:
    if not (folder / "outcome.json").exists():
        raise NlpBenchError(
            f"{folder}: there is no outcome.json, the run may not have ended; decide it with: nlp-bench sync {shlex.quote(str(folder))}"
        )
    return read_json(folder / "outcome.json", schemas.OUTCOME)


def _read(folder: Path) -> tuple[Log | None, seal.SealedLog]:
    """Return job.out as it is measured, and its seals."""
    path = folder / "job.out"
    if not path.is_file():
        return None, seal.NO_LOG
    sealed = seal.sealed_log_of(path)
    return with_own_events(read_log(str(path), only=OURS), sealed), sealed


def _last_attempt(log: Log | None) -> Attempt:
    """Return the whole records of the last start of the program."""
    attempt = log.attempts[-1] if log and log.attempts else Attempt()
    return replace(attempt, records=attempt.records.chosen(attempt.records.whole))


def _statements(  # noqa: PLR0913  # one statement each
    asked: Asked,
    log: Log | None,
    attempt: Attempt,
    throughput: Throughput | None,
    *,
    workload: Workload,
    sealed: seal.SealedLog,
    nodes: tuple[NodeRecord, ...],
) -> Statements | None:
    if not (log and throughput):
        return None
    return Statements(
        log=log,
        attempt=attempt,
        others=log.attempts[:-1],
        measured=throughput,
        overrides=asked.overrides(),
        workload=workload,
        seals=tuple(against_seals(sealed, attempt, is_alone=False)),
        recorders=[node.times for node in nodes],
        is_ours=True,
    )


def _objection(
    folder: Path, ended: dict[str, Any], given: Outcome, seals: tuple[seal.Finding, ...], redacted: frozenset[str]
) -> tuple[Outcome, Reason] | None:
    """Return what the records say against the outcome that is given: a changed one, an exit status, a broken link."""
    changed = None if seal.OUTCOME in redacted else marker.contradiction(folder)
    if changed:
        return Outcome.INVALID, Reason("changed-outcome", changed)
    status = ended.get("exit_status")
    if given is not Outcome.VALID:
        return None
    if isinstance(status, int) and status and not says_finished(folder):
        text = f"outcome.json says VALID, and that the job ended with exit status {status}"
        return Outcome.FAILED, Reason("exit-status", text)
    broken = "; ".join(one_line(finding.text) for finding in seals if finding.state is seal.State.BROKEN)
    if not broken:
        return None
    return Outcome.INVALID, Reason("broken-seal", f"the chain of evidence is broken: {broken}")


def _provenance(asked: Asked, log: Log | None, attempt: Attempt, throughput: Throughput | None) -> Provenance | None:
    if log is None:
        return None
    sizes = throughput.sizes if throughput else sizes_of(attempt, asked.overrides())
    return provenance_of(log, attempt, sizes, throughput, asked.overrides()).given_by_run_json()
