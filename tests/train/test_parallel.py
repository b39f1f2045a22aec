"""Every way to spread the work trains the same model: losses, gradient norms and parameters, on up to eight CPU ranks."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.forked import LEAST

from nlp_bench.errors import UsageError
from nlp_bench.packages import import_megatron
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.rules import sizes_of

SIZES = "--num-layers 8 --hidden-size 32 --global-batch-size 8 --train-iters 2 --mock-data --vocab-size 512"
HALF = SIZES.replace("size 8", "size 4")
QUARTER = SIZES.replace("size 8", "size 2")
ROPE = "--position-embedding-type rope"
GROUPED = (
    "--swiglu --disable-bias-linear --normalization RMSNorm --group-query-attention --num-query-groups 2 "
    "--untie-embeddings-and-output-weights"
)
OVERLAP = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
PP2, PP4 = "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 4"
TP2, CP2 = "--tensor-model-parallel-size 2 --sequence-parallel", "--context-parallel-size 2"
FIRST = "--decoder-first-pipeline-num-layers"
PER_STAGE, VPP2 = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank 2"
RECOMPUTE = "--recompute-granularity full --recompute-method"
Same = Callable[[int, str, str], Any]


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        (8, f"{TP2} {PP2} {CP2}"),
        (8, f"{TP2} {PP2} {CP2} {PER_STAGE} 2 {RECOMPUTE} uniform --recompute-num-layers 2"),
        (8, f"{PP4} {VPP2} {OVERLAP} --overlap-p2p-communication-warmup-flush"),
        (8, f"{PP4} {VPP2} --no-overlap-p2p-communication --ddp-average-in-collective"),
        (4, f"{PP2} {PER_STAGE} 1 {OVERLAP} --align-param-gather --ddp-num-buckets 3"),
        (4, f"{PP2} {PER_STAGE} 2 {OVERLAP} --no-align-grad-reduce"),
        (2, f"{PP2} {VPP2} {FIRST} 2 --microbatch-group-size-per-virtual-pipeline-stage 4"),
        (4, f"{PP4} {FIRST} 1 --decoder-last-pipeline-num-layers 1 {RECOMPUTE} block --recompute-num-layers 1"),
        (8, f"--overlap-grad-reduce --ddp-bucket-size 9999 {TP2} --micro-batch-size 2"),
        (4, f"{CP2} {OVERLAP}"),
    ],
)
def test_the_layout_does_not_change_the_training(same_training: Same, ranks: int, layout: str) -> None:
    few = TP2 in layout and PP2 in layout  # one replica: four micro-batches
    same_training(ranks, f"{HALF if few else SIZES} {ROPE}", layout)


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("positions", "layout"),
    [
        ("--position-embedding-type learned_absolute", "--context-parallel-size 4"),
        (f"{ROPE} --rotary-percent 0.5", f"{CP2} {TP2} {RECOMPUTE} uniform --recompute-num-layers 4"),
    ],
)
def test_ranks_that_share_a_sequence_know_their_positions(same_training: Same, positions: str, layout: str) -> None:
    same_training(4, f"{QUARTER} {GROUPED} {positions}", layout)


@pytest.mark.torchrun
def test_a_vocabulary_padded_for_more_tensor_ranks_is_another_model(train: Callable[..., Any]) -> None:
    words = f"{SIZES} {ROPE} --vocab-size 500 --make-vocab-size-divisible-by 100"
    assert train(2, f"{words} --tensor-model-parallel-size 2").parameters == train(1, words).parameters + 100 * 32


def _some_settings(draw: random.Random) -> Settings:
    """Draw arguments of which about every second set is legal; raises UsageError for the others."""
    stages = draw.choice([1, 2, 2, 3, 4])
    options = {
        "--num-layers": draw.choice([4, 6, 8, 12]),
        "--pipeline-model-parallel-size": stages,
        "--tensor-model-parallel-size": draw.choice([1, 2, 4]),
        "--context-parallel-size": draw.choice([1, 2]),
        "--num-layers-per-virtual-pipeline-stage": draw.choice([None, None, 1, 2]),
        "--num-virtual-stages-per-pipeline-rank": draw.choice([None, None, 1, 2, 3]),
        "--microbatch-group-size-per-virtual-pipeline-stage": draw.choice([None, None, stages, 5]),
        "--decoder-first-pipeline-num-layers": draw.choice([None, None, 1, 2]),
        "--decoder-last-pipeline-num-layers": draw.choice([None, None, 2, 4]),
        "--recompute-num-layers": draw.choice([None, None, 1, 2]),
        "--ddp-num-buckets": draw.choice([None, 2]),
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    if options["--recompute-num-layers"]:
        words += ["--recompute-granularity", "full", "--recompute-method", draw.choice(["uniform", "block"])]
    switches = ("--sequence-parallel", "--overlap-grad-reduce", "--no-overlap-p2p-communication", "--swiglu", "--bf16")
    words += [switch for switch in switches if draw.random() < 0.3]
    return parse([*f"{LEAST} {SIZES}".split(), *words])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what importing megatron-core says
def test_what_the_rules_let_pass_is_what_megatron_core_takes() -> None:
    import torch

    import_megatron(lambda function: function)  # twice as quick as without it
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    from nlp_bench.train.kernels.choice import choose_kernels
    from nlp_bench.train.model import Job, transformer_config

    draw, device, taken = random.Random(5), torch.device("cpu"), 0  # noqa: S311  # no secret
    for _ in range(700):
        try:
            settings = _some_settings(draw)
            layout = Layout.of(settings, settings.model_parallel_size)
        except UsageError:
            continue
        taken += 1
        job = Job(settings=settings, layout=layout, kernels=choose_kernels(settings, device), device=device)
        config = transformer_config(job)
        sizes = sizes_of(settings)
        virtual = sizes.virtual
        numbers = list(range(virtual)) if virtual > 1 else [None]
        ranks = range(settings.pipeline_model_parallel_size)
        built = [[get_num_layers_to_build(config, number, rank) for number in numbers] for rank in ranks]
        assert built == [[layers] * virtual for layers in sizes.stage_layers()]
        assert sum(map(sum, built)) == settings.num_layers
    assert taken > 70
