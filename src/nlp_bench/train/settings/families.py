"""The properties of each family of networks that are needed before torch is imported. The network itself is train/families/NAME.py."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nlp_bench.errors import UsageError, require
from nlp_bench.immutable import immutable

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

SHORTEST_BERT = 5  # [CLS], two [SEP] and one token of each text
MEAN_SPAN = 3  # mean length of T5's removed spans in tokens, from the paper (table 7)


@immutable
class SpanSizes:
    """The sizes of T5's samples, the same for every sample."""

    text: int  # tokens of the text
    cut: int  # tokens that are removed
    spans: int  # spans of removed tokens, each replaced by one sentinel

    @classmethod
    def of(cls, text: int, share: float) -> "SpanSizes":
        """Return the sizes where `share` of a text is removed: at least one token, and never all."""
        cut = min(max(1, round(text * share)), text - 1)
        return cls(text=text, cut=cut, spans=min(max(1, round(cut / MEAN_SPAN)), text - cut))

    @property
    def encoder(self) -> int:
        """Tokens of the encoder's input: those that are left, the sentinels and the end token."""
        return self.text - self.cut + self.spans + 1

    @property
    def decoder(self) -> int:
        """Tokens that the decoder predicts: each sentinel with its span, and the end token."""
        return self.cut + self.spans + 1

    @classmethod
    def longest(cls, encoder: int, decoder: int, share: float) -> "SpanSizes":
        """Return the sizes of the longest text that fits both lengths; raises UsageError where not even two tokens do."""
        for text in range(2 * (encoder + decoder), 1, -1):
            sizes = cls.of(text, share)
            if sizes.encoder <= encoder and sizes.decoder <= decoder:
                return sizes
        raise UsageError(
            f"decoder_seq_length: {decoder} or seq_length {encoder} is too short for a text with one span cut out"
        )


def span_sizes(s: "Settings") -> SpanSizes:
    """Return the sizes of T5's samples; raises UsageError where nothing fits or the sentinels are too few."""
    sizes = SpanSizes.longest(s.seq_length, s.decoder_seq_length or 0, s.mask_prob)
    rule = f"{sizes.text} tokens of text have {sizes.spans} spans, each with a sentinel of its own"
    enough = sizes.spans <= s.vocab_extra_ids
    require(enough, f"vocab_extra_ids: {s.vocab_extra_ids} is too few: {rule}; T5 has --vocab-extra-ids 100")
    return sizes


def _check_t5(s: "Settings") -> None:
    given = s.decoder_seq_length is not None
    require(given, "decoder_seq_length: not given, and --model-family t5 needs it")
    groups = s.group_query_attention and s.query_groups != s.num_attention_heads
    rule = "is for gpt and bert; megatron-core has no cross-attention with groups"
    require(not groups, f"group_query_attention: {rule}")
    span_sizes(s)


def _check_bert(s: "Settings") -> None:
    rule = f"is less than {SHORTEST_BERT}: bert frames two texts with [CLS], [SEP] and [SEP]"
    require(s.seq_length >= SHORTEST_BERT, f"seq_length: {s.seq_length} {rule}")


@immutable
class FamilyRules:
    """Properties and rules of one family of networks."""

    is_causal: bool = False
    """Whether it is one causal stack, as context parallelism and Transformer Engine's attention need."""
    has_decoder: bool = False  # whether it has two stacks, of --encoder-num-layers and --decoder-num-layers
    hides_tokens: bool = False  # whether --mask-prob and --short-seq-prob change its samples
    own: tuple[str, ...] = ()  # settings that no other family has
    own_positions: str | None = None  # a --position-embedding-type that no other family has
    check: Callable[["Settings"], None] = lambda _: None  # raises UsageError for the first rule that is broken


FAMILIES = {
    "gpt": FamilyRules(is_causal=True),
    "t5": FamilyRules(
        has_decoder=True,
        hides_tokens=True,
        own=("decoder_seq_length", "encoder_num_layers", "decoder_num_layers", "vocab_extra_ids"),
        own_positions="relative",
        check=_check_t5,
    ),
    "bert": FamilyRules(hides_tokens=True, own=("bert_no_binary_head",), check=_check_bert),
}


def check_family(s: "Settings") -> None:
    """Raise UsageError for a setting of another family, or one that breaks a rule of its own family."""
    for name, other in FAMILIES.items():
        if name == s.model_family:
            continue
        found = {setting: getattr(s, setting) for setting in other.own}
        if s.position_embedding_type == other.own_positions:
            found["position_embedding_type"] = s.position_embedding_type
        for setting, value in found.items():
            require(not value, f"{setting}: {value} is for --model-family {name}, not for {s.model_family}")
    FAMILIES[s.model_family].check(s)
