"""Tokens and seconds out of whatever a log states, and the numbers that cannot be true."""

import numpy as np
import pytest
from support.megatron_log import dump, line
from support.reported import Reported
from support.spans import records_of

from nlp_bench.logs.record import Attempt, Fact, LogRecord
from nlp_bench.measure.foreign import why_implausible
from nlp_bench.measure.sizes import Overrides, Sizes, sizes_of
from nlp_bench.measure.throughput import reference_tokens_per_second


def attempt(*rows: dict[str, float], **facts: float | str) -> Attempt:
    records = [LogRecord(iteration=n, **row) for n, row in enumerate(rows, start=1)]  # type: ignore[arg-type]
    return Attempt(records=records_of(records), facts={name: Fact(value, 1) for name, value in facts.items()})


def rates(sizes: Sizes) -> list[float]:
    return (sizes.tokens / sizes.elapsed_s).tolist()


@pytest.mark.parametrize(
    ("row", "facts", "options", "rate"),
    [
        ({"elapsed_s": 2.0, "tokens": 100}, {}, {}, 50),
        ({"elapsed_s": 2.0, "tokens_per_device": 100}, {"num_devices": 8}, {}, 400),
        ({"elapsed_s": 2.0, "global_batch_size": 8}, {"sequence_length": 128}, {}, 512),
        ({"elapsed_s": 2.0}, {"sequence_length": 128, "global_batch_size": 16}, {}, 1024),
        ({"elapsed_s": 2.0}, {"tokens": 100}, {}, 50),
        ({"elapsed_s": 2.0, "tokens_per_second": 70}, {}, {}, 70),
        ({"tokens_per_second": 70}, {}, {}, 70),
        ({"tokens_per_second_per_device": 70}, {}, {"num_gpus": 4}, 280),
        ({"samples_per_second": 4}, {"sequence_length": 128}, {}, 512),
        ({"samples_per_second_per_device": 4}, {"sequence_length": 128, "num_devices": 2}, {}, 1024),
        ({"elapsed_s": 0.5, "samples_per_second": 16.001}, {}, {"sequence_length": 128}, 2048),
        ({"elapsed_s": 2.0, "consumed_samples": 10, "consumed_tokens": 1280, "global_batch_size": 8}, {}, {}, 512),
        ({"elapsed_s": 2.0, "global_batch_size": 8}, {"sequence_length": 128}, {"sequence_length": 256}, 1024),
    ],
)
def test_every_way_to_a_rate(
    row: dict[str, float], facts: dict[str, float], options: dict[str, int], rate: float
) -> None:
    assert rates(sizes_of(attempt(row, **facts), Overrides(**options))) == pytest.approx([rate])


def test_the_clock_and_the_tokens_of_a_training_as_differences() -> None:
    rows = [{"clock_s": 10.0 * n, "consumed_tokens": 500.0 * n} for n in (1, 2, 3)]
    sizes = sizes_of(attempt(*rows), Overrides())
    assert rates(sizes)[1:] == [50.0, 50.0]
    assert sizes.how_time == "differences of the training's clock"


def test_differences_of_a_clock_weigh_by_their_iterations_and_logged_times_by_one() -> None:
    """Of a bar that is read each 20 s or more, an evaluation of 40 s made an interval of 2 iterations: the reference was 40 % too slow."""
    reading = [(10, 0.0), (20, 10.0), (22, 50.0), (40, 68.0)]
    clock = records_of([LogRecord(iteration=n, clock_s=time_s) for n, time_s in reading])
    facts = {"tokens": Fact(100, 1)}
    of_clock = sizes_of(Attempt(records=clock, facts=facts), Overrides())
    assert of_clock.mean_s == pytest.approx(68 / 30)
    assert reference_tokens_per_second(of_clock) == pytest.approx(3000 / 68)
    logged = records_of([LogRecord(iteration=n, elapsed_s=time_s) for n, time_s in ((20, 1.0), (22, 20.0), (40, 1.0))])
    assert sizes_of(Attempt(records=logged, facts=facts), Overrides()).mean_s == pytest.approx(22 / 3)


