"""Kill each writer with SIGKILL at many points: what is read afterwards is the old state or the new one, and a second try works.

    python tests/soak/kill_points.py --points 200

Half of the points are calls that change files (CALLS; evenly spread, or all of them): the writer is run in a fork that kills itself
before the Nth one. Three of ten are any calls, the others moments in time, so that a kill falls inside a call too. Each writer runs once
before, in the process that forks: what it imports and draws is there, and the points fall on its writing. Prints what failed and
one line per writer; exits with 1 if anything did.
"""

import argparse
import contextlib
import ctypes
import io
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from nlp_bench.files import recover_folder
from soak.state import State, state_of
from soak.workers import memory_folder
from soak.writer import Writer
from soak.writers import WRITERS

PR_SET_PDEATHSIG = 1
CALLS = frozenset(
    ("open", "write", "writelines", "flush", "close", "fsync", "fchmod", "chmod", "replace", "rename", "link", "unlink", "mkdir", "rmdir", "symlink",
     "truncate", "remove", "execute", "executemany", "executescript", "commit", "tofile", "copy_file_range", "sendfile", "utime")
)  # fmt: skip
"""Names of the interpreter's C functions that change files."""
FILE, ANY, MOMENT = "call on files", "call", "microsecond"
"""Where a writer is killed: before one of CALLS, before any C function, or so many microseconds after its start."""


@dataclass(frozen=True)
class Point:
    kind: str  # FILE, ANY or MOMENT
    number: int  # of the call, or of microseconds
    of: int  # how many there are in all


@dataclass
class Count:
    name: str
    seconds: float = 0.0
    trials: int = 0
    killed: int = 0
    failed: int = 0


