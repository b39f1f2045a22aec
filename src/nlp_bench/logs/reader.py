"""One log, read once from front to back: records, attempts, echoes of other ranks, torn lines."""

import math
from collections.abc import Iterator
from dataclasses import replace

from nlp_bench.logs import megatron as dialect
from nlp_bench.logs.lines import Line, blocks, lines_with, open_log
from nlp_bench.logs.record import Attempt, Log, LogRecord


def read_log(path: str) -> Log:
    """Read the log at `path` (plain, gzip or xz; `-` is standard input), streaming.

    Raises UsageError when it cannot be opened. Bytes that are no text never raise: they are no record.
    """
    damage: list[str] = []
    reading = _Reading()
    with open_log(path) as stream:
        for line in lines_with(reading.counted(blocks(stream, damage)), dialect.NEEDLES):
            reading.take(line)
    return reading.result(damage)


class _Reading:
    """What has been read so far; the attempt that is open is the last of the list."""

    def __init__(self) -> None:
        self.num_bytes = self.num_torn = self.num_echoes = self.num_impossible = 0
        self.attempts: list[_OpenAttempt] = [_OpenAttempt()]

    def counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.num_bytes += len(chunk)
            yield chunk

    def take(self, line: Line) -> None:
        for record in dialect.parse_line(line):
            self._take_record(record)
        if dialect.ARGUMENTS_BEGIN.search(line.text) and self.attempts[-1].records:
            self.attempts.append(_OpenAttempt())
        argument = dialect.ARGUMENT.search(line.text)
        if argument:
            # Libraries dump settings of the same names later; the training program's own come first.
            self.attempts[-1].arguments.setdefault(argument[1].decode(), int(argument[2]))

    def _take_record(self, record: LogRecord) -> None:
        self.num_torn += not record.is_whole
        if record.elapsed_s is None:
            if not record.is_whole:
                return  # a cut line without its time says nothing that could be used
        elif not (math.isfinite(record.elapsed_s) and record.elapsed_s > 0):
            self.num_impossible += 1
            record = replace(record, elapsed_s=None)
        attempt = self.attempts[-1]
        if attempt.is_echo(record):
            self.num_echoes += 1
            if record.is_whole and not attempt.records[record.iteration].is_whole:
                attempt.records[record.iteration] = record
        elif attempt.is_continued_by(record):
            attempt.records[record.iteration] = record
        else:
            self.attempts.append(_OpenAttempt(arguments=dict(attempt.arguments)))
            self.attempts[-1].records[record.iteration] = record

    def result(self, damage: list[str]) -> Log:
        found = [attempt for attempt in self.attempts if attempt.records]
        return Log(
            dialect=dialect.NAME if found else None,
            attempts=tuple(Attempt(arguments=a.arguments, records=tuple(a.records.values())) for a in found),
            num_bytes=self.num_bytes,
            num_torn=self.num_torn,
            num_echoes=self.num_echoes,
            num_impossible=self.num_impossible,
            damage=damage[0] if damage else None,
        )


class _OpenAttempt:
    """An attempt that may still grow: records by iteration, in the order of the file."""

    def __init__(self, arguments: dict[str, int] | None = None) -> None:
        self.arguments = arguments or {}
        self.records: dict[int, LogRecord] = {}

    @property
    def last(self) -> LogRecord | None:
        return next(reversed(self.records.values()), None)

    def is_continued_by(self, record: LogRecord) -> bool:
        last = self.last
        return last is None or (record.iteration > last.iteration and record.total_iterations == last.total_iterations)

    def is_echo(self, record: LogRecord) -> bool:
        """Say whether a process printed what is already known: another rank's line, or the very same text again."""
        known = self.records.get(record.iteration)
        if known is None or known.total_iterations != record.total_iterations:
            return False
        if known.rank_label != record.rank_label:
            return True
        # A restart from a checkpoint repeats an iteration too, but never with the same time to the last digit.
        return known.elapsed_s == record.elapsed_s and repr(known.lm_loss) == repr(record.lm_loss)
