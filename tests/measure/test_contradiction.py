"""What a log states twice and differently is told, and proves nothing against a limit."""

from pathlib import Path

import pytest

from nlp_bench.measure.contradiction import Code, Weight
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.limit import NOT_PROVEN, judged
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome


def measured(folder: Path, *, grown: int = 96, skipped: int = 0, wall_s: float = 5.0, stamps: bool = True) -> RunEntry:
    lines = []
    for i in range(1, 41):
        elapsed = 5 + 0.01 * (i * 7 % 5)
        clock = f" unix time: {1.7e9 + i * wall_s:.3f} |" if stamps else ""
        lines.append(
            f" iteration {i:8d}/      40 | consumed samples: {grown * i:12d} | elapsed time per iteration (s): {elapsed:.4f} | "
            f"global batch size:    96 | lm loss: {9 - 0.01 * i:.6E} | number of skipped iterations: {skipped} | "
            f"number of nan iterations:   0 |{clock}\n"
        )
    path = folder / "job.out"
    path.write_text("".join(lines))
    (entry,) = measure_log(str(path), Overrides(sequence_length=2048, num_gpus=384))
    return entry


def test_a_log_that_agrees_with_itself_says_nothing(tmp_path: Path) -> None:
    entry = measured(tmp_path, wall_s=5.03)
    assert entry.reasons == ()
    assert judged(entry, 20_000_000, 1000).word == "PASS"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"grown": 48}, "its consumed samples grow by 0.5 times the global batch size per iteration"),
        ({"wall_s": 2.0}, "its lines were written within 78.0 s, and their times add up to 195.8 s"),
    ],
)
def test_a_contradiction_is_told_and_proves_nothing(tmp_path: Path, what: dict[str, float], said: str) -> None:
    entry = measured(tmp_path, **what)
    assert any(said in reason for reason in entry.reasons), entry.reasons
    assert judged(entry, 20_000_000, 1000).word == NOT_PROVEN


def test_time_from_line_to_line_that_no_line_logs_leaves_no_number(tmp_path: Path) -> None:
    entry = measured(tmp_path, wall_s=10.0)
    (found,) = entry.contradictions
    assert (found.code, found.weight) == (Code.STAMPS_VS_TIME_SLOW, Weight.VOID)
    assert (entry.outcome, entry.has_number) == (Outcome.INVALID, False)


def test_a_training_that_never_updated_its_weights_is_none(tmp_path: Path) -> None:
    entry = measured(tmp_path, skipped=1, stamps=False)
    assert (entry.outcome, entry.has_number) == (Outcome.INVALID, False)
    assert "every iteration skipped the update" in entry.reasons[0]
    assert judged(entry, 20_000_000, 1000).word == NOT_PROVEN


@pytest.mark.parametrize(("held_up_s", "weight"), [(1.3, Weight.DOUBT), (30.0, Weight.VOID)])
def test_one_hold_up_between_few_lines_is_no_forgery(tmp_path: Path, held_up_s: float, weight: Weight) -> None:
    """A loaded machine held a run of a few tenths of a second up between two of its lines."""
    line = (
        " iteration {:8d}/       4 | consumed samples: {:12d} | elapsed time per iteration (s): 0.1000 | global batch size:    96 | "
        "lm loss: {:.6E} | number of skipped iterations: 0 | number of nan iterations:   0 | unix time: {:.3f} |\n"
    )
    lines = [line.format(i, 96 * i, 9 - 0.01 * i, 1.7e9 + 0.1 * i + held_up_s * (i > 2)) for i in range(1, 5)]
    (tmp_path / "job.out").write_text("".join(lines))
    (entry,) = measure_log(str(tmp_path / "job.out"), Overrides(sequence_length=2048, num_gpus=384))
    assert [(found.code, found.weight) for found in entry.contradictions] == [(Code.STAMPS_VS_TIME_SLOW, weight)]
    assert entry.has_number == (weight is Weight.DOUBT)
    assert judged(entry, 20_000_000, 1000).word == NOT_PROVEN
