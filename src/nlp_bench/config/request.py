"""What the user requests, on the command line or by JUBE's parameters: one field, one option, and its place in run.json.

The options are in dataclasses by their subject. `Request` has those that decide what is run, None where not given; limits, checkpoints
and watching are options of `submit` and `watch` alone. The record of run.json with the same fields inherits them: `Parallel` those of
ParallelOptions, `Tuning` those of TuningOptions, ... So a new option is one field here. Its annotation is that of the record. Where
Megatron-LM or Slurm has a name for a thing, that name is the option's or one of its spellings.
"""

import argparse
import math
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from nlp_bench.config.options import Container, add_fields, flag, option, value
from nlp_bench.config.values import UNSET, OneOf, UnlessDefault, count, duration, number, time_limit, words
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import RECOMPUTE

GROUPS = TRAINED, SPREAD, TUNED, FROZEN, JOB = (
    "what is trained",
    "how it is spread (free to optimise)",
    "how it is made fast (free to optimise)",
    "frozen by the rules (a changed one is not the benchmark)",
    "where and how it is started",
)
SBATCH = (
    "--reservation", "--qos", "--constraint", "--exclude", "--nodelist", "--licenses", "--switches", "--begin",
    "--mail-type", "--mail-user",
)  # fmt: skip
"""Options of sbatch that are passed on unchanged."""
_trained = partial(option, group=TRAINED, default=MISSING)
_spread = partial(option, group=SPREAD)
_tuning = partial(option, group=TUNED)
_frozen = partial(option, group=FROZEN, default=MISSING)
_job = partial(option, group=JOB, of_job=True)
LONG = "long trainings (a throughput run writes no checkpoints; see docs/checkpoints.md)"
_limit = partial(option, group="how long anything may take, and how often")
MAX_RETRIES = 10


class _Launcher(OneOf):
    """A reader of a launcher: a built-in one, or an installed one. They are looked up when a value is read."""

    def __init__(self) -> None:
        pass

    @cached_property
    def words(self) -> tuple[str, ...]:  # type: ignore[override]  # mypy takes it for one that cannot be set
        from nlp_bench.config.scheduler import BUILT_IN  # noqa: PLC0415  # a reader of logs starts no job

        return BUILT_IN

    def __call__(self, text: str) -> str:
        from nlp_bench.config.scheduler import scheduler_names  # noqa: PLC0415  # likewise

        return text if text not in self.words and text in scheduler_names() else super().__call__(text)


def _retries(text: str) -> int:
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {MAX_RETRIES}")
    return int(text)


@immutable
class ShapeOptions:
    """Options of `model.architecture`."""

    num_layers: int = _frozen("--nlayers", "--num-layers", jube="nlayers")  # Transformer layers.
    hidden_size: int = _frozen("--nhidden", "--hidden-size", jube="nhidden")
    """Hidden size: width of the residual stream."""
    num_attention_heads: int = _frozen("--nheads", "--num-attention-heads", jube="nheads")
    """Attention heads; they divide the hidden size."""
    sequence_length: int = _frozen("--sequence-length", "--seq-length", jube="sequence_length")
    """Tokens in a sample; 2048 or 2Ki, since 2k may be 2000."""


@immutable
class TrainingOptions:
    """Options of `training`."""

    iterations: int = _trained("--iterations", "--train-iters", read=count, jube="iterations")  # Optimizer steps.
    log_interval: int = _trained()  # Optimizer steps between two lines of the log.
    recompute: str = _frozen("--recompute", "--recompute-granularity", words=RECOMPUTE, jube="recompute_granularity")
    """What is computed again in the backward pass: none, selective (core attention) or full; free for models without rules."""


@immutable
class ParallelOptions:
    """Options of `parallel`."""

    nodes: int = _spread(jube="nodes", default=MISSING)  # Nodes of the job.
    gpus_per_node: int = _spread(jube="gpus_per_node", default=MISSING)
    """GPUs (or CPU ranks), and so ranks, of each node."""
    tensor: int = _spread("--tp", "--tp-size", "--tensor-model-parallel-size", jube="tp_size", default=MISSING)
    """Tensor parallel size: ranks that share each layer."""
    pipeline: int = _spread("--pp", "--pp-size", "--pipeline-model-parallel-size", jube="pp_size", default=MISSING)
    """Pipeline parallel size: stages that the layers are cut into."""
    context: int = _spread("--cp", "--cp-size", "--context-parallel-size", jube="context_parallel_size", default=1)
    """Context parallel size: ranks that share each sequence."""


