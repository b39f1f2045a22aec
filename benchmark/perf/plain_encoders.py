# ruff: noqa: INP001  # scripts, not a package
"""The rivals for T5 and BERT: what a competent person writes with plain PyTorch, no megatron-core."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # its usual name

Batch = dict[str, torch.Tensor]


class Attention(nn.Module):
    """Attention of one stream to itself or to another one."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, cross: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width) if cross else None
        self.inputs = nn.Linear(width, (2 if cross else 3) * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """Return x [b, s, h] plus what it attends to in `other` [b, t, h], or in itself."""
        normed = self.norm(x)
        if self.q is None or other is None:
            q, k, v = self._split(self.inputs(normed), 3)
        else:
            (q,), (k, v) = self._split(self.q(normed), 1), self._split(self.inputs(other), 2)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(context.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
        b, s, width = x.shape
        return x.view(b, s, parts, self.heads, width // parts // self.heads).permute(2, 0, 3, 1, 4).unbind()


class FeedForward(nn.Module):
    """A normalisation, a linear layer, GELU or its gated form, and the way back."""

    def __init__(self, width: int, inner: int, *, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner * (2 if gated else 1)), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [b, s, h] plus the block's answer."""
        y = self.up(self.norm(x))
        if self.gated:
            gate, value = y.chunk(2, dim=-1)
            return x + self.down(F.gelu(gate) * value)
        return x + self.down(F.gelu(y))


class Embedding(nn.Module):
    """Tokens, learned positions and, for BERT, which of two texts a token is in."""

    def __init__(self, vocabulary: int, length: int, width: int, *, types: int = 0) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.types = nn.Embedding(types, width) if types else None

    def forward(self, tokens: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return [b, s, h]."""
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        return x if self.types is None else x + self.types(types)


class PlainT5(nn.Module):
    """Encoder and decoder with GeGLU, learned positions and one tied embedding."""

    def __init__(self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int, length: int) -> None:  # noqa: PLR0913  # a model has that many dimensions
        super().__init__()
        self.embedding = Embedding(vocabulary, length, width)
        self.encoder = nn.ModuleList(
            nn.ModuleList((Attention(width, heads), FeedForward(width, inner, gated=True))) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            nn.ModuleList(
                (
                    Attention(width, heads, causal=True),
                    Attention(width, heads, cross=True),
                    FeedForward(width, inner, gated=True),
                )
            )
            for _ in range(layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the mean loss of the tokens that count."""
        x = self.embedding(batch["encoder_tokens"])
        for attention, feed_forward in self.encoder:
            x = feed_forward(attention(x))
        x = self.encoder_norm(x)
        y = self.embedding(batch["decoder_tokens"])
        for attention, cross, feed_forward in self.decoder:
            y = feed_forward(cross(attention(y), x))
        logits = F.linear(self.decoder_norm(y), self.embedding.words.weight)
        return masked_mean(logits, batch)


class PlainBert(nn.Module):
    """Encoder with both of BERT's heads and a tied embedding."""

    def __init__(self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int, length: int) -> None:  # noqa: PLR0913  # likewise
        super().__init__()
        self.embedding = Embedding(vocabulary, length, width, types=2)
        self.encoder = nn.ModuleList(
            nn.ModuleList((Attention(width, heads), FeedForward(width, inner, gated=False))) for _ in range(layers)
        )
        self.norm, self.head_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dense, self.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(vocabulary))
        self.pooler, self.binary = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the mean loss of the masked tokens plus that of the next sentence."""
        x = self.embedding(batch["tokens"], batch["types"])
        for attention, feed_forward in self.encoder:
            x = feed_forward(attention(x))
        x = self.norm(x)
        logits = F.linear(self.head_norm(F.gelu(self.dense(x))), self.embedding.words.weight, self.bias)
        binary = self.binary(torch.tanh(self.pooler(x[:, 0])))
        return masked_mean(logits, batch) + F.cross_entropy(binary, batch["is_random"])


def masked_mean(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean cross entropy of the tokens that `loss_mask` counts."""
    losses = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    counted = batch["loss_mask"].flatten()
    return (losses * counted).sum() / counted.sum()


def copy_weights(plain: nn.Module, ours: nn.Module) -> None:
    """Give `plain` the weights of our T5 or BERT; raises ValueError where one of ours has no counterpart."""
    copier = Copier(ours)
    for stack in ("encoder", "decoder"):
        for index, blocks in enumerate(getattr(plain, stack, ())):
            copier.take_layer(blocks, f"{stack}.layers.{index}")
    for name, module in _ends(plain).items():
        copier.take(module, name)
    if isinstance(plain, PlainBert):
        plain.bias.data.copy_(copier.left.pop("output_layer.bias"))
    if copier.left:
        raise ValueError(f"weights without a counterpart: {sorted(copier.left)}")


def _ends(plain: nn.Module) -> dict[str, nn.Module]:
    """Return what stands before and behind the layers, by our names."""
    if isinstance(plain, PlainT5):
        found: dict[str, nn.Module] = {
            "encoder.final_layernorm": plain.encoder_norm,
            "decoder.final_layernorm": plain.decoder_norm,
        }
    elif isinstance(plain, PlainBert) and plain.embedding.types is not None:
        found = {
            "embedding.tokentype_embeddings": plain.embedding.types, "encoder.final_layernorm": plain.norm,
            "lm_head.layer_norm": plain.head_norm, "lm_head.dense": plain.dense,
            "binary_head.pooler": plain.pooler, "binary_head.logits": plain.binary,
        }  # fmt: skip
    else:
        raise TypeError(f"{type(plain).__name__} is neither PlainT5 nor PlainBert")
    embedding = plain.embedding
    return found | {
        "embedding.word_embeddings": embedding.words, "embedding.position_embeddings": embedding.positions,
    }  # fmt: skip


class Copier:
    """Hands our weights over, whose queries, keys and values are grouped by head."""

    def __init__(self, ours: nn.Module) -> None:
        self.left = dict(ours.named_parameters())

    def take(self, module: nn.Module, name: str, heads: int = 0, parts: int = 1) -> None:
        """Copy the weights that we call `name` into `module`, ungrouped where they are `parts` matrices grouped by head."""
        for kind, target in module.named_parameters(recurse=False):
            source = self.left.pop(f"{name}.{kind}")
            if parts > 1:
                by_head = source.view(heads, parts, -1, *source.shape[1:])
                source = by_head.transpose(0, 1).reshape(source.shape)
            target.data.copy_(source)

    def take_layer(self, blocks: nn.ModuleList, name: str) -> None:
        """Copy one layer: attention, perhaps attention to the encoder, feed-forward block."""
        first, *middle, last = blocks
        self._take_attention(first, f"{name}.self_attention", f"{name}.input_layernorm")
        for cross in middle:
            self._take_attention(cross, f"{name}.cross_attention", f"{name}.pre_cross_attn_layernorm")
        self.take(last.norm, f"{name}.pre_mlp_layernorm")
        self.take(last.up, f"{name}.mlp.linear_fc1")
        self.take(last.down, f"{name}.mlp.linear_fc2")

    def _take_attention(self, module: Attention, name: str, norm: str) -> None:
        self.take(module.norm, norm)
        self.take(module.out, f"{name}.linear_proj")
        if module.q is None:
            self.take(module.inputs, f"{name}.linear_qkv", module.heads, 3)
        else:
            self.take(module.q, f"{name}.linear_q")
            self.take(module.inputs, f"{name}.linear_kv", module.heads, 2)
