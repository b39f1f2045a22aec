"""Settings of the network: family and shape."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.train.settings.families import FAMILIES
from nlp_bench.train.settings.rules import multiple, one_of, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ShapeSettings:
    """Settings of the network."""

    model_family: str = one_of(*FAMILIES, default="gpt")
    """Kind of network: gpt (decoder), t5 (encoder and decoder; mT5 too), bert (encoder). Megatron-LM has a script of each."""
    num_layers: int
    """Transformer layers; of t5 those of the encoder and as many of the decoder."""
    encoder_num_layers: int | None = None
    """Layers of t5's encoder; default: --num-layers."""
    decoder_num_layers: int | None = None
    """Layers of t5's decoder; default: --num-layers."""
    hidden_size: int
    """Width of the residual stream."""
    num_attention_heads: int
    """Query heads per layer."""
    kv_channels: int | None = None
    """Width of one head; default: hidden size / heads."""
    seq_length: int
    """Tokens per sample; of t5 those of the encoder (Megatron-LM's --encoder-seq-length)."""
    decoder_seq_length: int | None = None
    """Tokens of t5's decoder per sample."""
    max_position_embeddings: int
    """Longest sequence that the position embedding knows; at least the sequence length."""
    ffn_hidden_size: int | None = None
    """Inner width of the feed-forward block; default 4 times the hidden size."""
    group_query_attention: bool = False
    """Share keys and values between groups of query heads."""
    num_query_groups: int | None = None
    """Key/value heads; needs --group-query-attention."""
    position_embedding_type: str = one_of("learned_absolute", "rope", "relative", default="learned_absolute")
    """How positions enter the model; relative (T5's buckets) is for t5."""
    rotary_percent: float = 1.0
    """Share of each head's width that is rotated."""
    rotary_base: int = 10000
    """Base period of the rotary embedding."""
    untie_embeddings_and_output_weights: bool = False
    """Give the output layer its own weights."""
    init_method_std: float = 0.02
    """Standard deviation of the initial weights."""
    normalization: str = one_of("LayerNorm", "RMSNorm", default="LayerNorm")
    """Kind of normalisation."""
    norm_epsilon: float = 1e-5
    """Added to the variance inside the normalisation."""
    swiglu: bool = False
    """Gated feed-forward block with SiLU in place of GELU."""
    geglu: bool = False
    """Gated feed-forward block with GELU (T5 1.1, Shazeer 2020, https://arxiv.org/abs/2002.05202)."""
    disable_bias_linear: bool = False
    """Linear layers without bias."""
    attention_dropout: float = 0.1
    """Dropout of the attention weights. With dropout the loss depends on the parallel layout."""
    hidden_dropout: float = 0.1
    """Dropout of the residual stream. With dropout the loss depends on the parallel layout."""
    bert_no_binary_head: bool = False
    """Leave out bert's prediction of the next sentence."""

    @property
    def ffn_width(self) -> int:
        """Inner width of the feed-forward block; by default 4 x hidden size, with SwiGLU 2/3 of that, rounded down to a multiple of 64."""
        gated = 4 * self.hidden_size * 2 // 3 // 64 * 64 if self.swiglu else 0
        return self.ffn_hidden_size or gated or 4 * self.hidden_size

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.kv_channels or self.hidden_size // self.num_attention_heads

    @property
    def query_groups(self) -> int:
        """Number of key/value heads."""
        return (self.num_query_groups or 1) if self.group_query_attention else self.num_attention_heads

    @property
    def rotated_width(self) -> int:
        """Part of each head's width that is rotated by position; 0 without rotary embedding."""
        return int(self.head_width * self.rotary_percent) if self.position_embedding_type == "rope" else 0

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block is gated: three matrices instead of two."""
        return self.swiglu or self.geglu

    @property
    def stack_depth(self) -> int:
        """Layers that a pipeline divides into stages: of t5 those of encoder and decoder together."""
        if not FAMILIES[self.model_family].has_decoder:
            return self.num_layers
        return (self.encoder_num_layers or self.num_layers) + (self.decoder_num_layers or self.num_layers)

    @property
    def stage_length(self) -> int:
        """Tokens per sample that are sent between pipeline stages: of t5 those of encoder and decoder together."""
        return self.seq_length + (self.decoder_seq_length or 0)


def check_shape(s: "Settings") -> None:
    """Raise UsageError for the first rule about the shape that is broken."""
    require(0 < s.rotary_percent <= 1, f"rotary_percent: {s.rotary_percent} is not in (0, 1]")
    if s.kv_channels is None:
        multiple("hidden_size", s.hidden_size, s.num_attention_heads, "num_attention_heads")
    if s.group_query_attention:
        require(s.num_query_groups is not None, "num_query_groups: not given, and --group-query-attention needs it")
        multiple("num_attention_heads", s.num_attention_heads, s.query_groups, "num_query_groups")
    else:
        require(s.num_query_groups is None, f"num_query_groups: {s.num_query_groups} needs --group-query-attention")
    longest = s.max_position_embeddings
    for name, length in (("seq_length", s.seq_length), ("decoder_seq_length", s.decoder_seq_length or 0)):
        require(longest >= length, f"max_position_embeddings: {longest} is less than {name} = {length}")
    if s.position_embedding_type == "rope":
        rule = f"is the rotated width of a head ({s.rotary_percent} of {s.head_width})"
        even = s.rotated_width > 0 and s.rotated_width % 2 == 0
        require(even, f"rotary_percent: {s.rotated_width} {rule}; it must be even and above 0")
    require(not (s.swiglu and s.geglu), "swiglu: excludes --geglu; give one of them")
