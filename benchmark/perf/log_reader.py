# ruff: noqa: INP001  # scripts, not a package
"""How fast are logs read? ripgrep, JUBE's analyser and nlp-bench on the same generated logs in one run; prints a table.

    python benchmark/perf/log_reader.py --folder /tmp                        (1 GB and 200 MB, some minutes)
    python benchmark/perf/log_reader.py --size 5MB --dense-size 1MB --noise-size 1MB --repeat 1          (a smoke test)

Each line of the table is a process of its own: wall-clock seconds with start-up (the best of --repeat), peak resident
memory. CPU s adds up all cores and hardly minds what else runs on the machine. `scan` is timed inside its process,
without start-up. Needs rg and jube on PATH; what is missing is left out. A second table has the kinds of noise that real
programs print, in CPU seconds net of start-up, which the same command takes on a log of a few lines.
"""

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from nlp_bench.machine.node import cpu_model  # behind the path

REPORT = [str(Path(sys.executable).with_name("nlp-bench")), "report", "--sequence-length", "2048"]
SCATTER_S = 0.05
NEEDLES = (b"iteration", b"....", b"-----", b"device:")
MANY_NEEDLES = (*NEEDLES, *(
    b"samples/sec|tokens/s|tok/s|TFLOP|tps:|step:|Step |it/s|s/it|:::MLLOG|global_step|train_step_timing|throughput|seconds:|mfu|"
    b"completed step|samples_per_second|tokens_per_second|world_size|seq_length|max_length|ms/step|MFU|step_time|time per|epoch"
).split(b"|"))  # fmt: skip
JUBE = """
name: analyse
outpath: runs
patternset:
  name: metrics
  pattern:
    - {name: iteration, type: int, _: 'iteration\\s+$jube_pat_int/\\s*\\d+'}
    - {name: seconds, type: float, _: 'elapsed time per iteration \\(s\\):\\s+$jube_pat_fp'}
    - {name: tflops, type: float, _: 'TFLOPs:\\s+$jube_pat_fp'}
step: {name: link, do: "ln -s LOG job.log"}
analyser: {name: analyse, use: metrics, analyse: {step: link, file: job.log}}
result: {use: analyse, table: {name: result, column: [iteration_last, seconds_avg, tflops_avg]}}
"""


