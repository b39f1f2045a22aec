# ruff: noqa: INP001  # scripts, not a package
"""Which engine should read logs? Each finds and reads the records of the same two generated logs; prints a table.

    python benchmark/perf/engines.py --size 1GB --dense-size 200MB --folder /tmp
    python benchmark/perf/engines.py --size 5MB --dense-size 1MB            (a smoke test, a second)

Times are CPU seconds of all threads: what one core would need.
sparse: iteration and seconds of the record in every 1000th line; dense: those of every line. An engine that does not
find the same sum of seconds stops the script. What is not installed is left out: pip install regex google-re2 hyperscan polars
"""

import argparse
import ctypes
import importlib.metadata
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

NEEDLE = b"elapsed time per iteration (s):"
PATTERN = rb"iteration +(\d+)/ *\d+ \|[^\n]*elapsed time per iteration \(s\): ([0-9.]+)"
BLOCK_BYTES = 1 << 20
Result = tuple[int, float]
"""How many records, and the sum of their seconds."""


def main() -> int:
    """Measure every engine that is installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    import make_logs  # noqa: PLC0415  # found through the path above

    make_logs.add_options(parser, dense="200MB", repeat=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sparse, dense = Path(folder, "sparse.log"), Path(folder, "dense.log")
        make_logs.write(sparse, options.size, 1000)
        make_logs.write(dense, options.dense_size, 1)
        rows = [measure(name, engine, sparse, dense, options.repeat) for name, engine in ENGINES.items()]
        show(rows, sparse, dense)
    return 0


def measure(name: str, engine: Callable[[Path], Result], sparse: Path, dense: Path, repeat: int) -> dict[str, Any]:
    """Return the engine's name and its best CPU seconds on each log, or what is missing."""
    row: dict[str, Any] = {"name": name}
    try:
        for key, log in (("sparse", sparse), ("dense", dense)):
            seconds = []
            for _ in range(repeat):
                begin = time.process_time()
                row[key + " result"] = engine(log)
                seconds.append(time.process_time() - begin)
            row[key] = min(seconds)
    except ImportError as error:
        row["missing"] = error.name
    print(f"{name}: {row}", file=sys.stderr)
    return row


def show(rows: list[dict[str, Any]], sparse: Path, dense: Path) -> None:
    """Print the table; stop when the engines do not agree."""
    found = [row for row in rows if "missing" not in row]
    for key in ("sparse result", "dense result"):
        if len({(row[key][0], round(row[key][1], 3)) for row in found}) != 1:
            raise SystemExit(f"the engines do not agree: {[(row['name'], row[key]) for row in found]}")
    ours = found[-1]
    sizes = {"sparse": sparse.stat().st_size / 1e9, "dense": dense.stat().st_size / 1e9}
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {machine()}, Python {platform.python_version()}\n")
    print(
        f"| engine | sparse {sizes['sparse']:.2f} GB: CPU s | GB/s | time / ours | dense {sizes['dense']:.2f} GB: CPU s | GB/s | time / ours |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|")
    for row in found:
        cells = [f"{row[k]:.3f} | {sizes[k] / row[k]:.2f} | {row[k] / ours[k]:.1f}" for k in ("sparse", "dense")]
        print(f"| {row['name']}{version(row['name'])} | {' | '.join(cells)} |")
    for row in rows:
        if "missing" in row:
            print(f"\n{row['name']}: left out, needs {row['missing']}")


def machine() -> str:
    """Return the processor and its number of cores."""
    import os  # noqa: PLC0415  # only here

    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def version(name: str) -> str:
    """Return the version of the library that an engine's name begins with, if it is one."""
    try:
        return f" ({importlib.metadata.version(name.partition(',')[0])})"
    except importlib.metadata.PackageNotFoundError:
        return ""


