"""run.json: one resolved run, the single source of truth for every later step."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.config import checks, scheduler
from nlp_bench.config.limits import Limits
from nlp_bench.config.model import Architecture, Training, model_shape
from nlp_bench.config.system import System
from nlp_bench.config.table import build
from nlp_bench.config.tuning import Tuning
from nlp_bench.errors import UsageError
from nlp_bench.files import read_json, write_json
from nlp_bench.layout.rules import SHARDING, Sizes, multiple, virtual_stages

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
    """The scheduler (slurm), or local."""
    job_name: str
    """Name of the job."""
    queue: str
    """Partition; empty for the local launcher."""
    account: str
    """Account that is charged."""
    timelimit: str
    """HH:MM:SS or D-HH:MM:SS."""

    def __post_init__(self) -> None:
        scheduler.check_name("launch.launcher", self.launcher)
        checks.timelimit("launch.timelimit", self.timelimit)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Nodes, ranks and the parallel sizes."""

    nodes: int
    """Nodes of the job."""
    gpus_per_node: int
    """Ranks per node, one per GPU (or CPU ranks)."""
    tensor: int
    """Ranks that share each layer."""
    pipeline: int
    """Stages that the layers are cut into."""
    context: int = 1
    """Ranks that share each sequence."""

    def __post_init__(self) -> None:
        checks.positive(**{f"parallel__{name}": value for name, value in vars(self).items()})
        if self.num_gpus % self.model_parallel:
            of = "tp*pp" if self.context == 1 else "tp*pp*cp"
            raise UsageError(f"parallel: {multiple('nodes*gpus_per_node', self.num_gpus, of, self.model_parallel)}")

    @property
    def num_gpus(self) -> int:
        """All ranks of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def model_parallel(self) -> int:
        """Ranks that share one replica of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Data-parallel size: replicas of the model."""
        return self.num_gpus // self.model_parallel


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The samples of one optimizer step."""

    micro_batch_size: int
    """Samples in one forward pass of one pipeline."""
    gradient_accumulation_steps: int
    """Micro batches per optimizer step and pipeline (GAS)."""
    global_batch_size: int
    """Samples of one optimizer step over all replicas."""
    sequence_length: int
    """Tokens in one sample."""


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

    @property
    def sizes(self) -> Sizes:
        """Everything that the rules of a legal layout look at."""
        parallel, tuning = self.parallel, self.tuning
        shape = model_shape(self.model.family, self.model.architecture)
        layers = tuning.num_layers_per_virtual_pipeline_stage
        return Sizes(
            num_gpus=parallel.num_gpus,
            tensor=parallel.tensor,
            pipeline=parallel.pipeline,
            context=parallel.context,
            virtual=virtual_stages(
                shape.depth, parallel.pipeline, stages=tuning.num_virtual_stages_per_pipeline_rank, layers=layers
            ),
            layers_per_virtual=layers or 0,
            first_layers=tuning.decoder_first_pipeline_num_layers or 0,
            last_layers=tuning.decoder_last_pipeline_num_layers or 0,
            micro_batch_size=self.batch.micro_batch_size,
            global_batch_size=self.batch.global_batch_size,
            sequence_parallel=tuning.sequence_parallel and parallel.tensor > 1,
            sharding=SHARDING.index("optimizer" if tuning.use_distributed_optimizer else "none"),
            overlap_grad_reduce=tuning.overlap_grad_reduce,
            overlap_param_gather=tuning.overlap_param_gather,
            num_layers=shape.depth,
            num_attention_heads=shape.num_attention_heads,
            num_query_groups=shape.num_query_groups,
            ffn_hidden_size=shape.ffn_hidden_size,
            sequence_length=shape.sequence_length,
            decoder_sequence_length=self.model.architecture.decoder_sequence_length or 0,
        )

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
