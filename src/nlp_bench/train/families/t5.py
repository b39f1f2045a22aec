"""T5 and mT5: an encoder that reads in both directions and a decoder that attends to it.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683; Xue et al. 2021, https://arxiv.org/abs/2010.11934 (mT5: another vocabulary).
Normalisation, initial weights and scaled attention are Megatron-LM's, as in the models of BigNLP.
"""

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig

from nlp_bench.train.families.family import Family, Loss, Place
from nlp_bench.train.families.part import mean_over
from nlp_bench.train.families.t5_part import T5Part
from nlp_bench.train.job import Job
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.samples.spans import open_spans


class T5(Family):
    """A network that restores the spans of tokens that were cut out of a text."""

    def build(self, job: Job, config: TransformerConfig, place: Place) -> torch.nn.Module:
        """Return one part of the model."""
        return T5Part(job, config, place)

    def open_samples(self, job: Job) -> Samples:
        """Return texts with spans cut out, of random tokens or of the indexed dataset."""
        return open_spans(job.settings, job.layout)

    def forward(self, _job: Job, batch: Batch | None, model: Any) -> tuple[torch.Tensor, Loss]:
        """Guess the tokens that were cut out: losses [b, decoder tokens] on the last part."""
        batch = batch or {}
        names = ("encoder_tokens", "decoder_tokens", "labels", "encoder_mask")
        losses: torch.Tensor = model(*(batch.get(name) for name in names))

        def loss(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mean = mean_over(losses, batch["loss_mask"])
            return mean, mean.detach().clone()  # the schedule scales the first one in place

        return losses, loss

    def facts(self, job: Job) -> dict[str, str]:
        """Return what the log says of tokens and FLOPs."""
        source, target = job.settings.seq_length, job.settings.decoder_seq_length
        return {
            "tokens": f"{source} per sample, those of the encoder; the {target} of the decoder are not counted",
            "model FLOPs": "3 x forward, the decoder's causal attention counted as half, the encoder's and the cross-attention in full",
        }

    def reads(self, job: Job, place: Place) -> bool:
        """Whether this part needs the micro-batch: every one must know where real samples are padded."""
        return place.first or place.last or not job.settings.mock_data
