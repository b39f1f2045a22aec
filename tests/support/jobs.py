"""Jobs to hold the planner against: random legal ones of small networks, and a handful of real ones."""

import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

Words = dict[str, Any]  # options of the trainer by name; True for a flag


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rank of one legal configuration."""

    words: list[str]
    """Options of the trainer."""
    world_size: int
    rank: int

    @cached_property
    def settings(self) -> Settings:
        return parse(self.words)

    @property
    def layout(self) -> Layout:
        return Layout.of(self.settings, self.world_size)

    @property
    def stage(self) -> int:
        """Pipeline stages are apart by all tensor-, context- and data-parallel ranks (megatron-core's order tp-cp-ep-dp-pp)."""
        return self.rank // (self.world_size // self.settings.pipeline_model_parallel_size)

    def describe(self) -> str:
        return f"rank {self.rank} of {self.world_size}, stage {self.stage}: {' '.join(self.words)}"


def sample(number: int, seed: int, *, partial: bool = False) -> list[Case]:
    chance = random.Random(seed)  # noqa: S311  # no secret
    return [drawn(chance, partial=partial) for _ in range(number)]


def drawn(chance: random.Random, *, partial: bool = False) -> Case:
    """Draw until a configuration passes the trainer's own checks; `partial`: with recompute of a part of the layers or modules."""
    while True:
        words, world_size = (draw_partial if partial else draw)(chance)
        case = Case(words=as_words(words), world_size=world_size, rank=0)
        try:
            settings, layout = case.settings, case.layout
        except UsageError:
            continue
        stages = settings.pipeline_model_parallel_size
        stage = chance.choice(sorted({0, min(1, stages - 1), stages - 1}))
        tensor, context = settings.tensor_model_parallel_size, settings.context_parallel_size
        replica = chance.randrange(layout.data_parallel_size) * tensor * context
        # of context-parallel ranks the first, whose late chunk sees the whole sequence: the fullest, as the planner says
        rank = stage * (world_size // stages) + replica + chance.randrange(tensor)
        return replace(case, rank=rank)


def as_words(words: Words) -> list[str]:
    found = []
    for name, value in words.items():
        if value is not False and value is not None:
            found += [f"--{name.replace('_', '-')}", *([] if value is True else str(value).split())]
    return found


def draw(chance: random.Random) -> tuple[Words, int]:
    """Draw a shape, a layout and switches; not all are legal."""
    tensor, pipeline = chance.choice((1, 1, 2, 4, 8)), chance.choice((1, 1, 2, 3, 4, 8))
    virtual = chance.choice((1, 1, 2, 3)) if pipeline > 1 else 1
    context, data = chance.choice((1, 1, 1, 2, 4)), chance.choice((1, 2, 3, 4))
    micro = chance.choice((1, 1, 2, 4))
    shape = draw_shape(chance, tensor, pipeline * virtual, context)
    uneven = {}
    if pipeline > 2 and chance.random() < 0.3:
        own = virtual * chance.choice((1, 2))
        name = chance.choice(("first", "last"))
        middle = shape["num_layers"] // pipeline
        uneven = {f"decoder_{name}_pipeline_num_layers": own}
        shape["num_layers"] = middle * (pipeline - 1) + own
    batches = chance.choice((1, 2, 3, 4, 5)) if virtual == 1 else pipeline * chance.choice((1, 2))
    precision = chance.choice(("bf16", "bf16", "fp16", "fp32"))
    recompute = chance.choice(("none", "selective", "full"))
    shared = chance.random() < 0.6
    overlap = chance.random() < 0.5
    words = {
        **shape,
        **uneven,
        **({precision: True} if precision != "fp32" else {}),
        "tensor_model_parallel_size": tensor,
        "pipeline_model_parallel_size": pipeline,
        "num_virtual_stages_per_pipeline_rank": virtual if virtual > 1 else None,
        "context_parallel_size": context,
        "micro_batch_size": micro,
        "global_batch_size": micro * data * batches,
        "sequence_parallel": tensor > 1 and chance.random() < 0.5,
        "use_distributed_optimizer": shared,
        "overlap_grad_reduce": overlap,
        "overlap_param_gather": overlap and shared and chance.random() < 0.5,
        "recompute_granularity": None if recompute == "none" else recompute,
        **({"recompute_method": "uniform", "recompute_num_layers": 1} if recompute == "full" else {}),
        "train_iters": 10,
        "lr": 1e-4,
        "mock_data": True,
        "kernels": "torch",
    }
    return words, tensor * pipeline * context * data


WIDTHS = ((1024, 16), (2048, 16), (4096, 32), (5120, 40))  # hidden size and heads of 0.35B to 13B


def draw_partial(chance: random.Random) -> tuple[Words, int]:
    """Draw several layers per stage, half of them of real widths, and recompute of a part of the layers or modules."""
    words, world_size = draw(chance)
    stages = words["pipeline_model_parallel_size"] * (words["num_virtual_stages_per_pipeline_rank"] or 1)
    layers = chance.choice((2, 3, 4, 6))
    words = {name: value for name, value in words.items() if not name.startswith(("decoder_", "recompute_"))}
    words["num_layers"] = stages * layers
    if chance.random() < 0.5:
        hidden, heads = chance.choice(WIDTHS)
        words |= {
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "kv_channels": hidden // heads,
            "num_query_groups": None,
        }
        words |= {"group_query_attention": False, "ffn_hidden_size": 4 * hidden, "vocab_size": 50257}
        words |= {"seq_length": 2048, "max_position_embeddings": 2048}
    divisors = [number for number in range(2, layers + 1) if layers % number == 0]
    kind = chance.choice(("block", "block", "uniform", "mlp", "layernorm", "mlp layernorm"))
    if kind in {"block", "uniform"}:
        number = chance.choice(divisors if kind == "uniform" else range(1, layers + 1))
        words |= {"recompute_granularity": "full", "recompute_method": kind, "recompute_num_layers": number}
    else:
        words |= {"recompute_granularity": "selective", "recompute_modules": kind}
    return words, world_size


def draw_shape(chance: random.Random, tensor: int, stages: int, context: int) -> Words:
    heads = tensor * chance.choice((1, 2, 4))
    groups = chance.choice([g for g in (tensor, 2 * tensor, heads) if heads % g == 0])
    width = chance.choice((32, 64, 80, 128))
    hidden = heads * chance.choice((32, 64, 128)) if chance.random() < 0.3 else heads * width
    length = 4 * tensor * context * chance.choice((16, 32, 64))
    dropout = chance.choice((0, 0.1))
    positions = chance.choice(("rope", "rope", "learned_absolute"))
    return {
        "num_layers": stages * chance.choice((1, 2, 3)),
        "hidden_size": hidden,
        "ffn_hidden_size": tensor * chance.choice((1, 2, 4, 7)) * chance.choice((64, 128)),
        "num_attention_heads": heads,
        "kv_channels": width,
        **({"group_query_attention": True, "num_query_groups": groups} if groups != heads else {}),
        "seq_length": length,
        "max_position_embeddings": length * chance.choice((1, 2)),
        "vocab_size": chance.choice((1000, 4999, 32000)),
        "position_embedding_type": positions,
        "untie_embeddings_and_output_weights": chance.random() < 0.5,
        "swiglu": chance.random() < 0.4,
        "disable_bias_linear": chance.random() < 0.5,
        "normalization": chance.choice(("LayerNorm", "RMSNorm")),
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
    }


COMMON = "--train-iters 10 --lr 1e-4 --mock-data --kernels torch --bf16 --micro-batch-size 1"
REAL = """
13 32 0 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --overlap-grad-reduce
13 32 3 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --sequence-parallel
13 32 1 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5
175 384 0 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8
175 384 7 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8
175 384 0 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 4 --sequence-parallel
175 384 15 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 16 --num-virtual-stages-per-pipeline-rank 6 --sequence-parallel
175 384 1 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --context-parallel-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
""".strip().splitlines()
"""Real models (files of benchmark/models), ranks, pipeline stage and layout."""
MICROBATCHES = 16


def real_cases() -> list[Case]:
    """Return a handful of real jobs: 13B on 32 GPUs, 175B on 384."""
    jobs = [job.split(maxsplit=3) for job in REAL]
    return [_real(model, int(ranks), int(stage), layout) for model, ranks, stage, layout in jobs]


def _real(model: str, world_size: int, stage: int, layout: str) -> Case:
    found = catalog.load_model(model)
    shape, training = found.architecture, found.training
    dropout = f"--attention-dropout {training.attention_dropout} --hidden-dropout {training.hidden_dropout}"
    words = (
        f"{COMMON} --use-distributed-optimizer --num-layers {shape.num_layers} --hidden-size {shape.hidden_size} "
        f"--ffn-hidden-size {shape.ffn_hidden_size} --num-attention-heads {shape.num_attention_heads} "
        f"--seq-length {shape.sequence_length} --max-position-embeddings {shape.sequence_length} "
        f"--vocab-size {shape.vocab_size} --position-embedding-type {shape.position_embedding} {dropout} {layout}"
    )
    settings = parse(words.split())
    samples = MICROBATCHES * world_size // settings.model_parallel_size
    rank = stage * (world_size // settings.pipeline_model_parallel_size)
    return Case(words=[*words.split(), "--global-batch-size", str(samples)], world_size=world_size, rank=rank)


def bucketed(*, shared: bool) -> Case:
    """Return a case whose gradients fill several buckets of megatron-core's default size, in odd shapes."""
    words = (
        f"{COMMON} --num-layers 12 --hidden-size 1000 --num-attention-heads 10 --ffn-hidden-size 4100 --vocab-size 50257 --seq-length 64 "
        f"--max-position-embeddings 64 --overlap-grad-reduce --global-batch-size 3{' --use-distributed-optimizer' * shared}"
    )
    return Case(words=words.split(), world_size=3, rank=0)
