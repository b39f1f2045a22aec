"""Real ranks over gloo: layouts train the same model, and every bad end is an end, under torchrun too. More: test_parallel.py."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.forked import MOCK, Train

from nlp_bench.last_start import ENOUGH
from nlp_bench.measure.anytime import ConfidenceSequence, percent

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def alone(started: Train) -> Any:
    return started(1, MOCK)


def test_the_log_says_what_ran(alone: Any) -> None:
    for text in (
        "seq_length ...................................... 32",
        "padded_vocab_size ............................... 512",
    ):
        assert f"  {text}\n" in alone.stdout
    for fact in ("device: CPU, 1 threads", "data: mock: ", "attention: torch scaled_dot_product", "recompute: none"):
        assert f" > {fact}" in alone.stdout
    layer = 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64
    assert alone.parameters == 512 * 64 + 4 * layer + 2 * 64
    assert alone.stdout.endswith(" training finished: 4 iterations\n")
    assert alone.stderr == ""


def test_real_data_are_learned_and_indexed_once(started: Train, data: Path) -> None:
    known = len(json.loads((data / "vocab.json").read_text()))
    indices = set((data / "cache").glob("*shuffle_index.npy"))  # of other tests
    more = ("--data-path", str(data / "corpus_text_document"), "--vocab-file", str(data / "vocab.json"))
    ended = started(2, f"--train-iters 30 --lr-warmup-iters 2 --vocab-size {known}", *more)
    assert ended.code == 0, ended.stderr
    losses = ended.numbers("lm loss")
    assert losses[-1] < losses[0] - 0.3
    assert len({*(data / "cache").glob("*shuffle_index.npy")} - indices) == 1
    assert "arning" not in ended.stderr


def test_tokens_outside_the_vocabulary_are_refused(train: Train, data: Path, tmp_path: Path) -> None:
    ended = train(1, "--vocab-size 300 --data-path", str(data / "corpus_text_document"))
    assert ended.code == 2
    assert "vocab_size: 300 is less than the 512 of the tokenizer that made" in ended.stderr
    for suffix in (".bin", ".idx"):  # data of somebody else: nothing tells which tokenizer made them
        shutil.copy(data / f"corpus_text_document{suffix}", tmp_path / f"bare{suffix}")
    ended = train(1, "--vocab-size 300 --data-path", str(tmp_path / "bare"))
    assert ended.code == 1
    assert re.search(r"data_path: token \d+ .* is not less than the vocabulary size 300", ended.stderr)


def test_a_loss_that_is_not_finite_ends_every_rank_with_status_3(started: Train) -> None:
    ended = started(2, f"{MOCK} --pipeline-model-parallel-size 2 --log-interval 4 --lr 1e38 --min-lr 1e38")
    assert ended.code != 0
    assert len(re.findall(r"exitcode  : 3 ", ended.stderr)) >= 1
    assert ended.stdout.count("number of nan iterations:   1 |") == 1
    assert ended.stderr.count("is not finite in iteration 2") == 1


def test_a_rank_that_fails_takes_the_others_along(started: Train, data: Path) -> None:
    blocked = data / "vocab.json"  # a file where the cache folder should be: only the first rank writes there
    more = ("--data-path", str(data / "corpus_text_document"), "--data-cache-path", str(blocked))
    ended = started(2, "--vocab-size 512", *more)
    assert ended.code == 1
    assert f"data_cache_path: cannot write {blocked}" in ended.stderr
    assert "then --data-path FOLDER/corpus_text_document)" in ended.stderr  # submit has no option for this folder


def test_float16_overflows_are_skipped_and_counted(train: Train) -> None:
    ended = train(1, f"{MOCK} --fp16 --hysteresis 1 --train-iters 16 --log-interval 16 --initial-loss-scale 4294967296")
    assert ended.code == 0, ended.stderr
    assert "number of skipped iterations:   0" not in ended.stdout
    assert "number of nan iterations:   0 |" in ended.stdout
    assert len(ended.numbers("lm loss")) == 1


def test_the_time_limit_ends_the_run_well(train: Train) -> None:
    ended = train(1, f"{MOCK} --train-iters 1000000 --log-interval 1000000 --exit-duration-in-mins 0.001")
    assert ended.code == 0, ended.stderr
    assert re.search(r"\n training stopped by exit-duration-in-mins 0.001 after iteration \d\n", ended.stdout)
    assert "training finished" not in ended.stdout


TWO_LAYERS = f"{MOCK} --num-layers 2"


def stop_of(log: str, within: str, log_interval: int) -> int | None:
    sequence = ConfidenceSequence(percent("within", within), log_interval)
    for number, seconds in re.findall(r"iteration +(\d+)/ *\d+ .*?per iteration \(s\): (\S+)", log):
        bound = sequence.bound() if sequence.add(int(number), float(seconds)) else None
        if bound and bound.is_enough:
            return int(number)
    return None


def test_all_ranks_stop_where_the_log_proves_that_it_is_enough(started: Train) -> None:
    ended = started(2, f"{TWO_LAYERS} --train-iters 3000 --lr-decay-samples 12000 --log-interval 2 --until 90%")
    assert ended.code == 0, ended.stderr
    said = next(filter(None, map(ENOUGH.match, ended.stdout.splitlines())))
    last = int(said[1])
    assert 50 <= last < 3000
    assert stop_of(ended.stdout, "90%", 2) == last
    assert f" training finished: {last} iterations\n" in ended.stdout.replace("]:", "]: ").replace("  ", " ")
    assert len(ended.numbers("lm loss")) == last // 2


def test_a_run_that_cannot_reach_it_does_all_its_iterations_and_says_so(train: Train) -> None:
    ended = train(1, f"{TWO_LAYERS} --train-iters 40 --until 0.1%")
    assert ended.code == 0, ended.stderr
    assert not any(map(ENOUGH.match, ended.stdout.splitlines()))
    assert re.search(
        r"\n until 0\.1%: not enough after iteration 40 of 40: .* \d+ iterations would do\n training finished: 40 ",
        ended.stdout,
    )
