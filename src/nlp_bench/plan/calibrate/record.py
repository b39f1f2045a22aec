"""One calibration: every measurement with what it was made on, so that constants can be fitted again. No torch here."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, write_json
from nlp_bench.immutable import immutable
from nlp_bench.machine.timing import Timing

SCHEMA = "nlp-bench/calibration/1"
WIDTH_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


@immutable
class Facts:
    """What a piece of work costs, whatever it runs on."""

    kind: str  # product, attention, stream, step, launch, all_reduce, trainer
    name: str  # which of its kind: forward, copy, ...
    precision: str  # bf16, fp16, fp32
    sizes: dict[str, int]  # what its cost depends on, by name (tokens, in_width, out_width, ...)
    flops: float = 0.0  # floating-point operations of one call
    num_bytes: float = 0.0
    """Bytes that one call must read and write at least once each; of a collective the bytes of the message."""


@immutable
class Measurement(Facts):
    """A piece of work with its time."""

    seconds: float  # median of one call
    spread: float  # half the distance of the quartiles / median
    repeats: int  # timed repetitions
    calls: int  # calls in one repetition

    @property
    def bytes_per_s(self) -> float:
        """Rate of memory, or of the message."""
        return self.num_bytes / self.seconds


def measured(task: Facts, timing: Timing) -> Measurement:
    """Return what a piece of work took."""
    facts = {one.name: getattr(task, one.name) for one in fields(Facts)}
    took = {name: getattr(timing, name) for name in ("seconds", "spread", "repeats", "calls")}
    return Measurement(**facts, **took)


@immutable
class Calibration:
    """What was measured, on what, when."""

    device: str  # name of the accelerator; of a CPU with its threads
    kind: str  # cpu or cuda
    memory_bytes: int  # memory of one rank: of a CPU the node's / ranks
    ranks: int  # ranks that measured at the same time on one node
    precision: str  # number format of most measurements, for the constants that are not kept by format
    torch: str  # version of torch
    date: str  # when it ended, ISO 8601
    seconds: float  # how long it took
    state_before: str  # clock, temperature or load when it began
    state_after: str  # the same when it ended
    skipped: tuple[str, ...]  # what was not measured, and why
    measurements: tuple[Measurement, ...]

    @property
    def source(self) -> str:
        """Where a constant comes from, as constants files state it."""
        return f"measured on {self.device}, torch {self.torch}, {self.date[:10]}"

    @property
    def spread(self) -> float:
        """Median over all measurements of the spread of their repetitions."""
        spreads = sorted(m.spread for m in self.measurements)
        return spreads[len(spreads) // 2]

    def of(self, kind: str, precision: str | None = None, name: str | None = None) -> list[Measurement]:
        """Return the measurements of a kind (and a number format, and a name)."""
        of_kind = [m for m in self.measurements if m.kind == kind]
        return [m for m in of_kind if precision in {None, m.precision} and name in {None, m.name}]

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        write_json(path, {"schema": SCHEMA, **vars(self), "measurements": [dict(vars(m)) for m in self.measurements]})


def read_calibration(path: Path) -> Calibration:
    """Read a record. Raises NlpBenchError that names the field at fault."""
    record: dict[str, Any] = read_json(path, SCHEMA)
    try:
        values = {field.name: record[field.name] for field in fields(Calibration)}
        values["measurements"] = tuple(_measurement(row) for row in record["measurements"])
        values["skipped"] = tuple(record["skipped"])
    except (KeyError, TypeError, ValueError) as error:
        raise NlpBenchError(f"{path}: no calibration: {error}; make one with: nlp-bench plan calibrate") from error
    return Calibration(**values)


def _measurement(row: dict[str, Any]) -> Measurement:
    if not row["seconds"] > 0:
        raise ValueError(f"measurements: seconds = {row['seconds']} is not above 0")
    return Measurement(**row)