@immutable
class BatchOptions:
    """Options of `batch`."""

    micro_batch_size: int = _spread(jube="micro_batch_size", default=MISSING)  # Samples in one forward pass.
    gradient_accumulation_steps: int = _spread("--gas", "--gradient-accumulation-steps", jube="gas", default=MISSING)
    """Gradient accumulation steps: micro-batches of an optimizer step (default: as many as make the global batch)."""
    global_batch_size: int = _spread(jube="global_batch_size", default=MISSING)
    """Samples of one optimizer step over all replicas (default: the model's, on every machine; with --gas alone as it makes)."""


@immutable
class TuningOptions:
    """Options of `tuning`: switches that change how fast a run is, not what it trains."""

    trainer: str = _tuning(words=("nlp-bench", "megatron-lm"), jube="trainer", default="nlp-bench")
    """Trainer: nlp-bench or megatron-lm (pretrain_gpt.py of the checkout at MEGATRON_LM_REPO, with the same arguments)."""
    num_layers_per_virtual_pipeline_stage: int | None = _spread(jube="num_layers_per_virtual_pipeline_stage")
    """Interleaved schedule: layers of one virtual stage."""
    num_virtual_stages_per_pipeline_rank: int | None = _spread(
        "--vpp", "--num-virtual-stages-per-pipeline-rank", "--virtual-pipeline-model-parallel-size",
        jube="num_virtual_stages_per_pipeline_rank",
    )  # fmt: skip
    """The same, by the virtual stages of each pipeline rank, 1 for none."""
    decoder_first_pipeline_num_layers: int | None = _spread(
        "--first-layers", "--decoder-first-pipeline-num-layers", jube="decoder_first_pipeline_num_layers"
    )
    """Layers of the first pipeline stage, where it differs."""
    decoder_last_pipeline_num_layers: int | None = _spread(
        "--last-layers", "--decoder-last-pipeline-num-layers", jube="decoder_last_pipeline_num_layers"
    )
    """Layers of the last pipeline stage, where it differs."""
    sequence_parallel: bool = _tuning(jube="sequence_parallel", default=True)
    """Split normalisations along the sequence; without tensor parallelism it does nothing."""
    use_distributed_optimizer: bool = _tuning(jube="use_distributed_optimizer", default=True)
    """Split the optimizer state between replicas."""
    overlap_grad_reduce: bool = _tuning(jube="overlap_grad_reduce", default=False)
    """Reduce gradients during the backward pass."""
    overlap_param_gather: bool = _tuning(jube="overlap_param_gather", default=False)
    """Gather parameters during the forward pass."""
    recompute_method: str | None = _tuning(words=("uniform", "block"), jube="recompute_method")
    """Of full recompute: uniform or block."""
    recompute_num_layers: int | None = _tuning(jube="recompute_num_layers")
    """Of full recompute: layers per group (uniform) or stage (block)."""
    recompute_modules: tuple[str, ...] = _tuning(read=words, metavar="WORDS", jube="recompute_modules", default=())
    """Of selective recompute: "core_attn mlp layernorm"."""
    kernels: str = _tuning(words=("auto", "te", "apex", "torch"), jube="kernels", default="auto")
    """Kernels: auto, te (Transformer Engine), apex or torch."""
    until: str | None = option(group=TRAINED, metavar="SHARE", jube="until")
    """End earlier, when the mean time of an iteration is known to this share: 1% (docs/until.md)."""
    train_args: tuple[str, ...] = _tuning(read=words, metavar="WORDS", jube="train_args", default=())
    """Further words for the trainer: "--manual-gc --no-rope-fusion"."""


