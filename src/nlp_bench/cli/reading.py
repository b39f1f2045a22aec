"""The options of every subcommand that reads logs: what a log may not say, and how long the hypothetical training is."""

import argparse
import os
from typing import TYPE_CHECKING

from nlp_bench.cli.words import count, tokens

if TYPE_CHECKING:
    from nlp_bench.measure.sizes import Overrides

SIZES = {
    "sequence-length": "tokens per sample",
    "global-batch-size": "samples per iteration",
    "num-gpus": "GPUs of the run",
}


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """Add --tokens."""
    parser.add_argument(
        "--tokens", type=tokens, default=20_000_000, metavar="N", help="tokens of the training, as 300B (default 20M)"
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that stand in for what a log does not say."""
    for name, what in SIZES.items():
        parser.add_argument(f"--{name}", type=count, metavar="N", help=f"{what}, where the log does not say")


def add_allow_measured(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --allow-measured; `what` says what it allows."""
    parser.add_argument(
        "--allow-measured",
        action="store_true",
        help=f"{what} logs that do not show that their run ended well, trained and whole (MEASURED), too",
    )


def use_one_thread() -> None:
    """Keep numpy from starting a thread for each core: no linear algebra is done, and a login node may not allow them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def overrides_of(options: argparse.Namespace) -> "Overrides":
    """Return what `add_sizes` was given."""
    from nlp_bench.measure.sizes import Overrides  # --help stays light

    return Overrides(
        sequence_length=options.sequence_length, global_batch_size=options.global_batch_size, num_gpus=options.num_gpus
    )
