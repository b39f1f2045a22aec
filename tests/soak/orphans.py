"""Kill a training in many ways: ten seconds later none of its processes is left.

    python tests/soak/orphans.py --num 30

Each trial is a real `nlp-bench submit` of the local launcher with torchrun and two ranks; one of its processes gets a signal
at a random moment. Its processes are known by a variable that they inherit. Prints one line per trial; exits with 1 if any is left.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
VARIABLE = "NLP_BENCH_ORPHANS_OF"
BOUND_S = 10.0  # after which nothing may be left
START_S = 240.0  # for the first process of a kind to be there, on a busy machine
KINDS: dict[str, Callable[[list[str]], bool]] = {
    "a rank": lambda words: "nlp_bench.train" in words and "torch.distributed.run" not in words,
    "torchrun": lambda words: "torch.distributed.run" in words,
    "the job script": lambda words: words[0] == "bash" and any(word.endswith("submit.job") for word in words),
    "submit": lambda words: "nlp_bench" in words and "submit" in words,
}
CASES = (
    ("a rank", signal.SIGKILL), ("torchrun", signal.SIGKILL), ("torchrun", signal.SIGTERM), ("the job script", signal.SIGTERM),
    ("submit", signal.SIGTERM), ("a rank", signal.SIGSEGV), ("submit", signal.SIGINT), ("submit", signal.SIGHUP), ("the job script", signal.SIGKILL),
    ("submit", signal.SIGKILL),
)  # fmt: skip


def family(mark: str) -> dict[int, list[str]]:
    """Return the processes that carry `mark`: number to words. A zombie has no words and is none."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{VARIABLE}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words != [""]:
                    found[int(path.name)] = words
    return found


def trial(kind: str, number: signal.Signals, dice: random.Random, folder: Path) -> tuple[str | None, float]:
    """Start a training, send the signal, wait; return what is left, and the seconds until nothing was."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, VARIABLE: mark, "PYTHONPATH": str(CHECKOUT / "src"), "NLP_BENCH_ROOT": str(CHECKOUT)}
    words = "submit --system local --launcher local --model tiny --data-path mock --iterations 1000000 --log-interval 1 --nodes 1"
    process = subprocess.Popen(
        [sys.executable, "-m", "nlp_bench", *words.split(), "--gpus-per-node", "2", "--run-dir", str(folder)],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        target = _first(kind, mark, process, folder)
        if target is None:
            said = process.stderr.read().decode(errors="replace")[-400:] if process.stderr else ""
            return f"it did not come to {kind}: {said}", 0.0
        time.sleep(dice.random() * 3.0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, number)
        start = time.monotonic()
        while time.monotonic() - start < BOUND_S:
            process.poll()
            if not family(mark):
                return None, time.monotonic() - start
            time.sleep(0.1)
        left = [" ".join(words)[:100] for words in family(mark).values()]
        return f"{len(left)} left: {left[:3]}", BOUND_S
    finally:
        for pid in family(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stderr:
            process.stderr.close()


def _first(kind: str, mark: str, process: "subprocess.Popen[bytes]", folder: Path) -> int | None:
    """Wait until the training has logged a line; return a process of that kind."""
    begin = time.monotonic()
    while time.monotonic() - begin < START_S and process.poll() is None:
        with contextlib.suppress(OSError):
            if b"iteration " in (folder / "job.out").read_bytes():
                pids = [pid for pid, words in family(mark).items() if KINDS[kind](words)]
                return max(pids, default=None)
        time.sleep(0.2)
    return None


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=30, help="trainings (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="for the moments (default 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first way (default 0)")
    options = parser.parse_args(words)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup a training ignores it, as it should
    dice, failed, start = random.Random(options.seed), 0, time.perf_counter()  # noqa: S311
    for number in range(options.first, options.first + options.num):
        kind, signalled = CASES[number % len(CASES)]
        with tempfile.TemporaryDirectory() as folder:
            left, seconds = trial(kind, signalled, dice, Path(folder) / "run")
        failed += left is not None
        print(f"  {signalled.name} to {kind}: {left or f'nothing left after {seconds:.1f} s'}", flush=True)
    print(f"orphans: {options.num} killed trainings, {failed} with a process left, {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
