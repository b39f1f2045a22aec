"""Run folders of ours that somebody changed: what the trainer printed contradicts it, and there is no number."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.machines import Node
from support.made_logs import BEGIN_S, HONEST_S, LIMIT_S, TOKENS, Made, run_folder, run_of

from nlp_bench.measure.contradiction import Code, Weight
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.limit import PASS, verdict_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome


def measured(folder: Path, made: Made) -> RunResult:
    return measure_folder(run_folder(folder, made), "run").entry


def test_an_honest_run_passes(tmp_path: Path) -> None:
    entry = measured(tmp_path / "run", run_of())
    assert (entry.outcome, entry.contradictions) == (Outcome.VALID, ())
    assert verdict_of(entry, TOKENS, LIMIT_S).word == PASS


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("batch", "sequence_length", 16384),
        ("parallel", "tensor", 4),
        ("parallel", "num_gpus", 128),
        ("batch", "micro_batch_size", 2),
    ],
)
def test_a_run_json_that_was_edited_after_the_run(tmp_path: Path, group: str, name: str, value: int) -> None:
    folder = run_folder(tmp_path / "run", run_of())
    record = json.loads((folder / "run.json").read_text())
    record[group][name] = value
    (folder / "run.json").write_text(json.dumps(record))
    entry = measure_folder(folder, "run").entry
    assert (entry.outcome, entry.has_number) == (Outcome.INVALID, False)
    assert entry.contradictions[0].code is Code.ARGUMENTS_VS_RUN


def test_a_run_that_was_cut_where_it_became_slow(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", run_of())
    lines = (folder / "job.out").read_text().splitlines(keepends=True)
    (folder / "job.out").write_text("".join(lines[:-60]))
    record = json.loads((folder / "run.json").read_text())
    record["training"]["iterations"] = run_of().rows[-60 - 1].iteration
    (folder / "run.json").write_text(json.dumps(record))
    assert measure_folder(folder, "run").entry.outcome is Outcome.INVALID


def halved(made: Made, **follows: bool) -> Made:
    for row in made.rows:
        row.restate(0.5, **follows)
    return made


def one_line(made: Made) -> Made:
    made.rows[100].restate(0.999)
    return made


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (halved, Code.RATES_VS_TIME),
        (lambda made: halved(made, rates=True, flops=True), Code.STAMPS_VS_TIME_SLOW),
        (lambda made: halved(made, rates=True, stamp=True).clocked(), Code.FLOPS_VS_SHAPE),
        (one_line, Code.RATES_VS_TIME),
    ],
    ids=["nothing follows", "but the clock all follows", "but the FLOP/s all follow", "one line by 0.1 %"],
)
def test_changed_times(tmp_path: Path, change: Callable[[Made], Made], code: Code) -> None:
    entry = measured(tmp_path / "run", change(run_of(2 * HONEST_S)))
    assert (entry.outcome, entry.has_number) == (Outcome.INVALID, False)
    assert code in {found.code for found in entry.contradictions}


def test_a_checkpoint_behind_every_line_is_doubted_and_no_forgery(tmp_path: Path) -> None:
    made = run_of()
    for row in made.rows[1:]:
        row.wall_s *= 1.5
        row.before = " saving checkpoint at iteration\n"
    made.clocked()
    entry = measured(tmp_path / "run", made)
    assert [(found.code, found.weight) for found in entry.contradictions] == [(Code.WALL_CLOCK_OUTSIDE, Weight.DOUBT)]
    (entry,) = measure_log(str(tmp_path / "run/job.out"), Overrides())
    assert [(found.code, found.weight) for found in entry.contradictions] == [(Code.STAMPS_VS_TIME_SLOW, Weight.DOUBT)]


@pytest.mark.parametrize(("is_suspended", "outcome"), [(True, Outcome.INVALID), (False, Outcome.VALID)])
def test_a_hole_in_which_the_recorders_stood_still_too(tmp_path: Path, is_suspended: bool, outcome: Outcome) -> None:
    """A job that was suspended, and one that only waited: a stall of the training is the machine's own."""
    made = run_of()
    made.rows[99].restate(40, rates=True, flops=True, stamp=True)
    made.clocked()
    folder = run_folder(tmp_path / "run", made)
    begin_s, end_s = made.rows[98].stamp_s + 5, made.rows[99].stamp_s - 3
    times = [BEGIN_S - 5 + n for n in range(2200)]
    for name in ("n1", "n2"):
        Node(name, times=tuple(t for t in times if not (is_suspended and begin_s < t < end_s))).write(folder)
    entry = measure_folder(folder, "run").entry
    assert entry.outcome is outcome
    assert (Code.WALL_CLOCK_HOLE in {found.code for found in entry.contradictions}) is is_suspended
