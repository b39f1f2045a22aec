# ruff: noqa: INP001  # scripts, not a package
"""The rival: the GPT and the training loop that a competent person writes with plain PyTorch, no megatron-core."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # its usual name


class Block(nn.Module):
    """Attention and feed-forward, each behind a normalisation and beside a residual."""

    def __init__(self, width: int, heads: int, inner: int, groups: int, llama: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.llama = heads, groups, llama
        norm, bias = (nn.RMSNorm if llama else nn.LayerNorm), not llama
        self.norm_1, self.norm_2 = norm(width, 1e-5), norm(width, 1e-5)
        self.qkv = nn.Linear(width, width // heads * (heads + 2 * groups), bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, inner * (1 + llama), bias=bias), nn.Linear(inner, width, bias=bias)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return x [b, s, h] after attention and feed-forward."""
        b, s, h = x.shape
        heads = self.qkv(self.norm_1(x)).view(b, s, self.heads + 2 * self.groups, h // self.heads).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.groups, self.groups), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.out(context.transpose(1, 2).reshape(b, s, h))
        inner = self.up(self.norm_2(x))
        if not self.llama:
            return x + self.down(F.gelu(inner))
        gate, value = inner.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply the rotary embedding to x [b, heads, s, d], in its type."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class PlainGPT(nn.Module):
    """A decoder with rotary positions: GPT with tied embeddings, or Llama 3's form (RMSNorm, SwiGLU, no biases, untied)."""

    def __init__(  # noqa: PLR0913  # a model has that many dimensions
        self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int, length: int,
        groups: int | None = None, llama: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, groups or heads, llama) for _ in range(layers))
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(width, 1e-5)
        self.output = nn.Linear(width, vocabulary, bias=False)
        if not llama:
            self.output.weight = self.embedding.weight
        head = width // heads
        angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean loss of guessing each next one of `tokens` [b, s + 1]."""
        tokens, labels = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), labels.flatten())


class PlainTrainer:
    """AdamW (fused), clipping and gradient accumulation around a model that returns the mean loss of a batch."""

    def __init__(self, model: nn.Module, batches: Any, num_microbatches: int, lr: float, *, bf16: bool = False) -> None:
        """Train `model` on `batches`; with `bf16` it multiplies under autocast, its weights stay float32."""
        decay = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.model, self.batches, self.num_microbatches, self.bf16 = model, batches, num_microbatches, bf16
        self.optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)

    def step(self) -> float:
        """Train on one global batch; return its mean loss."""
        losses = []
        for _ in range(self.num_microbatches):
            batch = next(self.batches)
            with torch.autocast(next(iter(batch.values())).device.type, torch.bfloat16, enabled=self.bf16):
                loss = self.model(batch) / self.num_microbatches
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(torch.stack(losses).sum())  # the one wait for the device


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
