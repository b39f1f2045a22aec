# ruff: noqa: INP001  # scripts, not a package
"""Measure every table of this folder and print each figure beside the one that was committed last.

    python benchmark/perf/all.py                          # all of them, on an idle machine: about 15 minutes
    python benchmark/perf/all.py reports log_reader       # some of them
    python benchmark/perf/all.py --write                  # and keep what was measured in benchmark/perf/tables

Nothing passes or fails: a loss is seen by whoever reads it. `was` is the same line in `tables/NAME.txt`.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLES = HERE / "tables"
COMMANDS: dict[str, tuple[str, ...]] = {
    "log_reader": (),
    "reports": (),
    "planner": ("--no-rival",),
    "rehearse": (),
    "data_prepare": (),
    "start_up": (),
    "recorder": (),
    "trainer_vs_torch": ("--family", "all"),
}
"""Script and its options; `calibrated` and `gpu_training` need more than this machine and environment."""

NUMBER = re.compile(r"\d[\d,. ]*\d|\d")


def by_form(text: str) -> dict[tuple[str, int], str]:
    """Lines by their words with the figures left out, and how many of the same form stand above."""
    seen: Counter[str] = Counter()
    found = {}
    for line in text.splitlines():
        form = " ".join(NUMBER.sub("#", line).split())
        found[form, seen[form]] = line
        seen[form] += 1
    return found


def beside(now: str, before: str) -> str:
    """`now`, with the line that was committed in the place of each one below it where a figure differs."""
    old = by_form(before)
    lines = []
    for place, line in by_form(now).items():
        lines.append(line)
        if old.get(place, line) != line:
            lines.append(f"    was: {old[place]}")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="keep the new tables in benchmark/perf/tables")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in COMMANDS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(COMMANDS)}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"all.py: the load is {load:.1f}: other work is measured too", file=sys.stderr)
    failed = []
    for name in options.names or COMMANDS:
        script = HERE / f"{name}.py"
        print(f"## {name}.py {' '.join(COMMANDS[name])}\n", flush=True)
        done = subprocess.run([sys.executable, script, *COMMANDS[name]], stdout=subprocess.PIPE, text=True, check=False)
        kept = TABLES / f"{name}.txt"
        print(beside(done.stdout, kept.read_text(encoding="utf-8") if kept.exists() else ""), flush=True)
        if done.returncode:
            failed.append(name)
        elif options.write:
            TABLES.mkdir(exist_ok=True)
            kept.write_text(done.stdout, encoding="utf-8")
    if failed:
        print(f"all.py: ended with an error: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
