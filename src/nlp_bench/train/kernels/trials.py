"""What each kernel is asked and what it must answer; shapes as in a small layer, formulas from the papers they are from."""

import math
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.fusions.fused_bias_geglu import bias_geglu_impl
from megatron.core.fusions.fused_bias_gelu import bias_gelu_impl
from megatron.core.fusions.fused_bias_swiglu import bias_swiglu_impl
from torch.nn import functional as F  # noqa: N812  # its usual name
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.train.attention import rotary, rotary_table
from nlp_bench.train.kernels import apex, choice, native
from nlp_bench.train.kernels.native import install_loss, native_way, shared_loss
from nlp_bench.train.kernels.trial import Pair

TOKENS, WIDTH, HEADS, WORDS = 128, 256, 4, 1000
Formula = Callable[..., torch.Tensor]


def _both(kernel: Formula, formula: Formula, *inputs: torch.Tensor) -> list[Pair]:
    """Return result and gradients of `kernel`, each beside those of `formula` in float64."""
    leaves = [one.clone().requires_grad_() for one in inputs]
    exact = [one.double().clone().requires_grad_() for one in inputs]
    got, expected = kernel(*(one * 1 for one in leaves)), formula(*exact)
    upper = torch.randn_like(expected)
    torch.autograd.backward(got, upper.to(got.dtype))
    torch.autograd.backward(expected, upper)
    gradients = [(a.grad, b.grad) for a, b in zip(leaves, exact, strict=True)]
    return [(got.detach(), expected.detach()), *((a, b) for a, b in gradients if a is not None and b is not None)]


def _random(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=dtype)


