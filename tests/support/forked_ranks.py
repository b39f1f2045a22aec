"""Trains many layouts without importing torch for each rank. What torchrun adds is tested elsewhere.

Asked for `[ranks, [words of the trainer]]`, it answers `[exit code, standard output, standard error]`, rank by rank.
"""

import gc
import os
import tempfile
import warnings
from pathlib import Path


def train_ranks(ranks: int, words: list[str]) -> tuple[int, str, str]:
    """Train on forked ranks; return the worst exit code and what they said, rank by rank."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"rank{number}" for number in range(ranks)]

        def be_rank(number: int) -> int:
            for stream, suffix in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(logs[number].with_suffix(suffix), os.O_WRONLY | os.O_CREAT), stream)
            return main(words)

        code = fork_ranks(ranks, be_rank)
        out, err = ("".join(log.with_suffix(suffix).read_text() for log in logs) for suffix in (".out", ".err"))
        return code, out, err


if __name__ == "__main__":  # what a rank spawns imports this file too, and needs none of it
    warnings.filterwarnings("ignore")
    from forked import fork_ranks, serve

    from nlp_bench.train import cpu

    cpu.install()
    from nlp_bench.train.__main__ import main
    from nlp_bench.train.loop import train  # noqa: F401  # imports the rest

    gc.freeze()  # or the collector of each rank looks at all that was imported
    serve(train_ranks)
