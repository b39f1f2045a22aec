"""Compare each kernel with the formula in plain torch: `python -m nlp_bench.train.kernels.trial PROVIDER KERNEL...`.

One JSON line per kernel goes to stdout: {"kernel", "difference", "passed", "error"}. Before it goes {"kernel", "starts": true}, so
that the caller knows which kernel killed the process. The difference is |got - expected| / |expected| (2-norms), the greatest of
result and gradients; the formula is computed in float64. 16-bit results pass below 2e-2, float32 ones below 1e-4. Shapes are those of
a small layer, formulas those of the papers.
"""

import json
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  # its usual name
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.train import cpu

warnings.simplefilter("ignore")
if torch.cuda.is_available():
    DEVICE, DTYPE = torch.device("cuda", torch.cuda.current_device()), torch.bfloat16
else:
    DEVICE, DTYPE = cpu.CPU, torch.float32
    cpu.install()  # before megatron-core is imported
    torch.compiler.set_stance("force_eager")  # as in a training on a CPU

from megatron.core.fusions.fused_bias_dropout import bias_dropout_add_fused_train  # noqa: E402
from megatron.core.fusions.fused_bias_geglu import bias_geglu_impl  # noqa: E402
from megatron.core.fusions.fused_bias_gelu import bias_gelu_impl  # noqa: E402
from megatron.core.fusions.fused_bias_swiglu import bias_swiglu_impl  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

from nlp_bench.train.attention import rotary, rotary_table  # noqa: E402
from nlp_bench.train.kernels import apex, choice, native  # noqa: E402

ON_GPU = DEVICE.type == "cuda"
LIMIT_16_BIT, LIMIT_32_BIT = 2e-2, 1e-4  # differences that no right kernel reaches, by the type of its result
TOKENS, WIDTH, HEADS, WORDS = 128, 256, 4, 1000
Pair = tuple[torch.Tensor, torch.Tensor]  # result of the kernel, and of the formula
Formula = Callable[..., torch.Tensor]


def _both(kernel: Formula, formula: Formula, *inputs: torch.Tensor) -> list[Pair]:
    """Return result and gradients of `kernel`, each with that of `formula` in float64."""
    leaves = [one.clone().requires_grad_() for one in inputs]
    exact = [one.double().clone().requires_grad_() for one in inputs]
    got, expected = kernel(*(one * 1 for one in leaves)), formula(*exact)
    upper = torch.randn_like(expected)
    torch.autograd.backward(got, upper.to(got.dtype))
    torch.autograd.backward(expected, upper)
    gradients = [(a.grad, b.grad) for a, b in zip(leaves, exact, strict=True)]
    return [(got.detach(), expected.detach()), *((a, b) for a, b in gradients if a is not None and b is not None)]