@immutable
class LaunchOptions:
    """Options of `launch`."""

    launcher: str = option(group=JOB, read=_Launcher(), metavar="WORD", default=MISSING)
    """Launcher: a scheduler, or local (default: the scheduler that answers here, else local)."""
    queue: str = _job("--queue", "--partition", metavar="Q", jube="queue", default=MISSING)  # Partition of Slurm.
    account: str = _job(metavar="A", jube="account", default=MISSING)  # Account that is charged.
    timelimit: str = _job(
        "--timelimit", "--time", read=time_limit, metavar="HH:MM:SS", jube="timelimit", default=MISSING
    )
    """Time limit of the job; 90min or 2h works too."""


@immutable
class SlurmOptions:
    """Options of `system.slurm`, and its keys in a system file."""

    exclusive: bool = _job(default=False)  # Ask for whole nodes.
    gres: str = _job(metavar="NAME", jube="gres", default="")
    """Generic resource of the GPUs, for example gpu:4; gpu becomes gpu:N, gpu:a100 gpu:a100:N, with the ranks per node."""
    mem: str = _job(metavar="SIZE", default="")  # Memory per node, "0" for all.
    cpus_per_task: int | None = _job()  # CPU cores of the one task per node.
    dependency: str = _job(metavar="WORD", default="")  # Dependency of the job, for example singleton.
    job_name_prefix: str = option(group=JOB, metavar="TEXT", default="nlp-bench-")
    """Stands before the model's name in the job's name."""
    sbatch_args: tuple[str, ...] = _job("--sbatch-arg", metavar="ARG", default=())
    """Further options of sbatch, one word each: --sbatch-arg=--wckey=W."""
    srun_args: tuple[str, ...] = _job("--srun-arg", metavar="ARG", default=())
    """Further options of srun, one word each: --srun-arg=--cpu-bind=none."""


@immutable
class CheckpointOptions:
    """Options of checkpoints and chains, of a submission alone."""

    chain: int = option(group=LONG, jube="chain", default=1)
    """Jobs in a row, each going on from the checkpoint of the one before."""
    save: Path | None = option(group=LONG, metavar="FOLDER")
    """Write checkpoints there (default of a chain: RUN_DIR/checkpoints)."""
    load: Path | None = option(group=LONG, metavar="FOLDER")
    """Go on from the newest checkpoint there, also with other --nodes."""
    save_interval: int | None = option(group=LONG)
    """Optimizer steps between checkpoints (default: at a job's end only)."""
    exit_interval: int | None = option(group=LONG)
    """End each job after a step that N divides (default: before its time limit)."""


@immutable
class LimitOptions:
    """Options of `limits`, of a submission alone."""

    join_timeout_s: float | None = _limit("--join-timeout", "--join", read=duration("s"), metavar="SECONDS")
    """How long a node waits for the others (default: by the number of nodes, 600 at most)."""
    collective_timeout_min: int | None = _limit(
        "--collective-timeout", read=lambda text: math.ceil(duration("min")(text)), metavar="MINUTES"
    )
    """How long a rank waits in a collective (default: the trainer's, 10)."""
    stall_factor: float = _limit(
        "--stall-factor", read=number("not a number from 0 up; write 10", math.isfinite), metavar="K", default=10.0
    )
    """End a run whose log is silent for K times its longest interval (10; 0: never)."""
    stall_least_s: float = _limit("--stall-least", read=duration("s", least=0), metavar="SECONDS", default=300.0)
    """Silence that is never a stall, however short the intervals are (300)."""
    stall_start_s: float = _limit("--stall-start", read=duration("s", least=0), metavar="SECONDS", default=3600.0)
    """Silence allowed before the second line of the log, after its last one, and around checkpoints (3600)."""
    notice_s: int = _limit(
        "--notice", read=lambda text: round(duration("s", least=0)(text)), metavar="SECONDS", least=0, default=0
    )
    """So long before the time limit the ranks stop after their iteration, with a checkpoint where --save is given (0: never)."""
    max_pending_s: float | None = _limit("--max-pending", read=duration("s", least=0), metavar="SECONDS")
    """Cancel a job that has waited so long in the queue (0: never)."""
    retries: int = _limit("--retries", read=_retries, metavar="N", jube="retries", least=0, default=0)
    """Further jobs where a node failed or the job was preempted (0); no other end is tried again."""


