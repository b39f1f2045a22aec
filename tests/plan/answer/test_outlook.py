"""The prediction of one run: the same as the planner's table has, and never a reason to refuse a run."""

import json
from dataclasses import replace

import pytest

from nlp_bench.config import catalog
from nlp_bench.config.model import Model
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.plan import outlook as module
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.outlook import Outlook, outlook, outlook_or_reason
from nlp_bench.plan.problem import make_problem
from nlp_bench.plan.ranking import answer


@pytest.fixture(scope="module")
def run() -> Run:
    return resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)


def test_it_is_the_row_of_the_plan(run: Run) -> None:
    problem = make_problem(run_model(), catalog.load_system("juwels-booster"), read_constants(), tokens=20_000_000)
    row, found = answer(problem, top=1).published, outlook(run, 20_000_000)
    assert row is not None
    assert (found.report_s, found.low_s, found.high_s) == pytest.approx((row.report_s, row.low_s, row.high_s))
    assert found.memory_bytes / 2**30 == pytest.approx(row.memory_gib)
    assert found.fits == row.fits


def run_model() -> Model:
    return catalog.load_model("175")


def test_it_says_that_it_is_predicted(run: Run) -> None:
    found = outlook(run, 20_000_000)
    assert found.line().startswith(f"predicted report time {found.report_s:.0f} s (90 % interval {found.low_s:.0f} to")
    assert "predicted memory" in found.line()
    assert found.low_s < found.report_s < found.high_s
    record = json.loads(json.dumps(found.record()))
    assert record["schema"] == "nlp-bench/forecast/1"
    assert "not measured" in record["what"]
    assert sum(record["shares"].values()) == pytest.approx(1)


def test_a_cpu_run_has_none(run: Run) -> None:
    cpu = replace(run, system=replace(run.system, accelerator="cpu"))
    assert str(outlook_or_reason(cpu, 20_000_000)).startswith("no prediction: a CPU run")


def test_a_fault_of_the_planner_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(module, "forecast", broken)
    assert "the planner failed (ZeroDivisionError: nothing)" in str(outlook_or_reason(run, 20_000_000))


def test_one_that_is_too_large_does_not_fit() -> None:
    run = resolve(Request(model="13", system="juwels-booster", tp=1, pp=1), ask_scheduler=False)
    found = outlook_or_reason(run, 20_000_000)
    assert isinstance(found, Outlook)
    assert found.fits == "no"
