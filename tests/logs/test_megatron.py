"""One line of the dialect: units, prefixes, cut fields."""

import pytest

from nlp_bench.logs.lines import Line
from nlp_bench.logs.megatron import parse_line
from nlp_bench.logs.record import LogRecord

S_LINE = (
    "iteration       10/ 3125000 | consumed samples:          960 | elapsed time per iteration (s): 7.2310 | "
    "learning rate: 4.438E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 | "
    "grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 | "
    "samples per second: 13.276 | TFLOPs: 101.54 | model TFLOP/s/GPU: 99.25 | tokens per second: 27189.6 |"
)


def parse(text: str, *, is_ended: bool = True) -> list[LogRecord]:
    return list(parse_line(Line(1, text.encode(), is_ended)))


def test_every_field_of_our_line() -> None:
    (record,) = parse("[default3]: " + S_LINE)
    assert (record.iteration, record.total_iterations, record.consumed_samples) == (10, 3125000, 960)
    assert (record.elapsed_s, record.global_batch_size, record.lm_loss) == (7.2310, 96, 10.10967)
    assert (record.grad_norm, record.num_skipped, record.num_nan) == (178.553, 0, 0)
    assert (record.tflops, record.model_tflops) == (101.54, 99.25)
    assert (record.rank_label, record.is_whole) == ("[default3]", True)


def test_milliseconds_are_read_as_milliseconds() -> None:
    (record,) = parse(S_LINE.replace("(s): 7.2310", "(ms): 7231.0"))
    assert record.elapsed_s == pytest.approx(7.231)


@pytest.mark.parametrize(
    ("prefix", "label"),
    [
        ("", ""),
        (" [2026-01-01 10:00:00.000000] ", ""),
        ("[default7]: [2026-01-01 10:00:00] ", "[default7]"),
        (" 12:  ", "12"),
        ("[rank0]: ", "[rank0]"),
        ("[1,3]<stdout>: ", "[1,3]<stdout>"),
        ("text of another process ", ""),
    ],
)
def test_text_in_front(prefix: str, label: str) -> None:
    (record,) = parse(prefix + S_LINE)
    assert (record.iteration, record.rank_label, record.is_whole) == (10, label, True)


def test_width_overflow_and_fields_that_nobody_knows() -> None:
    text = "iteration 10/12345678 | power per GPU (W/GPU): 412.0 | elapsed time per iteration (ms): 12.5 | number of nan iterations:   0 |"
    (record,) = parse(text)
    assert (record.total_iterations, record.elapsed_s, record.lm_loss, record.is_whole) == (
        12345678,
        0.0125,
        None,
        True,
    )


def test_a_cut_line_is_never_whole_and_never_gives_a_part_of_a_number() -> None:
    for record in (record for length in range(len(S_LINE)) for record in parse(S_LINE[:length], is_ended=False)):
        assert not record.is_whole
        assert record.elapsed_s in {None, 7.2310}
        assert record.global_batch_size in {None, 96}
        assert record.lm_loss in {None, 10.10967}


def test_two_records_on_one_line() -> None:
    first, second = parse(S_LINE + "[default1]: " + S_LINE.replace("10/", "20/", 1))
    assert (first.iteration, second.iteration, second.is_whole) == (10, 20, True)


def test_a_spliced_number_is_not_believed() -> None:
    (record,) = parse(S_LINE.replace("(s): 7.2310", "(s): 7.2[rank1] warning 310"))
    assert (record.elapsed_s, record.is_whole) == (None, False)


def test_the_validation_line_is_no_record() -> None:
    assert parse(" validation loss at iteration 10 | lm loss value: 2.3 | lm loss PPL: 10.4 | ") == []
