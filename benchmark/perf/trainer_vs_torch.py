# ruff: noqa: INP001  # scripts, not a package
"""Is our trainer as fast as plain PyTorch, eager and compiled? Alternates blocks of steps of all three in one process.

    python benchmark/perf/trainer_vs_torch.py --family all                              (six minutes on an idle core)
    python benchmark/perf/trainer_vs_torch.py --family t5 --no-compile --blocks 1 --steps 1      (a smoke test)

All train the same model from the same weights on the same batches; the script stops if their losses part.
A ratio is the median over neighbouring blocks, so that a busy machine disturbs all sides alike.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

DEFAULTS = {"layers": 4, "width": 256, "heads": 8, "length": 256, "vocabulary": 4096, "micro": 4, "gas": 2}
FAMILIES = ("gpt", "t5", "bert")
GOALS = {"eager": 1.0, "compiled": 0.9}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> int:
    """Measure; return 0 when ours reaches both goals for each family, else 1."""
    options = parse()
    if options.family == "all":  # a process each: the ranks of one leave nothing to the next
        words = [word for word in sys.argv[1:] if word not in {"--family", "all", "--family=all"}]
        return max(subprocess.call([sys.executable, __file__, "--family", name, *words]) for name in FAMILIES)
    import torch  # noqa: PLC0415  # --help stays fast

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    from nlp_bench.errors import NlpBenchError  # noqa: PLC0415

    try:
        trainers = build(options)
    except NlpBenchError as error:
        print(f"trainer_vs_torch.py: error: {error}", file=sys.stderr)
        return error.exit_code
    for _ in range(2):  # the first steps allocate, and compile
        check([trainer.step() for trainer in trainers.values()])
    tokens = options.steps * options.gas * options.micro * options.length
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    for block in range(options.blocks):
        order = list(trainers.items())
        for name, trainer in order if block % 2 else order[::-1]:
            rates[name].append(tokens / seconds(trainer, options.steps, CLOCKS[options.clock]))
    return show(rates, options, torch.__version__)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=(*FAMILIES, "all"), default="gpt")
    parser.add_argument("--blocks", type=positive, default=12, help="groups of blocks")
    parser.add_argument("--steps", type=positive, default=4, help="steps per block")
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: this process alone, for a machine that others use"
    )
    parser.add_argument("--at-least", type=float, help="goal of both ratios (default 1.0 x eager, 0.9 x compiled)")
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled rival out")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=positive, default=default)
    return parser.parse_args()


def positive(word: str) -> int:
    """Return the whole number of at least 1 that `word` is; raises ValueError."""
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Return our trainer and the rivals, with equal weights and the same batches."""
    from nlp_bench.train import world  # noqa: PLC0415  # imports torch
    from nlp_bench.train.arguments import parse as parse_arguments  # noqa: PLC0415
    from nlp_bench.train.layout import Layout, Rank  # noqa: PLC0415

    settings = parse_arguments(trainer_arguments(options))
    layout = Layout.of(settings, 1)
    rank = Rank(rank=0, world_size=1, local_rank=0)
    device = world.pick_device(rank)
    world.connect(settings, layout, rank, device)
    from nlp_bench.train.kernels.choice import choose_kernels  # noqa: PLC0415
    from nlp_bench.train.model import Job  # noqa: PLC0415  # after the CPU substitutions
    from nlp_bench.train.trainer import Trainer  # noqa: PLC0415

    ours = Trainer(Job(settings=settings, layout=layout, kernels=choose_kernels(settings, device), device=device))
    found: dict[str, Any] = {"nlp-bench": Ours(ours)}
    for name in ["eager"] if options.no_compile else ["eager", "compiled"]:
        found[name] = rival(options, ours, layout.padded_vocab_size, compiled=name == "compiled")
    return found


