"""How long the texts are that t5 reads, and how much of them is cut out: arithmetic without torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.errors import UsageError
from nlp_bench.train.settings.rules import require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

MEAN_SPAN = 3
"""Mean length of a span in tokens: the paper's choice (its table 7)."""


@dataclass(frozen=True, kw_only=True)
class SpanSizes:
    """How a text of a length is cut; the same for every sample."""

    text: int
    """Tokens of the text."""
    cut: int
    """Tokens that are cut out."""
    spans: int
    """Spans that they form; each is replaced by one sentinel."""

    @classmethod
    def of(cls, text: int, share: float) -> "SpanSizes":
        """Cut `share` of a text, at least one token, and never all."""
        cut = min(max(1, round(text * share)), text - 1)
        return cls(text=text, cut=cut, spans=min(max(1, round(cut / MEAN_SPAN)), text - cut))

    @property
    def encoder(self) -> int:
        """Tokens of the encoder's input: what is left, the sentinels and the end."""
        return self.text - self.cut + self.spans + 1

    @property
    def decoder(self) -> int:
        """Tokens that the decoder guesses: each sentinel with its span, and the end."""
        return self.cut + self.spans + 1

    @classmethod
    def longest(cls, encoder: int, decoder: int, share: float) -> "SpanSizes":
        """Return the sizes of the longest text whose parts fit; raises UsageError where not even two tokens do."""
        for text in range(2 * (encoder + decoder), 1, -1):
            sizes = cls.of(text, share)
            if sizes.encoder <= encoder and sizes.decoder <= decoder:
                return sizes
        raise UsageError(
            f"decoder_seq_length: {decoder} or seq_length {encoder} is too short for a text with one span cut out"
        )


def span_sizes(s: "Settings") -> SpanSizes:
    """Return the sizes of every sample; raises UsageError where nothing fits or the sentinels are too few."""
    sizes = SpanSizes.longest(s.seq_length, s.decoder_seq_length or 0, s.mask_prob)
    rule = f"{sizes.text} tokens of text have {sizes.spans} spans, each with a sentinel of its own"
    enough = sizes.spans <= s.vocab_extra_ids
    require(enough, f"vocab_extra_ids: {s.vocab_extra_ids} is too few: {rule}; T5 has --vocab-extra-ids 100")
    return sizes
