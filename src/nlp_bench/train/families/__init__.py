"""The families of networks that can be trained: one file each, with the network, its samples and its loss.

What is needed of them before torch is imported is a row of settings/families.py.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.enums import ModelType
from megatron.core.transformer.transformer_config import TransformerConfig

from nlp_bench.immutable import immutable
from nlp_bench.train.model import Job, Place
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.families import FAMILIES

Loss = Callable[[Any], tuple[torch.Tensor, torch.Tensor]]
"""From the model's output to the loss to differentiate and the loss to log; both are means over a micro-batch."""


@immutable
class Family:
    """A family of networks, by functions of this rank's job."""

    build: Callable[[Job, TransformerConfig, Place], torch.nn.Module]
    """Makes one part of the model, with the attributes that megatron-core needs, as `Part` has them."""
    open_samples: Callable[[Job], Samples]  # opens the training data; every rank calls it at the same time
    forward: Callable[[Job, Batch | None, Any], tuple[Any, Loss]]
    """Runs one micro-batch through one (wrapped) part of the model; the batch is None where `reads_batch` is False."""
    facts: Callable[[Job], dict[str, str]]  # the log's facts on tokens and FLOPs


def reads_batch(job: Job, place: Place) -> bool:
    """Whether a part of the model needs the micro-batch; all parts do where they need the mask of padding."""
    padded = FAMILIES[job.settings.model_family].hides_tokens and not job.settings.mock_data
    return place.first or place.last or padded


def family_of(settings: Settings) -> Family:
    """Return the family of the settings; only that one is imported."""
    family: Family = importlib.import_module(f"{__name__}.{settings.model_family}").FAMILY
    return family


def loss_of(mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of a Loss: two tensors, as the schedule scales the first in place."""
    return mean, mean.detach().clone()


class Part(LanguageModule):  # type: ignore[misc]  # megatron-core has no types
    """One pipeline stage with the attributes that megatron-core uses by name; a subclass adds layers and calls `setup_embeddings_and_output_layer` last."""

    def __init__(
        self, job: Job, config: TransformerConfig, place: Place, *, num_token_types: int = 0, output_bias: bool = False
    ) -> None:
        super().__init__(config)
        settings = job.settings
        self.pre_process, self.post_process, self.vp_stage = place.first, place.last, place.virtual_stage
        self.share_embeddings_and_output_weights = not settings.untie_embeddings_and_output_weights
        self.model_type = ModelType.encoder_or_decoder
        self.input_tensor: torch.Tensor | None = None
        learned = settings.position_embedding_type == "learned_absolute"
        if place.first:
            self.embedding = LanguageModelEmbedding(
                config,
                job.layout.padded_vocab_size,
                settings.max_position_embeddings,
                position_embedding_type="learned_absolute" if learned else "none",
                num_tokentypes=num_token_types,
            )
        if place.last:
            self.output_layer = ColumnParallelLinear(
                settings.hidden_size,
                job.layout.padded_vocab_size,
                config=config,
                init_method=config.init_method,
                bias=output_bias,
                gather_output=False,
                skip_weight_param_allocation=place.first and self.share_embeddings_and_output_weights,
            )

    def set_input_tensor(self, input_tensor: Any) -> None:
        """Set the input received from the previous stage; the schedule calls this before `forward`."""
        (self.input_tensor,) = input_tensor if isinstance(input_tensor, list) else [input_tensor]

    def embed(self, tokens: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return the embeddings of tokens [b, s]: [s, b, h], on a sequence-parallel rank its share."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape[0], -1)
        embedded: torch.Tensor = self.embedding(tokens, positions, types)
        return embedded

    def token_losses(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of each token: hidden [s, b, h], labels [b, s], answer [b, s]."""
        tied = self.shared_embedding_or_output_weight() if self.share_embeddings_and_output_weights else None
        logits, _ = self.output_layer(hidden, weight=tied)
        losses: torch.Tensor = self.compute_language_model_loss(labels, logits)
        return losses


def key_mask(real: torch.Tensor | None) -> torch.Tensor | None:
    """Return the attention mask [b, 1, 1, s], True at padding, from `real` [b, s], True at real tokens."""
    return None if real is None else ~real[:, None, None, :]


def mean_over(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the mean of losses [b, s] where `counted` [b, s] is True, for at least one token."""
    return (losses.float() * counted).sum() / counted.sum()
