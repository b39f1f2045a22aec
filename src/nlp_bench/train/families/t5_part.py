"""One pipeline stage of a T5: some layers of the encoder, then some of the decoder."""

from itertools import pairwise
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

from nlp_bench.train.blocks import layer
from nlp_bench.train.families.family import Place
from nlp_bench.train.families.part import Part, key_mask
from nlp_bench.train.families.relative import RelativeBias
from nlp_bench.train.families.run_of_layers import RunOfLayers, Span
from nlp_bench.train.job import Job


class T5Part(Part):
    """Encoder and decoder tokens travel through the pipeline as one tensor, [encoder's; decoder's] along the sequence.

    So each stage sends one tensor of one size, and all of megatron-core's schedules apply: encoder layers change the first
    part of it, decoder layers the second and read the first. megatron-core 0.16.1 itself has no pipeline for its T5Model.
    """

    def __init__(self, job: Job, config: TransformerConfig, place: Place) -> None:
        """Build the layers that this stage holds."""
        super().__init__(job, config, place)
        settings, stage = job.settings, place.virtual_stage
        self.lengths = [settings.seq_length, settings.decoder_seq_length or 0]
        if job.layout.sequence_parallel:
            self.lengths = [length // settings.tensor_model_parallel_size for length in self.lengths]
        encoder, decoder = spans(job, config, stage)
        self.encoder = self.decoder = None
        if encoder.count:
            kind = layer(job, AttnMaskType.padding)
            self.encoder = RunOfLayers(config, kind, job.kernels.norm, encoder, stage)
        if decoder.count:
            kind = layer(job, AttnMaskType.causal, cross=True)
            self.decoder = RunOfLayers(config, kind, job.kernels.norm, decoder, stage)
        self.encoder_bias = self.decoder_bias = None
        if settings.position_embedding_type == "relative":
            config.has_cond_embedder = True  # megatron-core then sums the gradients of the copies that all stages hold
            self.encoder_bias = RelativeBias(config, place, settings.seq_length, both_directions=True)
            self.decoder_bias = RelativeBias(config, place, settings.decoder_seq_length or 0, both_directions=False)
        if place.first or place.last:
            self.setup_embeddings_and_output_layer()

    def forward(
        self,
        encoder_tokens: torch.Tensor | None,
        decoder_tokens: torch.Tensor | None,
        labels: torch.Tensor | None,
        encoder_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return what the next stage gets, [encoder + decoder tokens, b, h], or on the last one the losses [b, decoder tokens].

        `encoder_mask` [b, encoder tokens] is True at real tokens; None where all are real.
        """
        if encoder_tokens is not None and decoder_tokens is not None and self.pre_process:
            text, answer = self.embed(encoder_tokens), self.embed(decoder_tokens)
        else:
            received: Any = self.input_tensor
            text, answer = received.split(self.lengths)
        hidden = key_mask(encoder_mask)
        if self.encoder is not None:
            text = self.encoder(text, _joined(hidden, self.encoder_bias))
        if self.decoder is not None:  # behind a padded answer nothing counts, so causal attention needs no mask
            answer = self.decoder(answer, _joined(None, self.decoder_bias), context=text, context_mask=hidden)
        for table, used in ((self.encoder_bias, self.encoder), (self.decoder_bias, self.decoder)):
            if table is not None and used is None:
                answer = table(answer)
        if not self.post_process or labels is None:
            return torch.cat((text, answer))
        return self.token_losses(answer, labels)


def spans(job: Job, config: TransformerConfig, stage: int | None) -> tuple[Span, Span]:
    """Return the layers of the encoder and of the decoder that this (virtual) stage holds: all in order, the encoder's first."""
    settings = job.settings
    depths = (settings.encoder_num_layers or settings.num_layers, settings.decoder_num_layers or settings.num_layers)
    begin = get_transformer_layer_offset(config, stage, parallel_state.get_pipeline_model_parallel_rank())
    end = begin + get_num_layers_to_build(config, stage)
    found = []
    remaining = config.recompute_num_layers if config.recompute_method == "block" else None
    for low, high in pairwise((0, depths[0], sum(depths))):
        first, last = max(begin, low), min(end, high)
        count = max(0, last - first)
        found.append(Span(first=max(0, first - low), count=count, depth=high - low, recomputed=remaining))
        remaining = None if remaining is None else max(0, remaining - count)
    return found[0], found[1]


def _joined(mask: torch.Tensor | None, table: RelativeBias | None) -> torch.Tensor | None:
    if table is None:
        return mask
    bias: torch.Tensor = table()
    return bias if mask is None else bias.masked_fill(mask, -torch.inf)
