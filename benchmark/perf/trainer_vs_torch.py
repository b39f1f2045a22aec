# ruff: noqa: INP001  # scripts, not a package
"""Is our trainer as fast as plain PyTorch? Alternates blocks of steps of both in one process and prints the ratio.

    python benchmark/perf/trainer_vs_torch.py [--blocks 12] [--steps 4] [--threads 1] [--layers 4] [--width 256] ...

Both train the same model from the same weights on the same batches; the script stops if their losses part.
The ratio is the median over pairs of neighbouring blocks, so that a busy machine disturbs both sides alike.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

DEFAULTS = {"layers": 4, "width": 256, "heads": 8, "length": 256, "vocabulary": 4096, "micro": 4, "gas": 2}


def main() -> int:
    """Measure; return 0 when ours reaches --at-least times the rival, else 1."""
    options = parse()
    import torch  # noqa: PLC0415  # --help stays fast

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    ours, plain = build(options)
    for _ in range(2):  # the first steps allocate
        check(ours.step().loss, plain.step())
    tokens = options.steps * options.gas * options.micro * options.length
    rates: dict[str, list[float]] = {"nlp-bench": [], "plain torch": []}
    for block in range(options.blocks):
        order = [("nlp-bench", ours), ("plain torch", plain)]
        for name, trainer in order if block % 2 else order[::-1]:
            rates[name].append(tokens / seconds(trainer, options.steps))
    return show(rates, options, torch.__version__)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=4, help="steps per block")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.95, help="smallest ratio that counts as success")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def build(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return our trainer and the rival, with equal weights and the same batches."""
    from plain_gpt import PlainGPT, PlainTrainer, copy_weights  # noqa: PLC0415  # imports torch

    from nlp_bench.train import world  # noqa: PLC0415  # imports torch
    from nlp_bench.train.arguments import parse as parse_arguments  # noqa: PLC0415
    from nlp_bench.train.layout import Layout, Rank  # noqa: PLC0415

    settings = parse_arguments(trainer_arguments(options))
    layout = Layout.of(settings, 1)
    rank = Rank(rank=0, world_size=1, local_rank=0)
    device = world.pick_device(rank)
    world.connect(settings, rank, device)
    from nlp_bench.train.batches import MockSamples, microbatches  # noqa: PLC0415  # after the CPU substitutions
    from nlp_bench.train.kernels import choose_kernels  # noqa: PLC0415
    from nlp_bench.train.trainer import Trainer  # noqa: PLC0415

    ours = Trainer(settings, layout, choose_kernels(settings, device), device)
    plain = PlainGPT(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        inner=4 * options.width,
        vocabulary=layout.padded_vocab_size,
        length=options.length,
    )
    copy_weights(plain, ours.model.module)
    samples = MockSamples(layout.vocab_size, settings.seq_length, settings.seed)
    batches = microbatches(samples, settings, layout, device)
    return ours, PlainTrainer(plain, batches, options.gas, settings.lr)


def trainer_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of our trainer for the model of `options`."""
    text = (
        f"--num-layers {options.layers} --hidden-size {options.width} --num-attention-heads {options.heads} "
        f"--seq-length {options.length} --max-position-embeddings {options.length} --vocab-size {options.vocabulary} "
        f"--micro-batch-size {options.micro} --global-batch-size {options.micro * options.gas} --train-iters 1000000 "
        "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --mock-data "
        "--lr 1e-4 --min-lr 1e-4 --lr-decay-style constant"
    )
    return text.split()


def check(ours: float, plain: float) -> None:
    """Stop unless both losses agree: else the two do not do the same work."""
    if abs(ours - plain) > 1e-3:
        sys.exit(f"the losses part: {ours} and {plain}; the comparison would mean nothing")


def seconds(trainer: Any, steps: int) -> float:
    """Return the time of `steps` steps."""
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    return time.perf_counter() - start


def show(rates: dict[str, list[float]], options: argparse.Namespace, version: str) -> int:
    """Print the table or JSON; return the exit code."""
    from nlp_bench.machine.node import cpu_model  # noqa: PLC0415  # --help stays fast

    pairs = [a / b for a, b in zip(*rates.values(), strict=True)]
    ratio = statistics.median(pairs)
    record = {
        "tokens_per_second": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "ratio": round(ratio, 4),
        "ratio_range": [round(min(pairs), 4), round(max(pairs), 4)],
        "options": vars(options),
        "torch": version,
        "machine": f"{platform.machine()}, {cpu_model() or 'unknown CPU'}",
    }
    if options.json:
        print(json.dumps(record))
    else:
        print(f"{record['machine']}, torch {version}, {options.threads} thread(s); {vars(options)}")
        for name, value in record["tokens_per_second"].items():
            print(f"{name:12} {value:10.1f} tokens/s")
        print(f"ratio        {ratio:10.4f} (from {min(pairs):.3f} to {max(pairs):.3f}; goal {options.at_least})")
    return int(ratio < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
