"""The trainer's arguments of a run, under Megatron-LM's names: for our trainer, or for Megatron-LM's own pretrain_gpt.py.

The names are Megatron-LM's already; what differs is translated here. Source: NVIDIA/Megatron-LM, megatron/training/arguments.py
(commit 000c4ac2) and its tokenizer NullTokenizer, which adds one token for the end of a document.
"""

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from nlp_bench.config.accelerators import FORMATS, TABLE, entry_of
from nlp_bench.config.model import PRECISIONS
from nlp_bench.config.origin import SCRIPT
from nlp_bench.config.run import Run, Tuning
from nlp_bench.errors import UsageError
from nlp_bench.layout.shape import NETWORKS

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

SAME_NAMES = (
    "adam_beta1", "adam_beta2", "adam_eps", "lr", "min_lr", "lr_decay_style", "lr_decay_samples", "lr_warmup_samples",
    "weight_decay", "clip_grad", "attention_dropout", "hidden_dropout", "seed",
)  # fmt: skip
"""Fields of run.json's `training` that are arguments of the trainer."""
STOP_WORD = "--exit-signal-handler"  # SIGTERM then stops a rank after its iteration; costs a small collective in each


def training_arguments(run: Run) -> list[str]:
    """Return the words behind `python -m nlp_bench.train`: shape, layout, batch, optimizer, switches, data."""
    valued = {**_shape(run), **_training(run)}
    words = [word for name, value in valued.items() if value is not None for word in (f"--{name}", str(value))]
    words += [f"--{name}" for name, is_given in _switches(run).items() if is_given]
    words += PRECISIONS[run.training.precision]
    given = {word.split("=")[0] for word in run.tuning.train_args}  # what --train-args says as well wins
    if run.limits.collective_timeout_min is not None and "--distributed-timeout-minutes" not in given:
        words += ["--distributed-timeout-minutes", str(run.limits.collective_timeout_min)]
    if run.limits.notice_s and STOP_WORD not in given:
        words += [STOP_WORD]
    words += [] if run.training.recompute == "none" else ["--recompute-granularity", run.training.recompute]
    words += ["--tensorboard-dir", "tensorboard"]  # in the run's folder, where the ranks are started
    words += [*run.tuning.words(), *([] if run.nonce is None else ["--nonce", run.nonce])]
    data = ["--data-path", *run.data.words, "--data-cache-path", run.data.cache] if run.data.path else ["--mock-data"]
    return words + data


def _shape(run: Run) -> dict[str, object]:
    from nlp_bench.train.settings.families import FAMILIES  # noqa: PLC0415  # 100 options: only where a run is checked

    shape, family = run.model.architecture, NETWORKS[run.model.family]
    # An option of another family is passed on too; the trainer refuses it.
    own = (name for kind in FAMILIES.values() for name in kind.own)
    return {
        "model-family": None if family == "gpt" else family,
        "num-layers": shape.num_layers,
        "hidden-size": shape.hidden_size,
        "ffn-hidden-size": shape.ffn_hidden_size,
        "num-attention-heads": shape.num_attention_heads,
        "kv-channels": shape.head_width,
        "num-query-groups": shape.num_query_groups,
        "seq-length": shape.sequence_length,
        "decoder-seq-length": shape.decoder_sequence_length,
        "max-position-embeddings": shape.sequence_length,
        "position-embedding-type": shape.position_embedding,
        "rotary-base": None if shape.rotary_base == 10000 else shape.rotary_base,
        "normalization": None if shape.normalization == "LayerNorm" else shape.normalization,
        "norm-epsilon": None if shape.norm_epsilon == 1e-5 else shape.norm_epsilon,
        "tokenizer-type": _tokenizer(run),
        "vocab-size": shape.vocab_size,
        **{name.replace("_", "-"): getattr(shape, name) or None for name in own if hasattr(shape, name)},
        "init-method-std": shape.init_method_std,
    }


def _tokenizer(run: Run) -> str | None:
    """Return the kind of tokenizer; the invented corpus stands for any text, so its tokens are taken as mere numbers."""
    named = run.model.architecture.tokenizer
    if named == "GPT2BPETokenizer":
        return None
    return "NullTokenizer" if run.data.invented or not run.data.path else named


