"""Logs of several runs with known rates and known scatter, in Megatron-LM's format."""

import random
from collections.abc import Mapping
from pathlib import Path

ARGUMENTS: Mapping[str, object] = {
    "global_batch_size": 64,
    "seq_length": 4096,
    "world_size": 16,
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "bf16": True,
    "optimizer": "adam",
    "tensor_model_parallel_size": 4,
    "micro_batch_size": 1,
}
TOKENS = 64 * 4096


def write_log(
    path: Path,
    tokens_per_second: float,
    seed: int = 0,
    *,
    stated: bool = True,
    scatter: float = 0.004,
    **changes: object,
) -> Path:
    """Write 30 intervals that scatter around `tokens_per_second`; a changed argument of None is not printed."""
    source = random.Random(seed)  # noqa: S311  # a repeatable test
    lines = []
    if stated:
        arguments = {name: value for name, value in {**ARGUMENTS, **changes}.items() if value is not None}
        lines = ["--- arguments ---", *(f"  {name} ........ {value}" for name, value in arguments.items())]
        lines.append("--- end of arguments ---")
    for number in range(1, 31):
        seconds = TOKENS / tokens_per_second * (1 + source.gauss(0, scatter)) * (2 if number == 1 else 1)
        lines.append(
            f" iteration {number * 10:8d}/{300:8d} | consumed samples: {number * 640:12d} | "
            f"elapsed time per iteration (ms): {seconds * 1000:.1f} | learning rate: 1.0E-05 | global batch size: {64:5d} | "
            f"lm loss: {9.5 - 0.01 * number:.6E} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_runs(folder: Path, *rates: float, seed: int = 0, stated: bool = True, **changes: object) -> Path:
    """Write one log per rate into `folder`."""
    for number, rate in enumerate(rates):
        write_log(folder / f"run{number + 1}.log", rate, seed + number, stated=stated, **changes)
    return folder
