"""Causal attention by torch's fused kernels, as the trainer calls it (train/attention.py): forward, and forward with backward."""

import itertools
from functools import partial
from typing import Any

from nlp_bench.plan.calibrate.measurement import Call, Task
from nlp_bench.plan.calibrate.products import WIDTH_BYTES, random, torch_type

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Sequence lengths."""
WIDTHS = (32, 64, 128)
"""Head widths."""
HEADS = (4, 8, 16, 32)
"""Heads of one rank x samples."""


def attention_tasks(precision: str) -> list[Task]:
    """Return all lengths, head widths and numbers of heads, both ways.

    FLOPs are those of the full square, 4 s^2 d per head forward and twice as many backward (Korthikanti et al. 2022, appendix A,
    https://arxiv.org/abs/2205.05198), though a causal kernel does half.
    """
    sizes = itertools.product(LENGTHS, WIDTHS, HEADS, ("forward", "both"))
    return [_task(length, width, heads, way, precision) for length, width, heads, way in sizes]


def _task(length: int, width: int, heads: int, way: str, precision: str) -> Task:
    entries = 4.0 * heads * length * width * (1 if way == "forward" else 3)
    return Task(
        kind="attention",
        name=way,
        precision=precision,
        sizes={"heads": heads, "sequence_length": length, "head_width": width},
        flops=4.0 * heads * length**2 * width * (1 if way == "forward" else 3),
        num_bytes=entries * WIDTH_BYTES[precision],
        needs_bytes=entries * 4,
        make=partial(_work, (heads, length, width), way, precision),
    )


def _work(sizes: tuple[int, int, int], way: str, precision: str, device: Any) -> Call:
    import torch  # noqa: PLC0415  # only measuring needs it

    heads, length, width = sizes
    dtype, place = torch_type(precision), device.place
    shape = (1, heads, length, width)
    query, key, value, gradient = (random(shape, dtype, place) for _ in range(4))
    attend = torch.nn.functional.scaled_dot_product_attention
    if way == "forward":
        return lambda: attend(query, key, value, is_causal=True)
    leaves = tuple(tensor.requires_grad_() for tensor in (query, key, value))
    return lambda: torch.autograd.grad(attend(query, key, value, is_causal=True), leaves, gradient)
