"""One pipeline stage of a BERT."""

from typing import Any

import torch
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_block import TransformerBlock
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import gelu

from nlp_bench.train.blocks import stack
from nlp_bench.train.families.family import Place
from nlp_bench.train.families.part import Part, key_mask
from nlp_bench.train.job import Job


class BertPart(Part):
    """Written here because megatron-core's BertModel knows neither other attention modules than its own nor virtual stages."""

    def __init__(self, job: Job, config: TransformerConfig, place: Place) -> None:
        """Build the layers that this stage holds."""
        binary = not job.settings.bert_no_binary_head
        super().__init__(job, config, place, num_token_types=2 if binary else 0, output_bias=True)
        self.encoder = TransformerBlock(
            config,
            stack(job, config, place.virtual_stage, AttnMaskType.padding),
            pre_process=place.first,
            post_process=place.last,
            vp_stage=place.virtual_stage,
        )
        if place.last:
            self.lm_head = _TokenHead(job, config)
            self.binary_head = _BinaryHead(config) if binary else None
        if place.first or place.last:
            self.setup_embeddings_and_output_layer()

    def set_input_tensor(self, input_tensor: Any) -> None:
        """Take what the stage before has sent; the schedule calls this before `forward`."""
        super().set_input_tensor(input_tensor)
        self.encoder.set_input_tensor(self.input_tensor)

    def forward(
        self,
        tokens: torch.Tensor | None,
        types: torch.Tensor | None,
        labels: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> Any:
        """Return what the next stage gets, [s, b, h], or on the last one losses [b, s] and logits [b, 2] (or None).

        `mask` [b, s] is True at real tokens; None where all are real. `types` [b, s] is 0 in the first text, 1 in the second.
        """
        hidden = self.embed(tokens, types) if self.pre_process and tokens is not None else None
        hidden = self.encoder(hidden, key_mask(mask))
        if not self.post_process or labels is None:
            return hidden
        logits = self.binary_head(hidden) if self.binary_head is not None else None
        return self.token_losses(self.lm_head(hidden), labels), logits


class _TokenHead(torch.nn.Module):
    """A linear layer, GELU and a normalisation in front of the output layer."""

    def __init__(self, job: Job, config: TransformerConfig) -> None:
        super().__init__()
        self.dense = _linear(config, config.hidden_size)
        for parameter in self.dense.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]  # each rank sees a share
        self.layer_norm = job.kernels.norm(config, config.hidden_size, config.layernorm_epsilon)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.layer_norm(gelu(self.dense(hidden)))
        return normed


class _BinaryHead(torch.nn.Module):
    """A linear layer and tanh over the first token, then two logits."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pooler = _linear(config, config.hidden_size)
        self.logits = _linear(config, 2)
        self.sequence_parallel = config.sequence_parallel

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        first = hidden[:1]
        if self.sequence_parallel:  # the first token is the first rank's; all compute the same with it
            first = gather_from_sequence_parallel_region(first, tensor_parallel_output_grad=False)
        logits: torch.Tensor = self.logits(torch.tanh(self.pooler(first[0])))
        return logits


def _linear(config: TransformerConfig, width: int) -> torch.nn.Linear:
    device: Any = torch.cuda.current_device()
    linear = torch.nn.Linear(config.hidden_size, width, device=device, dtype=config.params_dtype)
    draw: Any = config.init_method
    draw(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    return linear