@immutable
class WatchOptions:
    """Options of `watch` that say what it looks at, and for how long."""

    once: bool = flag()  # Look once and return.
    while_pid: int | None = value(read=count, metavar="PID")  # Go on for as long as this process lives.
    new: bool = flag()  # Show only runs that are submitted from now on.
    drives: bool = flag("--continue")
    """Also call `jube continue` for JUBE's runs until nothing waits in them: unattended to the table."""
    until: str | None = value(metavar="SHARE")
    """Say when the mean time of a run is known to this share: 1% (default: what the run itself was submitted with)."""
    max_hours: float | None = value(read=duration("h"), metavar="H")
    """Return after H hours (or 90min, 2d), with exit code 3."""


@immutable
class RunOptions:
    """Options that have no field of their own name in run.json."""

    model: str | None = option("--model", group=TRAINED, metavar="M", jube="nlp_model_size")
    """File of benchmark/models (tiny, 13, 175), or a path."""
    data_path: str | None = option(group=TRAINED, metavar="PREFIX", jube="data_path")
    """Prefix of a .bin/.idx pair, a blend "0.7 A 0.3 B", or mock (default: the corpus of nlp-bench data)."""
    nonce: str | None = option(group=TRAINED, metavar="TEXT", jube="nonce", of_job=True)
    """Text of the buyer's that the log begins with (docs/evidence.md)."""
    system: str | None = option(group=JOB, metavar="S", jube="system")
    """File of benchmark/systems, or a path (default: this machine's)."""
    container_image: str | None = option(group=JOB, metavar="IMAGE")  # Image for pyxis or apptainer.


@immutable
class Request(
    SlurmOptions, LaunchOptions, ShapeOptions, TuningOptions, BatchOptions, ParallelOptions, TrainingOptions, RunOptions
):
    """All options that decide what is run; None means: as the data files have it."""


def shared(name: str, **metadata: Any) -> Any:
    """Return a field of a subcommand that is the option of a run of this name; without a text of its own it has that one's."""
    (one,) = (one for one in fields(Request) if one.name == name)
    return field(default=None, metadata={**one.metadata, "help": None, "from": Request, **metadata})


def add_spellings(container: Container, names: Sequence[str]) -> None:
    """Add the other spellings of the options `names` to their group."""
    if "data_path" in names:
        container.add_argument(
            "--mock-data", dest="data_path", action="store_const", const="mock", help="the same as --data-path mock"
        )
    if "gpus_per_node" in names and "pipeline" in names:
        container.add_argument(
            "--taskspernode", "--ntasks-per-node", type=UnlessDefault(OneOf("1")), metavar="1",
            help="launchers per node: 1, which starts all ranks of its node (--gpus-per-node)",
        )  # fmt: skip
    if "sbatch_args" in names:
        container.add_argument(
            *SBATCH, dest="sbatch_args", action=_PassedOn, metavar="X", help="options of sbatch, handed on as they are"
        )


class _PassedOn(argparse.Action):
    """Appends an option with its value to the arguments for sbatch."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse passes it
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep `--qos high` as one word."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), f"{option_string}={values}"])


_FILE_OF_NODES = re.compile(r"--(?:exclude|nodelist|nodefile)=(?=[^/]+/)")


def _with_path(word: str) -> str:
    """Return an option of sbatch with the file of nodes that it names, known by its /, as seen from any folder: the job is submitted from its own."""
    found = _FILE_OF_NODES.match(word)
    return word if found is None else f"{found.group()}{os.path.abspath(word[found.end() :])}"  # noqa: PTH100  # no ./ in between


def from_options(options: object) -> Request:
    """Return the request of a subcommand's options; a field that it has no option for is not given."""
    values: dict[str, Any] = {one.name: getattr(options, one.name, None) for one in fields(Request)}
    for name in ("sbatch_args", "srun_args"):  # JUBE passes "default" on
        values[name] = tuple(_with_path(word) for word in values[name] or () if word not in {"", *UNSET}) or None
    return Request(**values)


def read_request(words: Sequence[str]) -> Request:
    """Return the request of `words`, the options of one run."""
    parser = argparse.ArgumentParser()
    add_fields(parser, Request, [one.name for one in fields(Request)])
    return from_options(parser.parse_args(words))
