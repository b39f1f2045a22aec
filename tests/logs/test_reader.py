"""Whole logs: compression, carriage returns, echoes, restarts, damage, lost lines."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import megatron_log
from support.texts import entries_of, log_of

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Log, LogRecord
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome


def line(iteration: int, elapsed_s: str = "1.5000", prefix: str = "[default3]: ") -> str:
    same = {"batch": 8, "loss": 2, "skipped": 0, "nan": 0, "rate": "5.3", "tflops": 1}
    return megatron_log.line(iteration, 100, prefix, samples=8 * iteration, s=elapsed_s, **same)


def iterations(log: Log) -> list[list[int]]:
    return [[record.iteration for record in attempt.records] for attempt in log.attempts]


def rows(log: Log) -> list[LogRecord]:
    return [record for attempt in log.attempts for record in attempt.records]


TEXT = "".join(line(i) for i in range(1, 6))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(TEXT.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    assert iterations(read_log("-")) == [[1, 2, 3, 4, 5]]


def test_windows_line_ends_bars_and_colours(tmp_path: Path) -> None:
    text = "".join(f"\r 10%|#  |\r 20%|## |\r\x1b[32m{line(i)[:-1]}\x1b[0m\r\n" for i in (1, 2))
    log = log_of(tmp_path, text)
    assert (iterations(log), log.num_unreadable) == ([[1, 2]], 0)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"\xff\xfe\x00" + line(1).encode() + b"\x80 loss: \xc3\n" + line(2).encode())
    assert iterations(log) == [[1, 2]]


def test_line_numbers_across_blocks(tmp_path: Path) -> None:
    text, numbers, number = "", [], 0
    for i in range(1, 60):
        noise = 1 + 700 * (i % 3)
        text += f"noise {'x' * (i % 37 + 40)}\n" * noise + line(i)
        number += noise + 1
        numbers.append(number)
    found = rows(log_of(tmp_path, text))
    assert [record.line_number for record in found] == numbers
    assert all(text[record.offset :].startswith("[default3]: iteration") for record in found)


def test_of_several_ranks_the_slowest_counts_and_the_difference_is_evidence(tmp_path: Path) -> None:
    pairs = [(line(i, "1.2500", prefix="[default0]: "), line(i, "1.5000", prefix="[default1]: ")) for i in range(1, 9)]
    for order in (1, -1):
        text = "".join("".join(pair[::order]) for pair in pairs)
        (attempt,) = log_of(tmp_path, text).attempts
        assert [record.elapsed_s for record in attempt.records] == [1.5] * 8
        copies = attempt.copies["elapsed_s"]
        assert (copies.num_iterations, copies.num_differing) == (8, 8)
        assert copies.between_processes == pytest.approx(0.2)
        fast, slow = (text.splitlines()[number - 1] for number in copies.line_numbers)
        assert "1.2500" in fast
        assert "1.5000" in slow
        assert attempt.copies["samples_per_second"].num_differing == 0


def test_the_jitter_of_ranks_does_not_add_up(tmp_path: Path) -> None:
    # Each rank is late in every other iteration; over all of them they take the same time.
    times = ("1.4000", "1.6000")
    text = "".join(line(i, times[(i + rank) % 2], prefix=f"[default{rank}]: ") for i in range(1, 9) for rank in (0, 1))
    (attempt,) = log_of(tmp_path, text).attempts
    assert sum(record.elapsed_s or 0 for record in attempt.records) == pytest.approx(8 * 1.5)
    assert attempt.copies["elapsed_s"].between_processes == pytest.approx(0)


@pytest.mark.parametrize("stamps", [("", ""), ("[2026-11-20 10:00:00] ", "[2026-11-20 10:00:01] ")])
def test_a_record_that_one_process_prints_twice_is_no_copy(tmp_path: Path, stamps: tuple[str, str]) -> None:
    log = log_of(tmp_path, "".join(line(6, prefix=stamp) for stamp in stamps))
    assert (log.num_echoes, log.attempts[-1].copies) == (1, {})


def test_a_rank_that_prints_little_is_not_taken_for_the_others(tmp_path: Path) -> None:
    text = "".join(line(i, "1.5000", prefix="[default0]: ") for i in range(1, 9)) + line(
        8, "9.5000", prefix="[default1]: "
    )
    (attempt,) = log_of(tmp_path, text).attempts
    assert [record.elapsed_s for record in attempt.records] == [1.5] * 8
    assert attempt.copies["elapsed_s"].num_differing == 1


def test_a_restart_is_another_attempt(tmp_path: Path) -> None:
    text = "".join(line(i, f"1.{i:04d}") for i in (10, 20, 30)) + "".join(line(i, f"1.9{i:03d}") for i in (20, 30, 40))
    assert iterations(log_of(tmp_path, text)) == [[10, 20, 30], [20, 30, 40]]


def test_another_argument_dump_is_another_attempt(tmp_path: Path) -> None:
    dump = "------------------------ arguments ------------------------\n  seq_length ........ {}\n  world_size ........ 8\n"
    log = log_of(tmp_path, dump.format(128) + line(1) + line(2) + dump.format(256) + line(3))
    assert iterations(log) == [[1, 2], [3]]
    assert [attempt.count("sequence_length") for attempt in log.attempts] == [128, 256]
    assert log.attempts[0].count("num_devices") == 8


def test_a_start_that_came_to_no_record_does_not_speak_for_the_next(tmp_path: Path) -> None:
    dump = "------------------------ arguments ------------------------\n  seq_length ........ {}\n"
    log = log_of(tmp_path, dump.format(256) + "  world_size ........ 8\nout of memory\n" + dump.format(128) + line(1))
    assert iterations(log) == [[1]]
    assert log.attempts[0].count("sequence_length") == 128
    assert log.attempts[0].count("num_devices") == 8, "what the second start does not say stands"
    between = line(1) + dump.format(256) + "out of memory\n" + dump.format(128) + line(2)
    assert [attempt.count("sequence_length") for attempt in log_of(tmp_path, between).attempts] == [None, 128]


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_ranks_are_told_apart_in_a_log_of_few_lines(tmp_path: Path, num_ranks: int) -> None:
    lines = [line(i, f"1.50{rank}0", prefix=f"[default{rank}]: ") for i in (1, 2) for rank in range(num_ranks)]
    log = log_of(tmp_path, "".join(lines[: num_ranks + 1]))
    assert (iterations(log), log.num_echoes) == ([[1, 2]], num_ranks - 1)


def test_the_first_dump_of_a_name_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, "  world_size ........ 64\n  world_size ........ 1\n" + line(1))
    assert log.attempts[0].count("num_devices") == 64
    assert log.attempts[0].facts["num_devices"].line_number == 1


@pytest.mark.parametrize("value", ["0.0000", "-1.0", "-0.0", "nan", "-inf", "NaN", "inf", "1e400"])
def test_impossible_times_are_left_out(tmp_path: Path, value: str) -> None:
    log = log_of(tmp_path, line(1) + line(2, value))
    assert [record.elapsed_s for record in log.attempts[0].records] == [1.5, None]
    assert log.num_unreadable == 1


@pytest.mark.parametrize("value", ["", "1.#INF", "abc", "7.1/7.2", "1,5,2"])
def test_times_that_are_no_numbers_are_torn(tmp_path: Path, value: str) -> None:
    log = log_of(tmp_path, line(1) + line(2, value))
    # The rate of the torn line was finished, its time was not.
    assert [(r.iteration, r.elapsed_s, r.samples_per_second, r.is_whole) for r in rows(log)] == [
        (1, 1.5, 5.3, True),
        (2, None, 5.3, False),
    ]
    assert log.num_unreadable == 1


@pytest.mark.slow
def test_a_splice_at_every_byte_loses_no_other_record(tmp_path: Path) -> None:
    first, second, third = line(1), line(2), line(3)
    for cut in range(len(second)):
        log = log_of(tmp_path, first + second[:cut] + "[default0]: warning: something\n" + third)
        found = log.attempts[0].records
        assert found[0].iteration == 1
        assert found[-1].iteration == 3
        assert all(record.elapsed_s == 1.5 for record in found)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_raise(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 12))):
        where = data.draw(st.integers(0, len(content) - 1))
        content[where : where + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    assert all(record.elapsed_s is None or record.elapsed_s > 0 for record in rows(log_of(tmp_path, bytes(content))))


TORN = "1.2[rank1]: warning: a slow one{}"  # of a log that gives no number where more than a small share is lost


def timed(i: int, ms: str = "", prefix: str = "[default3]: ") -> str:
    facts = {"samples": 8 * i, "ms": ms or 900 + i % 7, "batch": 8, "loss": 8 - i / 100, "skipped": 0, "nan": 0}
    return megatron_log.line(i, 500, prefix, **facts)


def measured(tmp_path: Path, text: str) -> RunResult:
    return entries_of(tmp_path, text, sequence_length=128, num_gpus=1)[0]


@pytest.mark.parametrize("ms", ["1.2.3,4", "-5.0", "nan", "inf", "0.0", "", "1234.5x", TORN])
@pytest.mark.parametrize("every", [2, 4, 30])
def test_slow_lines_that_cannot_be_read(tmp_path: Path, ms: str, every: int) -> None:
    entry = measured(
        tmp_path, "".join(timed(i, ms if i % every == 0 and ms else "" if i % every else "?") for i in range(1, 121))
    )
    assert entry.outcome is Outcome.REFUSED
    assert not entry.has_number
    assert f"{120 // every} of 120 training lines" in entry.reason_texts[0]
    assert f"lines {every}, {2 * every}, " in entry.reason_texts[0]


def test_lines_that_are_cut_before_their_time(tmp_path: Path) -> None:
    lines = [timed(i) for i in range(1, 101)]
    lines[10:20] = [text[:60] + "\n" for text in lines[10:20]]
    assert measured(tmp_path, "".join(lines)).outcome is Outcome.REFUSED


def test_a_small_share_is_said_and_borne(tmp_path: Path) -> None:
    entry = measured(tmp_path, "".join(timed(i, "?" if i in {50, 90, 150} else "") for i in range(1, 201)))
    assert entry.has_number
    assert read_log(str(tmp_path / "some.log")).attempts[0].num_lost == 3
    assert "unreadable-lines" in {reason.code for reason in entry.reasons}


@pytest.mark.parametrize("num_bad", [1, 2])
def test_a_short_log_bears_one_or_two(tmp_path: Path, num_bad: int) -> None:
    assert measured(tmp_path, "".join(timed(i, "?" if i > 10 - num_bad else "") for i in range(1, 11))).has_number


def test_a_line_that_another_rank_prints_whole_is_not_lost(tmp_path: Path) -> None:
    text = "".join(timed(i, "?", prefix="[default0]: ") + timed(i, prefix="[default1]: ") for i in range(1, 51))
    entry = measured(tmp_path, text)
    assert entry.has_number
    (attempt,) = read_log(str(tmp_path / "some.log")).attempts
    assert (len(attempt.records), attempt.num_lost) == (50, 0)
    assert attempt.records.whole.all()


def test_halves_without_their_number_are_lost_only_where_iterations_are_missing(tmp_path: Path) -> None:
    half = timed(7).partition("elapsed")[2]
    whole = [timed(i) for i in range(1, 51)]
    assert measured(tmp_path, "".join(text + half for text in whole)).has_number
    assert read_log(str(tmp_path / "some.log")).attempts[0].num_lost == 0


OTHERS = {
    "maxtext": "completed step: {i}, seconds: {v}, TFLOP/s/device: 100.0, Tokens/s/device: 8192.0, total_weights: 65536, loss: 8.5\n",
    "torchtitan": "[rank0]:[titan] 2026-01-01 10:00:00,000 - root - INFO - step: {i}  loss: 6.1384  memory: 49.66GiB(52.28%)  tps: {v}  tflops: 339.16  mfu: 34.29%\n",
    "nanotron": "01/01/2026 10:00:00 [INFO|DP=0|PP=0|TP=0]: iteration: {i} / 100 | consumed_tokens: 1.02K | "
    "elapsed_time_per_iteration_ms: {v} | tokens_per_sec: 43.2K | tokens_per_sec_per_gpu: 43.2K | global_batch_size: 2 | lm_loss: 5.29\n",
}


@pytest.mark.parametrize("dialect", OTHERS)
@pytest.mark.parametrize("value", ["1.2.3,4", "-500.5", "5..5"])
def test_other_dialects(tmp_path: Path, dialect: str, value: str) -> None:
    log = log_of(tmp_path, "".join(OTHERS[dialect].format(i=i, v="900.5" if i % 4 else value) for i in range(1, 101)))
    assert log.dialect == dialect
    assert log.refusal is not None
    assert log.attempts[0].num_lost >= 24
    log = log_of(tmp_path, "".join(OTHERS[dialect].format(i=i, v="900.5") for i in range(1, 101)))
    assert (log.refusal, log.attempts[0].num_lost) == (None, 0)


def test_a_program_that_prints_the_time_of_evaluations_is_not_doubted(tmp_path: Path) -> None:
    # nanoGPT's parser keeps the times of evaluated iterations back, fairseq's thins out what its coarse clock cannot tell apart.
    lines = ["tokens per iteration will be: 491,520\n"]
    for i in range(60):
        lines += [f"step {i}: train loss 10.9500, val loss 10.9400\n"] if i % 10 == 0 else []
        lines += [f"iter {i}: loss 10.9000, time {9000 if i % 10 == 0 else 500}.00ms, mfu 28.30%\n"]
    log = log_of(tmp_path, lines)
    assert (log.dialect, log.refusal, log.attempts[0].num_lost) == ("nanogpt", None, 0)
    form = "2026-01-01 10:00:00 | INFO | train_inner | epoch 001: {:6} / 4830 loss=9.5, ppl=700, wps=8000, ups=4, wpb=2048, bsz=16, num_updates={}, lr=5e-07, gnorm=1, clip=0, oom=0, wall={:.0f}\n"
    log = log_of(tmp_path, "".join(form.format(i, i, i / 4) for i in range(1, 400)))
    assert (log.dialect, log.refusal, log.attempts[0].num_lost) == ("fairseq", None, 0)
