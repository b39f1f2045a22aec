"""What the runs of a history differ by, and how many to buy: through the command."""

import os
import random
import re
from pathlib import Path

import pytest
from support.command import Cli
from support.repeated import write_log

DAY = 86400.0


def nights(folder: Path, *, days: int, by_day: float, by_run: float) -> Path:
    """Write three logs a day whose days and runs differ by these standard deviations."""
    dice = random.Random(1)  # noqa: S311  # a repeatable test
    for day in range(days):
        rate = 1000 * (1 + dice.gauss(0, by_day))
        for number in range(3):
            log = write_log(folder / f"{day}-{number}.log", rate * (1 + dice.gauss(0, by_run)), seed=10 * day + number)
            moment = 1.7e9 + DAY * day + 60 * number
            os.utime(log, (moment, moment))
    return folder


def test_days_that_differ_are_told_from_runs_that_do_not(tmp_path: Path, history: Cli) -> None:
    history("add", nights(tmp_path / "nights", days=8, by_day=0.02, by_run=0.002))
    (one,) = history("variance", "--format", "json").json["configurations"]
    found = {tuple(part["levels"]): part for part in one["components"]}
    assert len(one["runs"]) == 24
    assert found[("day",)]["variance"] ** 0.5 == pytest.approx(0.02, rel=0.6)
    assert found[("run",)]["high"] ** 0.5 < 0.006
    assert found[("nodes",)]["why_unknown"] == "NOT_RECORDED"
    assert found[("nodes",)]["variance"] is None
    plans = {is_one: [p for p in one["plans"] if p["of_one_day"] is is_one] for is_one in (True, False)}
    assert min(p["runs"] for p in plans[True]) < min(p["runs"] for p in plans[False])


def test_the_table_says_what_is_cheapest_and_a_long_start_up_moves_it(tmp_path: Path, history: Cli) -> None:
    history("add", nights(tmp_path / "nights", days=5, by_day=0.0, by_run=0.005))
    cheapest = []
    for start_up in ("1", "100000"):
        said = history("variance", "--within", "0.6%", "--start-up", start_up).out
        assert "+-0.6 % at 95 %" in said
        assert "set of nodes  0" in said
        line = next(line for line in said.splitlines() if line.startswith("all runs of one day"))
        cheapest.append(int(line.split(": ")[1].split(" runs of ")[0]))
    assert cheapest[1] <= cheapest[0]


def test_what_ran_before_a_checkpoint_that_a_log_goes_on_from_is_not_bought_again(tmp_path: Path, history: Cli) -> None:
    for number in range(3):
        log = write_log(tmp_path / f"{number}.log", 1000 + number, seed=number)
        text = re.sub(
            r"iteration +(\d+)/ +300", lambda found: f"iteration {50000 + int(found[1])}/ 60000", log.read_text()
        )
        log.write_text(text)
    history("add", *tmp_path.glob("*.log"))
    (one,) = history("variance", "--allow-measured", "--format", "json").json["configurations"]
    assert one["cost"]["warm_up_iterations"] == 10


def test_a_single_run_is_not_enough_to_plan_by(tmp_path: Path, history: Cli) -> None:
    history("add", write_log(tmp_path / "a.log", 1000))
    said = history("variance").out
    assert "cannot be told: one run only" in said
    assert "what runs differ by is not known; add a second one" in said


def test_logs_of_rates_alone_have_no_price(tmp_path: Path, history: Cli) -> None:
    dice = random.Random(1)  # noqa: S311  # a repeatable test
    for run in range(3):
        lines = (
            f"[titan] step: {10 * n}  loss: {9 - n / 30:.4f}  memory: 4.0GiB(5.0%)  tps: {6000 + dice.gauss(run, 20):,.0f}  mfu: 20.0%\n"
            for n in range(1, 61)
        )
        (tmp_path / f"{run}.log").write_text("".join(lines) + "Training completed\n")
    history("add", *tmp_path.glob("*.log"), "--num-gpus", 8, "--sequence-length", 4096)
    said = history("variance").out
    assert "runs like these: which of them is cheapest is not known, as no log states the time of an iteration" in said
    assert "GPU h" not in said
    (one,) = history("variance", "--format", "json").json["configurations"]
    assert one["cost"]["seconds_per_iteration"] is None
    assert {plan["hours"] for plan in one["plans"]} == {None}
