"""Somebody's log: what it does not say is asked for, never guessed."""

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.megatron_log import dump, line
from support.published import published_log
from support.texts import entries_of, entry_of

from nlp_bench.measure.contradiction import Code
from nlp_bench.measure.quality import Quality
from nlp_bench.train.logline import Interval, format_line

VISION = dump(decoder_seq_length=4096, seq_length=256, vision_model_type="internvit", world_size=384)
DUMP = dump(seq_length=2048, world_size=384)
SAME = {"batch": 8, "skipped": 0, "nan": 0}


LENGTH = {"sequence_length": 2048}
FIVE = published_log()
NO_BATCH = re.sub("global (?=batch)|consumed (?=samples)|samples (?=per)", "", FIVE)
AGAINST = {"sequence_length": 1024, "global_batch_size": 48, "num_gpus": 4}
ONE, TWO = FIVE.splitlines()[:2]
FIRST = ONE.replace("iteration       10/", "iteration        1/").replace("          960 |", "           96 |")
TITAN = "".join(f"[rank0]:[titan] step: {n:2}  loss:  9.0  memory: 4.0GiB(5.0%)  tps: 4,000  mfu: 20.0%\n" for n in range(1, 5))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "given", "outcome", "reference", "reasons"),
    [
        (DUMP + FIVE, {}, "MEASURED", 34063.4, ["the log stops at iteration 50 of 3125000"]),
        (FIVE, {}, "REFUSED", None, ["--sequence-length"]),
        (VISION + FIVE, {}, "REFUSED", None, ["--sequence-length", "sequence length is 256 in line 3 and 4096 in line 2"]),
        (VISION + FIVE, {"sequence_length": 4096}, "MEASURED", 68126.9, []),
        (VISION.replace("internvit", "None") + FIVE, {}, "MEASURED", 4257.9, []),
        (dump(perform_rl_step=True) + FIVE, LENGTH, "REFUSED", None, ["reinforcement learning: a step generates"]),
        (dump(perform_rl_step=False) + FIVE, LENGTH, "MEASURED", 34063.4, []),
        (NO_BATCH, {}, "REFUSED", None, ["--sequence-length", "--global-batch-size"]),
        (NO_BATCH, LENGTH | {"global_batch_size": 96}, "MEASURED", 34063.4, []),
        (re.sub(r"\(s\): ([\d.]+)", lambda m: f"(ms): {1000 * float(m[1]):.1f}", FIVE), LENGTH, "MEASURED", 34063.4, []),
        (DUMP + FIVE, AGAINST, "MEASURED", 8515.9, ["--sequence-length", "--global-batch-size", "--num-gpus"]),
        ("", {}, "REFUSED", None, ["empty"]),
        ("nothing here\n", {}, "REFUSED", None, ["no whole training line"]),
        ("iteration 1/ 2 | consumed", {}, "REFUSED", None, ["no whole training line"]),
        (FIVE.replace("8.110270E+00", "nan"), LENGTH, "INVALID", None, ["iteration 50"]),
        (FIVE[: FIVE.rindex("lm loss: 8.11") + 11], LENGTH, "MEASURED", 34063.4,
         ["1 training line(s) cannot be read whole"]),
        (FIVE + f"{ONE}\n{TWO}\n".replace("5.3551", "5.4000"), LENGTH, "MEASURED", 34063.4, ["2 attempts"]),
        (DUMP + FIVE + TITAN, {}, "MEASURED", 34063.4,
         ["the log also has 4 training lines of torchtitan (lines 9 to 12): they are not in this number"]),
        (FIRST + "\n", LENGTH, "REFUSED", None, ["the only time is that of the first iteration (1), which is warm-up; a longer log is needed"]),
        (ONE + "\n", LENGTH, "MEASURED", 27189.6, ["warm-up included"]),
        (TWO + "\n", LENGTH, "MEASURED", 36714.2, []),
        (re.sub(r"\(s\): [\d.]+", "(s): 1e16", FIVE), LENGTH, "REFUSED", None, ["no record has a time and a number of tokens that a training can have"]),
    ],
)  # fmt: skip
def test_what_a_log_gives_and_what_is_asked_for(
    tmp_path: Path, text: str, given: dict[str, int], outcome: str, reference: float | None, reasons: list[str]
) -> None:
    entry = entry_of(tmp_path, text, **given)
    assert (entry.outcome.value, entry.has_number) == (outcome, reference is not None)
    assert entry.reference is None or round(entry.reference, 1) == reference
    for reason in reasons:
        assert reason in "; ".join(entry.reason_texts)


