"""Trains small models for real on gloo ranks, watched by the tracker of the rehearsal; each rank is a fork of one process.

Reads lines of JSON `[ranks, [words of the trainer]]`, answers each with the pickled reports of all ranks, in base64.
"""

import base64
import gc
import json
import os
import pickle
import socket
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch

from nlp_bench.rehearse.report import RankReport
from nlp_bench.train import cpu

ITERATIONS = 5


def watch_rank(number: int, ranks: int, port: int, words: list[str]) -> RankReport:
    """Train as one rank; report an iteration after the first: of several, which are alike, the one with the least memory.

    gloo's threads let go of a message a moment after the training was told that it has arrived. That is chance, which can only
    add to the peak.
    """
    from nlp_bench.rehearse.iteration import first_iteration, next_iteration
    from nlp_bench.rehearse.tracker import Tracker
    from nlp_bench.train import world
    from nlp_bench.train.arguments import parse
    from nlp_bench.train.kernels import choose_kernels
    from nlp_bench.train.layout import Layout, Rank
    from nlp_bench.train.model import Job
    from nlp_bench.train.trainer import Trainer

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
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


def train(ranks: int, words: list[str]) -> list[RankReport]:
    """Fork all ranks, wait for them, and return their reports in order."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        children = []
        for number in range(ranks):
            child = os.fork()
            if not child:
                code = 1
                try:
                    Path(folder, str(number)).write_bytes(pickle.dumps(watch_rank(number, ranks, port, words)))
                    code = 0
                except BaseException:  # noqa: BLE001  # said, and the parent sees the code
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            sys.exit(f"a rank failed: {codes}")
        return [pickle.loads(Path(folder, str(number)).read_bytes()) for number in range(ranks)]  # noqa: S301  # ours


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cpu.install()
    from nlp_bench.rehearse import iteration  # noqa: F401  # imports the rest

    gc.freeze()  # or the collector of each rank looks at all that was imported
    for line in sys.stdin:
        print(base64.b64encode(pickle.dumps(train(*json.loads(line)))).decode(), flush=True)
