"""What each family reads: nothing is lost, nothing depends on the layout."""

import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.forked import LEAST

from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.families import SpanSizes

SHAPE = f"{LEAST} --seq-length 64 --max-position-embeddings 64 --mock-data --vocab-size 1000"
T5 = f"{SHAPE} --model-family t5 --decoder-seq-length 24 --vocab-extra-ids 10"
BERT = f"{SHAPE} --model-family bert"


@pytest.fixture(scope="module", autouse=True)
def megatron() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core's, of packages that are not installed
        import nlp_bench.train.families.bert
        import nlp_bench.train.families.t5  # noqa: F401


def settled(words: str) -> tuple[Settings, Layout]:
    settings = parse(words.split())
    return settings, Layout.of(settings, 1)


def opened(settings: Settings, layout: Layout) -> Any:
    from nlp_bench.train.families import family_of
    from nlp_bench.train.model import Job

    job = Job(settings=settings, layout=layout, kernels=None, device=torch.device("cpu"))  # type: ignore[arg-type]
    return family_of(settings).open_samples(job)


def test_a_t5_sample_is_the_text_with_every_span_in_the_answer() -> None:
    from nlp_bench.train.samples import open_rows

    settings, layout = settled(T5)
    samples = opened(settings, layout)
    sizes = SpanSizes.longest(64, 24, 0.15)
    assert sizes.encoder == 64 or sizes.decoder == 24
    text = open_rows(settings, layout, sizes.text, 999)[5].tolist()
    sample = samples.sample(5)
    source = sample["encoder_tokens"][sample["encoder_mask"]].tolist()
    target = sample["labels"][sample["loss_mask"]].tolist()
    assert (source[-1], target[-1]) == (999, 999)
    spans = {}
    for token in target[:-1]:
        spans.setdefault(token, []) if token >= 1000 else spans[max(spans)].append(token)
    assert len(spans) == sizes.spans
    assert sum(map(len, spans.values())) == sizes.cut
    assert [token for word in source[:-1] for token in spans.get(word, [word])] == text
    assert sample["decoder_tokens"].tolist() == [0, *sample["labels"].tolist()[:-1]]


def test_the_sizes_are_those_of_t5() -> None:
    sizes = SpanSizes.longest(512, 128, 0.15)  # Raffel et al. 2020: 568 tokens of text make 512 and 114
    assert (sizes.text, sizes.encoder, sizes.decoder) == (568, 512, 114)


def test_a_bert_sample_hides_a_share_of_two_texts() -> None:

    settings, layout = settled(BERT)
    samples = opened(settings, layout)
    found: Counter[str] = Counter()
    for index in range(len(samples.rows)):
        sample = samples.sample(index)
        tokens, labels, guessed = sample["tokens"], sample["labels"], sample["loss_mask"]
        assert tokens[0] == 997
        assert int((tokens == 998).sum()) == 2
        assert int(guessed.sum()) == 9  # 15 % of 61
        assert bool((labels[guessed] < 997).all())
        assert sample["types"].tolist() == sorted(sample["types"].tolist())
        found["mask"] += int((tokens[guessed] == 999).sum())
        found["kept"] += int((tokens[guessed] == labels[guessed]).sum())
        found["random"] += int(sample["is_random"])
    assert found["mask"] / (9 * 64) == pytest.approx(0.8, abs=0.06)
    assert found["kept"] / (9 * 64) == pytest.approx(0.1, abs=0.05)
    assert found["random"] / 64 == pytest.approx(0.5, abs=0.2)


def test_batches_are_read_ahead_by_a_thread_in_their_order_and_its_errors_are_raised() -> None:
    from nlp_bench.train.samples import ahead

    made: list[tuple[int, bool]] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            made.append((number, threading.current_thread() is threading.main_thread()))
            yield number
        raise UsageError("data_path: damaged")

    found: list[int] = []
    with pytest.raises(UsageError, match="damaged"):
        found.extend(ahead(numbers()))
    assert (found, made) == ([0, 1, 2], [(0, False), (1, False), (2, False)])


def test_mock_tokens_are_as_unequal_as_words_and_the_same_every_time() -> None:
    from nlp_bench.train.samples import mock_rows

    rows = mock_rows(512, 100, 1)
    counts = np.bincount(rows.ravel(), minlength=100)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2)
    assert counts.min() > 0
    assert (rows == mock_rows(512, 100, 1)).all()


def test_the_buckets_of_relative_positions_count_back_from_the_query() -> None:
    from nlp_bench.train.families.t5 import buckets

    assert buckets(3, both_directions=False).tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
    assert buckets(3, both_directions=True).tolist() == [[0, 17, 18], [1, 0, 17], [2, 1, 0]]
