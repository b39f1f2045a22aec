"""One calibration: every measurement with what it was made on, so that constants can be fitted again."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, write_json
from nlp_bench.plan.calibrate.measurement import Measurement

SCHEMA = "nlp-bench/calibration/1"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured, on what, when."""

    device: str
    """Name of the accelerator; of a CPU with its threads."""
    kind: str
    """cpu or cuda."""
    memory_bytes: int
    """Memory of one rank: of a CPU the node's / ranks."""
    ranks: int
    """Ranks that measured at the same time on one node."""
    precision: str
    """Number format that most was measured of, for the constants that are not told apart by format."""
    torch: str
    """Version of torch."""
    date: str
    """When it ended, ISO 8601."""
    seconds: float
    """How long it took."""
    state_before: str
    """Clock, temperature or load when it began."""
    state_after: str
    """The same when it ended."""
    skipped: tuple[str, ...]
    """What was not measured, and why."""
    measurements: tuple[Measurement, ...]
    """Everything measured."""

    @property
    def source(self) -> str:
        """Where a constant comes from, as constants files say it."""
        return f"measured on {self.device}, torch {self.torch}, {self.date[:10]}"

    def of(self, kind: str, precision: str | None = None, name: str | None = None) -> list[Measurement]:
        """Return the measurements of a kind (and a number format, and a name)."""
        return [
            m
            for m in self.measurements
            if m.kind == kind and precision in {None, m.precision} and name in {None, m.name}
        ]

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        record = vars(self) | {"measurements": [m.to_table() for m in self.measurements]}
        write_json(path, {"schema": SCHEMA, **record})


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
