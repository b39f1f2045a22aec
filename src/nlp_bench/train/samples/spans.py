"""T5's samples: spans of a text are cut out, and the decoder restores them.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.1.4: 15 % of the tokens, in spans of 3 on average. As there, a text
is as long as makes the encoder's input full; megatron-core's T5 dataset needs a WordPiece vocabulary and pads.
"""

import numpy as np
import torch

from nlp_bench.train.layout import Layout
from nlp_bench.train.samples import Batch, Samples, padded
from nlp_bench.train.samples.rows import Rows, Tokens, open_rows
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.spans import SpanSizes, span_sizes

START = 0
"""First token of the decoder's input: T5's padding token, which is 0."""


class SpanSamples:
    """Texts with spans cut out; which ones depends on the seed and the sample's number alone."""

    def __init__(self, rows: Rows, sizes: SpanSizes, settings: Settings, layout: Layout) -> None:
        """`rows` are texts of `sizes.text` tokens."""
        self._rows, self._sizes, self._settings = rows, sizes, settings
        self._first_sentinel = layout.vocab_size - settings.vocab_extra_ids
        self._end = self._first_sentinel - 1  # as the data's documents end: with the last token of the vocabulary

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int) -> Batch:
        """Return sample `index`, padded with 0.

        encoder_tokens int64 [seq_length] and encoder_mask bool (True at real tokens); decoder_tokens, labels int64 and loss_mask
        bool [decoder_seq_length].
        """
        random = np.random.default_rng((self._settings.seed, index))
        text, sizes = self._rows.row(index), self._sizes
        if not self._settings.mock_data and random.random() < self._settings.short_seq_prob:
            sizes = SpanSizes.of(int(random.integers(2, sizes.text + 1)), self._settings.mask_prob)
        source, target = self._cut(text[: sizes.text], sizes, random)
        encoder_tokens, encoder_mask = padded(source, self._settings.seq_length)
        labels, loss_mask = padded(target, self._settings.decoder_seq_length or 0)
        decoder_tokens = torch.cat((torch.tensor([START]), labels[:-1]))
        return {
            "encoder_tokens": encoder_tokens,
            "encoder_mask": encoder_mask,
            "decoder_tokens": decoder_tokens,
            "labels": labels,
            "loss_mask": loss_mask,
        }

    def _cut(self, text: Tokens, sizes: SpanSizes, random: np.random.Generator) -> tuple[Tokens, Tokens]:
        kept = _parts(sizes.text - sizes.cut, sizes.spans, random)
        removed = _parts(sizes.cut, sizes.spans, random)
        bounds = np.cumsum(np.stack((kept, removed), axis=1).ravel())[:-1]
        pieces = np.split(text, bounds)  # kept and removed ones take turns, a kept one is first
        source: list[Tokens] = []
        target: list[Tokens] = []
        for number in range(sizes.spans):
            sentinel = np.array([self._first_sentinel + number], dtype=np.int64)
            source += [pieces[2 * number], sentinel]
            target += [sentinel, pieces[2 * number + 1]]
        end = np.array([self._end], dtype=np.int64)
        return np.concatenate([*source, end]), np.concatenate([*target, end])


def open_spans(settings: Settings, layout: Layout) -> Samples:
    """Return the samples; every rank calls it at the same time."""
    sizes = span_sizes(settings)
    rows = open_rows(settings, layout, sizes.text, layout.vocab_size - settings.vocab_extra_ids - 1)
    return SpanSamples(rows, sizes, settings, layout)


def _parts(total: int, count: int, random: np.random.Generator) -> Tokens:
    """Divide `total` tokens at random into `count` parts of at least one."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [total])))
