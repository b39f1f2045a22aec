"""Logs of several runs with known rates and known scatter, in Megatron-LM's format."""

import random
from collections.abc import Mapping
from pathlib import Path

from support.megatron_log import line

ARGUMENTS: Mapping[str, object] = {
    "global_batch_size": 64, "seq_length": 4096, "world_size": 16, "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "bf16": True, "optimizer": "adam", "tensor_model_parallel_size": 4, "micro_batch_size": 1,
}  # fmt: skip
TOKENS = 64 * 4096
MEGATRON = [
    f" [2026-01-01 10:{n // 12:02}:{5 * (n % 12):02}] iteration {n}/ 60 | consumed samples: {64 * n} | elapsed time per iteration (ms): {5000 + n % 7}.1 | "
    f"global batch size: 64 | lm loss: {9 - n / 20:.6E} | grad norm: 1.000 |"
    for n in range(1, 61)
]
"""The lines of one run with a clock of whole seconds."""


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
    text = ""
    if stated:
        arguments = {name: value for name, value in {**ARGUMENTS, **changes}.items() if value is not None}
        text = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items())
        text = f"--- arguments ---\n{text}--- end of arguments ---\n"
    for number in range(1, 31):
        seconds = TOKENS / tokens_per_second * (1 + source.gauss(0, scatter)) * (2 if number == 1 else 1)
        facts = {"lr": "1.0E-05", "batch": 64, "loss": 9.5 - 0.01 * number, "skipped": 0, "nan": 0}
        text += line(number * 10, 300, samples=number * 640, ms=seconds * 1000, **facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_runs(folder: Path, *rates: float, seed: int = 0, stated: bool = True, **changes: object) -> Path:
    for number, rate in enumerate(rates):
        write_log(folder / f"run{number + 1}.log", rate, seed + number, stated=stated, **changes)
    return folder
