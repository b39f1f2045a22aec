"""A log of which more than a small share is lost gives no number; what another line says is not lost."""

from pathlib import Path

import pytest
from support import megatron_log
from support.texts import entries_of, log_of

from nlp_bench.logs.reader import read_log
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome

TORN = "1.2[rank1]: warning: a slow one{}"


def line(i: int, ms: str = "", prefix: str = "[default3]: ") -> str:
    facts = {"samples": 8 * i, "ms": ms or 900 + i % 7, "batch": 8, "loss": 8 - i / 100, "skipped": 0, "nan": 0}
    return megatron_log.line(i, 500, prefix, **facts)


def measured(tmp_path: Path, text: str) -> RunResult:
    return entries_of(tmp_path, text, sequence_length=128, num_gpus=1)[0]


@pytest.mark.parametrize("ms", ["1.2.3,4", "-5.0", "nan", "inf", "0.0", "", "1234.5x", TORN])
@pytest.mark.parametrize("every", [2, 4, 30])
def test_slow_lines_that_cannot_be_read(tmp_path: Path, ms: str, every: int) -> None:
    entry = measured(
        tmp_path, "".join(line(i, ms if i % every == 0 and ms else "" if i % every else "?") for i in range(1, 121))
    )
    assert entry.outcome is Outcome.REFUSED
    assert not entry.has_number
    assert f"{120 // every} of 120 training lines" in entry.reason_texts[0]
    assert f"lines {every}, {2 * every}, " in entry.reason_texts[0]


def test_lines_that_are_cut_before_their_time(tmp_path: Path) -> None:
    lines = [line(i) for i in range(1, 101)]
    lines[10:20] = [text[:60] + "\n" for text in lines[10:20]]
    assert measured(tmp_path, "".join(lines)).outcome is Outcome.REFUSED


def test_a_small_share_is_said_and_borne(tmp_path: Path) -> None:
    entry = measured(tmp_path, "".join(line(i, "?" if i in {50, 100, 150} else "") for i in range(1, 201)))
    assert entry.has_number
    assert read_log(str(tmp_path / "some.log")).attempts[0].num_lost == 3
    assert any("3 cut or spliced" in reason for reason in entry.reason_texts)


@pytest.mark.parametrize("num_bad", [1, 2])
def test_a_short_log_bears_one_or_two(tmp_path: Path, num_bad: int) -> None:
    assert measured(tmp_path, "".join(line(i, "?" if i > 10 - num_bad else "") for i in range(1, 11))).has_number


def test_a_line_that_another_rank_prints_whole_is_not_lost(tmp_path: Path) -> None:
    text = "".join(line(i, "?", prefix="[default0]: ") + line(i, prefix="[default1]: ") for i in range(1, 51))
    entry = measured(tmp_path, text)
    assert entry.has_number
    (attempt,) = read_log(str(tmp_path / "some.log")).attempts
    assert (len(attempt.records), attempt.num_lost) == (50, 0)
    assert attempt.records.whole.all()


def test_halves_without_their_number_are_lost_only_where_iterations_are_missing(tmp_path: Path) -> None:
    half = line(7).partition("elapsed")[2]
    whole = [line(i) for i in range(1, 51)]
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
