"""What the last start of a run logged in job.out and job.err: whether it finished, and whether --until was met."""

import re
from pathlib import Path

from nlp_bench.files import opened

FINISHED = re.compile(
    r"^(?:\[\w+\]: ?)? ?(?:training finished: (\d+) iterations|\[after training is done\] datetime: .*)$"
)
"""The line after the last iteration: our trainer's, or Megatron-LM's."""
ENOUGH = re.compile(r"^(?:\[\w+\]: ?)? ?until \S+: enough after iteration (\d+) of \d+: ")
"""Our trainer's line before that one, where --until ended the training (train/loop.py)."""
STARTED, STARTED_ERR = "\nSubmitted batch job ", "nlp-bench: begin of job "
"""What the job script prints first into job.out and job.err: anything before is of an earlier job of the chain, or start of the job."""
ATTEMPT = "nlp-bench: attempt "
"""What `sync` writes into both files before it submits a lost run again (launch/follow/retry.py): anything before is of an earlier job."""
ITERATION = r"iteration +(\d{1,12})/"  # in words of `re`: how the line of a logging interval begins (train/logline.py)
TIMED = re.compile(
    rf"{ITERATION} *\d+ \|.*?elapsed time per iteration \((s|ms)\): *([0-9.]+(?:[eE][-+]?\d+)?) *\|".encode()
)
"""Our trainer's line, or Megatron-LM's with its milliseconds."""
TAIL_BYTES = 2_000_000  # bytes at the end of a log that are read; a flood of errors before them is not
BLOCK_BYTES = 1 << 20
_STAMP = re.compile(
    r"^\[?(?:\d{4}[-/]\d\d[-/]\d\d[T _]|[A-Z][a-z]{2} [ \d]\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:? ",
    re.MULTILINE,
)
"""The time that a site's srun puts before each line."""
_JOB = re.compile(rb"^Submitted batch job (\S+)$", re.MULTILINE)


def of_this_start(text: str, started: str) -> str:
    """Return the text after the last start of the job, or after the line with which a further attempt was submitted, without stamps of time."""
    _, mark, after = text.rpartition(f"\n{ATTEMPT}")
    is_unstarted = bool(mark) and started not in after
    return _STAMP.sub("", after.partition("\n")[2] if is_unstarted else text.rpartition(started)[2])


def says_finished(run_dir: Path) -> bool:
    """Whether the last start of the program said that its training was done: an exit status after that voids no number."""
    lines = of_this_start(tail(run_dir / "job.out"), STARTED).splitlines()
    return any(FINISHED.match(line) for line in lines)


def enough_at(run_dir: Path) -> int | None:
    """Return the iteration after which the last start of the program says that --until was met; None where it does not."""
    return enough_after(of_this_start(tail(run_dir / "job.out"), STARTED).splitlines())


def enough_after(lines: list[str]) -> int | None:
    """Return the iteration after which one of `lines` says that --until was met, None where none does."""
    return next((int(found[1]) for line in reversed(lines) if (found := ENOUGH.match(line))), None)


def tail(path: Path, most: int = TAIL_BYTES) -> str:
    """Return the last `most` bytes of a log, "" where it cannot be read."""
    try:
        with opened(path) as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - most))
            return stream.read(most).decode(errors="replace")  # of a log that grows as fast as it is read, too
    except OSError:
        return ""


def jobs(log: Path) -> list[str]:
    """Return the numbers of the jobs that have started writing to `log`, the first one first, whatever its size."""
    found, rest = [], b""
    try:
        with opened(log) as stream:
            while block := stream.read(BLOCK_BYTES):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                found += _JOB.findall(whole + newline)
                rest = rest[-BLOCK_BYTES:]  # no line of ours is so long
    except OSError:
        return []
    return [number.decode() for number in [*found, *_JOB.findall(rest)]]