def blocks(log: Path) -> Iterator[bytes]:
    """Yield the log in blocks of whole lines."""
    rest = b""
    with log.open("rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            yield rest + block[:end]
            rest = block[end:]
    yield rest


def summed(pairs: Iterator[tuple[Any, Any]]) -> Result:
    """Count the records and add up their seconds."""
    count, total = 0, 0.0
    for iteration, seconds in pairs:
        int(iteration)
        total += float(seconds)
        count += 1
    return count, total


def lines_at(block: bytes, find: Callable[[bytes, int], int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield iteration and seconds of each line in which `find` finds the needle."""
    at = find(block, 0)
    while at >= 0:
        begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        iteration = block[block.find(b"iteration", begin, at) + 9 : block.find(b"/", begin, at)]
        yield iteration, block[at + len(NEEDLE) : block.find(b"|", at, end)]
        at = find(block, end)


def bytes_find(log: Path) -> Result:
    """Search with bytes.find."""
    return summed(pair for block in blocks(log) for pair in lines_at(block, lambda text, at: text.find(NEEDLE, at)))


def memmem(log: Path) -> Result:
    """Search with the C library's memmem."""
    call = ctypes.CDLL(None).memmem
    call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)

    def find(text: bytes, at: int) -> int:
        base = ctypes.cast(text, ctypes.c_void_p).value or 0
        found = call(base + at, len(text) - at, NEEDLE, len(NEEDLE))
        return int(found) - base if found else -1

    return summed(pair for block in blocks(log) for pair in lines_at(block, find))


def standard_re(log: Path) -> Result:
    """Search with the standard library's re."""
    search = re.compile(PATTERN).finditer
    return summed(match.groups() for block in blocks(log) for match in search(block))  # type: ignore[misc]


def regex_module(log: Path) -> Result:
    """Search with regex."""
    import regex  # noqa: PLC0415  # may be missing

    search = regex.compile(PATTERN).finditer
    return summed(match.groups() for block in blocks(log) for match in search(block))


def google_re2(log: Path) -> Result:
    """Search with RE2."""
    import re2  # noqa: PLC0415  # may be missing

    search = re2.compile(PATTERN).finditer
    return summed(match.groups() for block in blocks(log) for match in search(block))


def hyperscan_needle(log: Path) -> Result:
    """Search with Hyperscan, which tells no groups."""
    import hyperscan  # noqa: PLC0415  # may be missing

    database = hyperscan.Database()
    flags = hyperscan.HS_FLAG_SOM_LEFTMOST
    database.compile(expressions=[re.escape(NEEDLE)], ids=[0], elements=1, flags=[flags])

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        for block in blocks(log):
            places: list[int] = []
            database.scan(block, match_event_handler=lambda _, begin, *__, places=places: places.append(begin))
            following = iter([*places, -1])
            yield from lines_at(block, lambda _, __, following=following: next(following))

    return summed(pairs())


def polars_lines(log: Path) -> Result:
    """Filter a frame of lines."""
    import polars as pl  # noqa: PLC0415  # may be missing

    text = pl.scan_csv(log, separator="\x01", quote_char=None, has_header=False, new_columns=["line"])
    found = text.filter(pl.col("line").str.contains(NEEDLE.decode(), literal=True)).select(
        pl.col("line").str.extract(r"iteration +(\d+)/").cast(pl.Int64).alias("iteration"),
        pl.col("line").str.extract(r"per iteration \(s\): ([0-9.]+)").cast(pl.Float64).alias("seconds"),
    )
    frame = found.collect(engine="streaming")
    return len(frame), float(frame["seconds"].sum())


def ours_python(log: Path) -> Result:
    """Scan without the C part."""
    return scanned(log, is_compiled=False)


def ours(log: Path) -> Result:
    """Scan as nlp-bench does."""
    return scanned(log, is_compiled=True)


def scanned(log: Path, *, is_compiled: bool) -> Result:
    """Read every field of every record with the project's own scanner."""
    from log_reader import NEEDLES, SECONDS, grammar  # noqa: PLC0415  # found through the path above

    from nlp_bench.logs.scan import Scanner  # noqa: PLC0415  # --help stays fast
    from nlp_bench.logs.source import open_log  # noqa: PLC0415  # --help stays fast

    scanner, count, total = Scanner(NEEDLES, grammar(), is_compiled=is_compiled), 0, 0.0
    with open_log(str(log)) as source:
        for block in source.blocks():
            rows, _ = scanner.scan(block)
            count += len(rows.offsets)
            total += float(rows.columns[SECONDS].sum()) if len(rows.offsets) else 0.0
    return count, total


ENGINES: dict[str, Callable[[Path], Result]] = {
    "bytes.find, one needle": bytes_find,
    "memmem through ctypes, one needle": memmem,
    "re, one pattern": standard_re,
    "regex, one pattern": regex_module,
    "google-re2, one pattern": google_re2,
    "hyperscan, one needle, then bytes.find": hyperscan_needle,
    "polars, a frame of lines": polars_lines,
    "nlp-bench without its C part, 4 needles, all fields": ours_python,
    "nlp-bench, 4 needles, all fields": ours,
}

if __name__ == "__main__":
    sys.exit(main())
