"""The table of faults (table.toml): read, checked against the tests that are there, and printed for docs/reliability.md.

python tests/faults/table.py           the table in markdown, and how many rows have a test
python tests/faults/table.py --write   into docs/reliability.md, between its two marks
python tests/faults/table.py --run     run every test that it names, and say of how many rows all passed, and within their bound
"""

import ast
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

from nlp_bench.config.table import read_toml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- faults -->", "<!-- end of faults -->"
KINDS = ("slurm", "torchrun", "jube", "kill", "fixture")
NUM_ROWS = 114
SLOWEST = "slowest_case_s"
"""The property of pytest's JUnit file with which a test of many cases says how long the slowest of them took."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row."""

    row: int
    """Its number, 1 to NUM_ROWS."""
    fault: str
    """What happens."""
    outcome: str
    """What is then said and done."""
    bound_s: int
    """Seconds within which a run has ended or the answer is there."""
    how: str
    """What the tests run: a word of KINDS."""
    tests: list[str] = field(default_factory=list)
    """Their ids."""
    open: str = ""
    """What no test shows yet; empty where the row is done."""

    @property
    def status(self) -> str:
        """Return tested, partly or open."""
        return "open" if not self.tests else "partly" if self.open else "tested"


def read_table() -> list[Fault]:
    """Return the rows of table.toml."""
    return [Fault(**row) for row in read_toml(Path(__file__).parent / "table.toml", "nlp-bench/faults/1")["row"]]


def problems(rows: list[Fault]) -> list[str]:
    """Return a sentence for each row or test id that cannot be right."""
    found = (
        [] if [fault.row for fault in rows] == list(range(1, NUM_ROWS + 1)) else [f"rows: not 1 to {NUM_ROWS} in order"]
    )
    for fault in rows:
        found += [f"row {fault.row}: how is {fault.how!r}"] if fault.how not in KINDS else []
        found += (
            [f"row {fault.row}: no test, and nothing is said to be open"] if not fault.tests and not fault.open else []
        )
        found += [f"row {fault.row}: {test} does not exist" for test in fault.tests if not exists(test)]
    return found


def exists(test: str) -> bool:
    """Whether this test is there; of a case in brackets the word must stand in the file's text, quoted or as a name."""
    name, _, case = test.removesuffix("]").partition("[")
    path, _, function = name.partition("::")
    if not (ROOT / path).is_file() or function not in _functions(path):
        return False
    text = (ROOT / path).read_text(encoding="utf-8")
    return not case or f'"{case}"' in text or f".{case}" in text


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def markdown(rows: list[Fault]) -> str:
    """Return the table, with its sums first."""
    count = {status: sum(fault.status == status for fault in rows) for status in ("tested", "partly", "open")}
    lines = [
        f"{count['tested']} of {len(rows)} faults are tested, {count['partly']} in part, {count['open']} not yet.",
        "",
        "| # | fault | what is then said and done | within | by | tests |",
        "|---|---|---|---|---|---|",
    ]
    for fault in rows:
        tests = "<br>".join(f"`{test}`" for test in fault.tests) + (f"<br>open: {fault.open}" if fault.open else "")
        lines.append(
            f"| {fault.row} | {fault.fault} | {fault.outcome} | {fault.bound_s} s | {fault.how} | {tests.removeprefix('<br>')} |"
        )
    return "\n".join(lines) + "\n"


def page(rows: list[Fault], text: str) -> str:
    """Return the page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown(rows)}{END}{after}"


def run(rows: list[Fault]) -> int:
    """Run the tests of all rows, print what came of each row that is not done; return 1 where a test failed or a row is late.

    The tests run two at a time, and the soak has more beside them: those of a row that comes late run again one by one, for
    its bound is the program's, not that of a machine with other work.
    """
    tests = sorted({test.partition("[")[0] for fault in rows for test in fault.tests})
    status, seconds = timed(tests, "-n", "2", "--dist", "loadfile")
    passed = [fault for fault in rows if fault.tests and all(ran(test, seconds) for test in fault.tests)]
    for fault in rows:
        if fault not in passed or fault.open:
            print(
                f"row {fault.row}: {fault.status}{f', open: {fault.open}' if fault.open else ''}{'' if fault in passed else ', not all of its tests passed'}"
            )
    late = [fault for fault in passed if longest(fault, seconds) > fault.bound_s]
    alone = timed(sorted({test.partition("[")[0] for fault in late for test in fault.tests}))[1] if late else {}
    for fault in late:
        print(
            f"row {fault.row}: a test took {longest(fault, seconds):.1f} s beside others, {longest(fault, alone):.1f} s alone; the bound is {fault.bound_s} s"
        )
    whole = sum(not fault.open for fault in passed)
    still = sum(longest(fault, alone) > fault.bound_s for fault in late)
    print(
        f"faults: {whole} of {len(rows)} rows, all of whose tests passed ({len(tests)} tests), {len(passed) - whole} more in part, "
        f"{still} later than their bound{f' ({len(late) - still} only beside other tests)' if len(late) > still else ''}"
    )
    return int(status != 0 or still > 0)


def timed(tests: list[str], *options: str) -> tuple[int, dict[str, float]]:
    """Run these tests; return pytest's exit status and the seconds of each that passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-o", "junit_duration_report=call", f"--junitxml={report}"]
        status = subprocess.run([*words, *options, *tests], cwd=ROOT, check=False).returncode
        return status, read_report(report) if report.is_file() else {}


def longest(fault: Fault, seconds: dict[str, float]) -> float:
    """Return the seconds of the row's longest test; infinity where one did not pass."""
    return max(max(ran(test, seconds), default=math.inf) for test in fault.tests)


def read_report(path: Path) -> dict[str, float]:
    """Return the seconds of each test that passed, by its id, from pytest's JUnit file: of its slowest case where it says that."""
    found = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314  # pytest's own file
        if not any(child.tag in {"failure", "error", "skipped"} for child in case):
            slowest = case.find(f"properties/property[@name='{SLOWEST}']")
            took = case.get("time", "0") if slowest is None else slowest.get("value", "")
            found[f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"] = float(took)
    return found


def ran(test: str, seconds: dict[str, float]) -> list[float]:
    """Return the seconds of each case of a test that passed; one in brackets is a parameter's case, or one that the test runs itself."""
    name, _, case = test.removesuffix("]").partition("[")
    whole = [took for found, took in seconds.items() if found == name]
    return whole or [took for found, took in seconds.items() if found.startswith(f"{name}[{case}")]


def main(words: list[str]) -> int:
    """Print the table, write it or run its tests; return 1 where a row cannot be right."""
    rows = read_table()
    if words == ["--run"]:
        return run(rows)
    for problem in problems(rows):
        print(problem, file=sys.stderr)
    if words == ["--write"]:
        PAGE.write_text(page(rows, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(markdown(rows), end="")
    return 1 if problems(rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
