"""run.json: one resolved run, the single source of truth for every later step."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.config import checks
from nlp_bench.config.layout import Batch, Parallel
from nlp_bench.config.limits import Limits
from nlp_bench.config.model import Architecture, Training
from nlp_bench.config.system import System
from nlp_bench.config.table import build
from nlp_bench.config.tuning import Tuning
from nlp_bench.files import read_json, write_json

DERIVED = {"parallel": ("num_gpus", "data")}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Which nlp-bench resolved the run."""

    version: str
    """Its version."""
    commit: str | None
    """Its commit, "+changes" behind it where the checkout was not clean; None outside a checkout."""
    code_sha256: str | None = None
    """One hash over all its Python files; None in a run.json of before it was kept."""


@dataclass(frozen=True, kw_only=True)
class RunModel:
    """The model's identity and shape."""

    name: str
    """Name of the model file."""
    family: str
    """The kind of network."""
    parameters_billion: float
    """Nominal size in 10^9 parameters."""
    architecture: Architecture
    """The shape that is trained."""

    def __post_init__(self) -> None:
        checks.file_name("model.name", self.name)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the job is started."""

    launcher: str
    """slurm or local."""
    job_name: str
    """Name of the job."""
    queue: str
    """Partition; empty for the local launcher."""
    account: str
    """Account that is charged."""
    timelimit: str
    """HH:MM:SS or D-HH:MM:SS."""

    def __post_init__(self) -> None:
        checks.one_of("launch.launcher", self.launcher, ("slurm", "local"))
        checks.timelimit("launch.timelimit", self.timelimit)


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is trained on."""

    path: str
    """Prefix of the .bin/.idx pair, of a blend the first; empty for mock data."""
    cache: str
    """Folder of the dataset's index cache."""
    invented: bool = False
    """Whether it is the corpus of `nlp-bench data`, which stands for any text."""
    blend: tuple[str, ...] = ()
    """Of a blend the words of --data-path: prefixes, or weights and prefixes in turn."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of --data-path; none for mock data."""
        return self.blend or ((self.path,) if self.path else ())


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides one run."""

    created: str
    """When it was resolved, ISO 8601 with offset."""
    nlp_bench: Origin
    """Which program resolved it."""
    model: RunModel
    """What is trained."""
    system: System
    """Where, with `auto` resolved."""
    launch: Launch
    """How it is started."""
    parallel: Parallel
    """Over how many ranks, in which layout."""
    batch: Batch
    """What one optimizer step holds."""
    training: Training
    """For how long and with which optimizer."""
    data: Data
    """On which tokens."""
    tuning: Tuning = field(default_factory=Tuning)
    """Which switches of the trainer are set."""
    limits: Limits = field(default_factory=Limits)
    """How long anything may take, and how often it is tried."""
    nonce: str | None = None
    """Text of the buyer's, which the training's log must begin with; None where nobody asked for one."""
    deviations: tuple[str, ...] = ()
    """Frozen parameters that were changed: such a run is not the benchmark."""

    def __post_init__(self) -> None:
        checks.nonce("nonce", self.nonce)
        checks.no_secret("train_args", " ".join(self.tuning.train_args))

    def record(self) -> dict[str, Any]:
        """Return the run as the JSON object of run.json."""
        record: dict[str, Any] = {"schema": schemas.RUN, **dataclasses.asdict(self)}
        record["parallel"] |= {"num_gpus": self.parallel.num_gpus, "data": self.parallel.data}
        return record

    def write(self, folder: Path) -> Path:
        """Write run.json into `folder` and return its path."""
        path = folder / "run.json"
        write_json(path, self.record())
        return path


def read_run(path: Path) -> Run:
    """Read run.json, from its path or its folder. Raises NlpBenchError or UsageError naming the field at fault."""
    record = read_json(path / "run.json" if path.is_dir() else path, schemas.RUN)
    del record["schema"]
    for room, keys in DERIVED.items():
        given = record.get(room)
        if isinstance(given, dict):  # what is missing or of another kind is named by build
            record[room] = {key: value for key, value in given.items() if key not in keys}
    return build(Run, record, "run")
