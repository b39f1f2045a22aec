"""A rehearsal is the training: the same tracker sees the same in both, rank by rank."""

import base64
import dataclasses
import pickle
from collections.abc import Iterator

import pytest
from support.forked import Program, program

from nlp_bench.rehearse.ranks import Work, rehearsable, rehearse_ranks
from nlp_bench.rehearse.report import RankReport
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout

pytestmark = pytest.mark.slow

SMALL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 100 "
    "--micro-batch-size 2 --lr 1e-3 --train-iters 3 --mock-data --attention-dropout 0 --hidden-dropout 0 --kernels torch"
)
LAYOUTS = {
    "tp2 pp2": "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4",
    "tp2 dp2, sequence parallel, selective recompute": "--num-layers 2 --tensor-model-parallel-size 2 --sequence-parallel --global-batch-size 8 "
    "--bf16 --recompute-granularity selective --recompute-modules layernorm mlp",
    "pp4, two virtual stages": "--num-layers 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
    "--global-batch-size 8 --bf16 --no-overlap-p2p-communication",
    "dp2 cp2, distributed optimizer, a Llama": "--num-layers 2 --context-parallel-size 2 --global-batch-size 8 --bf16 --use-distributed-optimizer "
    "--overlap-grad-reduce --overlap-param-gather --position-embedding-type rope --swiglu --normalization RMSNorm "
    "--disable-bias-linear --group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights",
    "dp2 pp2, float16, full recompute, uneven stages": "--pipeline-model-parallel-size 2 --global-batch-size 8 --fp16 "
    "--initial-loss-scale 1024 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
    "--decoder-first-pipeline-num-layers 1 --hidden-dropout 0.1",
    "T5 tp2": "--model-family t5 --num-layers 2 --decoder-seq-length 16 --vocab-extra-ids 10 --tensor-model-parallel-size 2 --global-batch-size 4 "
    "--position-embedding-type relative --geglu",
    "BERT pp2": "--model-family bert --num-layers 2 --pipeline-model-parallel-size 2 --global-batch-size 4 --bf16",
}
"""The interleaved schedule waits for its messages here: those that overlap are freed when gloo has sent them, which is chance."""
TWO_RANKS = ("T5 tp2", "BERT pp2")
"""All others have four."""


def without_words(report: RankReport) -> RankReport:
    """Leave out what torch warns of: the two ways do not warn of the same."""
    return dataclasses.replace(report, warnings=())


@pytest.fixture(scope="module")
def trained() -> Iterator[Program]:
    with program("watched_ranks.py") as ranks:
        yield ranks


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_rank_of_a_rehearsal_equals_the_trained_one(name: str, trained: Program) -> None:
    ranks, words = 2 if name in TWO_RANKS else 4, f"{SMALL} {LAYOUTS[name]}".split()
    settings, _ = rehearsable(parse(words))
    layout = Layout.of(settings, ranks)
    works = [Work(settings=settings, layout=layout, rank=rank, accelerator="cpu") for rank in range(ranks)]
    rehearsed = [without_words(report) for report in rehearse_ranks(works)]
    reports = pickle.loads(base64.b64decode(trained.ask(ranks, words)))  # noqa: S301  # our own process
    assert rehearsed == [without_words(report) for report in reports]
