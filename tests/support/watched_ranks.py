"""Trains small models for real on gloo ranks, watched by the tracker of the rehearsal; each rank is a fork of one process.

Asked for `[ranks, [words of the trainer]]`, it answers with the pickled reports of all ranks, in base64.
"""

import base64
import gc
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from forked import fork_ranks, serve

from nlp_bench.rehearse.report import RankReport
from nlp_bench.train import cpu

ITERATIONS = 5


def watch_rank(number: int, ranks: int, words: list[str]) -> RankReport:
    """Train as one rank; report an iteration after the first: of several, which are alike, the one with the least memory.

    gloo's threads let go of a message a moment after the training was told that it has arrived. That is chance, which can only
    add to the peak.
    """
    from nlp_bench.rehearse.iteration import first_iteration, next_iteration
    from nlp_bench.rehearse.tracker import Tracker
    from nlp_bench.train import world
    from nlp_bench.train.arguments import parse
    from nlp_bench.train.kernels.choice import choose_kernels
    from nlp_bench.train.layout import Layout, Rank
    from nlp_bench.train.model import Job
    from nlp_bench.train.trainer import Trainer

    settings, device = parse(words), torch.device("cpu")
    layout = Layout.of(settings, ranks)
    world.connect(settings, layout, Rank(rank=number, world_size=ranks, local_rank=number), device)
    with Tracker().watching() as tracker:
        kernels = choose_kernels(settings, device)
        trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
        static = first_iteration(trainer, tracker, shorten=False)
        reports = [next_iteration(trainer, tracker, static) for _ in range(ITERATIONS)]
    world.wait_for_all()
    least = min(reports, key=lambda report: report.peak_bytes)
    assert all(report.collectives == least.collectives and report.flops == least.flops for report in reports)
    return least


def train(ranks: int, words: list[str]) -> str:
    """Train on forked ranks and return the pickle of their reports, in order."""
    with tempfile.TemporaryDirectory() as folder:

        def be_rank(number: int) -> int:
            Path(folder, str(number)).write_bytes(pickle.dumps(watch_rank(number, ranks, words)))
            return 0

        if fork_ranks(ranks, be_rank):
            sys.exit("a rank failed")
        reports = [pickle.loads(Path(folder, str(number)).read_bytes()) for number in range(ranks)]  # noqa: S301  # ours
        return base64.b64encode(pickle.dumps(reports)).decode()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cpu.install()
    from nlp_bench.rehearse import iteration  # noqa: F401  # imports the rest

    gc.freeze()  # or the collector of each rank looks at all that was imported
    serve(train)
