"""Matrix products with the shapes of a transformer's linear layers: forward, and both of the backward pass."""

import itertools
import math
from functools import partial
from typing import Any

from nlp_bench.plan.calibrate.measurement import Call, Task

HIDDEN = (128, 256, 512, 768, 1024, 2048, 4096, 8192, 12288)
"""Widths of models from one that trains on a laptop to 175 billion parameters."""
TOKENS = (128, 512, 1024, 2048, 4096, 8192)
"""Micro batch size x sequence length."""
TENSOR = (1, 4)
"""Tensor-parallel sizes."""
VOCABULARY = 51200
WAYS = ("forward", "input gradient", "weight gradient")
BLOCK = (1 << 20) - 3
"""Random numbers that are drawn; no multiple of any width, so that rows differ."""
WIDTH_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def shapes() -> list[tuple[int, int, int]]:
    """Return the distinct [tokens, in_width, out_width] of QKV, projection, both feed-forward layers and the output layer."""
    found = set()
    for hidden, tokens, tensor in itertools.product(HIDDEN, TOKENS, TENSOR):
        pairs = ((hidden, 3 * hidden // tensor), (hidden // tensor, hidden), (hidden, 4 * hidden // tensor))
        heads = ((hidden, VOCABULARY // tensor),) if hidden >= 1024 else ((hidden, 4096),)
        found |= {(tokens, *pair) for pair in (*pairs, (4 * hidden // tensor, hidden), *heads)}
    return sorted(found)


def product_tasks(precision: str) -> list[Task]:
    """Return every shape in each of WAYS."""
    return [task for shape in shapes() for task in _ways(shape, precision)]


def _ways(shape: tuple[int, int, int], precision: str) -> list[Task]:
    tokens, in_width, out_width = shape
    entries = tokens * in_width + in_width * out_width + tokens * out_width
    num_bytes = float(entries * WIDTH_BYTES[precision])
    return [
        Task(
            kind="product",
            name=way,
            precision=precision,
            sizes={"tokens": tokens, "in_width": in_width, "out_width": out_width},
            flops=2.0 * tokens * in_width * out_width,
            num_bytes=num_bytes,
            needs_bytes=num_bytes,
            make=partial(_work, way, shape, precision),
        )
        for way in WAYS
    ]


def _work(way: str, shape: tuple[int, int, int], precision: str, device: Any) -> Call:
    import torch  # noqa: PLC0415  # only measuring needs it

    tokens, in_width, out_width = shape
    dtype, place = torch_type(precision), device.place
    inputs = random((tokens, in_width), dtype, place)
    weight = random((out_width, in_width), dtype, place)
    gradient = random((tokens, out_width), dtype, place)
    if way == "forward":
        return lambda: torch.matmul(inputs, weight.t())
    if way == "input gradient":
        return lambda: torch.matmul(gradient, weight)
    return lambda: torch.matmul(gradient.t(), inputs)


def random(shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
    """Return a tensor of normal numbers, of which a million differ: drawing all would take longer than the work on them.

    Zeros would be wrong: a GPU needs less power for them and keeps a higher clock.
    """
    import torch  # noqa: PLC0415  # as above

    number = math.prod(shape)
    block = torch.randn(min(number, BLOCK), device=place).to(dtype)
    return block.repeat(-(-number // len(block)))[:number].reshape(shape)


def torch_type(precision: str) -> Any:
    """Return torch's type of a number format."""
    import torch  # noqa: PLC0415  # as above

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
