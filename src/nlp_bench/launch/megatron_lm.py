"""Upstream as an alternative: the words that start Megatron-LM's own pretrain_gpt.py with what our trainer would get.

The names are Megatron-LM's already; what differs is translated here. Source: NVIDIA/Megatron-LM, megatron/training/arguments.py
(commit 000c4ac2) and its tokenizer NullTokenizer, which adds one token for the end of a document.
"""

import os

from nlp_bench.config.run import Run
from nlp_bench.config.upstream import SCRIPT
from nlp_bench.errors import UsageError
from nlp_bench.launch.arguments import training_arguments

TRANSFORMER = {"te": "transformer_engine", "auto": "transformer_engine", "apex": "local", "torch": "local"}


def upstream_command(run: Run) -> list[str]:
    """Return the script and its words. Raises UsageError for what Megatron-LM's GPT script cannot train."""
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
    return [f"{run.tuning.megatron_lm_repo}/{SCRIPT}", *upstream_arguments(run)]


def upstream_arguments(run: Run) -> list[str]:
    """Return Megatron-LM's words: ours, with samples in place of iterations, and evaluation and checkpoints off."""
    words = training_arguments(run)
    for name in ("--kernels", "--train-iters", "--vocab-size", "--tokenizer-type"):
        words = _without(words, name)
    samples = run.training.iterations * run.batch.global_batch_size
    return [
        *words,
        "--train-samples", str(samples),  # its schedule counts samples only in a training of samples
        "--tokenizer-type", "NullTokenizer",
        "--vocab-size", str(run.model.architecture.vocab_size - 1),
        "--transformer-impl", TRANSFORMER[run.tuning.kernels],
        "--eval-iters", "0",
        "--eval-interval", "1000000",
        "--log-throughput",
        "--distributed-backend", "nccl",
    ]  # fmt: skip


def upstream_environment(run: Run) -> dict[str, str]:
    """Return the variables that Megatron-LM wants: its own packages first, and one order of kernels on the device."""
    path = os.pathsep.join(filter(None, [run.tuning.megatron_lm_repo, os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def _without(words: list[str], name: str) -> list[str]:
    if name not in words:
        return words
    place = words.index(name)
    return words[:place] + words[place + 2 :]