def _switches(run: Run) -> dict[str, bool]:
    shape = run.model.architecture
    return {
        "group-query-attention": shape.num_query_groups is not None,
        "swiglu": shape.activation == "swiglu",
        "geglu": shape.activation == "geglu",
        "disable-bias-linear": not shape.biases,
        "untie-embeddings-and-output-weights": not shape.tied_embeddings,
        "sequence-parallel": run.parallel.tensor > 1 and run.tuning.sequence_parallel,
    }


def _training(run: Run) -> dict[str, object]:
    parallel, training = run.parallel, run.training
    loss_scale = {"initial-loss-scale": 4096, "min-loss-scale": 1.0, "loss-scale-window": 500, "hysteresis": 2}
    return {
        "tensor-model-parallel-size": parallel.tensor,
        "pipeline-model-parallel-size": parallel.pipeline,
        "context-parallel-size": None if parallel.context == 1 else parallel.context,
        "micro-batch-size": run.batch.micro_batch_size,
        "global-batch-size": run.batch.global_batch_size,
        "train-iters": training.iterations,
        "log-interval": training.log_interval,
        "optimizer": "adam",
        **{name.replace("_", "-"): getattr(training, name) for name in SAME_NAMES},
        **(loss_scale if training.precision == "fp16" else {}),
    }


def check_arguments(run: Run, *, files: bool = False) -> None:
    """Raise UsageError where the trainer would refuse the run, by its own rules, which need no torch; with `files` also for the data and their tokenizer.

    Also where the recorder would refuse NLP_BENCH_SAMPLE_S, which the job gets from this environment.
    """
    from nlp_bench.machine.recorder import interval_s  # noqa: PLC0415
    from nlp_bench.train.arguments import parse  # noqa: PLC0415  # 100 options: only where a run is checked
    from nlp_bench.train.layout import Layout  # noqa: PLC0415
    from nlp_bench.train.settings.rules import check_files  # noqa: PLC0415

    interval_s()
    for word in run.tuning.train_args:
        if why := WITHOUT_EFFECT.get(word.split("=")[0]):
            raise UsageError(f"train_args: {word.split('=')[0]} {why}")
    settings = parse(training_arguments(run))
    bare = replace(run, tuning=replace(run.tuning, train_args=()))
    _refuse_overrides(parse(training_arguments(bare)), settings)
    Layout.of(settings, run.parallel.num_gpus)
    _check_format(run, settings)
    _check_until(run)
    if files:
        check_files(settings)


def _check_format(run: Run, settings: "Settings") -> None:
    """Raise UsageError for a format of 8-bit products that the system's GPU does not have, by the peaks of its entry in the table."""
    gpu, recipe = run.system.gpu, settings.fp8_recipe
    if not settings.fp8_format or gpu is None or run.system.accelerator != "cuda":
        return
    needed = recipe if recipe in FORMATS else "fp8"
    try:
        entry = entry_of(gpu.name)
    except UsageError:  # the trainer asks the GPU itself
        return
    if needed not in entry.peak_tflops:
        known = ", ".join(entry.peak_tflops)
        remedy = (
            "use --fp8-recipe delayed" if "fp8" in entry.peak_tflops else 'write precision = "bf16" into the model file'
        )
        raise UsageError(
            f"fp8_recipe: {recipe} needs {needed} products, and {TABLE} has no {needed} peak for {entry.name}, only {known}; {remedy}"
        )


WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("-h", "--help"),
        "prints the trainer's options and trains nothing; see them by `python -m nlp_bench.train --help`",
    ),
    "--data-path": "would have no effect, for run.json records the data; give it as an option of its own, --data-path",
    "--mock-data": "would have no effect, for run.json records the data; give it as an option of its own, --mock-data",
    "--data-cache-path": "would have no effect, for run.json records the folder of the index cache; leave it out",
}
"""Words of `train_args` that belong to no training, or that the run's own data would replace without a word, and what to do."""
OWN_OPTION = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "micro_batch_size",
    "global_batch_size", "train_iters", "log_interval", "data_path", "mock_data", "recompute_granularity", "nonce",
    *(field.name for field in fields(Tuning)),
)  # fmt: skip
"""Given by an option of `nlp-bench submit` or a parameter of JUBE, which run.json records."""
OF_MODEL_FILE = (
    "vocab_size", "vocab_extra_ids", "bf16", "fp16", "fp8_format", "train_samples", "recompute_activations",
)  # fmt: skip
"""Given by the model file, and so are the trainer's shape and schedule."""


