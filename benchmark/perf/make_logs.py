# ruff: noqa: INP001  # scripts, not a package
"""Write a log of invented noise with a training record every so many lines; the same seed gives the same bytes.

    python benchmark/perf/make_logs.py --size 1GB --lines-per-record 1000 /tmp/sparse.log
    python benchmark/perf/make_logs.py --size 200MB --lines-per-record 1 /tmp/dense.log

A record has the form of Megatron-LM's line in the JUPITER suite, with random values.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NUM_NOISE_BLOCKS = 64  # noise is put together from these; a gigabyte of fresh random lines takes minutes
UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
NOISE = (  # {a}: up to 31, {b}: up to 999, {c}: up to 99999
    "node{b:03d}:{c}:{c} [{a}] COMM INFO ring {a:02d}/0 : {b}[{a}] -> {b}[{a}] [send] over fabric/{a}/direct",
    "node{b:03d}:{c}:{c} [{a}] COMM INFO ring {a:02d}/0 : {b}[{a}] -> {b}[{a}] [receive] over fabric/{a}/direct",
    "node{b:03d}:{c}:{c} [{a}] COMM INFO tree {a:02d} up {b}->{b} down {b}/-1/-1, {a} of 32 lanes open",
    "node{b:03d}:{c}:{c} [{a}] COMM INFO registered {c} bytes at slot {b}, window {a}, no copy",
    "[rank{b}]: site-packages/worker/queue.py:{b}: UserWarning: queue {a} waited {c} us, raise prefetch",
)


def main() -> int:
    """Write the log and print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="LOG", type=Path)
    parser.add_argument("--size", type=num_bytes, default="200MB", help="for example 20kB, 200MB (default) or 1GB")
    parser.add_argument("--lines-per-record", type=int, default=1000, help="1: every line is a record (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    num_records = write(options.path, options.size, options.lines_per_record, options.seed)
    print(f"{options.path}: {options.path.stat().st_size} bytes, {num_records} records")
    return 0


def num_bytes(text: str) -> int:
    """Return the bytes of a size such as 200MB; units are powers of ten."""
    match = re.fullmatch(r"(\d+)(|kB|MB|GB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size: a whole number of kB, MB or GB")
    return int(match[1]) * UNITS[match[2]]


def write(path: Path, size_bytes: int, lines_per_record: int, seed: int = 1) -> int:
    """Write about `size_bytes` of log to `path` and return how many records it holds."""
    written = num_records = 0
    with path.open("wb") as log:
        for text in pieces(lines_per_record, seed):
            if written >= size_bytes:
                break
            written += log.write(text)
            num_records += 1
    return num_records


def pieces(lines_per_record: int, seed: int) -> Iterator[bytes]:
    """Yield without end a record and the noise that stands before it."""
    draw = random.Random(seed)  # noqa: S311  # noise, not a secret
    blocks = ["".join(noise(draw) for _ in range(lines_per_record - 1)).encode() for _ in range(NUM_NOISE_BLOCKS)]
    iteration = 0
    while True:
        iteration += 1
        yield draw.choice(blocks) + record(iteration, draw).encode()


def noise(draw: random.Random) -> str:
    """Return one line that says nothing."""
    return draw.choice(NOISE).format(a=draw.randrange(32), b=draw.randrange(1000), c=draw.randrange(100_000)) + "\n"


def record(iteration: int, draw: random.Random) -> str:
    """Return one training record; seconds and TFLOP/s as the JUPITER suite's patch of Megatron-LM prints them."""
    return (
        f" iteration {iteration:8d}/ 9000000 | consumed samples: {iteration * 96:12d} | "
        f"elapsed time per iteration (s): {7.2 + draw.random() / 10:.4f} | global batch size: {96:5d} | "
        f"lm loss: {10 + draw.random():.6E} | number of nan iterations: {0:3d} | TFLOPs: {100 + draw.random():.2f} |\n"
    )


if __name__ == "__main__":
    sys.exit(main())
