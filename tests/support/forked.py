"""Trainings on forked ranks: a program imports torch once, and every rank is a fork of it. Here is what it does, and its caller's side."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 240
LEAST = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--micro-batch-size 1 --train-iters 4 --lr 1e-2"
)
"""Arguments of a small GPT; words behind them replace theirs."""
MOCK = "--mock-data --vocab-size 512"
Train = Callable[..., Any]
"""Trains a small GPT on so many ranks, changed by words."""


def environment() -> dict[str, str]:
    """Return the variables of a rank that nobody has numbered."""
    known = {name: word for name, word in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    return known | {"OMP_NUM_THREADS": "1"}


class Program:
    """A program of this folder, which starts when it is first asked and answers each line of JSON with one."""

    def __init__(self, name: str) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name(name))]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, *question: Any) -> Any:
        """Return the answer; fails the test when none comes."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, text=True, env=environment(), start_new_session=True
            )
        process = self._process
        print(json.dumps(question), file=process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(TIMEOUT_S):
                self.stop()  # an answer that comes late must not be taken for the next one
                pytest.fail(f"no answer for {TIMEOUT_S} s: {question}")
        answer = process.stdout.readline()
        assert answer, "the program failed: its errors stand above"
        return json.loads(answer)

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


@contextlib.contextmanager
def program(name: str) -> Iterator[Program]:
    found = Program(name)
    yield found
    found.stop()


def fork_ranks(ranks: int, work: Callable[[int], int]) -> int:
    """Fork ranks with the environment of torchrun's; each ends with what `work` returns for its number. Return the worst exit code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for number in range(ranks):
        child = os.fork()
        if not child:
            numbers = {"RANK": number, "WORLD_SIZE": ranks, "LOCAL_RANK": number, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in numbers.items()}, MASTER_ADDR="127.0.0.1")
            code = 1
            try:
                code = work(number)
            except BaseException:  # noqa: BLE001  # it is said, and the code tells it
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children)


def serve(answer: Callable[..., Any]) -> None:
    """Answer each line of standard input, the JSON of arguments, with the JSON of what `answer` returns for them."""
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)
