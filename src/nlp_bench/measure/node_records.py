"""What the nodes of a run recorded: machine/NODE.json and machine/NODE.samples.csv, read so that no fault of theirs costs the run."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json
from nlp_bench.machine import form
from nlp_bench.show.escape import one_line

Column = NDArray[np.float64]
MAX_BYTES = 256 * 2**20
"""A larger file of samples is none of ours: a day of 16 GPUs has 60 MB."""


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One node. What it says comes from a file that anybody may have written: each value is looked at before it is used."""

    name: str
    """The node's name, as its file is called."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """NODE.json, {} where it cannot be read."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """NODE.samples.csv by the names of `form.header`; NaN where a cell is empty."""
    problem: str | None = None
    """Why facts or samples are missing."""

    @property
    def times(self) -> Column:
        """Seconds since 1970 of the samples."""
        return self.columns.get(form.TIME, np.empty(0))

    def objects(self, name: str) -> list[Mapping[str, Any]]:
        """Return the objects of a list of NODE.json, [] where there is no such list."""
        found = self.facts.get(name)
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

    def gpus(self) -> list[Mapping[str, Any]]:
        """Return the GPUs that ranks used."""
        return [gpu for gpu in self.objects("gpus") if gpu.get("is_used") and isinstance(gpu.get("index"), int)]

    def text(self, *path: str) -> str | None:
        """Return the word at `path` in NODE.json in one line, None where there is none."""
        value: Any = self.facts
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return one_line(value)[:300] or None if isinstance(value, str) else None


def number(value: object) -> float | None:
    """Return `value` as a finite number of at least 0, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if value >= 0 else None


def read_nodes(run_dir: Path) -> tuple[NodeRecord, ...]:
    """Return the nodes that recorded anything, by name; a file that cannot be read is that node's `problem`."""
    folder = run_dir / form.FOLDER
    try:
        names = sorted({name for path in folder.iterdir() for name in _node_of(path.name)})
    except OSError:
        return ()
    return tuple(_read(folder, name) for name in names)


def _node_of(name: str) -> Iterator[str]:
    for ending in (form.SAMPLES, form.ERROR, form.FACTS):
        if name.endswith(ending) and not name.startswith("."):
            yield name.removesuffix(ending)
            return


def _read(folder: Path, name: str) -> NodeRecord:
    problems = []
    facts: Mapping[str, Any] = {}
    columns: Mapping[str, Column] = {}
    try:
        facts = read_json(folder / (name + form.FACTS), form.SCHEMA)
    except NlpBenchError as error:
        problems.append(one_line(error))
    try:
        columns = _columns(folder / (name + form.SAMPLES))
    except (OSError, ValueError) as error:
        problems.append(f"no samples ({one_line(error)})")
    failed = folder / (name + form.ERROR)
    if failed.exists():
        problems.append(f"the recorder failed, see {form.FOLDER}/{one_line(failed.name)}")
    return NodeRecord(name=one_line(name), facts=facts, columns=columns, problem="; ".join(problems) or None)


def _columns(path: Path) -> dict[str, Column]:
    """Return the columns of a CSV. Raises OSError, or ValueError for what is no table of numbers with a time."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_BYTES >> 20} MiB")
    # A line without its line feed was cut as the node went down; a cut number looks like a smaller one.
    first, *lines = path.read_bytes().decode("ascii", "replace").rpartition("\n")[0].splitlines() or [""]
    names = first.split(",")
    if names[0] != form.TIME or len(set(names)) < len(names):
        raise ValueError(f"{path.name} does not begin with the column {form.TIME}")
    rows = [cells for line in lines if len(cells := line.split(",")) == len(names)]
    table = np.array([[_cell(cell) for cell in cells] for cells in rows], dtype=np.float64).reshape(-1, len(names))
    table = table[np.isfinite(table[:, 0])]
    return {name: table[:, index] for index, name in enumerate(names)}


def _cell(text: str) -> float:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return math.nan
    return value if 0 <= value < 1e18 else math.nan
