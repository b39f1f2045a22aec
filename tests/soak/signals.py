"""Stop every subcommand with SIGINT or SIGTERM at random moments: its exit code, one sentence, nothing half, and it can be repeated.

    python tests/soak/signals.py --num 102

Each trial is a process of its own. A signal may come before Python has begun or after the work was done: then the process has ended by
it, or as it does by itself. The training of `submit` and `launch` is a stand-in (tests/faults/stub). Exits with 1 if anything failed.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from soak.commands import COMMANDS, Command
from soak.orphans import VARIABLE, family

CHECKOUT = Path(__file__).resolve().parents[2]
BOUND_S = 120.0  # for a command to end by itself or after its signal, on a busy machine
GONE_S = 10.0  # after which no process of it may be left
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass
class Ended:
    code: int
    said: str
    is_signalled: bool
    left: dict[int, list[str]]


def run(command: Command, folder: Path, number: signal.Signals | None = None, after_s: float = 0.0) -> Ended:
    """Run a command, with a signal after some seconds; Ctrl-C reaches all processes of a terminal's group, SIGTERM the first."""
    mark = uuid.uuid4().hex
    words = [word.replace("HERE", str(folder)) for word in command.words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
    environment |= {
        VARIABLE: mark,
        "PYTHONPATH": str(CHECKOUT / "src"),
        "NLP_BENCH_ROOT": str(CHECKOUT),
        "TMPDIR": str(folder),
    }
    environment |= {name: value.replace("HERE", str(folder)) for name, value in command.variables.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "nlp_bench", *words], env=environment, cwd=folder, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    is_signalled = False
    if number is not None:
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            is_signalled = True
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    try:
        _, said = process.communicate(timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Ended(-1, f"no end after {BOUND_S} s", is_signalled, {})
    end = time.monotonic() + GONE_S
    while (left := family(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for one in left:
        os.kill(one, signal.SIGKILL)
    return Ended(process.returncode, said, is_signalled, left)


def problem(command: Command, folder: Path, number: signal.Signals, ended: Ended) -> str | None:
    """Say what is wrong behind the signal, and behind the try that follows."""
    is_early = (
        "Traceback" in ended.said and "nlp_bench" not in ended.said
    )  # Python itself was stopped, before our first line
    wrong = broken(folder) if is_early else said_wrongly(command, number, ended) or broken(folder)
    if wrong or not command.is_repeatable:
        return wrong
    again = run(command, folder)
    return None if again.code in command.again_ends else f"the second try: exit code {again.code}: {again.said}"


def said_wrongly(command: Command, number: signal.Signals, ended: Ended) -> str | None:
    """Say what is wrong with the end of the process and its words."""
    if ended.left:
        return f"left {ended.left}"
    if "Traceback" in ended.said or "Exception ignored" in ended.said:
        return f"a traceback: {ended.said}"
    if ended.code not in {ENDS[number], -number, *command.ends, *command.stopped_ends}:
        return f"exit code {ended.code}: {ended.said}"
    if ended.code == ENDS[number] and ended.said and not re.search("repeat the same command|next: ", ended.said):
        return f"nothing says how to go on: {ended.said}"
    return None


def broken(folder: Path) -> str | None:
    """Name a temporary file that was left, or a record that is half."""
    for path in folder.rglob("*"):
        if path.name.endswith(".part") and ".shards" not in str(path):
            return f"left {path.relative_to(folder)}"
        if path.suffix == ".json" and path.is_file():
            try:
                json.loads(path.read_text())
            except ValueError:
                return f"half: {path.relative_to(folder)}"
    return None


def trial(command: Command, seconds: float, seed: int, top: Path) -> tuple[str, str | None]:
    """Return what was done to a command, and what is wrong."""
    dice = random.Random(seed)  # noqa: S311  # a repeatable test
    number = dice.choice((signal.SIGINT, signal.SIGTERM))
    after_s = dice.random() * seconds
    folder = Path(tempfile.mkdtemp(dir=top))
    command.prepare(folder)
    ended = run(command, folder, number, after_s)
    told = f"{command.name}: {number.name} after {after_s:.2f} s: {ended.code}"
    return told, problem(command, folder, number, ended)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=102, help="signals (default 102, six for each)")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--only", default="", help="these subcommands, a comma between them (default: all)")
    options = parser.parse_args(words)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so would its children
    chosen = [command for command in COMMANDS if not options.only or command.name in options.only.split(",")]
    start, failed, stopped = time.perf_counter(), 0, 0
    with (
        tempfile.TemporaryDirectory(prefix="nlpb-signals-") as name,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        top = Path(name)
        lengths = dict(zip(chosen, pool.map(lambda one: length(one, top), chosen), strict=True))
        trials = [chosen[number % len(chosen)] for number in range(options.num)]
        seeds = range(options.seed, options.seed + options.num)
        for told, wrong in pool.map(lambda one, seed: trial(one, lengths[one], seed, top), trials, seeds):
            stopped += told.endswith(("130", "143"))
            failed += wrong is not None
            if wrong:
                print(f"{told}: {wrong}", flush=True)
    print(f"signals: {options.num} signals to {len(chosen)} subcommands, {stopped} stopped by their own word, {failed} failed, {time.perf_counter() - start:.0f} s")  # fmt: skip
    return int(failed > 0)


def length(command: Command, top: Path) -> float:
    """Return how long it takes by itself; of one that goes on for ever, some seconds."""
    if command.seconds:
        return command.seconds
    folder = Path(tempfile.mkdtemp(dir=top))
    command.prepare(folder)
    start = time.perf_counter()
    ended = run(command, folder)
    if ended.code not in command.ends:
        raise RuntimeError(f"{command.name}: exit code {ended.code}: {ended.said}")
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