@pytest.mark.parametrize(
    ("clock", "known"),
    [
        # Too small or too large: the interval beside it that is left is too long, never too short.
        ((10, 20, 30, 25, 40, 50), (0, 1, 1, 0, 1, 1)),
        ((10, 20, 30, 40, 35), (0, 1, 1, 1, 0)),
        ((20, 10, 25, 35), (0, 0, 1, 1)),
        ((10, 20, 30, 5, 15, 25), (0, 1, 1, 0, 1, 1)),  # a new start: what lies on both sides is right
        ((10, 0.5, 1.5), (0, 0, 1)),
    ],
)
def test_where_a_clock_goes_back_there_is_no_interval(clock: tuple[float, ...], known: tuple[int, ...]) -> None:
    sizes = sizes_of(attempt(*({"clock_s": float(time)} for time in clock), tokens=100.0), Overrides())
    assert np.isfinite(sizes.elapsed_s).astype(int).tolist() == list(known)


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"tokens_per_second_per_device": 70}, {}),
        ({"elapsed_s": 1.0}, {"sequence_length": 128}),
        ({"elapsed_s": 1.0, "global_batch_size": 8}, {}),
        ({"samples_per_second": 4}, {}),
        ({"samples_per_second_per_device": 4}, {"sequence_length": 128}),
        ({"elapsed_s": 0.5, "samples_per_second": 16.4}, {"sequence_length": 128}),
    ],
)
def test_nothing_is_guessed(row: dict[str, float], facts: dict[str, float]) -> None:
    sizes = sizes_of(attempt(row, **facts), Overrides())
    # Samples per second with a sequence length is a rate all the same; only the batch is not invented.
    assert not sizes.is_measurable or (sizes.global_batch_size is None and "samples per second" in sizes.how_tokens)


@pytest.mark.parametrize(
    ("seconds", "facts", "words"),
    [
        (1.0, {"parameters": 7e9, "num_devices": 8, "device": "NVIDIA H100 80GB HBM3"}, None),
        (0.1, {"parameters": 7e9, "num_devices": 8, "device": "NVIDIA A100-SXM4-40GB"}, "more than the 312 of A100"),
        (0.002, {"parameters": 70e9}, "is the dispatch, not the work"),
        (0.002, {"parameters": 1e6}, None),
        (0.0001, {"parameters": 9e8, "num_devices": 1}, "more than the 50000 of any device"),
        (0.1, {"parameters": 7e9}, None),
    ],
)
def test_what_cannot_be_true(seconds: float, facts: dict[str, float | str], words: str | None) -> None:
    found = attempt({"elapsed_s": seconds, "tokens": 10000.0}, **facts)
    sizes = sizes_of(found, Overrides())
    why = why_implausible(found, sizes, 10000 / seconds)
    assert why is None if words is None else why is not None and words in why.text


DUMP = dump(end=True, global_batch_size=256, seq_length=4096, world_size=64)


@pytest.mark.parametrize(
    ("num", "log_interval", "grow"), [(600, 10, 105), (600, 50, 130), (800, 100, 150), (280, 10, 100), (400, 50, 110)]
)
def test_a_line_in_which_the_batch_grows_counts_the_samples_that_were_consumed(
    reported: Reported, num: int, log_interval: int, grow: int
) -> None:
    """Megatron-LM prints the batch of the last iteration of an interval; a ramp-up that goes on at the end of the log is honest too."""
    text, samples, seconds = DUMP, 0, 0.0
    for number in range(1, num + 1):  # each sample takes 20 ms: 204 800 tokens/s
        batch = min(256, 64 + 64 * ((number - 1) // grow))
        samples, seconds = samples + batch, seconds + batch * 0.02 * (1 + 0.0005 * ((number * 7919) % 13 - 6))
        if number % log_interval == 0:
            facts = {"samples": samples, "ms": 1000 * seconds / log_interval, "loss": 10 - number / 1000}
            text += line(number, num, **facts, batch=batch, lr=1e-5, skipped=0, nan=0)
            seconds = 0.0
    run = reported(text)
    assert (run["outcome"], run["contradictions"], run["tokens_per_second"]["reference"]) == ("VALID", [], None)
    assert run["tokens_per_second"]["steady"] == pytest.approx(204_800, rel=1e-3)


def test_a_log_of_the_first_step_of_a_ramp_up_keeps_its_number(reported: Reported) -> None:
    lines = (
        line(number, 600, samples=64 * number, ms=1280 + number % 3, lr=1e-5, batch=64, loss=10 - number / 1000)
        for number in range(10, 110, 10)
    )
    run = reported(DUMP + "".join(lines))
    assert run["tokens_per_second"]["steady"] == pytest.approx(204_800, rel=2e-3)
    assert run["contradictions"] == []


@pytest.mark.parametrize(
    ("is_lost", "elapsed"), [(False, (1.28, 1.28, 1.92, 2.56, 2.56)), (True, (1.28, 1.28, 2.56, 2.56))]
)
def test_behind_a_lost_line_of_a_ramp_up_the_printed_batch_counts(is_lost: bool, elapsed: tuple[float, ...]) -> None:
    """The batch grew in the lost line: the samples since the line before it are not those of the line behind it."""
    lines = [(10, 64, 640), (20, 64, 1280), (30, 128, 2240), (40, 128, 3520), (50, 128, 4800)]
    if is_lost:
        del lines[2]
    records = [
        LogRecord(iteration=number, elapsed_s=seconds, global_batch_size=batch, consumed_samples=samples)
        for (number, batch, samples), seconds in zip(lines, elapsed, strict=True)
    ]
    sizes = sizes_of(Attempt(records=records_of(records), facts={"sequence_length": Fact(1024, 1)}), Overrides())
    assert rates(sizes) == pytest.approx([51200.0] * len(lines))
