"""Stopping when it is enough: all ranks at one log line, provably by the times of the log."""

import re

import pytest
from support.forked import Train

from nlp_bench.last_start import ENOUGH
from nlp_bench.measure.anytime import ConfidenceSequence, percent

pytestmark = pytest.mark.torchrun
SMALL = "--mock-data --vocab-size 512 --num-layers 2"


def stop_of(log: str, within: str, log_interval: int) -> int | None:
    sequence = ConfidenceSequence(percent("within", within), log_interval)
    for number, seconds in re.findall(r"iteration +(\d+)/ *\d+ .*?per iteration \(s\): (\S+)", log):
        bound = sequence.bound() if sequence.add(int(number), float(seconds)) else None
        if bound and bound.is_enough:
            return int(number)
    return None


def test_all_ranks_stop_where_the_log_proves_that_it_is_enough(started: Train) -> None:
    ended = started(2, f"{SMALL} --train-iters 3000 --lr-decay-samples 12000 --log-interval 2 --until 90%")
    assert ended.code == 0, ended.stderr
    said = next(filter(None, map(ENOUGH.match, ended.stdout.splitlines())))
    last = int(said[1])
    assert 50 <= last < 3000
    assert stop_of(ended.stdout, "90%", 2) == last
    assert f" training finished: {last} iterations\n" in ended.stdout.replace("]:", "]: ").replace("  ", " ")
    assert len(ended.numbers("lm loss")) == last // 2


def test_a_run_that_cannot_reach_it_does_all_its_iterations_and_says_so(train: Train) -> None:
    ended = train(1, f"{SMALL} --train-iters 40 --until 0.1%")
    assert ended.code == 0, ended.stderr
    assert not any(map(ENOUGH.match, ended.stdout.splitlines()))
    assert re.search(
        r"\n until 0\.1%: not enough after iteration 40 of 40: .* \d+ iterations would do\n training finished: 40 ",
        ended.stdout,
    )
