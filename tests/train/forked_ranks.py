"""Trains many layouts without importing torch for each rank: one process imports it, and every rank is a fork of that one.

Reads lines of JSON `[ranks, [words of the trainer]]`, answers each with `[exit code, standard output, standard error]`, rank by
rank. What torchrun adds is tested elsewhere.
"""

import gc
import json
import os
import socket
import sys
import tempfile
import warnings
from pathlib import Path


def rank(number: int, ranks: int, port: int, words: list[str], log: Path) -> None:
    """Be one rank and never return."""
    for stream, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(log.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), stream)
    numbers = {"RANK": number, "WORLD_SIZE": ranks, "LOCAL_RANK": number, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in numbers.items()}, MASTER_ADDR="127.0.0.1")
    code = 1
    try:
        code = main(words)
    except BaseException as error:  # noqa: BLE001  # the log tells it
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def train_ranks(ranks: int, words: list[str]) -> tuple[int, str, str]:
    """Fork all ranks and wait for them; return the worst exit code and what they said, rank by rank."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        logs = [Path(folder) / f"rank{number}" for number in range(ranks)]
        children = []
        for number, log in enumerate(logs):
            child = os.fork()
            if not child:
                rank(number, ranks, port, words, log)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        out, err = ("".join(log.with_suffix(suffix).read_text() for log in logs) for suffix in (".out", ".err"))
        return max(map(abs, codes)), out, err


if __name__ == "__main__":  # what a rank spawns imports this file too, and needs none of it
    warnings.filterwarnings("ignore")
    from nlp_bench.train import cpu

    cpu.install()
    from nlp_bench.train.__main__ import main
    from nlp_bench.train.loop import train  # noqa: F401  # imports the rest

    gc.freeze()  # or the collector of each rank looks at all that was imported
    for line in sys.stdin:
        print(json.dumps(train_ranks(*json.loads(line))), flush=True)