def _random(*shape: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def _norm(provider: str) -> list[Pair]:
    """LayerNorm (Ba et al. 2016) and, where the provider has one, RMSNorm (Zhang and Sennrich 2019)."""
    pairs = []
    for kind in ("LayerNorm",) if provider == "apex" else ("LayerNorm", "RMSNorm"):

        def formula(x: torch.Tensor, kind: str = kind) -> torch.Tensor:
            centred = x - x.mean(-1, keepdim=True) if kind == "LayerNorm" else x
            return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

        if provider == "te":
            import transformer_engine.pytorch as te  # noqa: PLC0415  # only where it is installed

            module: Any = getattr(te, kind)(WIDTH, eps=1e-5, params_dtype=DTYPE, device=DEVICE)
        else:
            config = TransformerConfig(
                num_layers=1, hidden_size=WIDTH, num_attention_heads=HEADS, normalization=kind, params_dtype=DTYPE,
                persist_layer_norm=True,
            )  # fmt: skip
            module = (apex.Norm if provider == "apex" else native.Norm)(config, WIDTH)
        pairs += _both(module, formula, _random(TOKENS, 2, WIDTH))
    return pairs


def _activation(_provider: str) -> list[Pair]:
    """Bias and GELU in the tanh form (Hendrycks and Gimpel 2016), SwiGLU and GEGLU (Shazeer 2020)."""

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")

    def gated(function: Formula) -> Formula:
        return lambda x, bias: function((x + bias).chunk(2, -1)[0]) * (x + bias).chunk(2, -1)[1]

    native.install_gelu(compiled=ON_GPU)
    x, bias = _random(TOKENS, 2, 4 * WIDTH), _random(4 * WIDTH)
    pairs = _both(bias_gelu_impl, lambda x, bias: gelu(x + bias), x, bias)
    pairs += _both(bias_swiglu_impl, gated(F.silu), x, bias)
    return pairs + _both(bias_geglu_impl, gated(gelu), x, bias)


def _dropout_add(_provider: str) -> list[Pair]:
    """Bias, dropout (off, to be comparable) and residual in one."""
    return _both(
        lambda x, bias, residual: bias_dropout_add_fused_train((x, bias), residual, 0.0),
        lambda x, bias, residual: x + bias + residual,
        _random(TOKENS, 2, WIDTH), _random(WIDTH), _random(TOKENS, 2, WIDTH),
    )  # fmt: skip


def _rotation(_provider: str) -> list[Pair]:
    """RoPE (Su et al. 2021): each pair turned by position / base^(2i/d), here as complex numbers."""
    width = WIDTH // HEADS
    table = rotary_table(TOKENS, width, 10000, DTYPE, DEVICE)

    def formula(x: torch.Tensor) -> torch.Tensor:
        position = torch.arange(TOKENS, device=DEVICE, dtype=torch.float64)
        frequency = 10000.0 ** (-torch.arange(0, width, 2, device=DEVICE, dtype=torch.float64) / width)
        angle = (position[:, None] * frequency)[:, None, None]
        turned = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat((turned.real, turned.imag), -1)

    return _both(lambda x: rotary(x, *table, fused=ON_GPU), formula, _random(TOKENS, 2, HEADS, width))


def _cross_entropy(_provider: str) -> list[Pair]:
    """Take the negative logarithm of the softmax at the target, on one rank."""

    class Alone:
        """A group of one rank."""

        rank, size = staticmethod(lambda: 0), staticmethod(lambda: 1)

    native.install_loss(compiled=ON_GPU)
    target = torch.randint(0, WORDS, (TOKENS, 2), device=DEVICE)

    def formula(logits: torch.Tensor) -> torch.Tensor:
        return -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)

    alone: Any = Alone
    return _both(lambda logits: native.shared_loss(logits, target, alone), formula, _random(TOKENS, 2, WORDS))


def _attention(provider: str) -> list[Pair]:
    """Causal attention with grouped keys and values (Vaswani et al. 2017, Ainslie et al. 2023)."""
    width, groups = WIDTH // HEADS, HEADS // 2

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.permute(1, 2, 0, 3) for one in (q, k, v))
        k, v = (one.repeat_interleave(HEADS // groups, 1) for one in (k, v))
        future = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=DEVICE).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width)).masked_fill(future, -torch.inf)
        return (scores.softmax(-1) @ v).permute(2, 0, 1, 3).flatten(2)

    def torchs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.permute(1, 2, 0, 3) for one in (q, k, v))
        context = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return context.permute(2, 0, 1, 3).flatten(2)

    kernel: Formula = torchs
    if provider == "te":
        import transformer_engine.pytorch as te  # noqa: PLC0415  # only where it is installed

        words = {"attention_dropout": 0.0, "qkv_format": "sbhd", "attn_mask_type": "causal"}
        kernel = te.DotProductAttention(HEADS, width, num_gqa_groups=groups, **words)
    else:
        native.order_attention(DEVICE, frozenset())
    keys_and_values = (_random(TOKENS, 2, groups, width) for _ in "kv")
    return _both(kernel, formula, _random(TOKENS, 2, HEADS, width), *keys_and_values)


