"""What a person asks for, on the command line or through JUBE's parameters, before it is resolved."""

import argparse
from dataclasses import dataclass, fields

from nlp_bench.config import checks
from nlp_bench.config.tuning import TRAINERS, switch
from nlp_bench.errors import UsageError

UNSET = ("default",)
"""The word by which JUBE's parameters say: as the data files have it."""
MOST_DIGITS = 9
"""Of a count: more is a slip, and products of such counts would not fit into 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """All choices of one run; None means: as the data files have it."""

    model: str | None = None
    """Name of a model file, or its path."""
    system: str | None = None
    """Name of a system file, or its path."""
    launcher: str | None = None
    """slurm or local."""
    nodes: int | None = None
    """Nodes of the job."""
    gpus_per_node: int | None = None
    """Ranks per node."""
    tp: int | None = None
    """Tensor parallel size."""
    pp: int | None = None
    """Pipeline parallel size."""
    micro_batch_size: int | None = None
    """Samples in one forward pass."""
    gas: int | None = None
    """Gradient accumulation steps."""
    global_batch_size: int | None = None
    """Samples of one optimizer step; instead of gas."""
    iterations: int | None = None
    """Optimizer steps."""
    until: str | None = None
    """Share to which the mean time is to be known before the run ends by itself, as in 1%."""
    log_interval: int | None = None
    """Optimizer steps between two lines of the log."""
    sequence_length: int | None = None
    """Tokens in one sample (frozen by the rules)."""
    nlayers: int | None = None
    """Transformer layers (frozen by the rules)."""
    nhidden: int | None = None
    """Hidden size (frozen by the rules)."""
    nheads: int | None = None
    """Attention heads (frozen by the rules)."""
    nonce: str | None = None
    """Text of the buyer's that the log begins with."""
    data_path: str | None = None
    """Prefix of a .bin/.idx pair, or a blend "0.7 A 0.3 B"; `mock` for generated tokens."""
    trainer: str | None = None
    """nlp-bench or megatron-lm."""
    context_parallel_size: int | None = None
    """Ranks that share each sequence."""
    num_layers_per_virtual_pipeline_stage: int | None = None
    """Layers of one virtual stage (interleaved schedule)."""
    num_virtual_stages_per_pipeline_rank: int | None = None
    """Virtual stages of each pipeline rank."""
    decoder_first_pipeline_num_layers: int | None = None
    """Layers of the first pipeline stage."""
    decoder_last_pipeline_num_layers: int | None = None
    """Layers of the last pipeline stage."""
    sequence_parallel: bool | None = None
    """Split normalisations along the sequence."""
    use_distributed_optimizer: bool | None = None
    """Split the optimizer state between replicas."""
    overlap_grad_reduce: bool | None = None
    """Reduce gradients during the backward pass."""
    overlap_param_gather: bool | None = None
    """Gather parameters during the forward pass."""
    recompute_granularity: str | None = None
    """none, selective or full."""
    recompute_method: str | None = None
    """uniform or block."""
    recompute_num_layers: int | None = None
    """Layers per group or stage."""
    recompute_modules: str | None = None
    """Of selective recompute: core_attn, mlp, layernorm, with blanks between."""
    kernels: str | None = None
    """auto, te, apex or torch."""
    train_args: str | None = None
    """Further words for the trainer."""
    queue: str | None = None
    """Partition."""
    account: str | None = None
    """Account that is charged."""
    timelimit: str | None = None
    """HH:MM:SS."""
    exclusive: bool | None = None
    """Ask for whole nodes."""
    gres: str | None = None
    """Generic resource."""
    mem: str | None = None
    """Memory per node."""
    cpus_per_task: int | None = None
    """CPU cores per node."""
    dependency: str | None = None
    """Slurm's --dependency."""
    job_name_prefix: str | None = None
    """Stands before the model's name in the job's name."""
    container_image: str | None = None
    """Container image."""
    sbatch_args: tuple[str, ...] = ()
    """Further #SBATCH options."""
    srun_args: tuple[str, ...] = ()
    """Further srun options."""


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe one run."""
    model = parser.add_argument_group("what is trained")
    model.add_argument("--model", help="file of benchmark/models (tiny, 13, 175), or a path")
    _integers(model, {"--iterations": "optimizer steps", "--log-interval": "optimizer steps per line of the log"})
    model.add_argument(
        "--until", metavar="SHARE", help="end earlier, when the mean time is known to this share: 1%% (docs/until.md)"
    )
    model.add_argument(
        "--data-path", help="prefix of a .bin/.idx pair, or mock (default: the corpus of nlp-bench data)"
    )
    model.add_argument(
        "--nonce", metavar="TEXT", help="text of the buyer's that the log begins with (docs/evidence.md)"
    )
    layout = parser.add_argument_group("how it is spread (free to optimise)")
    layout.add_argument("--nodes", metavar="N", help="nodes of the job")
    layout.add_argument("--gpus-per-node", metavar="N", help="ranks per node")
    layout.add_argument(
        "--taskspernode", choices=["1"], help="launchers per node: 1, which starts all ranks of its node"
    )
    layout.add_argument("--tp", "--tp-size", metavar="N", help="tensor parallel size")
    layout.add_argument("--pp", "--pp-size", metavar="N", help="pipeline parallel size")
    layout.add_argument("--micro-batch-size", metavar="N", help="samples in one forward pass")
    layout.add_argument("--gas", metavar="N", help="gradient accumulation steps")
    layout.add_argument("--global-batch-size", metavar="N", help="samples of one optimizer step, instead of --gas")
    _add_tuning_arguments(parser)
    frozen = parser.add_argument_group("frozen by the rules (a changed one is not the benchmark)")
    _integers(frozen, {"--sequence-length": "tokens in a sample", "--nlayers": "layers", "--nhidden": "hidden size"})
    frozen.add_argument("--nheads", metavar="N", help="attention heads")
    _add_machine_arguments(parser)


def _add_tuning_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the switches, under Megatron-LM's names; those that are on or off take true or false, so that JUBE can sweep them."""
    tuning = parser.add_argument_group("how it is made fast (free to optimise; Megatron-LM's names)")
    counts = {
        "--context-parallel-size": "ranks that share each sequence",
        "--num-layers-per-virtual-pipeline-stage": "interleaved schedule: layers of one virtual stage",
        "--num-virtual-stages-per-pipeline-rank": "the same, by the number of virtual stages",
        "--decoder-first-pipeline-num-layers": "layers of the first stage, where it differs",
        "--decoder-last-pipeline-num-layers": "layers of the last stage, where it differs",
        "--recompute-num-layers": "layers per group (uniform) or stage (block)",
    }
    _integers(tuning, counts)
    switches = ("--sequence-parallel", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
    for option in switches:
        tuning.add_argument(option, metavar="BOOL", nargs="?", const="true", help="true or false")
    tuning.add_argument("--recompute-granularity", metavar="WORD", help="none, selective or full")
    tuning.add_argument("--recompute-method", metavar="WORD", help="uniform or block")
    tuning.add_argument(
        "--recompute-modules", metavar="WORDS", help='of selective recompute: "core_attn mlp layernorm"'
    )
    tuning.add_argument("--kernels", metavar="WORD", help="auto, te, apex or torch")
    tuning.add_argument("--trainer", metavar="WORD", help=f"{' or '.join(TRAINERS)} (the checkout at MEGATRON_LM_REPO)")
    tuning.add_argument(
        "--train-args", metavar="WORDS", help='further words for the trainer: "--manual-gc --no-rope-fusion"'
    )


def _add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("where and how it is started")
    machine.add_argument("--system", help="file of benchmark/systems, or a path (default: this machine's)")
    machine.add_argument("--launcher", help="slurm or local (default: slurm where sbatch answers)")
    machine.add_argument("--queue", "--partition", metavar="Q", help="Slurm partition")
    machine.add_argument("--account", metavar="A", help="account that is charged")
    machine.add_argument("--timelimit", metavar="HH:MM:SS", help="time limit of the job")
    machine.add_argument("--exclusive", action="store_true", default=None, help="ask for whole nodes")
    machine.add_argument("--gres", help="generic resource, for example gpu:4")
    machine.add_argument("--mem", help="memory per node, 0 for all")
    machine.add_argument("--cpus-per-task", metavar="N", help="CPU cores of each node's task")
    machine.add_argument("--dependency", help="Slurm dependency, for example singleton")
    machine.add_argument("--job-name-prefix", metavar="TEXT", help="stands before the model's name")
    machine.add_argument("--container-image", metavar="IMAGE", help="image for pyxis or apptainer")
    machine.add_argument(
        "--sbatch-arg",
        dest="sbatch_args",
        action="append",
        default=[],
        metavar="ARG",
        help="further sbatch option: --sbatch-arg=--reservation=R",
    )
    machine.add_argument(
        "--srun-arg",
        dest="srun_args",
        action="append",
        default=[],
        metavar="ARG",
        help="further srun option: --srun-arg=--cpu-bind=none",
    )


def _integers(group: "argparse._ArgumentGroup", options: dict[str, str]) -> None:
    for option, text in options.items():
        group.add_argument(option, metavar="N", help=text)


def from_options(options: argparse.Namespace) -> Request:
    """Build a Request from parsed options; JUBE's "default" means: not given.

    Raises UsageError for an empty word: JUBE puts it, without a word of its own, for a name that no parameter has.
    """
    values: dict[str, object] = {}
    for field in fields(Request):
        value = getattr(options, field.name, None)
        if isinstance(value, list):
            values[field.name] = tuple(word for word in value if word not in {"", *UNSET})
        elif value == "":
            raise UsageError(
                f"--{field.name.replace('_', '-')}: the value is empty: a misspelt $name in JUBE's file or a variable of the shell that is not set; "
                'give a value, or the word "default"'
            )
        elif value is not None and value not in UNSET:
            values[field.name] = _converted(field.name, field.type, value)
    request = Request(**values)  # type: ignore[arg-type]
    if request.launcher is not None:
        checks.one_of("launch.launcher", request.launcher, ("slurm", "local"))
    return request


def _converted(name: str, kind: object, value: object) -> object:
    if kind == (int | None):
        return whole_number(name, value)
    return switch(name, value) if kind == (bool | None) and isinstance(value, str) else value


def whole_number(name: str, value: object) -> int:
    """Return the number above 0 that a person wrote (12_000 too); raises UsageError naming the option otherwise."""
    text = str(value).replace("_", "")
    said = f"--{name.replace('_', '-')}: {str(value)[:40]!r}"
    if len(text) > MOST_DIGITS and text.isdecimal():
        raise UsageError(f"{said} has more than {MOST_DIGITS} digits")
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{said} is not a whole number above 0")
    return int(text)
