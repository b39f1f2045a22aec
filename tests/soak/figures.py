"""Run every script of the soak and print their figures as one table; called by tests/soak/run.sh.

Two lanes run beside each other: what starts programs (faults, kills, Slurm jobs) and, at a lower priority, what only computes
(fuzzing, kill points), so that the first is tried on a loaded machine. Exits with 1 if a script did, or printed no figure.
"""

import argparse
import datetime as dt
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
COMPUTES, STARTS = "computes", "starts programs"


@dataclass(kw_only=True)
class Figure:
    """One figure, and what became of it."""

    name: str
    """What is counted."""
    lane: str
    """COMPUTES or STARTS."""
    script: str
    """Below tests/."""
    option: str = ""
    """That takes the number."""
    num: int = 0
    """Of trials."""
    more: tuple[str, ...] = ()
    """Further words."""
    printed: list[str] = field(default_factory=list)
    """Its last lines, newest last."""
    status: int | None = None
    """Its exit status."""
    seconds: float = 0.0
    """How long it took."""

    def words(self, part: int) -> list[str]:
        """Return the command, for one `part`-th of the trials."""
        number = [self.option, str(max(self.num // part, 3))] if self.option else []
        return [sys.executable, str(ROOT / "tests" / self.script), *number, *self.more]


def figures() -> list[Figure]:
    """Return all of them, each lane in its order."""
    return [
        Figure(name="faults with tests that passed", lane=STARTS, script="faults/table.py", more=("--run",)),
        Figure(name="kill -9 of `jube run` and `continue`", lane=STARTS, script="soak/exactly_once.py", option="--num", num=50),
        Figure(name="Slurm jobs under random faults", lane=STARTS, script="soak/slurm_jobs.py", option="--num", num=200),
        Figure(name="killed trainings", lane=STARTS, script="soak/orphans.py", option="--num", num=30),
        Figure(name="signals to each subcommand", lane=STARTS, script="soak/signals.py", option="--num", num=102),
        Figure(name="eight writers of one history", lane=STARTS, script="soak/appends.py", option="--runs", num=50),
        Figure(name="full and read-only disks", lane=STARTS, script="soak/full_disk.py", option="--levels", num=8),
        Figure(name="kill points in each writer", lane=COMPUTES, script="soak/kill_points.py", option="--points", num=200),
        Figure(name="fuzzed configuration files, records and bundles", lane=COMPUTES, script="soak/fuzz_files.py", option="--num", num=100_000),
        Figure(name="fuzzed logs", lane=COMPUTES, script="soak/fuzz_logs.py", option="--num", num=1_000_000),
    ]  # fmt: skip


def run_lane(lane: list[Figure], part: int, folder: Path) -> None:
    """Run its scripts one after the other; their output lies in `folder`."""
    for figure in lane:
        log = folder / f"{Path(figure.script).stem}.log"
        start = time.perf_counter()
        print(f"  {figure.name}: {' '.join(figure.words(part)[1:])}", file=sys.stderr, flush=True)
        with log.open("wb") as output:
            nice = ["nice", "-n", "10"] if figure.lane == COMPUTES else []
            figure.status = subprocess.run(
                [*nice, *figure.words(part)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
            ).returncode  # fmt: skip
        figure.seconds = time.perf_counter() - start
        figure.printed = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        print(
            f"  {figure.name}: exit {figure.status} after {figure.seconds:.0f} s: {_said(figure)}",
            file=sys.stderr,
            flush=True,
        )


def _said(figure: Figure) -> str:
    return figure.printed[-1] if figure.printed else "printed nothing"


def markdown(all_figures: list[Figure], part: int, seconds: float) -> str:
    """Return the table, with where and when."""
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    share = "" if part == 1 else f", a {part}th of each"
    lines = [
        f"`bash tests/soak/run.sh`, {today}, commit {head or 'unknown'}, {os.cpu_count()} CPU cores, no GPU, {seconds / 60:.0f} minutes{share}:",
        "",
        "| figure | command | what it printed | |",
        "|---|---|---|---|",
    ]
    for figure in all_figures:
        command = " ".join(["python", f"tests/{figure.script}", *figure.words(part)[2:]])
        lines.append(
            f"| {figure.name} | `{command}` | {_said(figure).replace('|', '/')} | {'ok' if figure.status == 0 else 'FAILED'} |"
        )
    return "\n".join(lines) + "\n"


def write(table: str) -> None:
    """Put the table into the page, between its marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table}{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    """Run both lanes, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, metavar="N", help="an Nth of each number of trials (default 1)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    parser.add_argument(
        "--logs",
        type=Path,
        default=ROOT / "reports/soak",
        help="folder for what the scripts print (default reports/soak)",
    )
    options = parser.parse_args(words)
    options.logs.mkdir(parents=True, exist_ok=True)
    all_figures, start = figures(), time.perf_counter()
    lanes = [[figure for figure in all_figures if figure.lane == lane] for lane in (STARTS, COMPUTES)]
    threads = [threading.Thread(target=run_lane, args=(lane, options.part, options.logs)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = markdown(all_figures, options.part, time.perf_counter() - start)
    print(table, end="")
    if options.write:
        write(table)
    return int(any(figure.status != 0 or not figure.printed for figure in all_figures))


if __name__ == "__main__":
    sys.exit(main())
