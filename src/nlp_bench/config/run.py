"""run.json: one resolved run, the single source of truth for every later step."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.config import scheduler
from nlp_bench.config.model import RunModel, Training, model_shape
from nlp_bench.config.options import Checked
from nlp_bench.config.request import (
    MAX_RETRIES,
    BatchOptions,
    LaunchOptions,
    LimitOptions,
    ParallelOptions,
    TuningOptions,
)
from nlp_bench.config.system import System
from nlp_bench.config.table import build, no_secret, nonce, timelimit
from nlp_bench.config.values import seconds_of
from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json, read_json, write_json
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import Sizes, asked_sizes, multiple


@immutable
class Limits(LimitOptions, Checked, where="limits"):
    """Bounds of one run; each has a default that a benchmark run does not reach."""

    def _check(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not (0 <= value < math.inf):
                raise UsageError(f"limits.{name}: {value!r} is not a number from 0 up")
        if self.retries > MAX_RETRIES:
            raise UsageError(f"limits.retries: {self.retries} is more than {MAX_RETRIES}; look at the nodes instead")

    def join_s(self, nodes: int, *, is_packed: bool) -> float:
        """Return the seconds for which `nodes` nodes wait for each other; a container's image may have to be fetched first."""
        if self.join_timeout_s is not None:
            return self.join_timeout_s
        return 600.0 if is_packed else min(600.0, 60.0 + 10.0 * nodes)

    def silence_s(self, interval_s: float, *, has_pauses: bool) -> float:
        """Return the seconds of silence that are no stall (infinity: never) of lines `interval_s` apart; `has_pauses`: at start, end and checkpoints."""
        if not self.stall_factor:
            return math.inf
        usual_s = max(self.stall_least_s, self.stall_factor * interval_s)
        return max(usual_s, self.stall_start_s) if has_pauses else usual_s


NOT_ARGUMENTS = ("trainer", "megatron_lm_repo", "megatron_lm_commit", "train_args", "sequence_parallel")
"""Fields that are not an argument of the trainer of the same name."""
FILES = ("--vocab-file", "--merge-file", "--tokenizer-model", "--load")  # options in train_args that name a file


@immutable
class Tuning(TuningOptions, Checked, where="tuning"):
    """Switches that change how fast a run is, not what it trains. None: not given, the trainer's own default."""

    megatron_lm_repo: str = ""  # Of trainer megatron-lm: the folder of the checkout.
    megatron_lm_commit: str = ""  # Its commit, with "+changes" where it was not clean.

    def _check(self) -> None:
        if self.until is not None and self.trainer != "nlp-bench":
            raise UsageError(
                f"tuning.until: {self.trainer} cannot end by itself; leave it out or use trainer nlp-bench"
            )
        if self.overlap_param_gather and not (self.use_distributed_optimizer and self.overlap_grad_reduce):
            raise UsageError("tuning.overlap_param_gather: needs use_distributed_optimizer and overlap_grad_reduce")

    def words(self) -> list[str]:
        """Return the trainer's arguments for what is not its default."""
        found: list[str] = []
        for name, value in vars(self).items():
            if name in NOT_ARGUMENTS or value in (None, False, "auto", ()):
                continue
            values = value if isinstance(value, tuple) else () if value is True else (str(value),)
            found += ["--" + name.replace("_", "-"), *values]
        return [*found, *self.train_args]


def value_of(words: Iterable[str], option: str) -> str | None:
    """Return the value that `words` give `option`, as `--option VALUE` or `--option=VALUE`, the last one; None where it is not given."""
    value, before = None, ""
    for word in words:
        if before == option:
            value = word
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
        before = word
    return value


