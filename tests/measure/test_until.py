"""The bound that may be looked at after every line, and the runs that end by it."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.command import Cli
from support.megatron_log import line
from support.published import change_record, write_run
from support.stopping import anytime, fixed, simulated

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.launch.end.ending import decide
from nlp_bench.measure.anytime import Bound, ConfidenceSequence, replay
from nlp_bench.measure.folder import measure_folder
from nlp_bench.outcome import Outcome

SAID = "[default0]: until 5%: enough after iteration {} of 2000: known\n[default0]: training finished: {} iterations\n"


def lines(seconds: Iterable[float]) -> str:
    return "".join(
        line(n, 2000, s=value, batch=96, loss=1 + n * 1e-6, skipped=0, nan=0) for n, value in enumerate(seconds, 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["independent noise of 10 %", "autocorrelation 0.6, 5 %", "rare stalls: 2 % of iterations"]
)
def test_few_runs_that_stop_miss_the_truth_where_a_fixed_interval_misses_it_often(kind: str) -> None:
    dice, draw = np.random.default_rng(5), simulated(kind)
    runs = [draw(dice) for _ in range(40)]
    sure = [anytime(seconds, 0.01, 1) for seconds in runs]
    peeked = [fixed(seconds, 0.01, 1) for seconds in runs]
    assert all(stop.iterations for stop in sure)
    assert sum(stop.ever for stop in sure) <= 2
    assert sum(stop.ever for stop in peeked) >= 5


def test_an_even_run_that_has_seen_no_stall_yet_does_not_stop_before_one_could_have_come() -> None:
    even = 1 + 0.003 * np.random.default_rng(1).standard_normal(4000)
    stop = anytime(even, 0.01, 1).iterations
    assert 500 <= stop <= 900
    even[200::500] += 4  # 0.8 % of the time, and none before iteration 200
    stalled = anytime(even / even.mean(), 0.01, 1)
    assert not stalled.missed
    assert stalled.iterations is None or stalled.iterations > 2000


def test_a_run_that_changes_its_speed_goes_on() -> None:
    steps = 1 + 0.003 * np.random.default_rng(2).standard_normal(1200)
    steps[:300] *= 0.9
    assert anytime(steps, 0.01, 1).iterations is None


@pytest.mark.parametrize(("step", "is_steady"), [(0.065, True), (0.072, False)])
def test_halves_may_differ_by_four_thirds_of_the_wanted_half_width(step: float, is_steady: bool) -> None:
    times = [1.0] * 100 + [1 + step] * 80  # the first 20 iterations warm up
    found = replay(enumerate(times, 1), 0.05, 1)
    assert found.is_steady is is_steady


@pytest.mark.parametrize(
    ("half_width", "is_steady", "needed", "said"),
    [
        (0.01, True, 90, "is known to +-1.00 % (95 % over all looks together)"),
        (0.01, False, 90, "is known to +-1.00 %, but its halves differ: it still changes its speed"),
        (0.0101, True, 900, "is known to +-1.01 %; a run of about 900 iterations would do"),
        (0.0101, False, None, "is known to +-1.01 %; it scatters too much for any length"),
    ],
)
def test_what_is_known_and_what_is_missing_is_one_sentence(
    half_width: float, is_steady: bool, needed: int | None, said: str
) -> None:
    found = Bound(
        seconds_per_iteration=1.0, half_width=half_width, first_iteration=21, last_iteration=80, within=0.01,
        is_steady=is_steady, needed=needed,
    )  # fmt: skip
    assert found.text() == f"the mean of iterations 21-80 {said}"
    assert found.is_enough is (is_steady and half_width == 0.01)


def test_what_would_be_enough_is_told_beforehand() -> None:
    draw = simulated("independent noise of 10 %")
    seconds = draw(np.random.default_rng(3))
    early = replay(((place, float(value)) for place, value in enumerate(seconds[:700], 1)), 0.01, 1)
    stop = anytime(seconds, 0.01, 1).iterations
    assert early.needed == pytest.approx(stop, rel=0.3)


def test_a_new_start_of_the_program_counts_anew() -> None:
    sequence = ConfidenceSequence(0.1, 1)
    for seconds in (5.0, 1.0):
        for number in range(1, 100):
            sequence.add(number, seconds if number < 50 else 1.01 * seconds)
    bound = sequence.bound()
    assert (bound.first_iteration, bound.last_iteration) == (21, 99)
    assert bound.seconds_per_iteration == pytest.approx((29 * 1.0 + 50 * 1.01) / 79)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was asked for 2000 iterations or 5 %, and ended with iteration 200."""
    folder = write_run(tmp_path / "run")
    change_record(folder, "run.json", training={"iterations": 2000, "log_interval": 1}, tuning={"until": "5%"})
    seconds = 5 + 0.1 * np.random.default_rng(4).standard_normal(200)
    (folder / "job.out").write_text(lines(seconds) + SAID.format(200, 200))
    return folder


def test_a_run_that_was_enough_is_valid_and_its_bound_stands_in_the_record(stopped: Path) -> None:
    entry = measure_folder(stopped, "run").entry
    assert (entry.outcome, entry.num_records) == (Outcome.VALID, 200)
    record = entry.to_json(20_000_000)["until"]
    assert (record["is_enough"], record["first_iteration"], record["last_iteration"]) == (True, 21, 200)
    assert record["half_width"] <= 0.05
    assert record["seconds_per_iteration"] == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize(
    ("kept", "said", "tuning"),
    [
        (199, (), {"until": "5%"}), (197, (), {"until": "5%"}), (50, (), {"until": "5%"}),
        (90, (90, 90), {"until": "5%"}),  # its word is not believed where its times do not show it
        (200, (200, 200), {}),
    ],
)  # fmt: skip
def test_a_run_that_may_not_have_stopped_there_is_incomplete(
    stopped: Path, kept: int, said: tuple[int, ...], tuning: dict[str, str]
) -> None:
    logged = (stopped / "job.out").read_text().splitlines(keepends=True)
    (stopped / "job.out").write_text("".join(logged[:kept]) + (SAID.format(*said) if said else ""))
    change_record(stopped, "run.json", tuning=tuning)
    assert measure_folder(stopped, "run").entry.outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize(
    ("until", "said", "outcome"),
    [("5%", 200, Outcome.VALID), ("5%", 190, Outcome.INCOMPLETE), (None, 200, Outcome.INCOMPLETE)],
)
def test_the_launcher_judges_by_run_json_and_the_log(
    tmp_path: Path, until: str | None, said: int, outcome: Outcome
) -> None:
    run = resolve(Request(model="tiny", launcher="local", iterations=2000, until=until), ask_scheduler=False)
    (tmp_path / "job.out").write_text(lines([5.0] * 200) + SAID.format(said, 200))
    assert decide(run, tmp_path, exit_status=0).outcome is outcome


def test_a_run_that_could_not_be_enough_is_refused_before_it_starts(cli: Cli) -> None:
    words = ["check", "--model", "tiny", "--launcher", "local", "--data-path", "mock", "--until", "1%"]
    refused = cli(*words, "--iterations", 500, code=2).err
    said = re.search(r"until: 1% takes at least (\d+) iterations.*--iterations is 500; raise it", refused)
    cli(*words, "--iterations", said[1])
    even = ConfidenceSequence(0.01, 2)  # the tiny model logs every second iteration
    for number in range(2, int(said[1]) + 1, 2):
        even.add(number, 1.0)
    assert even.bound().is_enough