def _weight_gradient(provider: str) -> list[Pair]:
    """Add the product of outputs' gradients and inputs to a float32 sum."""
    inputs, gradient = _random(TOKENS, WIDTH), _random(TOKENS, 2 * WIDTH)
    total = _random(2 * WIDTH, WIDTH, dtype=torch.float32)
    expected = total.double() + gradient.double().t() @ inputs.double()
    _, way = native.native_way(DEVICE, DTYPE, torch.float32) or ("", None)
    if provider == "apex":
        way = apex.accumulation()
    if way is None:  # the product is rounded before it is added
        total = (total + (gradient.t() @ inputs).float()).to(DTYPE)
    else:
        way(inputs, gradient, total)
    return [(total, expected)]


def _adamw(provider: str) -> list[Pair]:
    """Two steps of AdamW (Loshchilov and Hutter 2019, algorithm 2) in float32; the result is the change of the weights."""
    rate, decay, betas, epsilon = 1e-2, 0.1, (0.9, 0.95), 1e-8
    start = _random(WIDTH, WIDTH, dtype=torch.float32)
    parameter = torch.nn.Parameter(start.clone())
    kind, foreign = choice.adam_of(provider)
    options = {"adam_w_mode": True} if foreign else {"fused": True}
    optimizer = kind([parameter], lr=rate, betas=betas, eps=epsilon, weight_decay=decay, **options)
    weights, first, second = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    for step in (1, 2):
        parameter.grad = _random(WIDTH, WIDTH, dtype=torch.float32)
        exact = parameter.grad.double()
        optimizer.step()
        first, second = betas[0] * first + (1 - betas[0]) * exact, betas[1] * second + (1 - betas[1]) * exact.square()
        scaled = (first / (1 - betas[0] ** step)) / ((second / (1 - betas[1] ** step)).sqrt() + epsilon)
        weights = weights * (1 - rate * decay) - rate * scaled
    return [(parameter.detach() - start, weights - start.double())]


def _grad_norm(provider: str) -> list[Pair]:
    """Take the norm of several tensors together, and scale them in place."""
    tensors = [_random(size, WIDTH, dtype=torch.float32) for size in (1, 17, 300)]
    together = torch.cat([one.flatten() for one in tensors]).double()
    applier, norm_of, scale = choice.norm_of_provider(provider)
    flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    found, _ = applier(norm_of, flag, [tensors], False)
    applier(scale, flag, [tensors, tensors], 0.5)
    return [(found, together.norm().unsqueeze(0)), (torch.cat([one.flatten() for one in tensors]), together * 0.5)]


TRIALS: dict[str, Callable[[str], list[Pair]]] = {
    "norm": _norm,
    "activation": _activation,
    "dropout add": _dropout_add,
    "rotary": _rotation,
    "cross entropy": _cross_entropy,
    "attention": _attention,
    "weight gradient": _weight_gradient,
    "adamw": _adamw,
    "grad norm": _grad_norm,
}
"""By the names in the build's record and kernels/choice.py."""


def _outcome(trial: Callable[[str], list[Pair]], provider: str) -> dict[str, object]:
    try:
        difference, passed = 0.0, True
        for got, expected in trial(provider):
            distance = float((got.double() - expected.double()).norm() / expected.double().norm())
            difference = max(difference, distance if math.isfinite(distance) else math.inf)
            passed &= distance < (LIMIT_32_BIT if got.dtype == torch.float32 else LIMIT_16_BIT)
    except Exception as error:  # noqa: BLE001  # a kernel that raises anything is not used
        return {"difference": None, "passed": False, "error": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"difference": difference, "passed": passed, "error": None}


def main(provider: str, *names: str) -> None:
    """Try the kernels `names`."""
    for name in names:
        print(json.dumps({"kernel": name, "starts": True}), flush=True)
        torch.manual_seed(7)
        print(json.dumps({"kernel": name, **_outcome(TRIALS[name], provider)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
