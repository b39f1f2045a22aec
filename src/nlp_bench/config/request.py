"""What a person asks for, on the command line or through JUBE's parameters, before it is resolved: one field, one option.

Where Megatron-LM or Slurm has a name for a thing, that name is the option's or one of its spellings.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from nlp_bench.config import scheduler
from nlp_bench.config.options import Container, add_fields, groups, option
from nlp_bench.config.values import UNSET, OneOf, UnlessDefault, count, time_limit

_trained = partial(option, group="what is trained")
_layout = partial(option, group="how it is spread (free to optimise)")
_tuning = partial(option, group="how it is made fast (free to optimise)")
_frozen = partial(option, group="frozen by the rules (a changed one is not the benchmark)")
_job = partial(option, group="where and how it is started")
RECOMPUTE = ("none", "selective", "full")
KERNELS = ("auto", "te", "apex", "torch")
TRAINERS = ("nlp-bench", "megatron-lm")
SBATCH = (
    "--reservation", "--qos", "--constraint", "--exclude", "--nodelist", "--licenses", "--switches", "--begin",
    "--mail-type", "--mail-user",
)  # fmt: skip
"""Options of sbatch that are handed on as they are."""


class _Launcher(OneOf):
    """A reader of a launcher: one of ours, or of those that are installed."""

    def __call__(self, text: str) -> str:
        """Return the word, or say which of ours there are."""
        return text if text not in self.words and text in scheduler.scheduler_names() else super().__call__(text)


@dataclass(frozen=True, kw_only=True)
class Request:
    """All choices of one run; None means: as the data files have it."""

    model: str | None = _trained(metavar="M")
    """File of benchmark/models (tiny, 13, 175), or a path."""
    iterations: int | None = _trained("--iterations", "--train-iters", read=count)
    """Optimizer steps."""
    log_interval: int | None = _trained()
    """Optimizer steps between two lines of the log."""
    until: str | None = _trained(metavar="SHARE")
    """End earlier, when the mean time is known to this share: 1% (docs/until.md)."""
    data_path: str | None = _trained(metavar="PREFIX")
    """Prefix of a .bin/.idx pair, a blend "0.7 A 0.3 B", or mock (default: the corpus of nlp-bench data)."""
    nonce: str | None = _trained(metavar="TEXT")
    """Text of the buyer's that the log begins with (docs/evidence.md)."""
    nodes: int | None = _layout()
    """Nodes of the job."""
    gpus_per_node: int | None = _layout()
    """GPUs, and so ranks, of each node."""
    tp: int | None = _layout("--tp", "--tp-size", "--tensor-model-parallel-size")
    """Tensor parallel size."""
    pp: int | None = _layout("--pp", "--pp-size", "--pipeline-model-parallel-size")
    """Pipeline parallel size."""
    context_parallel_size: int | None = _layout("--cp", "--cp-size", "--context-parallel-size")
    """Context parallel size: ranks that share each sequence."""
    num_virtual_stages_per_pipeline_rank: int | None = _layout(
        "--vpp", "--num-virtual-stages-per-pipeline-rank", "--virtual-pipeline-model-parallel-size"
    )
    """Interleaved schedule: virtual stages of each pipeline rank, 1 for none."""
    num_layers_per_virtual_pipeline_stage: int | None = _layout()
    """The same, by the layers of one virtual stage."""
    decoder_first_pipeline_num_layers: int | None = _layout("--first-layers", "--decoder-first-pipeline-num-layers")
    """Layers of the first pipeline stage, where it differs."""
    decoder_last_pipeline_num_layers: int | None = _layout("--last-layers", "--decoder-last-pipeline-num-layers")
    """Layers of the last pipeline stage, where it differs."""
    micro_batch_size: int | None = _layout()
    """Samples in one forward pass."""
    gas: int | None = _layout("--gas", "--gradient-accumulation-steps")
    """Gradient accumulation steps: micro-batches of an optimizer step."""
    global_batch_size: int | None = _layout()
    """Samples of one optimizer step, instead of --gas."""
    sequence_parallel: bool | None = _tuning()
    """Split normalisations along the sequence."""
    use_distributed_optimizer: bool | None = _tuning()
    """Split the optimizer state between replicas."""
    overlap_grad_reduce: bool | None = _tuning()
    """Reduce gradients during the backward pass."""
    overlap_param_gather: bool | None = _tuning()
    """Gather parameters during the forward pass."""
    recompute_granularity: str | None = _tuning(
        "--recompute", "--recompute-granularity", read=OneOf(*RECOMPUTE), metavar="WORD"
    )
    """What is computed again in the backward pass: none, selective or full."""
    recompute_method: str | None = _tuning(read=OneOf("uniform", "block"), metavar="WORD")
    """Of full recompute: uniform or block."""
    recompute_num_layers: int | None = _tuning()
    """Of full recompute: layers per group (uniform) or stage (block)."""
    recompute_modules: str | None = _tuning(metavar="WORDS")
    """Of selective recompute: "core_attn mlp layernorm"."""
    kernels: str | None = _tuning(read=OneOf(*KERNELS), metavar="WORD")
    """Kernels: auto, te, apex or torch."""
    trainer: str | None = _tuning(read=OneOf(*TRAINERS), metavar="WORD")
    """Trainer: nlp-bench or megatron-lm (the checkout at MEGATRON_LM_REPO)."""
    train_args: str | None = _tuning(metavar="WORDS")
    """Further words for the trainer: "--manual-gc --no-rope-fusion"."""
    sequence_length: int | None = _frozen("--sequence-length", "--seq-length")
    """Tokens in a sample; 2048 or 2Ki, since 2k may be 2000."""
    nlayers: int | None = _frozen("--nlayers", "--num-layers")
    """Transformer layers."""
    nhidden: int | None = _frozen("--nhidden", "--hidden-size")
    """Hidden size."""
    nheads: int | None = _frozen("--nheads", "--num-attention-heads")
    """Attention heads."""
    system: str | None = _job(metavar="S")
    """File of benchmark/systems, or a path (default: this machine's)."""
    launcher: str | None = _job(read=_Launcher(*scheduler.BUILT_IN), metavar="WORD")
    """Launcher: slurm or local (default: slurm where sbatch answers)."""
    queue: str | None = _job("--queue", "--partition", metavar="Q")
    """Partition of Slurm."""
    account: str | None = _job(metavar="A")
    """Account that is charged."""
    timelimit: str | None = _job("--timelimit", "--time", read=time_limit, metavar="HH:MM:SS")
    """Time limit of the job; 90min or 2h works too."""
    exclusive: bool | None = _job()
    """Ask for whole nodes."""
    gres: str | None = _job(metavar="NAME")
    """Generic resource, for example gpu:4."""
    mem: str | None = _job(metavar="SIZE")
    """Memory per node, 0 for all."""
    cpus_per_task: int | None = _job()
    """CPU cores of each node's task."""
    dependency: str | None = _job(metavar="WORD")
    """Dependency of the job, for example singleton."""
    job_name_prefix: str | None = _job(metavar="TEXT")
    """Stands before the model's name in the job's name."""
    container_image: str | None = _job(metavar="IMAGE")
    """Image for pyxis or apptainer."""
    sbatch_args: tuple[str, ...] = _job("--sbatch-arg", metavar="ARG", default=())
    """Further option of sbatch: --sbatch-arg=--wckey=W."""
    srun_args: tuple[str, ...] = _job("--srun-arg", metavar="ARG", default=())
    """Further option of srun: --srun-arg=--cpu-bind=none."""


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe one run."""
    for title, names in groups(Request).items():
        add_run_options(parser.add_argument_group(title), names)


def add_run_options(container: Container, names: Iterable[str], texts: dict[str, str] | None = None) -> None:
    """Add these fields of Request with what belongs to them; `texts` replaces the help of some."""
    add_fields(container, Request, names, texts)
    if "data_path" in names:
        container.add_argument(
            "--mock-data", dest="data_path", action="store_const", const="mock", help="the same as --data-path mock"
        )
    if "gpus_per_node" in names and "pp" in names:
        container.add_argument(
            "--taskspernode", "--ntasks-per-node", type=UnlessDefault(OneOf("1")), metavar="1",
            help="launchers per node: 1, which starts all ranks of its node (--gpus-per-node)",
        )  # fmt: skip
    if "sbatch_args" in names:
        container.add_argument(
            *SBATCH, dest="sbatch_args", action=_HandedOn, metavar="X", help="options of sbatch, handed on as they are"
        )


class _HandedOn(argparse.Action):
    """Appends an option with its value to the words for sbatch."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse passes it
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep `--qos high` as one word."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), f"{option_string}={values}"])


def from_options(options: argparse.Namespace) -> Request:
    """Return what parsed options ask for; a field that the subcommand has no option for is not given."""
    values: dict[str, Any] = {field.name: getattr(options, field.name, None) for field in fields(Request)}
    for name in ("sbatch_args", "srun_args"):  # JUBE passes "default" on
        values[name] = tuple(word for word in values[name] or () if word not in {"", *UNSET})
    return Request(**values)