def main() -> int:
    """Make the logs, measure, print."""
    import make_logs  # noqa: PLC0415  # found through the path above

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = make_logs.num_bytes
    parser.add_argument("--size", type=size, default="1GB", help="of the sparse log (default: %(default)s)")
    parser.add_argument("--dense-size", type=size, default="230MB", help="of the dense log (default: %(default)s)")
    parser.add_argument("--noise-size", type=size, default="20MB", help="of each kind of noise (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where the logs are made (default: a temporary folder)")
    parser.add_argument("--repeat", type=int, default=5, help="the best of so many runs (default: %(default)s)")
    parser.add_argument("--scan", metavar="LOG", help=argparse.SUPPRESS)
    parser.add_argument("--needles", type=int, default=len(NEEDLES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        print(json.dumps(scan(options.scan, MANY_NEEDLES[: options.needles])))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        logs = {key: folder / f"{key}.log" for key in ("sparse", "dense", "small", "line")}
        # In processes of their own: a child's peak memory is never told as less than what its parent held.
        for key, num_bytes, lines in (
            ("sparse", options.size, 1000),
            ("dense", options.dense_size, 1),
            ("small", 20_000, 2),
        ):
            words = ["--size", str(num_bytes), "--lines-per-record", str(lines), str(logs[key])]
            subprocess.run([sys.executable, str(make_logs.__file__), *words], check=True, stdout=subprocess.DEVNULL)
        logs["line"].write_bytes(b"iteration " * 1_000_000)
        show(list(measured(logs, folder, options.repeat)))
        show_noise(folder, options.noise_size, options.repeat)
    return 0


def show_noise(folder: Path, num_bytes: int, repeat: int) -> None:
    """Print how fast logs of one kind of noise are read, against JUBE and rg, net of start-up."""
    import make_logs  # noqa: PLC0415  # found through the path above

    log, start_up = folder / "noise.log", [0.0, 0.0, 0.0]
    jube = jube_command(log, folder / "noise")
    commands = [[*REPORT, str(log)], jube, ["rg", "-c", "elapsed time per iteration", str(log)]]
    print(
        f"\n| {num_bytes / 1e6:.4g} MB of noise | nlp-bench CPU s | MB/s | JUBE CPU s | rg CPU s | x as fast as JUBE |\n|:--|--:|--:|--:|--:|--:|"
    )
    for kind in (None, *make_logs.KINDS):
        make_logs.write(log, num_bytes if kind else 2_000, 2, kind)
        times = [
            best_run(command, repeat)["cpu_s"] if command and shutil.which(command[0]) else math.nan
            for command in commands
        ]
        if kind is None:
            start_up = times
            print(f"| start-up, taken off below | {times[0]:.3f} | | {times[1]:.3f} | {times[2]:.3f} | |")
            continue
        # Of less than the start-up's own scatter only that is known.
        ours, jubes, rgs = (max(time - start, SCATTER_S) for time, start in zip(times, start_up, strict=True))
        more, size_bytes = "> " * (ours <= SCATTER_S), log.stat().st_size
        print(
            f"| {kind} | {ours:.3f} | {more}{size_bytes / ours / 1e6:.0f} | {jubes:.3f} | {rgs:.3f} | {jubes / ours:.1f} |",
            flush=True,
        )


def grammar() -> Any:
    """Return the fields of the generated records."""
    from nlp_bench.logs.scan import Grammar  # noqa: PLC0415  # --help stays fast

    keys = {
        b"consumed samples": ("consumed_samples", 1.0, True),
        b"elapsed time per iteration (s)": ("elapsed_s", 1.0, False),
        b"elapsed time per iteration (ms)": ("elapsed_s", 1000.0, False),
        b"global batch size": ("global_batch_size", 1.0, True),
        b"lm loss": ("lm_loss", 1.0, False),
        b"number of nan iterations": ("num_nan", 1.0, True),
        b"TFLOPs": ("tflops", 1.0, False),
    }
    return Grammar(b"iteration", keys, required=("elapsed_s",))


def scan(log: str, needles: tuple[bytes, ...]) -> dict[str, float]:
    """Scan the log in this process; return the seconds and the number of rows."""
    from nlp_bench.logs.scan import Scanner  # noqa: PLC0415  # --help stays fast
    from nlp_bench.logs.source import open_log  # noqa: PLC0415  # --help stays fast

    begin, begin_cpu, num_rows = time.perf_counter(), time.process_time(), 0
    scanner = Scanner(needles, grammar())
    with open_log(log) as source:
        for block in source.blocks():
            num_rows += sum(len(rows) for rows, _ in scanner.scan(block))
    return {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - begin_cpu, "rows": num_rows}


def measured(logs: dict[str, Path], folder: Path, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield one line of the table after the other; `reference` names the line that it is compared with."""
    rg = ["rg", "-c", "elapsed time per iteration"]
    ours = [sys.executable, str(Path(__file__).resolve()), "--scan"]
    one = ["taskset", "-c", "0"]
    jube = jube_command(logs["dense"], folder)
    for log, name, command in (
        ("sparse", "rg -c", [*rg, str(logs["sparse"])]),
        ("sparse", "scan", [*ours, str(logs["sparse"])]),
        ("sparse", "scan on one core", [*one, *ours, str(logs["sparse"])]),
        ("sparse", "scan for 30 words", [*ours, str(logs["sparse"]), "--needles", "30"]),
        ("sparse", "nlp-bench report", [*REPORT, str(logs["sparse"])]),
        ("dense", "jube result -a", jube),
        ("dense", "rg -c", [*rg, str(logs["dense"])]),
        ("dense", "scan", [*ours, str(logs["dense"])]),
        ("dense", "scan on one core", [*one, *ours, str(logs["dense"])]),
        ("dense", "nlp-bench report", [*REPORT, str(logs["dense"])]),
        ("small", "nlp-bench report", [*REPORT, str(logs["small"])]),
        ("line", "scan", [*ours, str(logs["line"])]),
        ("line", "nlp-bench report", [*REPORT, str(logs["line"])]),
    ):
        if command and shutil.which(command[0]):
            row = {"log": log, "name": name, "num_bytes": logs[log].stat().st_size, **best_run(command, repeat)}
            print(row, file=sys.stderr)
            yield row


def jube_command(log: Path, folder: Path) -> list[str]:
    """Run JUBE's trivial step once, so that `jube result -a` has something to analyse; return that command."""
    if not shutil.which("jube"):
        return []
    folder.mkdir(exist_ok=True)
    (folder / "analyse.yaml").write_text(JUBE.replace("LOG", str(log)))
    subprocess.run(["jube", "run", "analyse.yaml"], cwd=folder, check=True, capture_output=True)
    return ["jube", "result", "-a", str(folder / "runs")]


def best_run(command: list[str], repeat: int) -> dict[str, Any]:
    """Run the command so many times; return its least seconds, its greatest memory, its exit status."""
    runs = [run(command) for _ in range(repeat)]
    best = min(runs, key=lambda row: row["seconds"])
    return {**best, "peak_bytes": max(row["peak_bytes"] for row in runs)}


def run(command: list[str]) -> dict[str, Any]:
    """Run the command once."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    row = {"seconds": seconds, "cpu_s": usage.ru_utime + usage.ru_stime}
    if "--scan" in command:
        row = json.loads(output)
    return {**row, "peak_bytes": usage.ru_maxrss * 1024, "status": process.returncode}


def processor() -> str:
    """Return the processor's name."""
    return cpu_model() or platform.machine()


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table: time against rg on the sparse log, against JUBE on the dense one."""
    print(
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {processor()} ({os.cpu_count()} cores), Python {sys.version.split()[0]}\n"
    )
    print("| log | command | s | CPU s | GB/s | against rg | against JUBE | peak MB |")
    print("|:--|:--|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        rates = [f"{row['num_bytes'] / row['seconds'] / 1e9:.2f}"]
        for rival in ("rg -c", "jube result -a"):
            known = [other for other in rows if (other["log"], other["name"]) == (row["log"], rival)]
            rates.append(f"{row['seconds'] / known[0]['seconds']:.2f} x time" if known else "")
        if known:
            rates[-1] = f"{known[0]['seconds'] / row['seconds']:.1f} x as fast"
        name = row["name"] + (f" (failed: {row['status']})" if row["status"] else "")
        size = f"{row['log']}, {row['num_bytes'] / 1e6:.4g} MB"
        print(
            f"| {size} | {name} | {row['seconds']:.3f} | {row['cpu_s']:.3f} | {' | '.join(rates)} | {row['peak_bytes'] / 1e6:.0f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