def _in_child(work: Callable[[], None], point: Point | None = None) -> int:
    """Run `work` in a fork, killed at `point`; return the wait status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_WRONLY)
        terminal = os.dup(2)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if point and point.kind != MOMENT:
            _arm(point.number, point.kind)
        try:
            work()
        except BaseException:  # noqa: BLE001  # a fork must never go on as its parent
            sys.setprofile(None)
            os.dup2(terminal, 2)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if point and point.kind == MOMENT:
        time.sleep(point.number / 1e6)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _counted(name: str, kind: str) -> bool:
    return kind == ANY or name in CALLS


def _arm(at_call: int, kind: str) -> None:
    left = at_call

    def count(_frame: Any, event: str, what: Any) -> None:
        nonlocal left
        if event == "c_call" and _counted(what.__name__, kind):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if at_call:
        threading.setprofile(count)
        sys.setprofile(count)


def _calls_of(work: Callable[[], None], kind: str) -> int:
    """Return how many calls of a kind the whole work makes: counted in a fork, told by a pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        number = 0

        def count(_frame: Any, event: str, what: Any) -> None:
            nonlocal number
            number += event == "c_call" and _counted(what.__name__, kind)

        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        threading.setprofile(count)
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(None)
            os.write(writer, str(number).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        number = int(stream.read() or 0)
    os.waitpid(child, 0)
    return number


def trial(writer: Writer, *, points: int, seed: int, top: Path) -> Count:
    """Kill one writer at `points` points and check what is left each time."""
    here, count, begun = top / re.sub(r"\W+", "_", writer.name), Count(name=writer.name), time.perf_counter()
    here.mkdir()

    def begin(name: str = "run") -> Path:
        folder = here / name  # always under the same name, because some files say where they lie
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        writer.prepare(folder)
        return folder

    folder = begin()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        writer.write(folder)
    folder = begin()
    old = state_of(folder, writer.seal)
    if _in_child(lambda: writer.write(folder)):
        print(f"{writer.name}: does not write at all")
        count.failed = 1
        return count
    new = state_of(folder, writer.seal)
    for point in _points(points, random.Random(seed), begin, writer):  # noqa: S311  # a repeatable test
        folder = begin()
        status = _in_child(lambda: writer.write(folder), point)  # noqa: B023  # run at once
        count.trials += 1
        count.killed += int(os.WIFSIGNALED(status))
        problem = _problem(writer, folder, old, new)
        if problem:
            count.failed += 1
            print(f"{writer.name}, {point.kind} {point.number} of {point.of}: {problem}", flush=True)
    shutil.rmtree(here)
    count.seconds = time.perf_counter() - begun
    return count


def _points(num: int, dice: random.Random, begin: Callable[[], Path], writer: Writer) -> list[Point]:
    """Return where to kill; the length of the work is the shortest of a few runs."""
    shares, calls, times = {FILE: (num + 1) // 2, ANY: num * 3 // 10}, {}, []
    for kind in (kind for kind, share in shares.items() if share):
        folder = begin()
        calls[kind] = _calls_of(lambda: writer.write(folder), kind)  # noqa: B023  # run at once
        shares[kind] = min(shares[kind], calls[kind])
    for _ in range(3 if num > 20 else 1):
        folder = begin()
        start = time.perf_counter()
        _in_child(lambda: writer.write(folder))  # noqa: B023
        times.append(time.perf_counter() - start)
    longest = max(int(1e6 * min(times)), 1)
    found = [
        Point(kind, 1 + int((n + 0.5) / share * calls[kind]), calls[kind])
        for kind, share in shares.items()
        for n in range(share)
    ]
    return found + [Point(MOMENT, dice.randrange(1, longest + 1), longest) for _ in range(num - len(found))]


def _problem(writer: Writer, folder: Path, old: State, new: State) -> str | None:
    """Say what a reader finds wrong behind a kill, and behind the try that follows it."""
    if writer.recover:
        recover_folder(folder / writer.recover)
    found = state_of(folder, writer.seal)
    if writer.recover and found not in (old, new):
        return f"neither the old folder nor the new one: {sorted(found)}"
    lost = set() if writer.recover else old.keys() - found.keys()
    half = [
        name
        for name, content in found.items()
        if content not in (old.get(name), new.get(name)) and name != writer.steps
    ]
    said = f"lost {sorted(lost)}, neither old nor new {half}" if lost or half else writer.check(folder)
    if said:
        return said
    if _in_child(lambda: writer.write(folder)):
        return "the second try fails"
    again = state_of(folder, writer.seal)
    differing = sorted(name for name in again.keys() | new.keys() if again.get(name) != new.get(name))
    left = [path.name for path in folder.rglob("*.part") if not path.name.startswith(".")]
    if left:
        return f"the second try leaves {left}"
    return f"behind the second try these are not new: {differing}" if differing else writer.check(folder)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200, help="points for each writer (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="for the moments in time (default 0)")
    parser.add_argument("--only", default="", help="writers whose name holds this word")
    parser.add_argument("--processes", type=int, default=0, help="at the same time (default: all cores)")
    options = parser.parse_args(words)
    chosen = [number for number, writer in enumerate(WRITERS) if options.only in writer.name]
    start = time.perf_counter()
    counts = []
    with memory_folder() as top:
        cores = options.processes or len(os.sched_getaffinity(0))
        # Forked before there is any thread; each worker forks its writers in turn.
        with ProcessPoolExecutor(max(1, min(cores, len(chosen))), multiprocessing.get_context("fork")) as pool:
            for done in as_completed([pool.submit(_one, n, options.points, options.seed, top) for n in chosen]):
                count = done.result()
                counts.append(count)
                print(f"  {count.name}: {count.trials} points, {count.killed} killed, {count.failed} failed, {count.seconds:.0f} s", flush=True)  # fmt: skip
    trials, failed = sum(count.trials for count in counts), sum(count.failed for count in counts)
    print(f"kill_points: {trials} kills of {len(counts)} writers, {failed} failed, {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


def _one(number: int, points: int, seed: int, top: Path) -> Count:
    return trial(WRITERS[number], points=points, seed=seed, top=top)


if __name__ == "__main__":
    sys.exit(main())
