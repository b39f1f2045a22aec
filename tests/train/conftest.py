"""Starting real ranks on the CPU and reading their log."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

MODEL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 "
    "--global-batch-size 4 --train-iters 4 --log-interval 1 --lr 1e-2"
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended and what it said."""

    code: int
    stdout: str
    stderr: str

    def numbers(self, name: str) -> list[float]:
        return [float(word) for word in re.findall(rf"\| {name}: (\S+) \|", self.stdout)]


def run_ranks(num_ranks: int, words: str, *more: str) -> Ended:
    """Train MODEL, changed by `words` and `more`, on `num_ranks` ranks; one rank runs alone, without torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}", "--tee=3"]
    launcher = torchrun if num_ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "nlp_bench.train", *MODEL.split(), *words.split(), *more]
    environment = {name: word for name, word in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env=environment | {"OMP_NUM_THREADS": "1"},
    )
    return Ended(code=answer.returncode, stdout=answer.stdout, stderr=answer.stderr)


@pytest.fixture(scope="session")
def train() -> Callable[..., Ended]:
    return run_ranks