@pytest.mark.parametrize("has_stamps", [True, False])
def test_rates_alone_name_the_sizes_that_let_their_clock_be_held_against_them(tmp_path: Path, has_stamps: bool) -> None:
    """What an iteration leaves out is half as long again as what its rate counts, which the rates alone do not show."""
    text = "".join(
        f"[rank0]:[titan] {f'2026-01-01 10:{n // 20:02}:{3 * n % 60:02},000 - ' if has_stamps else ''}step: {n:2}  loss: {9 - n / 50:8.5f}  "
        f"memory: 4.0GiB(5.0%)  tps: {4090 + n * 7 % 10:,}  mfu: 20.0%\n"
        for n in range(1, 60)
    )
    entry = entry_of(tmp_path, text, num_gpus=16)
    assert (entry.outcome.value, entry.has_number) == ("MEASURED", True)
    said = [each for each in entry.remarks if "give --sequence-length N and --global-batch-size N" in each]
    assert len(said) == has_stamps
    if has_stamps:
        entry = entry_of(tmp_path, text, num_gpus=16, sequence_length=2048, global_batch_size=64)
        assert (entry.outcome.value, not entry.remarks) == ("INVALID", True)
        assert "from line to line 1.499 times as much time passed" in entry.reason_texts[0]


@pytest.mark.parametrize(("other", "codes"), [(0, set()), (2, {Code.UNREADABLE_LINES})])
def test_lines_without_a_loss_are_of_other_stages_of_a_pipeline_where_another_rank_prints_them(
    tmp_path: Path, other: int, codes: set[Code]
) -> None:
    text = "".join(
        f"[rank{rank}]:[titan] step: {2 * n - (other == 2 and loss < 0):2}  loss: {loss:8.5f}  memory: 4.0GiB(5.0%)  tps: {4000 + n:,}  mfu: 20.0%\n"
        for n in range(1, 20)
        for rank, loss in ((other, -1.0), (2, 9 - n / 20))
    )
    entry = entry_of(tmp_path, text, num_gpus=4)
    assert {found.code for found in entry.contradictions} == codes


def test_several_configurations_give_several_entries(tmp_path: Path) -> None:
    first, second = entries_of(tmp_path, DUMP + FIVE + DUMP.replace("2048", "4096") + FIVE)
    assert (first.sequence_length, second.sequence_length) == (2048, 4096)
    assert second.reference == pytest.approx(2 * first.reference)


def test_each_configuration_that_a_job_tries_has_its_own_number_and_settings(tmp_path: Path) -> None:
    def start(micro: int, records: str) -> str:
        return dump(end=True, micro_batch_size=micro, seq_length=2048, world_size=384) + records

    fast = FIVE.replace(": 5.", ": 4.")
    starts = start(1, FIVE) + start(4, fast) + start(1, FIVE) + start(8, "CUDA out of memory\n")
    slow_one, fast_one = entries_of(tmp_path, starts)
    assert [each.workload.value("micro_batch_size") for each in (slow_one, fast_one)] == [1, 4]
    assert fast_one.steady > 1.2 * slow_one.steady
    assert fast_one.remarks == ("the log has 2 configurations; this one is from line 16 on; micro batch 4",)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("tokens per iteration will be: {:,}", "iter {}: loss 5.0000, time {:.2f}ms, mfu 40.00%"),
        (
            "| sequence length T     | 1024   |\n| total batch size      | {}  |",
            "step {}/19 | loss 5.000000 (+0.51z)| norm 1.0000 (-0.10z)| lr 1.00e-04 | {:.2f} ms | 40.0% bf16 MFU | {:.0f} tok/s",
        ),
    ],
    ids=["nanogpt", "llm.c"],
)
def test_two_trainings_of_other_batches_in_one_log_are_two_numbers(tmp_path: Path, head: str, line: str) -> None:
    text = ""
    for tokens, ms in ((524288, 500.0), (1048576, 900.0)):
        lines = (line.format(n, ms + n % 3, 800 * tokens / ms) for n in range(1, 20))
        text += "".join(f"{each}\n" for each in (head.format(tokens), *lines))
    rates = [each.steady for each in entries_of(tmp_path, text)]
    assert rates == pytest.approx([524288 / 0.501, 1048576 / 0.901], rel=1e-3)


