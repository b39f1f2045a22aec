"""T5 and mT5: a bidirectional encoder and a decoder that attends to it.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683; Xue et al. 2021, https://arxiv.org/abs/2010.11934 (mT5: another vocabulary).
Normalisation, initial weights and scaled attention are Megatron-LM's, as in the models of BigNLP. Samples are those of section 3.1.4:
spans of a text are removed, 15 % of the tokens in spans of 3 on average, and the decoder restores them; texts are long enough to fill
the encoder's input (megatron-core's T5 dataset needs a WordPiece vocabulary and pads).
"""

import copy
import functools
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedStateDict
from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
from megatron.core.models.common.embeddings.relative_pos_embedding import RelativePositionEmbedding
from megatron.core.tensor_parallel.mappings import scatter_to_tensor_model_parallel_region
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlock,
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from megatron.core.transformer.utils import sharded_state_dict_default
from megatron.core.utils import make_sharded_tensor_for_checkpoint, scaled_init_method_normal

from nlp_bench.immutable import immutable
from nlp_bench.layout.shape import T5Shape
from nlp_bench.train.families import Family, Loss, Part, key_mask, loss_of, mean_over
from nlp_bench.train.model import Job, Place, layer
from nlp_bench.train.samples import Batch, Rows, Samples, Tokens, open_rows, padded
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.families import SpanSizes, span_sizes

START = 0  # first token of the decoder's input: T5's padding token, which is 0


def _sample(rows: Rows, sizes: SpanSizes, end: int, settings: Settings, index: int) -> Batch:
    """Return the text of row `index` with removed spans, a function of the seed and the index only, padded with 0.

    `rows` are texts of `sizes.text` tokens; `end` is the end token of the data's documents, which the sentinels follow.
    encoder_tokens int64 [seq_length] and encoder_mask bool (True at real tokens); decoder_tokens, labels int64 and loss_mask
    bool [decoder_seq_length].
    """
    random = np.random.default_rng((settings.seed, index))
    text = rows[index]
    if not settings.mock_data and random.random() < settings.short_seq_prob:
        sizes = SpanSizes.of(int(random.integers(2, sizes.text + 1)), settings.mask_prob)
    kept, removed = (_parts(count, sizes.spans, random) for count in (sizes.text - sizes.cut, sizes.cut))
    bounds = np.cumsum(np.stack((kept, removed), axis=1).ravel())[:-1]
    pieces = np.split(text[: sizes.text], bounds)  # kept and removed ones alternate, a kept one is first
    sentinels = np.arange(end + 1, end + 1 + sizes.spans, dtype=np.int64)[:, None]
    pairs = list(zip(pieces[::2], sentinels, pieces[1::2], strict=True))
    last = np.array([end], dtype=np.int64)
    source = np.concatenate([part for before, sentinel, _ in pairs for part in (before, sentinel)] + [last])
    target = np.concatenate([part for _, sentinel, span in pairs for part in (sentinel, span)] + [last])
    sample: Batch = {}
    sample["encoder_tokens"], sample["encoder_mask"] = padded(source, settings.seq_length)
    sample["labels"], sample["loss_mask"] = padded(target, settings.decoder_seq_length or 0)
    sample["decoder_tokens"] = torch.cat((torch.tensor([START]), sample["labels"][:-1]))
    return sample


