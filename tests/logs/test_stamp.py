"""The time of day of the lines: in the forms in which programs, loggers and launchers print it."""

from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from support import megatron_log
from support.texts import log_of

BEGIN = datetime(2026, 11, 20, 23, 59, 56, tzinfo=timezone.utc)
FORMS = {
    "Megatron-LM": (" [%Y-%m-%d %H:%M:%S] ", 1.0),
    "Megatron-LM of 2026": (" [%Y-%m-%d %H:%M:%S.%f] ", 0.001),
    "Python's logging": ("%Y-%m-%d %H:%M:%S,250 - INFO - ", 0.01),
    "slashes": ("%Y/%m/%d %H:%M:%S ", 1.0),
    "ISO with a zone": ("%Y-%m-%dT%H:%M:%S.500Z ", 0.1),
    "ISO with an offset": ("%Y-%m-%dT%H:%M:%S-05:00 ", 1.0),
    "behind a rank": ("[default3]:%Y-%m-%d %H:%M:%S ", 1.0),
    "Primus": ("[%Y%m%d %H:%M:%S][rank-7/8] ", 1.0),
    "nanotron": ("%m/%d/%Y %H:%M:%S [INFO|DP=0]: ", 1.0),
    "rich": ("[%m/%d/%y %H:%M:%S] INFO ", 1.0),
    "twice twelve hours": ("%m/%d/%Y %I:%M:%S %p ", 1.0),
    "the same, year first": ("[%Y-%m-%d %I:%M:%S.%f %p] ", 0.001),
    "the same, in small letters": ("%Y-%m-%d %I:%M:%S %P ", 1.0),
    "absl": ("I%m%d %H:%M:%S.123456 140110 ", 1e-6),
    "mmengine": ("%m/%d %H:%M:%S - mmengine - INFO - ", 1.0),
}


def line(n: int, front: str = "", *, is_careful: bool = False, **more: float) -> str:
    """Return a line; the careful parser reads it where it has a colour."""
    text = megatron_log.line(n, 500, front, ms=2000, batch=8, loss=2, skipped=0, nan=0, **more)
    return text.replace("\n", " \x1b[0m\n") if is_careful else text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_careful", [False, True])
def test_stamps_over_midnight(tmp_path: Path, form: str, is_careful: bool) -> None:
    pattern, resolution_s = FORMS[form]
    moments = [datetime.fromtimestamp(BEGIN.timestamp() + 2.001 * n, timezone.utc) for n in range(1, 6)]
    lines = (line(n, moment.strftime(pattern), is_careful=is_careful) for n, moment in enumerate(moments, 1))
    (attempt,) = log_of(tmp_path, lines).attempts
    assert np.diff(attempt.records.column("stamp_s")) == pytest.approx(2.0, abs=0.002)
    assert attempt.records.stamp_resolution_s == resolution_s
    assert attempt.records.column("iteration").tolist() == [1, 2, 3, 4, 5]


def test_the_field_of_the_trainer_is_believed_more(tmp_path: Path) -> None:
    text = line(1, "[2026-11-20 10:00:00] ", stamp=1763639990.5)
    assert log_of(tmp_path, text).attempts[0].records[0].stamp_s == 1763639990.5


@pytest.mark.parametrize(
    "stamp",
    ["", "[default3]: ", "[10:00:00] ", "host 12:00:00:01 ", "2026-02-30 10:00:00 ", f"{'x' * 100} 2026-01-01 10:00:00 "],
)  # fmt: skip
def test_no_stamp(tmp_path: Path, stamp: str) -> None:
    (attempt,) = log_of(tmp_path, line(1, stamp, is_careful=True)).attempts
    assert (attempt.records[0].stamp_s, attempt.records.stamp_resolution_s) == (None, None)


def test_a_stamp_at_some_lines_and_one_line_with_two_records(tmp_path: Path) -> None:
    second = line(2, "[2026-11-20 10:00:00] ").rstrip("\n")
    log = log_of(tmp_path, line(1) + second + line(3, "[default1]: "))
    assert [record.stamp_s is not None for record in log.attempts[0].records] == [False, True, False]


def test_a_bar_has_the_stamp_before_it_never_that_of_the_message_behind_it(tmp_path: Path) -> None:
    drawn = [f"{12 * n}%|#{'#' * n}| {n}/8 [{n // 2:02}:{n % 2 * 30:02}<00:00, 30.0s/it]" for n in range(9)]
    for before, behind, stamps in (("", "2026-01-01 10:00:0{} [WARNING] x", 0), ("[2026-01-01 10:00:0{}] ", "", 9)):
        lines = (f"{before.format(n)}{bar}{behind.format(n)}\n" for n, bar in enumerate(drawn))
        (attempt,) = log_of(tmp_path, lines).attempts
        assert [record.clock_s for record in attempt.records] == [30.0 * n for n in range(9)]
        assert sum(record.stamp_s is not None for record in attempt.records) == stamps
