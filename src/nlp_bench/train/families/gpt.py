"""GPT and its descendants: one causal stack (Radford et al. 2019; with RoPE, SwiGLU, RMSNorm and grouped queries: Llama 3)."""

from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig

from nlp_bench.train.attention import own_part
from nlp_bench.train.families import Family, Loss, loss_of
from nlp_bench.train.model import Job, Place, stack
from nlp_bench.train.samples import Batch, Samples, open_rows


def _build(job: Job, config: TransformerConfig, place: Place) -> torch.nn.Module:
    settings = job.settings
    model: torch.nn.Module = GPTModel(
        config,
        stack(job, config, place.virtual_stage, AttnMaskType.causal),
        vocab_size=job.layout.padded_vocab_size,
        max_sequence_length=settings.max_position_embeddings,
        pre_process=place.first,
        post_process=place.last,
        share_embeddings_and_output_weights=not settings.untie_embeddings_and_output_weights,
        position_embedding_type="none" if settings.rotated_width else "learned_absolute",  # FusedAttention rotates
        vp_stage=place.virtual_stage,
    )
    return model


def _open_samples(job: Job) -> Samples:
    """Return rows of tokens int64 [seq_length + 1]: all but the last are the input, all but the first the labels."""
    rows = open_rows(job.settings, job.layout, job.settings.seq_length + 1, job.layout.vocab_size)
    return Samples(rows, lambda index: {"tokens": torch.from_numpy(rows[index])})


def _forward(job: Job, batch: Batch | None, model: Any) -> tuple[torch.Tensor, Loss]:
    """Predict each next token: losses [b, s] on the last part."""
    tokens = labels = None
    if batch is not None:
        tokens = own_part(batch["tokens"][:, :-1]).contiguous()
        labels = own_part(batch["tokens"][:, 1:]).contiguous()
    positions = own_part(torch.arange(job.settings.seq_length, device=job.device)[None])
    positions = positions.expand(job.settings.micro_batch_size, -1)
    return model(tokens, positions, None, labels=labels), lambda losses: loss_of(losses.float().mean())


FAMILY = Family(
    build=_build,
    open_samples=_open_samples,
    forward=_forward,
    facts=lambda _: {"model FLOPs": "3 x forward, causal attention counted as half"},
)
