"""BERT: an encoder that predicts masked tokens, and whether one text follows the other.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805, with Megatron-LM's order of the layers: the normalisation is before each block
instead of after it (Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053, section 5.3).
Samples are those of section 3.1 and appendix A.2: of the tokens to predict 80 % are replaced by [MASK] and 10 % by a random token; in half of
the samples the second text is from elsewhere. The texts are consecutive tokens of megatron-core's GPTDataset: its BERT dataset needs a
WordPiece vocabulary and documents split into sentences.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_block import TransformerBlock
from megatron.core.transformer.transformer_config import TransformerConfig
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy, gelu

from nlp_bench.layout.shape import BertShape
from nlp_bench.train.families import Family, Loss, Part, key_mask, loss_of, mean_over
from nlp_bench.train.model import Job, Place, stack
from nlp_bench.train.samples import Batch, Rows, Samples, open_rows, padded
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.rules import wordpiece_numbers

NUM_SPECIAL = 3  # [CLS], [SEP] and [MASK]: those of a WordPiece vocabulary file, else the last tokens of the vocabulary


def _sample(rows: Rows, special: Sequence[int], settings: Settings, vocab_size: int, index: int) -> Batch:
    """Return the pair of texts of row `index` with masked tokens, a function of the seed and the index only, padded with 0.

    `rows` are texts of seq_length - 3 tokens (seq_length - 2 without the second text); `special` are [CLS], [SEP] and [MASK].
    tokens, labels int64 [seq_length], mask bool (True at real tokens), loss_mask bool (True at tokens to predict);
    with the next-sentence prediction types int64 [seq_length] (0 in the first text, 1 in the second) and is_random int64 [].
    """
    random, row = np.random.default_rng((settings.seed, index)), rows[index]
    begin, end, hidden = special
    if not settings.mock_data and random.random() < settings.short_seq_prob:
        row = row[: int(random.integers(2, len(row) + 1))]
    texts, is_random = [row], False
    if not settings.bert_no_binary_head:
        place = int(random.integers(1, len(row)))
        is_random = bool(random.random() < 0.5)
        other = rows[int(random.integers(len(rows)))][: len(row) - place] if is_random else row[place:]
        texts = [row[:place], other]
    framed = [[begin], *(part for text in texts for part in (text, [end]))]
    whole = np.concatenate(framed).astype(np.int64)

    candidates = np.flatnonzero(~np.isin(whole, (begin, end)))
    count = min(max(1, round(len(candidates) * settings.mask_prob)), len(candidates))
    places = random.choice(candidates, count, replace=False)
    fate = random.random(count)
    tokens = whole.copy()
    tokens[places[fate < 0.8]] = hidden
    changed = places[fate >= 0.9]
    tokens[changed] = random.integers(vocab_size, size=len(changed))
    chosen = np.zeros(len(whole), dtype=bool)
    chosen[places] = True

    def full(values: NDArray[Any]) -> torch.Tensor:
        return padded(values.astype(np.int64), settings.seq_length)[0]

    batch = {
        "tokens": full(tokens),
        "labels": full(np.where(chosen, whole, 0)),
        "mask": padded(whole, settings.seq_length)[1],
        "loss_mask": full(chosen).bool(),
    }
    if not settings.bert_no_binary_head:
        batch["types"] = full(np.arange(len(whole)) > len(texts[0]) + 1)
        batch["is_random"] = torch.tensor(int(is_random))
    return batch


class BertPart(Part):
    """One stage of BERT; megatron-core's BertModel supports neither other attention modules than its own nor virtual stages."""

    def __init__(self, job: Job, config: TransformerConfig, place: Place) -> None:
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
        """Set the input received from the previous stage; the schedule calls this before `forward`."""
        super().set_input_tensor(input_tensor)
        self.encoder.set_input_tensor(self.input_tensor)

    def forward(
        self,
        tokens: torch.Tensor | None,
        types: torch.Tensor | None,
        labels: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> Any:
        """Return the input of the next stage, [s, b, h], or on the last one losses [b, s] and logits [b, 2] (or None).

        `mask` [b, s] is True at real tokens; None where all are real. `types` [b, s] is 0 in the first text, 1 in the second.
        """
        hidden = self.embed(tokens, types) if self.pre_process and tokens is not None else None
        hidden = self.encoder(hidden, key_mask(mask))
        if not self.post_process or labels is None:
            return hidden
        logits = self.binary_head(hidden) if self.binary_head is not None else None
        return self.token_losses(self.lm_head(hidden), labels), logits


class _TokenHead(torch.nn.Module):
    """A linear layer, GELU and a normalisation before the output layer."""

    def __init__(self, job: Job, config: TransformerConfig) -> None:
        super().__init__()
        self.dense = _linear(config, config.hidden_size)
        for parameter in self.dense.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]  # each rank sees a share
        self.layer_norm = job.kernels.modules.norm(config, config.hidden_size, config.layernorm_epsilon)

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
        if self.sequence_parallel:  # only the first rank has the first token; all compute the same with it
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


def _open_samples(job: Job) -> Samples:
    """Return pairs of texts with masked tokens, from random tokens or the indexed dataset."""
    settings, layout = job.settings, job.layout
    frame = 2 if settings.bert_no_binary_head else 3
    rows = open_rows(settings, layout, settings.seq_length - frame, layout.vocab_size - NUM_SPECIAL)
    known = wordpiece_numbers(settings)
    words = ("[CLS]", "[SEP]", "[MASK]")
    special = [known[word] for word in words] if known else range(layout.vocab_size - NUM_SPECIAL, layout.vocab_size)
    return Samples(rows, functools.partial(_sample, rows, special, settings, layout.vocab_size))


def _forward(_job: Job, batch: Batch | None, model: Any) -> tuple[Any, Loss]:
    """Predict masked tokens, and whether the texts belong together; the last part returns losses [b, s] and logits [b, 2] or None, the loss is their sum."""
    batch = batch or {}
    answer = model(*(batch.get(name) for name in ("tokens", "types", "labels", "mask")))

    def loss(output: Any) -> tuple[torch.Tensor, torch.Tensor]:
        losses, logits = output
        mean = mean_over(losses, batch["loss_mask"])
        if logits is not None:
            mean = mean + cross_entropy(logits.float(), batch["is_random"])
        return loss_of(mean)

    return answer, loss


FAMILY = Family(
    build=BertPart,
    open_samples=_open_samples,
    forward=_forward,
    facts=lambda _: {"model FLOPs": f"3 x forward, {BertShape.counted}"},
)
