"""Whether the log carries the number that the outcome file would allow: it can only take validity away."""

from collections.abc import Iterator, Sequence

import numpy as np

from nlp_bench.logs.record import Log, Records
from nlp_bench.measure.asked import Asked
from nlp_bench.measure.contradiction import Contradiction, voiding
from nlp_bench.measure.entry import why_broken
from nlp_bench.measure.foreign import log_reasons
from nlp_bench.measure.reconcile import against_training
from nlp_bench.measure.throughput import Throughput
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.show.escape import one_line


def judge_log(asked: Asked, log: Log | None, records: Records) -> tuple[Outcome, Reason | None]:
    """Return VALID, or the first thing that the log says against it; `records` are the whole ones of the last attempt."""
    return next(_objections(asked, log, records), (Outcome.VALID, None))


def _objections(asked: Asked, log: Log | None, records: Records) -> Iterator[tuple[Outcome, Reason]]:
    if log is None:
        yield Outcome.INCOMPLETE, Reason("no-log", "there is no job.out")
    broken = why_broken(records)
    if broken:
        yield Outcome.INVALID, broken
    if log is not None and log.damage:
        text = f"job.out could not be read whole; {one_line(log.damage)}"
        yield Outcome.INCOMPLETE, Reason("damaged", text)
    nothing_trained = voiding(against_training(records, is_ours=True))
    if nothing_trained:
        yield Outcome.INVALID, nothing_trained.reason
    last = records[-1].iteration if records else 0
    if not records or last < asked.owed_iterations(records):
        text = f"the last whole line of the log is iteration {last} of {asked.iterations}"
        yield Outcome.INCOMPLETE, Reason("stops-early", text)
    if not records.has("lm_loss").any():
        yield Outcome.INVALID, Reason("no-loss", "no line of the log has a loss")
    yield from _other_plan(asked, records)
    if not records.has("elapsed_s").any():
        text = "no line of the log has an elapsed time that could be used"
        yield Outcome.INVALID, Reason("no-time", text)
    if log is not None and log.refusal:
        yield Outcome.INVALID, Reason("refused-by-dialect", log.refusal.reason)


def _other_plan(asked: Asked, records: Records) -> Iterator[tuple[Outcome, Reason]]:
    """Yield where the lines tell of another run than run.json asks for."""
    total = records[-1].total_iterations if records else None
    if total and total != asked.iterations:
        text = f"the lines of the log count to iteration {total}, run.json asks for {asked.iterations}"
        yield Outcome.INVALID, Reason("other-run", text)
    other = records.has("global_batch_size") & (records.column("global_batch_size") != asked.global_batch_size)
    if other.any():
        record = records[int(np.argmax(other))]
        ran = f"iteration {record.iteration} ran with global batch size {record.global_batch_size}"
        yield Outcome.INVALID, Reason("other-run", f"{ran}, run.json asks for {asked.global_batch_size}")


def notes(
    asked: Asked,
    log: Log | None,
    records: Records,
    throughput: Throughput | None,
    contradictions: Sequence[Contradiction] = (),
) -> list[Reason]:
    """Return what to know about a measurement: lines left out, several attempts, no interval, what speaks against it and is not its reason."""
    if log is None:
        return []
    found = log_reasons(log)
    if len(log.attempts) > 1:
        found.append(Reason("several-attempts", f"{len(log.attempts)} attempts in job.out; the last is judged"))
    num_expected = -(-asked.owed_iterations(records) // asked.log_interval)  # the last iteration is always logged
    if asked.goes_on and records:
        num_expected -= (int(records[0].iteration) - 1) // asked.log_interval
    if throughput and len(records) < num_expected:
        found.append(Reason("missing-lines", f"{len(records)} of {num_expected} expected lines are whole"))
    bound = asked.bound(records)
    if throughput and asked.until is not None:
        word = f"{100 * asked.until:g} % were asked for"
        text = f"{word}: {bound.text()}" if bound else f"{word}, and the log has too few lines to bound the mean"
        found.append(Reason("until", text))
    if throughput and throughput.why_no_interval:
        found.append(Reason("no-interval", throughput.why_no_interval))
    if throughput:
        found += throughput.steadiness.warnings()
    void = voiding(contradictions)
    return [*found, *(each.reason for each in contradictions if each is not void)]
