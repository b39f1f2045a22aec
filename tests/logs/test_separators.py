"""Numbers as other locales write them: no dialect prints them so, and a line with one is unreadable."""

from pathlib import Path

import pytest
from support import megatron_log

from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome

# Thousands, decimals: what Python's {:,} and locales of C write.
CONVENTIONS = (",.", ".,", "'.", "\u2019.", "\u202f,", "\u00a0,", "\u2009.", " .", " ,", "_.")


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_line_with_such_a_number_gives_no_time(tmp_path: Path, convention: str) -> None:
    """Of 60 lines those from 1 000 ms on have it: without them the mean is too fast, so there is none."""
    signs = str.maketrans({",": convention[0], ".": convention[1]})
    times = (f"{940.0 + 20 * (i % 9):,.1f}".translate(signs) for i in range(60))
    usual = {"batch": 8, "lr": 4.438e-7, "loss": 10.10967, "skipped": 0, "nan": 0}
    path = tmp_path / "log"
    lines = (megatron_log.line(i, 60, ms=ms, samples=8 * i, **usual) for i, ms in enumerate(times, 1))
    path.write_text("".join(lines), encoding="utf-8")
    (entry,) = measure_log(str(path), Overrides(sequence_length=128, num_gpus=1))
    assert entry.outcome is Outcome.REFUSED
    assert not entry.has_number
