"""Measured runs of this package as rows to learn from; what cannot be is named with the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import read_json
from nlp_bench.walk import walk

if TYPE_CHECKING:
    from nlp_bench.config.run import Run

LEAST_NOISE = 0.005
"""Standard error / mean that is believed of any run: repeats on one machine differ by more than the scatter within one."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One valid run."""

    source: str
    """Its folder."""
    run: "Run"
    """run.json."""
    seconds: float
    """Of one iteration, measured."""
    noise: float
    """Standard error / seconds, at least LEAST_NOISE."""

    @property
    def layout(self) -> str:
        """The configuration in short."""
        parallel, batch = self.run.parallel, self.run.batch
        sizes = f"tp {parallel.tensor} pp {parallel.pipeline} dp {parallel.data} mbs {batch.micro_batch_size}"
        return f"{self.run.model.name}, {parallel.num_gpus} ranks, {sizes} gbs {batch.global_batch_size}"


def read_rows(paths: Sequence[Path | str]) -> tuple[list[Row], list[str]]:
    """Return the valid runs below the paths (run folders, result.json, run.json, JUBE run directories), and what was refused.

    Raises UsageError where a path does not exist or nothing below it is a run of this package.
    """
    rows: list[Row] = []
    refused: list[str] = []
    folders = list(dict.fromkeys(folder for path in paths for folder in _folders(Path(path))))
    for folder in folders:
        found = _row_or_reason(folder)
        if isinstance(found, Row):
            rows.append(found)
        else:
            refused.append(found)
    return rows, refused


def _row_or_reason(folder: Path) -> Row | str:
    try:
        return _row(folder)
    except NlpBenchError as error:
        return f"{folder}: {error}"


def _folders(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise UsageError(f"--learn {path}: there is no such file or folder")
    if path.is_file():
        if path.name not in {"result.json", "run.json"}:
            raise UsageError(
                f"--learn {path}: give a run's folder, its result.json, or a folder of runs; a log alone does not say its layout"
            )
        yield path.parent.resolve()
        return
    found = sorted({folder.resolve() for folder, names in walk(path) if "run.json" in names and _was_run(names)})
    if not found:
        raise UsageError(f"--learn {path}: holds no run (a folder with run.json and outcome.json)")
    yield from found


def _was_run(names: set[str]) -> bool:
    """Say whether a job was started there: JUBE's step `check` writes a run.json as well."""
    return not names.isdisjoint({"outcome.json", "result.json", "job.out"})


def _row(folder: Path) -> Row:
    from nlp_bench.config.run import read_run  # noqa: PLC0415  # only who learns pays for it

    measured = _result(folder).get("run")
    if not isinstance(measured, dict) or measured.get("outcome") != "VALID":
        outcome = measured.get("outcome") if isinstance(measured, dict) else None
        raise NlpBenchError(f"outcome {outcome}: only VALID runs count")
    steady = (measured.get("tokens_per_second") or {}).get("steady")
    tokens = _number(measured, "global_batch_size") * _number(measured, "sequence_length")
    if not isinstance(steady, int | float) or not steady > 0:
        raise NlpBenchError("result.json has no steady tokens per second")
    return Row(
        source=str(folder), run=read_run(folder / "run.json"), seconds=tokens / steady, noise=_noise(measured, steady)
    )


def _result(folder: Path) -> dict[str, Any]:
    from nlp_bench.measure.result import SCHEMA, result_record  # noqa: PLC0415  # only who learns reads logs
    from nlp_bench.rules.apply import measured_folder, wanted  # noqa: PLC0415  # likewise

    if (folder / "result.json").exists():
        return read_json(folder / "result.json", SCHEMA)
    return result_record(measured_folder(folder, source="job.out", rules=wanted(None)))


def _number(measured: dict[str, Any], name: str) -> float:
    value = measured.get(name)
    if not isinstance(value, int | float) or not value > 0:
        raise NlpBenchError(f"result.json: {name} is {value!r}, not a number above 0")
    return float(value)


def _noise(measured: dict[str, Any], steady: float) -> float:
    """Return a quarter of the 95 % interval's width / the rate (about 1.96 standard errors each way); half the rate's where it has none."""
    interval = measured["tokens_per_second"].get("ci95")
    if not interval or len(interval) != 2:
        return 0.1
    return max(LEAST_NOISE, float(interval[1] - interval[0]) / steady / 4)