def test_the_settings_of_a_start_far_down_in_a_long_log_are_its_own(tmp_path: Path) -> None:
    text, same = "", {"batch": 96, "loss": 8, "nan": 0}
    for micro, seconds in ((1, 6.0), (2, 5.0)):
        text += dump(micro_batch_size=micro, seq_length=2048, world_size=384)
        text += "".join(line(n, 3000, s=seconds + n % 7 / 100, **same) for n in range(1, 2000 * micro))
    found = {each.workload.value("micro_batch_size"): each.steady for each in entries_of(tmp_path, text)}
    assert found == {1: pytest.approx(2048 * 96 / 6.03, rel=1e-3), 2: pytest.approx(2048 * 96 / 5.03, rel=1e-3)}


def test_a_log_with_its_newest_line_first_is_refused(tmp_path: Path) -> None:
    lines = [line(10 * n, 300, f"2026-03-01 10:{n:02d}:00 ", s=6, batch=96, loss=8) for n in range(1, 31)]
    entry = entry_of(tmp_path, "".join([*reversed(lines), DUMP]))
    assert [reason.code for reason in entry.reasons] == ["several-writers"]
    assert not entry.has_number
    entry = entry_of(tmp_path, "".join([DUMP, *lines]))
    assert entry.steady == pytest.approx(2048 * 96 / 6)


def test_a_training_that_goes_on_from_a_checkpoint_warms_up_again(tmp_path: Path) -> None:
    same = {"s": 0.1, "batch": 4, "loss": 6, "nan": 0, "rate": 40, "tflops": 0.01}
    lines = [line(i, 24, samples=4 * i, **same) for i in range(12, 26, 2)]
    loaded = (
        " > checkpoints: loaded /a b/iter_0000010 in 0.05 s: 10 iterations, 40 samples, made with tp 1; none is written"
    )
    for text, first in ((loaded, 13), ("nothing", 11)):
        head = f"  log_interval .................................... 2\n{text}\n"
        entry = entry_of(tmp_path, [head, *lines], sequence_length=32, num_gpus=1)
        assert entry.throughput.window.first_iteration == first


@pytest.mark.parametrize(("steps", "outcome"), [((), "VALID"), ((30,), "VALID"), ((20, 40), "INVALID")])
def test_one_step_of_an_hour_is_the_end_of_summer_time_and_two_are_not(
    tmp_path: Path, steps: tuple[int, ...], outcome: str
) -> None:
    begin = datetime(2026, 10, 25, 1, 30)  # noqa: DTZ001  # as lines without a zone print it
    text = ""
    for i in range(1, 61):
        stamp = begin + timedelta(seconds=10 * i, hours=sum(i >= step for step in steps))
        text += line(i, 60, f" [{stamp:%Y-%m-%d %H:%M:%S}] ", ms=10000 + 7919 * i % 13, loss=3 - i / 100, **SAME)
    entry = entry_of(tmp_path, text, sequence_length=2048)
    assert entry.outcome.value == outcome


def test_a_damaged_number_in_the_last_line_hides_a_stall_and_breaks_nothing(tmp_path: Path) -> None:
    times = [500.0 + n % 3 / 10 for n in range(60)]
    times[30], times[-1] = 503.0, 5e9
    text = "".join(line(n, 60, ms=ms, batch=64, loss=9 - n / 20) for n, ms in enumerate(times, 1))
    entry = entry_of(tmp_path, text, sequence_length=2048)
    assert entry.ci95 is None
    assert entry.quality is Quality.NOISY