def norm(provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """LayerNorm (Ba et al. 2016) and, where the provider has one, RMSNorm (Zhang and Sennrich 2019)."""
    pairs = []
    for kind in ("LayerNorm",) if provider == "apex" else ("LayerNorm", "RMSNorm"):
        module = _norm_module(provider, kind, dtype, device)

        def formula(x: torch.Tensor, kind: str = kind) -> torch.Tensor:
            centred = x - x.mean(-1, keepdim=True) if kind == "LayerNorm" else x
            return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

        pairs += _both(module, formula, _random(device, dtype, TOKENS, 2, WIDTH))
    return pairs


def _norm_module(provider: str, kind: str, dtype: torch.dtype, device: torch.device) -> Any:
    if provider == "te":
        import transformer_engine.pytorch as te  # noqa: PLC0415  # only where it is installed

        return getattr(te, kind)(WIDTH, eps=1e-5, params_dtype=dtype, device=device)
    config = _config(kind, dtype)
    return (apex.Norm if provider == "apex" else native.Norm)(config, WIDTH)


def _config(normalization: str, dtype: torch.dtype) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: PLC0415

    return TransformerConfig(
        num_layers=1, hidden_size=WIDTH, num_attention_heads=HEADS, normalization=normalization, params_dtype=dtype,
        persist_layer_norm=True,
    )  # fmt: skip


def activation(_provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """Bias and GELU in the tanh form (Hendrycks and Gimpel 2016), SwiGLU and GEGLU (Shazeer 2020)."""

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")

    def gated(function: Formula) -> Formula:
        return lambda x, bias: function((x + bias).chunk(2, -1)[0]) * (x + bias).chunk(2, -1)[1]

    x, bias = _random(device, dtype, TOKENS, 2, 4 * WIDTH), _random(device, dtype, 4 * WIDTH)
    pairs = _both(bias_gelu_impl, lambda x, bias: gelu(x + bias), x, bias)
    pairs += _both(bias_swiglu_impl, gated(F.silu), x, bias)
    return pairs + _both(bias_geglu_impl, gated(gelu), x, bias)


def dropout_add(_provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """Bias, dropout (off, to be comparable) and residual in one."""
    from megatron.core.fusions.fused_bias_dropout import bias_dropout_add_fused_train  # noqa: PLC0415

    x, residual = _random(device, dtype, TOKENS, 2, WIDTH), _random(device, dtype, TOKENS, 2, WIDTH)
    bias = _random(device, dtype, WIDTH)
    return _both(
        lambda x, bias, residual: bias_dropout_add_fused_train((x, bias), residual, 0.0),
        lambda x, bias, residual: x + bias + residual,
        x, bias, residual,
    )  # fmt: skip


def rotation(_provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """RoPE (Su et al. 2021): each pair turned by position / base^(2i/d), here as complex numbers."""
    width = WIDTH // HEADS
    table = rotary_table(TOKENS, width, 10000, dtype, device)

    def formula(x: torch.Tensor) -> torch.Tensor:
        position = torch.arange(TOKENS, device=device, dtype=torch.float64)
        frequency = 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)
        angle = (position[:, None] * frequency)[:, None, None]
        turned = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat((turned.real, turned.imag), -1)

    fused = device.type == "cuda"
    return _both(lambda x: rotary(x, *table, fused=fused), formula, _random(device, dtype, TOKENS, 2, HEADS, width))


def cross_entropy(_provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """Take the negative logarithm of the softmax at the target, on one rank."""

    class Alone:
        """A group of one rank."""

        rank, size = staticmethod(lambda: 0), staticmethod(lambda: 1)

    install_loss(compiled=device.type == "cuda")
    target = torch.randint(0, WORDS, (TOKENS, 2), device=device)

    def formula(logits: torch.Tensor) -> torch.Tensor:
        return -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)

    logits = _random(device, dtype, TOKENS, 2, WORDS)
    return _both(lambda logits: shared_loss(logits, target, Alone), formula, logits)  # type: ignore[arg-type]


def attention(provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """Causal attention with grouped keys and values (Vaswani et al. 2017, Ainslie et al. 2023)."""
    width, groups = WIDTH // HEADS, HEADS // 2
    q = _random(device, dtype, TOKENS, 2, HEADS, width)
    k, v = (_random(device, dtype, TOKENS, 2, groups, width) for _ in "kv")

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.permute(1, 2, 0, 3) for one in (q, k, v))
        k, v = (one.repeat_interleave(HEADS // groups, 1) for one in (k, v))
        future = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=device).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width)).masked_fill(future, -torch.inf)
        return (scores.softmax(-1) @ v).permute(2, 0, 1, 3).flatten(2)

    return _both(_attention_kernel(provider, device), formula, q, k, v)


def _attention_kernel(provider: str, device: torch.device) -> Formula:
    if provider == "te":
        import transformer_engine.pytorch as te  # noqa: PLC0415  # only where it is installed

        return te.DotProductAttention(  # type: ignore[no-any-return]
            HEADS,
            WIDTH // HEADS,
            num_gqa_groups=HEADS // 2,
            attention_dropout=0.0,
            qkv_format="sbhd",
            attn_mask_type="causal",
        )
    native.order_attention(device, frozenset())

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.permute(1, 2, 0, 3) for one in (q, k, v))
        context = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return context.permute(2, 0, 1, 3).flatten(2)

    return kernel


def weight_gradient(provider: str, device: torch.device, dtype: torch.dtype) -> list[Pair]:
    """Add the product of outputs' gradients and inputs to a float32 sum."""
    inputs, gradient = _random(device, dtype, TOKENS, WIDTH), _random(device, dtype, TOKENS, 2 * WIDTH)
    total = _random(device, torch.float32, 2 * WIDTH, WIDTH)
    expected = total.double() + gradient.double().t() @ inputs.double()
    way = apex.accumulation() if provider == "apex" else (native_way(device, dtype) or ("", None))[1]
    if way is None:
        total += (gradient.t() @ inputs).float()
    else:
        way(inputs, gradient, total)
    return [(total, expected)]


def adamw(provider: str, device: torch.device, _dtype: torch.dtype) -> list[Pair]:
    """Two steps of AdamW (Loshchilov and Hutter 2019, algorithm 2) in float32; the result is the change of the weights."""
    start, rate, decay, betas, epsilon = _random(device, torch.float32, WIDTH, WIDTH), 1e-2, 0.1, (0.9, 0.95), 1e-8
    parameter = torch.nn.Parameter(start.clone())
    kind, foreign = choice.adam_of(provider)
    options = {"adam_w_mode": True} if foreign else {"fused": True}
    optimizer = kind([parameter], lr=rate, betas=betas, eps=epsilon, weight_decay=decay, **options)
    weights, first, second = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    for step in (1, 2):
        parameter.grad = _random(device, torch.float32, WIDTH, WIDTH)
        exact = parameter.grad.double()
        optimizer.step()
        first, second = betas[0] * first + (1 - betas[0]) * exact, betas[1] * second + (1 - betas[1]) * exact.square()
        scaled = (first / (1 - betas[0] ** step)) / ((second / (1 - betas[1] ** step)).sqrt() + epsilon)
        weights = weights * (1 - rate * decay) - rate * scaled
    return [(parameter.detach() - start, weights - start.double())]


def grad_norm(provider: str, device: torch.device, _dtype: torch.dtype) -> list[Pair]:
    """Take the norm of several tensors together, and scale them in place."""
    tensors = [_random(device, torch.float32, size, WIDTH) for size in (1, 17, 300)]
    together = torch.cat([one.flatten() for one in tensors]).double()
    applier, norm_of, scale = choice.norm_of_provider(provider)
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    found, _ = applier(norm_of, flag, [tensors], False)
    applier(scale, flag, [tensors, tensors], 0.5)
    return [(found, together.norm().unsqueeze(0)), (torch.cat([one.flatten() for one in tensors]), together * 0.5)]


TRIALS: dict[str, Callable[[str, torch.device, torch.dtype], list[Pair]]] = {
    "norm": norm,
    "activation": activation,
    "dropout add": dropout_add,
    "rotary": rotation,
    "cross entropy": cross_entropy,
    "attention": attention,
    "weight gradient": weight_gradient,
    "adamw": adamw,
    "grad norm": grad_norm,
}
"""By the names that the build's record and kernels/choice.py use."""
