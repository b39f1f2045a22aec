"""What the seals of our trainer's log say of the records that were read from it: are they all, unchanged, and whose words mark them."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

from nlp_bench.logs.record import Attempt, Log
from nlp_bench.logs.source import open_log
from nlp_bench.measure.contradiction import Code, Contradiction, Weight
from nlp_bench.seal import NO_LOG, SealedLog, read_sealed_log


def sealed_log(path: str, log: Log) -> SealedLog:
    """Read the log at `path` a second time for the hashes of our trainer; `log` is what the first reading found.

    A log without its opening line, and standard input, are not read again. Raises UsageError where it cannot be opened.
    """
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


def against_seals(sealed: SealedLog, attempt: Attempt, *, is_alone: bool) -> Iterator[Contradiction]:
    """Yield where the lines are not those that the trainer printed, and where records of them could not be read.

    `is_alone` says that there is no run folder, whose chain of evidence says the first.
    """
    changed, still_open = sealed.why_changed(), sealed.why_open()
    if is_alone and (changed or still_open):
        weight = Weight.VOID if changed else Weight.DOUBT
        yield Contradiction(code=Code.SEAL_VS_LINES, weight=weight, text=str(changed or still_open))
    first = int(attempt.records.numbers[0]) if len(attempt.records) else 0
    part = next((part for part in reversed(sealed.parts) if part.first_line < first), None)
    if part and part.num_records > len(attempt.records):
        yield Contradiction(
            code=Code.SEAL_VS_LINES,
            weight=Weight.DOUBT,
            text=f"{part.num_records - len(attempt.records)} of {part.num_records} lines of iterations that the trainer printed are "
            "torn and could not be read: their times are not in the number",
        )