def anchored(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return `words` with the paths of files made absolute: the ranks start in the run's folder."""
    found: list[str] = []
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if equals and option in FILES and Path(value).exists():
            found.append(f"{option}={Path(value).absolute()}")
        elif place and words[place - 1] in FILES and Path(word).exists():
            found.append(str(Path(word).absolute()))
        else:
            found.append(word)
    return tuple(found)


DERIVED = ("num_gpus", "data")  # fields of `parallel` in run.json that are derived: written for readers, not read


@immutable
class Origin:
    """Which nlp-bench resolved the run."""

    version: str  # its version
    commit: str | None  # its commit, with "+changes" where the checkout was not clean; None outside a checkout
    code_sha256: str | None = None  # one hash over all its Python files; None in an older run.json


@immutable
class Launch(LaunchOptions, Checked, where="launch"):
    """How the job is started; queue and account are empty for the local launcher."""

    job_name: str  # Name of the job.

    def _check(self) -> None:
        scheduler.check_name("launch.launcher", self.launcher)
        timelimit("launch.timelimit", self.timelimit)

    @property
    def limit_s(self) -> float:
        """The time limit in seconds."""
        return seconds_of(self.timelimit) or 0.0  # `timelimit` has refused what is none


@immutable
class Parallel(ParallelOptions, Checked, where="parallel"):
    """Nodes, ranks and the parallel sizes."""

    def _check(self) -> None:
        if self.num_gpus % self.ranks_per_replica:
            of = "tp*pp" if self.context == 1 else "tp*pp*cp"
            raise UsageError(f"parallel: {multiple('nodes*gpus_per_node', self.num_gpus, of, self.ranks_per_replica)}")

    @property
    def num_gpus(self) -> int:
        """All ranks of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def ranks_per_replica(self) -> int:
        """Ranks that share one replica of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Data-parallel size: replicas of the model."""
        return self.num_gpus // self.ranks_per_replica


@immutable
class Batch(BatchOptions, Checked, where="batch"):
    """The samples of one optimizer step."""

    sequence_length: int  # Tokens in one sample.


@immutable
class Data:
    """What is trained on."""

    path: str  # prefix of the .bin/.idx pair, of a blend the first; empty for mock data
    cache: str  # folder of the dataset's index cache; a relative one lies in the run's folder
    invented: bool = False  # whether it is the corpus of `nlp-bench data`, used where no text is given
    blend: tuple[str, ...] = ()  # of a blend the values of --data-path: prefixes, or weights and prefixes in turn

    @property
    def words(self) -> tuple[str, ...]:
        """The values of --data-path; none for mock data."""
        return self.blend or ((self.path,) if self.path else ())

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes among `words`; none for mock data."""
        return parse_blend(self.words).prefixes if self.path else ()


_OF_MEMORY = ("precision", "recompute", "attention_dropout", "hidden_dropout")
"""Training parameters on which the memory of a rank depends."""
_NO_MEMORY = ("until", "megatron_lm_repo", "megatron_lm_commit")  # switches on which it does not


@immutable
class Run:
    """Everything that decides one run."""

    created: str  # when it was resolved, ISO 8601 with offset
    nlp_bench: Origin  # which program resolved it
    model: RunModel  # what is trained
    system: System  # where, with `auto` resolved
    launch: Launch  # how it is started
    parallel: Parallel  # over how many ranks, in which layout
    batch: Batch  # what one optimizer step holds
    training: Training  # for how long and with which optimizer
    data: Data  # on which tokens
    tuning: Tuning = field(default_factory=Tuning)  # which switches of the trainer are set
    limits: Limits = field(default_factory=Limits)  # how long anything may take, and how often it is tried
    nonce: str | None = None
    """Text of the buyer's, which the training's log must begin with; None where none was requested."""
    deviations: tuple[str, ...] = ()  # frozen parameters that were changed: such a run is not the benchmark

    def __post_init__(self) -> None:
        nonce("nonce", self.nonce)
        no_secret("train_args", " ".join(self.tuning.train_args))

    @property
    def sizes(self) -> Sizes:
        """Everything that the rules of a legal layout check."""
        parallel, tuning = self.parallel, self.tuning
        shape = model_shape(self.model.family, self.model.architecture)
        return Sizes(
            **asked_sizes(tuning, num_layers=shape.depth, pipeline=parallel.pipeline),
            num_gpus=parallel.num_gpus,
            tensor=parallel.tensor,
            pipeline=parallel.pipeline,
            context=parallel.context,
            micro_batch_size=self.batch.micro_batch_size,
            global_batch_size=self.batch.global_batch_size,
            sequence_parallel=tuning.sequence_parallel and parallel.tensor > 1,
            num_layers=shape.depth,
            num_attention_heads=shape.num_attention_heads,
            num_query_groups=shape.num_query_groups,
            ffn_hidden_size=shape.ffn_hidden_size,
            sequence_length=shape.sequence_length,
            decoder_sequence_length=self.model.architecture.decoder_sequence_length or 0,
        )

    def footprint(self) -> dict[str, Any]:
        """Return what decides the memory of its ranks, as JSON has it: a rehearsal of anything else says nothing of this run."""
        tuning = {name: value for name, value in asdict(self.tuning).items() if name not in _NO_MEMORY}
        found = {
            "family": self.model.family,
            "architecture": asdict(self.model.architecture),
            "accelerator": self.system.accelerator,
            "memory_gib": self.system.gpu.memory_gib if self.system.gpu else None,
            "parallel": asdict(self.parallel),
            "batch": asdict(self.batch),
            "training": {name: getattr(self.training, name) for name in _OF_MEMORY},
            "tuning": tuning,
        }
        return dict(parse_json(json.dumps(found)))

    def record(self) -> dict[str, Any]:
        """Return the run as the JSON object of run.json."""
        record: dict[str, Any] = {"schema": schemas.RUN, **asdict(self)}
        record["parallel"] |= {key: getattr(self.parallel, key) for key in DERIVED}
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
    if isinstance(given := record.get("parallel"), dict):  # missing fields and other types are errors of `build`
        record["parallel"] = {key: value for key, value in given.items() if key not in DERIVED}
    return build(Run, record, "run")


def batch_in_words(samples: int, usual: int) -> str:
    """Return a global batch in words; one that is not the model's own is said to be another amount of work."""
    return f"global batch {samples}" + ("" if samples == usual else f" (the model's is {usual})")


def summary(run: Run, usual_batch: int) -> str:
    """Return the run as aligned lines: model with its batch, machine, layout with its arithmetic, length, data."""
    shape, parallel, batch, launch = run.model.architecture, run.parallel, run.batch, run.launch
    tokens = batch.global_batch_size * batch.sequence_length
    unit = "GPUs" if run.system.accelerator == "cuda" else "CPU ranks"
    context = f" x context {parallel.context}" if parallel.context > 1 else ""
    recompute = [] if run.training.recompute == "none" else ["--recompute-granularity", run.training.recompute]
    sequence = ["--sequence-parallel"] if run.sizes.sequence_parallel else []
    rows = {
        "model": f"{run.model.name}: {shape.num_layers} layers, hidden {shape.hidden_size}, "
        f"{shape.num_attention_heads} heads, sequence {shape.sequence_length}, "
        + batch_in_words(batch.global_batch_size, usual_batch),
        "system": f"{run.system.name} ({run.system.description}), launcher {launch.launcher}"
        + (f", queue {launch.queue}" if launch.queue else ""),
        "ranks": f"{parallel.nodes} node(s) x {parallel.gpus_per_node} = {parallel.num_gpus} {unit}",
        "layout": f"tensor {parallel.tensor} x pipeline {parallel.pipeline}{context} x data {parallel.data}",
        "tuning": " ".join([*recompute, *sequence, *run.tuning.words()])
        + (f"; trainer {run.tuning.trainer}" if run.tuning.trainer != "nlp-bench" else ""),
        "batch": f"micro {batch.micro_batch_size} x accumulation {batch.gradient_accumulation_steps} x data "
        f"{parallel.data} = {batch.global_batch_size} samples, {tokens} tokens",
        "length": f"{run.training.iterations} iterations, a log line every {run.training.log_interval}, "
        + (f"less where the mean is known to {run.tuning.until} before, " if run.tuning.until else "")
        + f"at most {launch.timelimit}",
        "data": " ".join(run.data.words) or "mock (generated tokens)",
    }
    return "\n".join(f"{name:<7} {text}" for name, text in rows.items())
