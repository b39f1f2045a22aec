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
    name: str  # what is counted
    lane: str  # COMPUTES or STARTS
    script: str  # below tests/
    option: str = ""  # that takes the number
    num: int = 0  # of trials
    more: tuple[str, ...] = ()  # further words
    printed: list[str] = field(default_factory=list)  # its last lines, newest last
    status: int | None = None  # its exit status
    seconds: float = 0.0  # how long it took

    def words(self, part: int) -> list[str]:
        """Return the command, for one `part`-th of the trials."""
        number = [self.option, str(max(self.num // part, 3))] if self.option else []
        return [sys.executable, str(ROOT / "tests" / self.script), *number, *self.more]


def figures() -> list[Figure]:
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
        Figure(name="fuzzed logs", lane=COMPUTES, script="soak/fuzz_logs.py", option="--num", num=250_000),
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


def rows(measured: list[Figure], part: int) -> dict[str, str]:
    """Return the table's row of each script: what it printed, when, at which commit, in how many minutes."""
    words = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    found = {}
    for figure in measured:
        command = " ".join(["python", f"tests/{figure.script}", *figure.words(part)[2:]])
        said = _said(figure).replace("|", "/")
        verdict = "" if figure.status == 0 else "FAILED: "
        found[figure.script] = (
            f"| {figure.name} | `{command}` | {verdict}{said} | {today}, {commit}, {figure.seconds / 60:.0f} min |"
        )
    return found


def markdown(found: dict[str, str]) -> str:
    """Return the table: the scripts' rows in their order."""
    head = ["| figure | command | what it printed | when, commit, minutes |", "|---|---|---|---|"]
    return "\n".join([*head, *(found[figure.script] for figure in figures() if figure.script in found)]) + "\n"


def write(found: dict[str, str]) -> None:
    """Put the rows into the page, between its marks; those of scripts that were not run now stay."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    earlier = {
        figure.script: line
        for figure in figures()
        for line in inside.splitlines()
        if f"`python tests/{figure.script}" in line
    }
    PAGE.write_text(f"{before}{BEGIN}\n{markdown({**earlier, **found})}{END}{after}", encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, metavar="N", help="an Nth of each number of trials (default 1)")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="scripts whose name holds one of these words, such as table,orphans"
    )
    parser.add_argument("--write", action="store_true", help="put the rows into docs/reliability.md")
    parser.add_argument(
        "--logs",
        type=Path,
        default=ROOT / "reports/soak",
        help="folder for what the scripts print (default reports/soak)",
    )
    options = parser.parse_args(words)
    options.logs.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",")
    all_figures, start = [one for one in figures() if any(word in one.script for word in wanted)], time.perf_counter()
    lanes = [[figure for figure in all_figures if figure.lane == lane] for lane in (STARTS, COMPUTES)]
    threads = [threading.Thread(target=run_lane, args=(lane, options.part, options.logs)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = rows(all_figures, options.part)
    print(markdown(found), end="")
    print(
        f"soak: {len(found)} figures in {(time.perf_counter() - start) / 60:.0f} minutes on {os.cpu_count()} CPU cores"
    )
    if options.write:
        write(found)
    return int(any(figure.status != 0 or not figure.printed for figure in all_figures))


if __name__ == "__main__":
    sys.exit(main())