@pytest.mark.parametrize(("length", "is_mixed"), [(3, True), (4, False)])
def test_many_starts_of_few_records_each_are_several_writers(tmp_path: Path, length: int, is_mixed: bool) -> None:
    text = "".join(
        line(i, 60, ms=5000 + 7919 * (i + 10 * start) % 130, loss=3 - i / 100 - start / 7, **SAME)
        for start in range(6)
        for i in range(1, length + 1)
    )
    said = [text for entry in entries_of(tmp_path, text, sequence_length=2048) for text in entry.reason_texts]
    assert any("several programs or processes write into this log at once" in text for text in said) is is_mixed


@pytest.mark.parametrize(("head", "num_crashes"), [("", 8), (DUMP, 40)], ids=["lines alone", "with arguments"])
def test_a_crash_loop_and_then_a_whole_training_is_no_log_of_several_writers(
    tmp_path: Path, head: str, num_crashes: int
) -> None:
    def part(start: int, last: int) -> str:
        lines = (line(i, 60, ms=5000 + 7919 * (i + start) % 13, loss=3 - i / 100, **SAME) for i in range(1, last + 1))
        return head + "".join(lines)

    crash = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    crashed = "".join(part(start, 2) + crash for start in range(num_crashes))
    entry = entry_of(tmp_path, crashed + part(99, 60), sequence_length=2048)
    assert (entry.outcome.value, entry.steady) == ("VALID", pytest.approx(8 * 2048 / 5.006, rel=1e-3))


# The old benchmark's JUBE patterns read a log of ours and get our reference number.

# JUBE's $jube_pat_int and $jube_pat_fp.
INT, FP = r"([+-]?\d+)", r"([+-]?(?:\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\.))"
SECONDS = (7.2310, 5.3551, 5.6192, 5.3291, 5.3247)


def interval(number: int, elapsed_s: float) -> Interval:
    return Interval(
        iteration=10 * number, train_iters=12345678, consumed_samples=960 * number, elapsed_s=elapsed_s, learning_rate=1e-6,
        global_batch_size=96, loss=8.5, loss_scale=1.0, grad_norm=5.0, num_skipped=0, num_nan=0, legacy_flops=2.8e17, model_flops=2.1e17,
        sequence_length=2048, num_gpus=384, peak_bytes=40 * 2**30, unix_time_s=1763639990 + 60.5 * number,
    )  # fmt: skip


@pytest.fixture
def logged() -> str:
    lines = [f"[default3]:{format_line(interval(n, s))}\n" for n, s in enumerate(SECONDS, start=1)]
    return "Submitted batch job 4711\n" + "".join(lines) + "training finished: 50 iterations\n"


def test_the_old_patterns_match_each_line_once_and_give_the_same_reference(logged: str, tmp_path: Path) -> None:
    elapsed = [float(x) for x in re.findall(rf"elapsed time per iteration \(s\):\s+{FP}", logged)]
    assert [int(x) for x in re.findall(rf"iteration\s+{INT}/\s*\d+", logged)] == [10, 20, 30, 40, 50]
    assert len(re.findall(rf"TFLOPs:\s+{FP}", logged)) == 5
    assert re.findall(rf"Submitted batch job {INT}", logged) == ["4711"]
    entry = entry_of(tmp_path, logged, **LENGTH)
    assert entry.reference == pytest.approx(1 / (sum(elapsed) / 5) * 96 * 2048, rel=1e-12)


def test_what_the_trainer_writes_is_read_back(logged: str, tmp_path: Path) -> None:
    entry = entry_of(tmp_path, logged, **LENGTH)
    assert [record.elapsed_s for record in entry.records] == list(SECONDS)
    assert all(record.is_whole and record.tflops and record.model_tflops for record in entry.records)
    assert {(record.lm_loss, record.num_nan) for record in entry.records} == {(8.5, 0)}
    assert [record.stamp_s for record in entry.records] == [1763639990 + 60.5 * n for n in range(1, 6)]
