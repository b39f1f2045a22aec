"""A pytest plugin for `tests/mutation.py`: notes which test calls which function, and runs those of one function first.

CALLERS names the file of what was noted; with FIRST, `file::function`, it is read, without it is written.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType

import pytest

SOURCE = f"{Path(__file__).resolve().parents[2]}{os.sep}"
calls: defaultdict[str, set[str]] = defaultdict(set)
seconds: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:  # type: ignore[misc]
    if "FIRST" in os.environ:
        return (yield)
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, _event: str, _arg: object) -> None:
        called.add((frame.f_code.co_filename, frame.f_code.co_name))

    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        for file, name in called:
            if file.startswith(SOURCE):
                calls[f"{file.removeprefix(SOURCE)}::{name}"].add(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] += report.duration


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put callers first: the files whose callers are the quickest, and in each the quickest caller; fixtures of files are made once."""
    first = os.environ.get("FIRST")
    if first is None:
        return
    known = json.loads(Path(os.environ["CALLERS"]).read_text(encoding="utf-8"))
    callers = dict.fromkeys(known["calls"].get(first, []), 0.0)
    in_file: defaultdict[str, list[float]] = defaultdict(list)
    for nodeid in callers:
        callers[nodeid] = known["seconds"].get(nodeid, 0.0)
        in_file[nodeid.partition("::")[0]].append(callers[nodeid])
    never = float("inf")

    def rank(item: pytest.Item) -> tuple[float, str, float]:
        file = item.nodeid.partition("::")[0]
        return sum(in_file[file]) if file in in_file else never, file, callers.get(item.nodeid, never)

    items.sort(key=rank)


def pytest_sessionfinish() -> None:
    if "FIRST" not in os.environ:
        found = {"calls": {name: sorted(tests) for name, tests in calls.items()}, "seconds": seconds}
        Path(os.environ["CALLERS"]).write_text(json.dumps(found), encoding="utf-8")
