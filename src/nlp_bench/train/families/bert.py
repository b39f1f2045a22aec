"""BERT: an encoder that guesses masked tokens, and whether one text follows the other.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805, with Megatron-LM's order of the layers: the normalisation stands in front of
each block instead of behind it (Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053, section 5.3).
"""

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import cross_entropy

from nlp_bench.train.families.bert_part import BertPart
from nlp_bench.train.families.family import Family, Loss, Place
from nlp_bench.train.families.part import mean_over
from nlp_bench.train.job import Job
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.samples.masked import open_masked

Output = tuple[torch.Tensor, torch.Tensor | None]
"""Losses of the tokens [b, s], and the two logits of the next-sentence prediction [b, 2] where there is one."""


class Bert(Family):
    """A network that reads in both directions."""

    def build(self, job: Job, config: TransformerConfig, place: Place) -> torch.nn.Module:
        """Return one part of the model."""
        return BertPart(job, config, place)

    def open_samples(self, job: Job) -> Samples:
        """Return pairs of texts with masked tokens, of random tokens or of the indexed dataset."""
        return open_masked(job.settings, job.layout)

    def forward(self, _job: Job, batch: Batch | None, model: Any) -> tuple[Any, Loss]:
        """Guess the masked tokens and whether the second text follows the first; the loss is the sum of both."""
        batch = batch or {}
        answer = model(*(batch.get(name) for name in ("tokens", "types", "labels", "mask")))

        def loss(output: Any) -> tuple[torch.Tensor, torch.Tensor]:
            losses, logits = output
            mean = mean_over(losses, batch["loss_mask"])
            if logits is not None:
                mean = mean + cross_entropy(logits.float(), batch["is_random"])
            return mean, mean.detach().clone()  # the schedule scales the first one in place

        return answer, loss

    def facts(self, _job: Job) -> dict[str, str]:
        """Return what the log says of tokens and FLOPs."""
        return {"model FLOPs": "3 x forward, attention in full, the head that guesses tokens at every token"}

    def reads(self, job: Job, place: Place) -> bool:
        """Whether this part needs the micro-batch: every one must know where real samples are padded."""
        return place.first or place.last or not job.settings.mock_data
