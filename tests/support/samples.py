"""The real logs of third parties, where they lie beside the checkout, and what is true of each."""

import csv
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "logs"
OPTION = {"seq_length": "--sequence-length", "global_batch_size": "--global-batch-size", "gpu_count": "--num-gpus"}
COLUMN = {"seq_length": "seq_length", "global_batch_size": "global_batch_size", "gpu_count": "gpus"}
STEADY_TOLERANCE, REFERENCE_TOLERANCE = 0.03, 0.001


@dataclass(frozen=True)
class Sample:
    """One log and its row of expected.csv."""

    path: Path
    row: dict[str, str]

    @property
    def missing(self) -> list[str]:
        return self.row["missing_inputs"].split()

    @property
    def has_value(self) -> bool:
        return self.row["expected_outcome"] == "value"

    def number(self, column: str) -> float | None:
        return float(self.row[column]) if self.row[column] else None

    def overrides(self) -> Overrides:
        """What a person would have to add, as far as the row knows it."""
        known = {name: self.number(column) for name, column in COLUMN.items() if name in self.missing}
        given = {OPTION[name][2:].replace("-", "_"): int(value) for name, value in known.items() if value is not None}
        return Overrides(**given)


def samples() -> list[Sample]:
    """All samples, none where the folder does not exist."""
    table = FOLDER / "expected.csv"
    if not table.exists():
        return []
    with table.open(newline="") as stream:
        return [Sample(FOLDER / "samples" / row["file"], row) for row in csv.DictReader(stream)]


def problem(sample: Sample) -> str | None:
    """Say how the report of the sample differs from what is true, None when it does not."""
    alone = measure_log(str(sample.path), Overrides())
    if not sample.has_value:
        return _problem_of_refusal(sample, alone)
    if sample.missing and not any(entry.has_number for entry in alone):
        found = _problem_of_refusal(sample, alone)
        if found:
            return found
    elif sample.missing:  # what the table's author looked up elsewhere may stand in the log after all
        return _problem_of_value(sample, alone)
    return _problem_of_value(sample, measure_log(str(sample.path), sample.overrides()))


def _problem_of_refusal(sample: Sample, entries: list[RunResult]) -> str | None:
    if any(entry.has_number for entry in entries):
        return f"has a number ({[e.steady for e in entries]}), expected {sample.row['expected_outcome']}"
    if all(entry.outcome is not Outcome.REFUSED for entry in entries):
        return f"ended {[e.outcome.value for e in entries]}, expected REFUSED"
    said = " ".join(entry.reason_texts[0] for entry in entries if entry.reason_texts)
    lacking = [OPTION[name] for name in sample.missing if OPTION[name] not in said]
    return f"the refusal does not name {lacking}: {said}" if lacking else None


def _problem_of_value(sample: Sample, entries: list[RunResult]) -> str | None:
    measured = [entry for entry in entries if entry.has_number]
    if not measured:
        return f"refused: {[entry.reason_texts for entry in entries]}"
    entry = max(measured, key=lambda e: e.num_records or 0)
    for name, found, column, tolerance in (
        ("steady", entry.steady, "tokens_per_s", STEADY_TOLERANCE),
        ("reference", entry.reference, "tokens_per_s_all_iterations", REFERENCE_TOLERANCE),
    ):
        expected = sample.number(column)
        if expected and (found is None or abs(found / expected - 1) > tolerance):
            return f"{name} is {found}, expected {expected} (window {entry.throughput and entry.throughput.window.to_json()})"
    return None