class Ours:
    """Our trainer, whose step returns the loss as the rivals' do."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def step(self) -> float:
        """Train on one global batch; return its mean loss."""
        return float(self._trainer.step().loss)


def rival(options: argparse.Namespace, ours: Any, vocabulary: int, *, compiled: bool) -> Any:
    """Return plain PyTorch's trainer of the same model on a stream of the same batches."""
    import plain_encoders  # noqa: PLC0415  # imports torch
    import plain_gpt  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from nlp_bench.train.samples import microbatches  # noqa: PLC0415

    room = plain_gpt if options.family == "gpt" else plain_encoders
    kind = {"gpt": plain_gpt.PlainGPT, "t5": plain_encoders.PlainT5, "bert": plain_encoders.PlainBert}[options.family]
    model = kind(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        inner=inner_width(options),
        vocabulary=vocabulary,
        length=options.length,
    )
    room.copy_weights(model, ours.model[0].module)
    batches = microbatches(ours.family.open_samples(ours.job), ours.settings, ours.layout, ours.device)
    network = torch.compile(model) if compiled else model
    return plain_gpt.PlainTrainer(network, batches, options.gas, ours.settings.lr)


def inner_width(options: argparse.Namespace) -> int:
    """Return the feed-forward width: 4 times the hidden size, of a gated block a multiple of 64 near 8/3."""
    return 64 * round(options.width / 24) if options.family == "t5" else 4 * options.width


def trainer_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of our trainer for the model of `options`."""
    family = {
        "gpt": "--position-embedding-type rope",
        "t5": f"--model-family t5 --geglu --decoder-seq-length {options.length} --vocab-extra-ids 100",
        "bert": "--model-family bert",
    }[options.family]
    text = (
        f"--num-layers {options.layers} --hidden-size {options.width} --num-attention-heads {options.heads} "
        f"--ffn-hidden-size {inner_width(options)} --seq-length {options.length} "
        f"--max-position-embeddings {options.length} --vocab-size {options.vocabulary} "
        f"--micro-batch-size {options.micro} --global-batch-size {options.micro * options.gas} --train-iters 1000000 "
        f"{family} --attention-dropout 0 --hidden-dropout 0 --mock-data --lr 1e-4 --min-lr 1e-4 --lr-decay-style constant"
    )
    return text.split()


def check(losses: list[float]) -> None:
    """Stop unless all losses agree: else they do not do the same work."""
    if max(losses) - min(losses) > 1e-3:
        sys.exit(f"the losses part: {losses}; the comparison would mean nothing")


def seconds(trainer: Any, steps: int, clock: Callable[[], float]) -> float:
    """Return the time of `steps` steps."""
    start = clock()
    for _ in range(steps):
        trainer.step()
    return clock() - start


def show(rates: dict[str, list[float]], options: argparse.Namespace, version: str) -> int:
    """Print the table or JSON; return the exit code."""
    from nlp_bench.machine.node import cpu_model  # noqa: PLC0415  # --help stays fast

    goals = GOALS if options.at_least is None else dict.fromkeys(GOALS, options.at_least)
    ratios = {}
    for name, values in rates.items():
        if name != "nlp-bench":
            pairs = [ours / theirs for ours, theirs in zip(rates["nlp-bench"], values, strict=True)]
            ratios[name] = {
                "median": statistics.median(pairs),
                "low": min(pairs),
                "high": max(pairs),
                "goal": goals[name],
            }
    record = {
        "tokens_per_second": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "ratios": {name: {key: round(value, 4) for key, value in one.items()} for name, one in ratios.items()},
        "options": vars(options),
        "torch": version,
        "machine": f"CPU: {platform.machine()}, {cpu_model() or 'unknown CPU'}",
    }
    if options.json:
        print(json.dumps(record))
    else:
        print(f"{record['machine']}, torch {version}, {options.threads} thread(s); {vars(options)}")
        for name, rate in record["tokens_per_second"].items():
            one = ratios.get(name)
            words = (
                f"ours / {name} {one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f}; goal {one['goal']})"
                if one
                else ""
            )
            print(f"{options.family:5} {name:10} {rate:10.1f} tokens/s  {words}")
    return int(any(one["median"] < one["goal"] for one in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
