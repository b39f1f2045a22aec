"""BERT's samples: two texts, of which the second may be a stranger, with some tokens masked.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A.2: of the tokens to be guessed 80 % are replaced by
[MASK] and 10 % by a random token; in half of the samples the second text is that of another place. The texts are consecutive
tokens, as megatron-core's GPTDataset cuts them: its BERT dataset needs a WordPiece vocabulary and documents cut into sentences.
"""

from dataclasses import dataclass

import numpy as np
import torch

from nlp_bench.train.layout import Layout
from nlp_bench.train.samples import Batch, Samples, padded
from nlp_bench.train.samples.rows import Rows, Tokens, open_rows
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.data import wordpiece_numbers

NUM_SPECIAL = 3


@dataclass(frozen=True, kw_only=True)
class Special:
    """The tokens that frame and mask a text."""

    cls: int
    """In front of both texts."""
    sep: int
    """Behind each of them."""
    mask: int
    """In place of a token that is to be guessed."""

    @classmethod
    def of(cls, settings: Settings, vocab_size: int) -> "Special":
        """Return those of a WordPiece vocabulary file; without one the last three tokens of the vocabulary."""
        known = wordpiece_numbers(settings)
        if known:
            return cls(cls=known["[CLS]"], sep=known["[SEP]"], mask=known["[MASK]"])
        return cls(cls=vocab_size - 3, sep=vocab_size - 2, mask=vocab_size - 1)


class MaskedSamples:
    """Pairs of texts with masked tokens; which ones depends on the seed and the sample's number alone."""

    def __init__(self, rows: Rows, special: Special, settings: Settings, layout: Layout) -> None:
        """`rows` are texts of seq_length - 3 tokens (seq_length - 2 without the second text)."""
        self._rows, self._special, self._settings, self._layout = rows, special, settings, layout
        self._pairs = not settings.bert_no_binary_head

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int) -> Batch:
        """Return sample `index`, padded with 0.

        tokens, labels int64 [seq_length], mask bool (True at real tokens), loss_mask bool (True where a token is to be guessed);
        with the next-sentence prediction types int64 [seq_length] (0 in the first text, 1 in the second) and is_random int64 [].
        """
        random = np.random.default_rng((self._settings.seed, index))
        row = self._rows.row(index)
        length = len(row)
        if not self._settings.mock_data and random.random() < self._settings.short_seq_prob:
            length = int(random.integers(2, length + 1))
        texts, is_random = self._texts(row[:length], random)
        framed = [np.array([self._special.cls], dtype=np.int64)]
        for text in texts:
            framed += [text, np.array([self._special.sep], dtype=np.int64)]
        whole = np.concatenate(framed)
        tokens, chosen = self._masked(whole, random)
        names = {"tokens": tokens, "labels": np.where(chosen, whole, 0)}
        batch = {name: padded(values, self._settings.seq_length)[0] for name, values in names.items()}
        batch["mask"] = padded(whole, self._settings.seq_length)[1]
        batch["loss_mask"] = padded(chosen.astype(np.int64), self._settings.seq_length)[0].bool()
        if self._pairs:
            types = np.arange(len(whole)) > len(texts[0]) + 1
            batch["types"] = padded(types.astype(np.int64), self._settings.seq_length)[0]
            batch["is_random"] = torch.tensor(int(is_random))
        return batch

    def _texts(self, row: Tokens, random: np.random.Generator) -> tuple[list[Tokens], bool]:
        if not self._pairs:
            return [row], False
        place = int(random.integers(1, len(row)))
        is_random = bool(random.random() < 0.5)
        if not is_random:
            return [row[:place], row[place:]], False
        other = self._rows.row(int(random.integers(len(self._rows))))
        return [row[:place], other[: len(row) - place]], True

    def _masked(self, tokens: Tokens, random: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """Return the tokens as the network reads them, and which of them it has to guess."""
        special = (self._special.cls, self._special.sep)
        candidates = np.flatnonzero(~np.isin(tokens, special))
        count = min(max(1, round(len(candidates) * self._settings.mask_prob)), len(candidates))
        places = random.choice(candidates, count, replace=False)
        fate = random.random(count)
        read = tokens.copy()
        read[places[fate < 0.8]] = self._special.mask
        changed = places[fate >= 0.9]
        read[changed] = random.integers(self._layout.vocab_size, size=len(changed))
        chosen = np.zeros(len(tokens), dtype=bool)
        chosen[places] = True
        return read, chosen


def open_masked(settings: Settings, layout: Layout) -> Samples:
    """Return the samples; every rank calls it at the same time."""
    frame = 2 if settings.bert_no_binary_head else 3
    special = Special.of(settings, layout.vocab_size)
    rows = open_rows(settings, layout, settings.seq_length - frame, layout.vocab_size - NUM_SPECIAL)
    return MaskedSamples(rows, special, settings, layout)