def _refuse_overrides(stated: "Settings", given: "Settings") -> None:
    """Raise UsageError where `given`, with `train_args`, is not what `stated`, without them, says of a field that run.json records."""
    from nlp_bench.train.arguments import flag  # noqa: PLC0415  # as above
    from nlp_bench.train.settings import ScheduleSettings, ShapeSettings  # noqa: PLC0415

    of_model = (field.name for group in (ShapeSettings, ScheduleSettings) for field in fields(group))
    for name in (*OWN_OPTION, *OF_MODEL_FILE, *of_model):
        if hasattr(stated, name) and getattr(stated, name) != getattr(given, name):
            remedy = "a model file of your own, a copy of one in benchmark/models"
            if name in OWN_OPTION:
                remedy = "its own option or JUBE parameter"
            raise UsageError(
                f"train_args: {flag(name)} would make run.json untrue, which records it; change it by {remedy}"
            )


def _check_until(run: Run) -> None:
    if run.tuning.until is None:
        return
    from nlp_bench.measure.anytime import least_iterations, percent  # noqa: PLC0415  # as above

    least = least_iterations(percent("until", run.tuning.until), run.training.log_interval)
    if run.training.iterations < least:
        raise UsageError(
            f"until: {run.tuning.until} takes at least {least} iterations, however even they are, and --iterations is "
            f"{run.training.iterations}; raise it, for the run ends as soon as it is enough, or give a larger share"
        )


TRANSFORMER = {"te": "transformer_engine", "auto": "transformer_engine", "apex": "local", "torch": "local"}
"""Kernels of a run to Megatron-LM's --transformer-impl."""
WITHOUT_APEX = (
    "--no-gradient-accumulation-fusion", "--no-masked-softmax-fusion", "--no-persist-layer-norm", "--no-rope-fusion",
)  # fmt: skip
"""Megatron-LM core_v0.16.1 ends with an error for each of these that is missing where Apex and Transformer Engine are."""


def upstream_command(run: Run) -> list[str]:
    """Return Megatron-LM's script and its words: ours, with samples in place of iterations, and evaluation and checkpoints off.

    Raises UsageError for what its GPT script cannot train.
    """
    shape = run.model.architecture
    if run.model.family != "gpt":
        raise UsageError(
            f"tuning.trainer: megatron-lm runs {SCRIPT}, which does not train {run.model.family}; use nlp-bench"
        )
    if run.system.accelerator != "cuda":
        raise UsageError("tuning.trainer: megatron-lm trains on GPUs only; use trainer nlp-bench on CPU ranks")
    if shape.activation == "geglu":
        raise UsageError("tuning.trainer: megatron-lm has no GeGLU for GPT; use trainer nlp-bench")
    if run.nonce is not None:
        raise UsageError("nonce: megatron-lm prints none; use trainer nlp-bench")
    words = training_arguments(run)
    for name in ("--kernels", "--train-iters", "--vocab-size", "--tokenizer-type"):
        if name in words:
            place = words.index(name)
            del words[place : place + 2]
    samples = run.training.iterations * run.batch.global_batch_size
    return [
        f"{run.tuning.megatron_lm_repo}/{SCRIPT}",
        *words,
        "--train-samples", str(samples),  # its schedule counts samples only in a training of samples
        "--tokenizer-type", "NullTokenizer",
        "--vocab-size", str(shape.vocab_size - 1),
        "--transformer-impl", TRANSFORMER[run.tuning.kernels],
        "--eval-iters", "0",
        "--eval-interval", "1000000",
        "--log-throughput",
        "--distributed-backend", "nccl",
        *(WITHOUT_APEX if run.tuning.kernels == "torch" else []),
    ]  # fmt: skip


def upstream_environment(run: Run) -> dict[str, str]:
    """Return the variables that Megatron-LM wants: its own packages first, and one order of kernels on the device."""
    path = os.pathsep.join(filter(None, [run.tuning.megatron_lm_repo, os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