def _parts(total: int, count: int, random: np.random.Generator) -> Tokens:
    """Return the random sizes of `count` parts of `total` tokens, each at least 1."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [total])))


NUM_BUCKETS = 32
FARTHEST = 128
"""Megatron-LM's defaults of --relative-attention-num-buckets and --relative-attention-max-distance, and T5's own values."""


class RelativeBias(torch.nn.Module):
    """A table [buckets, heads]; every part of the model has a copy, and the copies stay equal."""

    def __init__(self, config: TransformerConfig, place: Place, length: int, *, both_directions: bool) -> None:
        super().__init__()
        device: Any = torch.cuda.current_device()
        shape = (NUM_BUCKETS, config.num_attention_heads)
        self.weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=config.params_dtype))
        draw: Any = config.init_method
        draw(self.weight)
        marks: Any = self.weight
        marks.pipeline_parallel = True  # megatron-core sums the gradients over the pipeline stages
        marks.shared_embedding = True  # a bucket of its own, the same on all of them
        marks.shared = not place.first  # counted once in the norm of the gradient
        self._copy = (place.virtual_stage or 0) * config.pipeline_model_parallel_size
        self._copy += parallel_state.get_pipeline_model_parallel_rank()
        self._buckets = buckets(length, both_directions=both_directions).to(device)

    def forward(self, unused_by: torch.Tensor | None = None) -> torch.Tensor:
        """Return the bias of this rank's heads, [1, heads, s, s].

        Where no layer uses the table, return the hidden state `unused_by` unchanged, with a gradient of 0 for the table: overlapped
        reductions and gathers wait for every parameter.
        """
        if unused_by is not None:
            return unused_by + 0 * self.weight.sum()
        bias = torch.nn.functional.embedding(self._buckets, self.weight)
        local: torch.Tensor = scatter_to_tensor_model_parallel_region(bias)
        return local.permute(2, 0, 1)[None].contiguous()

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> ShardedStateDict:
        """Return the table as one of several replicas, of which a checkpoint stores one."""
        del metadata
        replicas = parallel_state.get_data_parallel_rank(with_context_parallel=True)
        replica = (self._copy, parallel_state.get_tensor_model_parallel_rank(), replicas)
        name = f"{prefix}weight"
        return {name: make_sharded_tensor_for_checkpoint(self.weight, name, sharded_offsets, replica_id=replica)}


def buckets(length: int, *, both_directions: bool) -> torch.Tensor:
    """Return the bucket of each pair of query and key, int64 [length, length] (Raffel et al. 2020, section 2.1)."""
    positions = torch.arange(length)
    bucket_of = functools.partial(RelativePositionEmbedding._relative_position_bucket, None)  # noqa: SLF001  # not public
    distances = positions[None, :] - positions[:, None]  # key - query
    sizes = {"num_buckets": NUM_BUCKETS, "max_distance": FARTHEST}
    found: torch.Tensor = bucket_of(distances, bidirectional=both_directions, **sizes)
    return found


@immutable
class Span:
    """A range of layers of a stack."""

    first: int  # index of the first one in its stack
    count: int  # number of layers
    depth: int  # layers of the whole stack
    recomputed: int | None = None  # what is left of --recompute-num-layers for them; None without the method block


class _RunOfLayers(TransformerBlock):  # type: ignore[misc]  # megatron-core has no types
    """megatron-core's TransformerBlock with layers numbered within their stack instead of over the pipeline."""

    def __init__(self, config: TransformerConfig, layer: ModuleSpec, norm: type, span: Span, stage: int | None) -> None:
        """Build `span.count` layers of the spec `layer`, and at the end of the stack the final normalisation."""
        own = copy.copy(config)  # gradient hooks, which are set later, are read from the model's configuration only
        own.output_layer_init_method = scaled_init_method_normal(config.init_method_std, span.depth)
        if span.recomputed is not None:
            own.recompute_num_layers = span.recomputed
        super().__init__(
            own,
            TransformerBlockSubmodules(layer_specs=[layer] * span.count, layer_norm=norm),
            pre_process=True,  # its input is an argument, not received
            post_process=span.first + span.count == span.depth,  # end of the stack: final normalisation
            vp_stage=stage,
        )
        for number, module in enumerate(self.layers, span.first + 1):
            module.layer_number = number

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> ShardedStateDict:
        """Return the parameters by the layers' numbers in the stack, so that a checkpoint fits any layout."""
        found: ShardedStateDict = {}
        for index, one in enumerate(self.layers):
            here = f"{prefix}layers.{index}."
            part = one.sharded_state_dict(here, sharded_offsets, metadata)
            replace_prefix_for_sharding(part, here, f"{prefix}layers.{one.layer_number - 1}.")
            found |= part
        if self.final_layernorm is not None:
            norm = f"{prefix}final_layernorm."
            found |= sharded_state_dict_default(
                self.final_layernorm, norm, sharded_offsets, metadata, tp_group=self.tp_group
            )
        return found


class T5Part(Part):
    """One stage; hidden states of encoder and decoder go through the pipeline as one tensor, concatenated along the sequence.

    So each stage sends one tensor of one size, and all of megatron-core's schedules apply: encoder layers update the first part of it,
    decoder layers the second, reading the first. megatron-core 0.16.1 itself has no pipeline for its T5Model.
    """

    def __init__(self, job: Job, config: TransformerConfig, place: Place) -> None:
        super().__init__(job, config, place)
        settings, stage = job.settings, place.virtual_stage
        self.lengths = [settings.seq_length, settings.decoder_seq_length or 0]
        if job.layout.sequence_parallel:
            self.lengths = [length // settings.tensor_model_parallel_size for length in self.lengths]
        encoder, decoder = spans(job, config, stage)
        self.encoder = self.decoder = None
        if encoder.count:
            kind = layer(job, AttnMaskType.padding)
            self.encoder = _RunOfLayers(config, kind, job.kernels.modules.norm, encoder, stage)
        if decoder.count:
            kind = layer(job, AttnMaskType.causal, cross=True)
            self.decoder = _RunOfLayers(config, kind, job.kernels.modules.norm, decoder, stage)
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
        """Return the input of the next stage, [encoder + decoder tokens, b, h], or on the last one the losses [b, decoder tokens].

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
        if self.decoder is not None:  # padding is at the end and does not count, so causal attention needs no mask
            answer = self.decoder(answer, _joined(None, self.decoder_bias), context=text, context_mask=hidden)
        for table, used in ((self.encoder_bias, self.encoder), (self.decoder_bias, self.decoder)):
            if table is not None and used is None:
                answer = table(answer)
        if not self.post_process or labels is None:
            return torch.cat((text, answer))
        return self.token_losses(answer, labels)


def spans(job: Job, config: TransformerConfig, stage: int | None) -> tuple[Span, Span]:
    """Return the layers of the encoder and of the decoder on this (virtual) stage; in the pipeline the encoder's come first."""
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


def _open_samples(job: Job) -> Samples:
    """Return texts with removed spans, from random tokens or the indexed dataset."""
    settings, layout = job.settings, job.layout
    sizes = span_sizes(settings)
    end = layout.vocab_size - settings.vocab_extra_ids - 1
    rows = open_rows(settings, layout, sizes.text, end)
    return Samples(rows, functools.partial(_sample, rows, sizes, end, settings))


def _forward(_job: Job, batch: Batch | None, model: Any) -> tuple[torch.Tensor, Loss]:
    """Predict the removed tokens: losses [b, decoder tokens] on the last part."""
    batch = batch or {}
    names = ("encoder_tokens", "decoder_tokens", "labels", "encoder_mask")
    losses: torch.Tensor = model(*(batch.get(name) for name in names))
    return losses, lambda losses: loss_of(mean_over(losses, batch["loss_mask"]))


def _facts(job: Job) -> dict[str, str]:
    source, target = job.settings.seq_length, job.settings.decoder_seq_length
    return {
        "tokens": f"{source} per sample, those of the encoder; the {target} of the decoder are not counted",
        "model FLOPs": f"3 x forward, {T5Shape.counted}",
    }


FAMILY = Family(build=T5Part, open_samples=_open_samples, forward=_forward, facts=_facts)
