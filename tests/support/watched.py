"""Small models that are trained for real under the rehearsal's tracker, by the program watched_ranks.py."""

import base64
import json
import pickle
import subprocess
import sys
from pathlib import Path

from nlp_bench.rehearse.report import RankReport

SMALL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 100 "
    "--micro-batch-size 2 --lr 1e-3 --train-iters 3 --mock-data --attention-dropout 0 --hidden-dropout 0 --kernels torch"
)
"""A GPT that trains in a moment."""


def words(more: str) -> list[str]:
    """Return the trainer's words for the small GPT with some more options; of one given twice the later one counts."""
    return f"{SMALL} {more}".split()


class Trained:
    """Ranks that are forked from one process that has torch imported, which starts when it is first needed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def reports(self, ranks: int, more: str) -> list[RankReport]:
        """Train the small GPT on so many gloo ranks and return what the tracker saw on each."""
        if self.process is None:
            program = Path(__file__).with_name("watched_ranks.py")
            self.process = subprocess.Popen(
                [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([ranks, words(more)]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "the ranks failed: their errors stand above"
        reports: list[RankReport] = pickle.loads(base64.b64decode(answer))  # noqa: S301  # our own process
        return reports

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()
