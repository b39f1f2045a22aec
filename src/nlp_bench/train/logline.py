"""The lines of the log: settings and versions before the first iteration, then one line per logging interval."""

import platform
from dataclasses import asdict

from nlp_bench import __version__
from nlp_bench.immutable import immutable
from nlp_bench.packages import installed_version
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


@immutable
class Interval:
    """The numbers of one log line."""

    iteration: int  # last iteration of the interval, counted from 1
    train_iters: int  # iterations of the run
    consumed_samples: int  # samples since the start of the run
    elapsed_s: float  # seconds per iteration, averaged over the interval
    learning_rate: float  # learning rate after the interval
    global_batch_size: int  # samples per iteration
    loss: float | None  # mean loss of the iterations that updated the weights; None when all were skipped
    loss_scale: float  # loss scale after the interval
    grad_norm: float | None  # norm of the last gradient before clipping; None when the last iteration was skipped
    num_skipped: int  # iterations without an update because float16 overflowed
    num_nan: int  # iterations whose loss or gradient was not finite
    legacy_flops: float  # FLOPs per iteration by the formula of the published tables
    model_flops: float  # model FLOPs per iteration
    sequence_length: int  # tokens per sample
    num_gpus: int  # ranks that share the FLOPs
    peak_bytes: int  # greatest memory of any rank since the start
    unix_time_s: float  # end of the interval since 1970, by the logging node's clock; aligns meters with the log


def format_line(interval: Interval) -> str:
    """Return the log line in the format of Megatron-LM with the old benchmark's patch, then fields of our own.

    Up to `TFLOPs:` names, units and widths are those of the old benchmark; as there, loss and gradient norm are left out when no
    iteration of the interval has one. No name after that matches a pattern of the old benchmark.
    """
    i = interval
    known = [
        f" iteration {i.iteration:8d}/{i.train_iters:8d}",
        f"consumed samples: {i.consumed_samples:12d}",
        f"elapsed time per iteration (s): {i.elapsed_s:.4f}",
        f"learning rate: {i.learning_rate:.3E}",
        f"global batch size: {i.global_batch_size:5d}",
        *([] if i.loss is None else [f"lm loss: {i.loss:.6E}"]),
        f"loss scale: {i.loss_scale:.1f}",
        *([] if i.grad_norm is None else [f"grad norm: {i.grad_norm:.3f}"]),
        f"number of skipped iterations: {i.num_skipped:3d}",
        f"number of nan iterations: {i.num_nan:3d}",
        f"samples per second: {i.global_batch_size / i.elapsed_s:.3f}",
        f"TFLOPs: {tera_per_gpu(i.legacy_flops, i):.2f}",
    ]
    ours = [
        f"model TFLOP/s/GPU: {tera_per_gpu(i.model_flops, i):.2f}",
        f"tokens per second: {i.global_batch_size * i.sequence_length / i.elapsed_s:.1f}",
        f"peak memory GiB: {i.peak_bytes / 2**30:.2f}",
        f"unix time: {i.unix_time_s:.3f}",
    ]
    return " | ".join(known + ours) + " |"


def tera_per_gpu(flops: float, interval: Interval) -> float:
    """Return TFLOP/s per rank for `flops` per iteration."""
    return flops / (interval.elapsed_s * interval.num_gpus * 1e12)


def argument_lines(settings: Settings, layout: Layout) -> list[str]:
    """Return the resolved arguments in Megatron-LM's format: `  seq_length ....... 2048`, sorted by name."""
    values = {
        **asdict(settings),
        **asdict(layout),
        "ffn_hidden_size": settings.ffn_width,
        "num_query_groups": settings.query_groups,
        "params_dtype": f"torch.{settings.params_dtype}",
        "recompute_granularity": settings.granularity,
        # as Megatron-LM's dump names them
        "fp8": settings.fp8_format,
        "virtual_pipeline_model_parallel_size": layout.virtual_stages if layout.virtual_stages > 1 else None,
    }
    del values["fp8_format"], values["virtual_stages"]
    lines = []
    for name, value in sorted(values.items()):
        text = " ".join(map(str, value)) or "None" if isinstance(value, tuple) else str(value)
        lines.append(f"  {name} {'.' * max(3, 48 - len(name))} {text}")
    rule = "-" * 24
    return [f"{rule} arguments {rule}", *lines, f"{rule} end of arguments {rule}"]


def fact_lines(facts: dict[str, str]) -> list[str]:
    """Return one line per fact, in the order given: ` > device: CPU`."""
    return [f" > {name}: {text}" for name, text in facts.items()]


def versions(cuda: str | None) -> str:
    """Return the versions of all software that affects performance, on one line."""
    names = ("torch", "megatron-core", "apex", "transformer-engine")
    found = [f"{name} {known}" for name in names if (known := installed_version(name))]
    python = f"Python {platform.python_version()}"
    return ", ".join([f"nlp-bench {__version__}", python, *found, f"CUDA {cuda}" if cuda else "no CUDA"])
