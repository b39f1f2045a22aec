"""Starting real ranks on the CPU and reading their log."""

import functools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.forked import LEAST, TIMEOUT_S, environment, program
from support.processes import execute

MODEL = f"{LEAST} --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --global-batch-size 4 --log-interval 1"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended and what it said."""

    code: int
    stdout: str
    stderr: str

    def numbers(self, name: str) -> list[float]:
        return [float(word) for word in re.findall(rf"\| {name}: (\S+) \|", self.stdout)]

    @property
    def losses(self) -> list[float]:
        assert self.code == 0, self.stdout + self.stderr
        return self.numbers("lm loss")

    @property
    def parameters(self) -> int:
        return int(re.findall(r"number of parameters: (\d+)", self.stdout)[0])


def run_ranks(num_ranks: int, words: str, *more: str) -> Ended:
    """Train MODEL, changed by `words` and `more`, on `num_ranks` ranks; one rank runs alone, without torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}", "--tee=3"]
    launcher = torchrun if num_ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "nlp_bench.train", *MODEL.split(), *words.split(), *more]
    answer = execute(*command, timeout=TIMEOUT_S, env=environment())
    return Ended(code=answer.returncode, stdout=answer.stdout, stderr=answer.stderr)


@pytest.fixture(scope="session")
def train() -> Iterator[Callable[..., Ended]]:
    """Train MODEL, changed by words, on forked ranks: a fifth of the time of ranks that are started."""
    with program("forked_ranks.py") as ranks_of:

        def trained(ranks: int, words: str, *more: str) -> Ended:
            code, stdout, stderr = ranks_of.ask(ranks, [*MODEL.split(), *words.split(), *more])
            return Ended(code=code, stdout=stdout, stderr=stderr)

        once = functools.cache(trained)  # tests that only read a log share the training
        yield lambda ranks, words, *more: (trained if more or "--save" in words else once)(ranks, words, *more)


@pytest.fixture(scope="session")
def same_training(train: Callable[..., Ended]) -> Callable[[int, str, str], Ended]:
    """Train a model in a layout, compare losses, gradient norms and parameters with those of one rank, and return the training."""

    def same(ranks: int, model: str, layout: str) -> Ended:
        alone, other = train(1, model), train(ranks, f"{model} {layout}")
        assert len(alone.losses) > 1
        assert other.losses == pytest.approx(alone.losses, abs=1e-4)
        assert other.numbers("grad norm") == pytest.approx(alone.numbers("grad norm"), abs=2e-3)
        assert other.parameters == alone.parameters
        return other

    return same


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small corpus of a vocabulary of 512."""
    from nlp_bench.data.maker import DataRequest, make_data

    folder = tmp_path_factory.mktemp("my data") / "small"  # a path with a space
    make_data(DataRequest(output=folder, documents=300, vocab_size=512))
    return folder


@pytest.fixture(scope="session")
def started() -> Callable[..., Ended]:
    """Train MODEL, changed by words, as a user does: by torchrun, or one rank alone."""
    return run_ranks
