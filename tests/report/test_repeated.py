"""Repeats in a report: their verdict is no better than that of the runs they are made of."""

import random
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.repeated import write_runs


def repeats_of(folder: Path, limit_s: float, report: Cli) -> dict[str, Any]:
    (found,) = report(folder, "--limit", limit_s, "--format", "json").json["repeats"]
    return found


def test_runs_that_all_end_too_slow_do_not_pass_together(tmp_path: Path, report: Cli) -> None:
    folder = write_runs(tmp_path / "runs", 65000, 65200, 65100)
    assert repeats_of(folder, 320, report)["limit"] == "PASS"
    for path in folder.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        end = re.sub(r"(?<=\(ms\): )[\d.]+", lambda found: f"{1.3 * float(found[0]):.1f}", "".join(lines[-6:]))
        path.write_text("".join([*lines[:-6], end]))
    found = repeats_of(folder, 320, report)
    assert found["limit"] == "NOT PROVEN"
    assert "ends at a slower speed" in found["limit_reasons"][0]
    assert repeats_of(folder, 500, report)["limit"] == "PASS"
    said = report(folder, "--limit", "320").out
    assert "limit of 320 s: NOT PROVEN (the run ends at a slower speed" in said


def test_a_limit_in_another_unit_is_no_pass(tmp_path: Path, report: Cli) -> None:
    found = repeats_of(write_runs(tmp_path / "runs", 65000, 65200, 65100), 620_000, report)
    assert (found["limit"], "not in seconds" in found["limit_reasons"][0]) == ("NOT PROVEN", True)


@pytest.mark.parametrize(("apart_s", "num_runs"), [(0, 1), (7, 4)])
def test_the_files_of_the_ranks_of_one_run_are_one_run(
    tmp_path: Path, report: Cli, apart_s: int, num_runs: int
) -> None:
    """`torchrun --log-dir`: each rank has the jitter of its own clock, and all have the loss of all."""
    folder = write_runs(tmp_path / "runs", 65000)
    whole = (folder / "run1.log").read_text()
    for rank in range(4):
        source, clock = random.Random(rank), datetime(2026, 1, 1, 10, 0, rank * apart_s, tzinfo=timezone.utc)  # noqa: S311  # a repeatable test
        lines = []
        for line in whole.splitlines(keepends=True):
            if found := re.search(r"\(ms\): ([\d.]+)", line):
                clock += timedelta(milliseconds=10 * float(found[1]))
                own = f"(ms): {float(found[1]) * (1 + source.gauss(0, 0.001)):.1f}"
                line = f"[{clock:%Y-%m-%d %H:%M:%S}]" + line.replace(found[0], own)  # noqa: PLW2901
            lines.append(line)
        (folder / f"run{rank + 1}.log").write_text("".join(lines))
    (pool,) = report(folder, "--allow-measured", "--format", "json").json["repeats"]
    assert (len(pool["sources"]), len(pool["copies"])) == (num_runs, 4 - num_runs)
