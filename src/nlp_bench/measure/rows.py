"""Every logged line of one run as a row: what the log prints, and what the measurement made of it."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import LogRecord, Records
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.window import REASONS

OTHER_ATTEMPT, NO_NUMBER, CUT, UNUSABLE = "other attempt", "no number", "cut line", "no time or size"
"""Why a line does not count, too."""

MEANING = {
    "source": "where the run was read: the path as it was given",
    "attempt": "start of the program in this file, from 1: a restart begins the next one",
    "line_number": "line of the file, from 1",
    "iteration": "last iteration that the line stands for, as the log counts",
    "in_window": "whether the line counts for the steady rate",
    "why_excluded": f"why not: {', '.join((*REASONS, OTHER_ATTEMPT, NO_NUMBER, CUT, UNUSABLE))}",
    "num_iterations": "iterations that the line stands for, as measured",
    "num_tokens": "tokens of these iterations, of the whole machine, as measured",
    "seconds": "time of these iterations in seconds, as measured; the steady rate is the sum of `num_tokens` / the sum of `seconds` in the window",
    "elapsed_s": "seconds per iteration",
    "tokens": "tokens per iteration of the whole machine",
    "tokens_per_device": "tokens per iteration of one device",
    "tokens_per_second": "tokens per second of the whole machine",
    "tokens_per_second_per_device": "tokens per second of one device",
    "samples_per_second": "samples per second of the whole machine",
    "samples_per_second_per_device": "samples per second of one device",
    "global_batch_size": "samples per iteration",
    "sequence_length": "tokens per sample",
    "num_devices": "devices of the whole run",
    "total_iterations": "iteration at which the training would end",
    "consumed_samples": "samples since the training began",
    "consumed_tokens": "tokens since the training began",
    "clock_s": "seconds of training since it began, by its own clock",
    "stamp_s": "time of day of the line, in seconds since any fixed moment",
    "lm_loss": "training loss, mean of the interval; nan and inf as the log prints them",
    "learning_rate": "learning rate",
    "grad_norm": "norm of the gradient",
    "num_skipped": "iterations whose update was skipped (loss scaling)",
    "num_nan": "iterations with a NaN gradient",
    "tflops": "TFLOP/s per device by the legacy x 4/3 count",
    "model_tflops": "TFLOP/s per device of the model alone",
    "joules_per_device": "energy of one device per iteration, in joules",
    "watts_per_device": "mean power of one device, in watts",
}
"""Column to meaning and unit, in the order of the CSV; from `elapsed_s` on it is what the line itself prints."""
_PRINTED = tuple(field.name for field in fields(LogRecord))


@immutable
class Record(LogRecord):
    """One line of a training log. Missing is None, never 0.

    What the line does not print itself is None too, even where the measurement knows it from elsewhere (`num_tokens`, `seconds`).
    """

    source: str
    attempt: int
    in_window: bool
    why_excluded: str | None
    num_iterations: int | None
    num_tokens: float | None
    seconds: float | None

    def __repr__(self) -> str:
        known = ((name, getattr(self, name)) for name in MEANING)
        return f"Record({', '.join(f'{name}={value!r}' for name, value in known if value is not None)})"


Record.__doc__ = f"{Record.__doc__}\n" + "\n".join(f"    {name}: {what}" for name, what in MEANING.items())


def rows_of(entry: RunResult) -> Iterator[Record]:
    """Yield every line of every attempt of a run, in the order of the file. Raises ValueError for an entry that was read without its samples."""
    if entry.num_records and not entry.attempts:
        raise ValueError(f"{entry.source}: its {entry.num_records} records were not kept when it was read")
    for number, records in entry.attempts.items():
        yield from _rows(entry, number, records)


def _rows(entry: RunResult, attempt: int, records: Records) -> Iterator[Record]:
    measured = entry.throughput
    found: dict[int, tuple[int, float | None, float | None]] = {}
    if measured is None or not len(entry.records) or entry.records.offsets[0] not in records.offsets:
        why = [OTHER_ATTEMPT if measured else NO_NUMBER] * len(records)
    else:
        why = _why_excluded(measured, records)
        spans, has_times = measured.spans, measured.sizes.has_times
        columns = (spans.records.column("iteration"), spans.num_iterations, spans.num_tokens, spans.seconds)
        for last, number, tokens, seconds in zip(*columns, strict=True):
            found[int(last)] = (int(number), *((float(tokens), float(seconds)) if has_times else (None, None)))
    for record, word in zip(records, why, strict=True):
        num_iterations, num_tokens, seconds = found.get(record.iteration, (None, None, None))
        yield Record(
            **{name: getattr(record, name) for name in _PRINTED},
            source=entry.source,
            attempt=attempt,
            in_window=not word,
            why_excluded=word or None,
            num_iterations=num_iterations,
            num_tokens=num_tokens,
            seconds=seconds,
        )


def _why_excluded(measured: Throughput, records: Records) -> list[str]:
    """Return for each line of the measured attempt why it does not count, empty where it does."""
    iterations = records.column("iteration")
    is_measured = np.isin(iterations, measured.spans.records.column("iteration"))
    reasons = measured.window.why(iterations)
    why = np.where(is_measured & (reasons != ""), reasons, np.where(records.whole, UNUSABLE, CUT))
    why[np.isin(iterations, measured.window.spans.records.column("iteration"))] = ""
    return [str(word) for word in why]
