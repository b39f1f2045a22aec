"""Memory-bound work: copying, and a transformer's parts between its matrix products, forward with backward."""

from functools import partial
from typing import Any

from nlp_bench.plan.calibrate.measurement import Call, Task
from nlp_bench.plan.calibrate.products import WIDTH_BYTES, random, torch_type

TOKENS = (512, 2048, 8192)
WIDTHS = (256, 1024, 4096)
COPIED = (1 << 20, 1 << 23, 1 << 26, 1 << 28)
"""Entries; the large ones are beyond every cache."""
STEPPED = (1 << 18, 1 << 21, 1 << 24, 1 << 27)
"""Parameters of an optimizer step."""
STEP_BYTES = 28.0
"""Of one parameter in an Adam step in fp32: read weight, gradient and two moments, write weight and two moments (7 x 4 bytes)."""


def copy_tasks(precision: str) -> list[Task]:
    """Return copies of several sizes: one read and one write."""
    return [_task("copy", {"entries": entries}, 2.0 * entries, precision) for entries in COPIED]


def layer_tasks(precision: str) -> list[Task]:
    """Return GELU, LayerNorm and bias-and-residual, forward with backward; bytes: each tensor of [tokens, width] once per pass.

    GELU reads 1 and writes 1, its backward reads 2 and writes 1; a norm the same; bias and residual read 2 and write 1, backward
    sums one gradient for the bias (reads 1).
    """
    sizes = [{"tokens": tokens, "width": width} for tokens in TOKENS for width in WIDTHS]
    return [
        _task(name, size, passes * size["tokens"] * size["width"], precision)
        for size in sizes
        for name, passes in (("gelu", 5.0), ("norm", 5.0), ("residual", 4.0))
    ]


def step_tasks() -> list[Task]:
    """Return steps of torch's fused AdamW on fp32 parameters."""
    return [
        Task(
            kind="step",
            name="adam",
            precision="fp32",
            sizes={"parameters": number},
            num_bytes=STEP_BYTES * number,
            needs_bytes=16.0 * number,
            make=partial(_adam, number),
        )
        for number in STEPPED
    ]


def _task(name: str, sizes: dict[str, int], entries: float, precision: str) -> Task:
    num_bytes = entries * WIDTH_BYTES[precision]
    return Task(
        kind="stream",
        name=name,
        precision=precision,
        sizes=sizes,
        num_bytes=num_bytes,
        needs_bytes=2 * num_bytes,
        make=partial(_work, name, tuple(sizes.values()), precision),
    )


def _work(name: str, shape: tuple[int, ...], precision: str, device: Any) -> Call:
    makers = {"copy": _copy, "gelu": _gelu, "norm": _norm, "residual": _residual}
    return makers[name](shape, torch_type(precision), device.place)


def _copy(shape: tuple[int, ...], *like: Any) -> Call:
    import torch  # noqa: PLC0415  # only measuring needs it

    source = random(shape, *like)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _gelu(shape: tuple[int, ...], *like: Any) -> Call:
    import torch  # noqa: PLC0415  # as above

    inputs, gradient = random(shape, *like).requires_grad_(), random(shape, *like)
    return lambda: torch.autograd.grad(torch.nn.functional.gelu(inputs), inputs, gradient)


def _norm(shape: tuple[int, ...], *like: Any) -> Call:
    import torch  # noqa: PLC0415  # as above

    inputs, gradient = random(shape, *like).requires_grad_(), random(shape, *like)
    weight, bias = (random(shape[1:], *like).requires_grad_() for _ in range(2))
    norm = torch.nn.functional.layer_norm
    return lambda: torch.autograd.grad(norm(inputs, shape[1:], weight, bias), (inputs, weight, bias), gradient)


def _residual(shape: tuple[int, ...], *like: Any) -> Call:
    import torch  # noqa: PLC0415  # as above

    inputs, residual = (random(shape, *like).requires_grad_() for _ in range(2))
    gradient, bias = random(shape, *like), random(shape[1:], *like).requires_grad_()
    return lambda: torch.autograd.grad(inputs + bias + residual, (inputs, residual, bias), gradient)


def _adam(number: int, device: Any) -> Call:
    import torch  # noqa: PLC0415  # as above

    parameter = torch.nn.Parameter(random((number,), torch.float32, device.place))
    parameter.grad = random((number,), torch.float32, device.place)
    return torch.optim.AdamW([parameter], lr=1e-3, fused=True).step
