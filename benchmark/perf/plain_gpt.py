# ruff: noqa: INP001  # scripts, not a package
"""The rival: the GPT and the training loop that a competent person writes with plain PyTorch, no megatron-core."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # its usual name


class Block(nn.Module):
    """Attention and feed-forward, each behind a LayerNorm and beside a residual."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return x [b, s, h] after attention and feed-forward."""
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(context.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply the rotary embedding to x [b, heads, s, d]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class PlainGPT(nn.Module):
    """A decoder with tied embeddings and rotary positions."""

    def __init__(  # noqa: PLR0913  # a model has that many dimensions
        self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int, length: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        head = width // heads
        angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of tokens and labels, both [b, s]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class PlainTrainer:
    """AdamW (fused), clipping and gradient accumulation around PlainGPT."""

    def __init__(self, model: PlainGPT, batches: Any, num_microbatches: int, lr: float) -> None:
        decay = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.model, self.batches, self.num_microbatches = model, batches, num_microbatches
        self.optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)

    def step(self) -> float:
        """Train on one global batch; return its mean loss."""
        total = 0.0
        for _ in range(self.num_microbatches):
            batch = next(self.batches)
            loss = self.model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) / self.num_microbatches
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total


def copy_weights(plain: PlainGPT, ours: nn.Module) -> None:
    """Give `plain` the weights of megatron-core's GPTModel `ours`, whose qkv rows are grouped by head."""
    with torch.no_grad():
        state = dict(ours.named_parameters())
        plain.embedding.weight.copy_(state["embedding.word_embeddings.weight"])
        for index, block in enumerate(plain.blocks):
            rows, width = block.qkv.weight.shape
            qkv = state[f"decoder.layers.{index}.self_attention.linear_qkv.weight"]
            by_head = qkv.view(block.heads, 3, rows // 3 // block.heads, width)
            block.qkv.weight.copy_(by_head.transpose(0, 1).reshape(rows, width))
            block.qkv.bias.zero_()
            pairs = (
                ("self_attention.linear_proj", block.out),
                ("mlp.linear_fc1", block.up),
                ("mlp.linear_fc2", block.down),
            )
            for name, layer in pairs:
                layer.weight.copy_(state[f"decoder.layers.{index}.{name}.weight"])
                layer.bias.zero_()
