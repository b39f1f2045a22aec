"""The arithmetic of tensor, pipeline and data parallelism for one training. No torch here."""

import os

from nlp_bench.errors import UsageError, require
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import RULES, refuse
from nlp_bench.layout.shape import ModelShape, padded_vocab_size, shape_of
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.rules import BY_RANKS, argument_of, resolved_vocab_size, sizes_of

TASKS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""How many processes srun or an mpirun has started together with this one, which tells them no rank by torchrun's names."""
NUM_RANKS = "NLP_BENCH_NUM_RANKS"
"""Variable by which the launcher says how many ranks the run has on all nodes."""


@immutable
class Rank:
    """The rank of this process, as torchrun sets it; a process started alone is rank 0 of 1."""

    rank: int  # number of this process
    world_size: int  # number of processes
    local_rank: int  # number of this process on its node; picks the GPU

    @classmethod
    def from_environment(cls) -> "Rank":
        """Read RANK, WORLD_SIZE and LOCAL_RANK; raises UsageError when only some are set, one is no number, or none is but others were started too."""
        words = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        missing = [name for name, word in words.items() if word is None]
        if len(missing) == len(words):
            for name in TASKS:
                if (number := os.environ.get(name, "")).isdigit() and int(number) > 1:
                    raise UsageError(
                        f"environment: {name} is {number}, but {', '.join(missing)} are not set: each process would be a training of its "
                        "own; start one torchrun on each node, or set them for each process (of srun: from SLURM_PROCID, SLURM_NTASKS "
                        "and SLURM_LOCALID) with MASTER_ADDR and MASTER_PORT"
                    )
            return cls(rank=0, world_size=1, local_rank=0)
        if missing:
            raise UsageError(f"environment: {', '.join(missing)} not set; start several ranks with torchrun")
        try:
            found = cls(**{name.lower(): int(word or "") for name, word in words.items()})
        except ValueError as error:
            raise UsageError(
                f"environment: {words} must be whole numbers; start several ranks with torchrun"
            ) from error
        planned = int(os.environ.get(NUM_RANKS) or found.world_size)
        if found.world_size != planned:
            why = (
                "torchrun took a node for dead and went on without it, mostly because the clocks of the nodes are apart "
                "(compare: srun date +%s.%N); or --nnodes or --nproc_per_node was changed by hand"
                if found.world_size < planned
                else "--nnodes or --nproc_per_node was changed by hand; make a run of that size: nlp-bench submit --nodes N --gpus-per-node N"
            )
            raise UsageError(f"environment: WORLD_SIZE is {found.world_size}, run.json has {planned} ranks: {why}")
        return found


@immutable
class Layout:
    """Sizes that follow from the settings and the number of ranks."""

    world_size: int  # all ranks
    data_parallel_size: int  # replicas of the model: world size / (tensor * pipeline * context)
    virtual_stages: int  # parts of the model that each pipeline rank holds; 1 without interleaving
    global_batch_size: int  # samples per iteration of all replicas
    num_microbatches: int  # micro-batches per iteration and replica
    train_iters: int  # iterations of the run
    warmup_samples: int  # samples of the learning rate's warm-up
    decay_samples: int  # samples of the learning rate's decay, warm-up included
    vocab_size: int  # tokens in the vocabulary, without padding
    padded_vocab_size: int  # rows of the embedding table
    sequence_parallel: bool  # whether sequence parallelism is on; always off with one tensor-parallel rank

    @classmethod
    def of(cls, settings: Settings, world_size: int) -> "Layout":
        """Compute the sizes; raises UsageError with the arithmetic for an invalid layout."""
        s, sizes = settings, sizes_of(settings, world_size=world_size)
        refuse(sizes, tuple(rule for rule in RULES if rule.code in BY_RANKS), argument_of)
        batch = sizes.global_batch_size
        iterations = s.train_iters or (s.train_samples or 0) // batch
        require(iterations > 0, f"train_samples: {s.train_samples} is less than one global batch of {batch}")
        warmup = s.lr_warmup_samples or s.lr_warmup_iters * batch
        decay = s.lr_decay_samples or (s.lr_decay_iters or iterations) * batch
        name = "lr_warmup_samples" if s.lr_warmup_samples else "lr_warmup_iters"
        rule = f"a warm-up of {warmup} samples is not less than the decay of {decay} samples"
        require(warmup < decay, f"{name}: {rule}; shorten it, or give --lr-decay-samples")
        if s.profile:
            start, last = s.profile_step_start, max(s.profile_ranks)
            late = f"{start} is after the last iteration = {iterations}; give an earlier one"
            require(start <= iterations, f"profile_step_start: {late}")
            require(last < world_size, f"profile_ranks: {last} is none of the ranks 0 to {world_size - 1}")
        vocabulary = resolved_vocab_size(s)
        return cls(
            world_size=world_size,
            data_parallel_size=sizes.data,
            virtual_stages=sizes.virtual,
            global_batch_size=batch,
            num_microbatches=sizes.num_microbatches,
            train_iters=iterations,
            warmup_samples=warmup,
            decay_samples=decay,
            vocab_size=vocabulary,
            padded_vocab_size=padded_vocab_size(vocabulary, settings.make_vocab_size_divisible_by, sizes.tensor),
            sequence_parallel=settings.sequence_parallel and sizes.tensor > 1,
        )


def model_shape(settings: Settings, layout: Layout) -> ModelShape:
    """Return the model's shape for the FLOP formulas."""
    learned = settings.position_embedding_type == "learned_absolute"
    return shape_of(
        settings.model_family,
        num_layers=settings.encoder_num_layers or settings.num_layers,
        num_decoder_layers=settings.decoder_num_layers or settings.num_layers,
        decoder_sequence_length=settings.decoder_seq_length,
        relative_positions=settings.position_embedding_type == "relative",
        binary_head=not settings.bert_no_binary_head,
        untied_embeddings=settings.untie_embeddings_and_output_weights,
        linear_biases=not settings.disable_bias_linear,
        norm_biases=settings.normalization == "LayerNorm",
        num_learned_positions=settings.max_position_embeddings if learned else 0,
        hidden_size=settings.hidden_size,
        ffn_hidden_size=settings.ffn_width,
        num_attention_heads=settings.num_attention_heads,
        num_query_groups=settings.query_groups,
        sequence_length=settings.seq_length,
        padded_vocab_size=layout.padded_vocab_size,
        gated=settings.gated,
        head_width=settings.kv_channels,
    )
