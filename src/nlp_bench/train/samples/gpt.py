"""Samples of consecutive tokens, as a GPT reads them."""

import torch

from nlp_bench.train.layout import Layout
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.samples.rows import Rows, open_rows
from nlp_bench.train.settings import Settings


class GptSamples:
    """One row per sample, one token longer than the sequence: each token but the last is read, each but the first guessed."""

    def __init__(self, rows: Rows) -> None:
        """Take the rows [sequence length + 1]."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int) -> Batch:
        """Return sample `index`: tokens int64 [seq_length + 1]."""
        return {"tokens": torch.from_numpy(self._rows.row(index))}


def open_gpt(settings: Settings, layout: Layout) -> Samples:
    """Return the samples; every rank calls it at the same time."""
    return GptSamples(open_rows(settings, layout, settings.seq_length + 1, layout.vocab_size))
