# ruff: noqa: INP001  # scripts, not a package
"""Write a log of invented noise with a training record every so many lines; the same seed gives the same bytes.

    python benchmark/perf/make_logs.py --size 1GB --lines-per-record 1000 /tmp/sparse.log
    python benchmark/perf/make_logs.py --size 200MB --lines-per-record 1 /tmp/dense.log
    python benchmark/perf/make_logs.py --size 20MB --noise nccl_channel /tmp/channel.log

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
NOISE_BYTES = 66_000  # before a record in a log of one kind of noise: 300 records in 20 MB
KINDS = {  # what real programs print between training lines; {d}: a fraction, {x}: hexadecimal, {h}: one of 31 names
    "nccl_channel": "{h}:{c}:{c} [{a}] NCCL INFO Channel {a:02d}/0 : {b}[{a}] -> {b}[{a}] via P2P/CUMEM/read",
    "nccl_init": "{h}:{c}:{c} [{a}] NCCL INFO comm 0x{x} rank {b} nranks 64 cudaDev {a} busId {x} - Init COMPLETE",
    "nccl_net_ib": "{h}:{c}:{c} [{a}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB ib0:10.1.{a}.{b}<0>",
    "warning": "lib/python3.12/site-packages/torch/distributed/fsdp/_utils.py:{b}: FutureWarning: use DTensor instead\n  warn(",
    "traceback": '[rank{a}]:   File "megatron/core/schedules.py", line {b}, in forward_step\n    loss = step(batch)',
    "deepspeed": "[2026-03-01 10:{a:02d}:{a:02d},{b:03d}] [INFO] [logging.py:{b}:log_dist] [Rank {a}] step={c}, lr=[{d}]",
    "progress_bar": "\rLoading checkpoint shards: {a:3d}%|{bar}| {a}/99 [00:{a:02d}<00:{a:02d}, {d}it/s]",
    "data_loader": "2026-03-01 10:00:{a:02d},{b:03d} - INFO - worker {a}: shard {c:05d}-of-04096, {c} samples, queue {b}/999",
    "torch": "[rank{a}]:W1120 10:{a:02d}:{a:02d}.{c:06d} {c} torch/_dynamo/convert_frame.py:{b}] [{a}/8] hit config.limit (8)",
    "absl": "I1120 10:{a:02d}:{a:02d}.{c:06d} {c}{c} checkpointer.py:{b}] [process={a}] Saved item 'items' in {d} s",
    "yaml": "        num_layers: {b}\n        hidden_size: {c}\n        _target_: providers.{h}.GPTProvider\n        seq: 4096",
    "arguments": "  {h}_size {dots} {b}",
    "json_lines": '{{"time": {c}, "loss": {d}, "grad_norm": {d}, "lr": 0.0001, "gpu": {a}}}',
    "memory": "[Rank {a}] (after {b} iterations) memory (MB) | allocated: {c}.{b} | max allocated: {c}.{b} | reserved: {c}.0",
    "timers": "    forward-compute ................................: ({c}.{b}, {c}.{b})\n     rank {a:2d}: {c}.{b}",
    "checkpoints": "INFO saving checkpoint at iteration {c:8d} to /scratch/checkpoints [ t {a}/8, p {a}/8 ]",
    "long_line": "param_groups: [" + ", ".join(f"'decoder.layers.{i}.weight'" for i in range(3500)) + "]",
    "unicode": "[2026-03-01 10:00:{a:02d},{b:03d}] \u4fe1\u606f\uff1a\u7b2c {a} \u53f7\u8fdb\u7a0b\u52a0\u8f7d\u5206\u7247 {c}\uff0c\u8017\u65f6 {d} \u79d2",
    "evaluation": "2026-03-01 10:00:{a:02d},{b:03d} - eval | batch {b}/1000 | loss {d} | {c}.{a} samples/s",
}


def main() -> int:
    """Write the log and print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="LOG", type=Path)
    parser.add_argument("--size", type=num_bytes, default="200MB", help="for example 20kB, 200MB (default) or 1GB")
    parser.add_argument("--lines-per-record", type=int, default=1000, help="1: every line is a record (default: 1000)")
    parser.add_argument("--noise", choices=KINDS, help="one kind of noise, 66 kB of it before each record")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    num_records = write(options.path, options.size, options.lines_per_record, options.noise, options.seed)
    print(f"{options.path}: {options.path.stat().st_size} bytes, {num_records} records")
    return 0


def num_bytes(text: str) -> int:
    """Return the bytes of a size such as 200MB; units are powers of ten."""
    match = re.fullmatch(r"(\d+)(|kB|MB|GB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size: a whole number of kB, MB or GB")
    return int(match[1]) * UNITS[match[2]]


def write(path: Path, size_bytes: int, lines_per_record: int, kind: str | None = None, seed: int = 1) -> int:
    """Write about `size_bytes` of log to `path` and return how many records it holds."""
    written = num_records = 0
    with path.open("wb") as log:
        for text in pieces(lines_per_record, kind, seed):
            if written >= size_bytes:
                break
            written += log.write(text)
            num_records += 1
    return num_records


def pieces(lines_per_record: int, kind: str | None, seed: int) -> Iterator[bytes]:
    """Yield without end a record and the noise that stands before it."""
    draw = random.Random(seed)  # noqa: S311  # noise, not a secret
    forms = (KINDS[kind],) if kind else NOISE
    num_lines = NOISE_BYTES // len(noise(draw, forms)) + 1 if kind else lines_per_record - 1
    end = "\n" if forms[0].startswith("\r") else ""
    blocks = [("".join(noise(draw, forms) for _ in range(num_lines)) + end).encode() for _ in range(NUM_NOISE_BLOCKS)]
    iteration = 0
    while True:
        iteration += 1
        yield draw.choice(blocks) + record(iteration, draw).encode()


def noise(draw: random.Random, forms: tuple[str, ...]) -> str:
    """Return one line that says nothing; one that begins with a carriage return has no line feed."""
    a, form = draw.randrange(32), draw.choice(forms)
    line = form.format(
        a=a,
        b=draw.randrange(1000),
        c=draw.randrange(100_000),
        d=f"{draw.random():.6g}",
        x=f"{draw.getrandbits(48):012x}",
        h=f"node_{'aeiou'[a % 5]}{'kmnprst'[a % 7]}",
        dots="." * 40,
        bar="\u2588" * (a // 3) + " " * (10 - a // 3),
    )
    return line if form.startswith("\r") else line + "\n"


def record(iteration: int, draw: random.Random) -> str:
    """Return one training record; seconds and TFLOP/s as the JUPITER suite's patch of Megatron-LM prints them."""
    return (
        f" iteration {iteration:8d}/ 9000000 | consumed samples: {iteration * 96:12d} | "
        f"elapsed time per iteration (s): {7.2 + draw.random() / 10:.4f} | global batch size: {96:5d} | "
        f"lm loss: {10 + draw.random():.6E} | number of nan iterations: {0:3d} | TFLOPs: {100 + draw.random():.2f} |\n"
    )


if __name__ == "__main__":
    sys.exit(main())
