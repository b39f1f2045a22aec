"""What is timed: the parts of a transformer's step, each with the FLOPs and bytes that it is counted as."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench.immutable import immutable
from nlp_bench.plan.calibrate.record import WIDTH_BYTES, Facts

Call = Callable[[], object]  # does the work once
HIDDEN = (128, 256, 512, 768, 1024, 2048, 4096, 8192, 12288)
"""Widths of models from one that trains on a laptop to 175 billion parameters."""
TOKENS = (128, 512, 1024, 2048, 4096, 8192)  # micro batch size x sequence length
TENSOR = (1, 4)  # tensor-parallel sizes
VOCABULARY = 51200
WAYS = ("forward", "input gradient", "weight gradient")
LENGTHS, HEAD_WIDTHS, HEADS = (128, 256, 512, 1024, 2048, 4096, 8192), (32, 64, 128), (4, 8, 16, 32)
"""Of attention: sequence lengths, head widths, heads of one rank x samples."""
STREAM_TOKENS, STREAM_WIDTHS = (512, 2048, 8192), (256, 1024, 4096)
COPIED = (1 << 20, 1 << 23, 1 << 26, 1 << 28)  # entries; the large ones are beyond every cache
STEPPED = (1 << 18, 1 << 21, 1 << 24, 1 << 27)  # parameters of an optimizer step
STEP_BYTES = 28.0
"""Of one parameter in an Adam step in fp32: read weight, gradient and two moments, write weight and two moments (7 x 4 bytes)."""
KERNELS = 100  # of one call that only launches
MESSAGES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)  # bytes of the tensor that is reduced
BLOCK = (1 << 20) - 3  # random numbers that are drawn; no multiple of any width, so that rows differ
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PRECISIONS = {"cuda": ("bf16", "fp16", "fp32"), "cpu": ("fp32", "bf16", "fp16")}
"""By device, the one first that its trainings use; 8- and 4-bit products need Transformer Engine's scaling and are not measured."""


@immutable
class Task(Facts):
    """One piece of work, made ready when its turn comes."""

    needs_bytes: float = 0.0  # memory that has to be free
    together: bool = False  # whether all ranks have to take part
    make: Callable[[Any], Call] = field(repr=False)  # from the device to the work

    @property
    def title(self) -> str:
        """A short name for people."""
        sizes = "x".join(str(size) for size in self.sizes.values())
        return f"{self.kind} {self.name} {self.precision} {sizes}".rstrip()


@immutable
class Group:
    """Tasks of one kind and their part of the time."""

    name: str
    tasks: Sequence[Task]
    share: float  # part of the time, relative to the other groups'


def groups(ranks: int, precisions: tuple[str, ...]) -> list[Group]:
    """Return what is measured by so many ranks, in order; the first number format has most of the time."""
    main, *others = precisions
    parts = [
        Group(name=f"matrix products {main}", tasks=product_tasks(main), share=8),
        Group(name=f"attention {main}", tasks=attention_tasks(main), share=4),
        Group(name=f"copy {main}", tasks=copy_tasks(main), share=1),
        Group(name=f"between products {main}", tasks=layer_tasks(main), share=2),
        Group(name="optimizer step fp32", tasks=step_tasks(), share=1),
        Group(name="launch", tasks=launch_tasks("fp32"), share=0.3),
    ]
    if ranks > 1:
        parts.append(Group(name=f"all-reduce over {ranks} ranks", tasks=all_reduce_tasks(ranks), share=2))
    for other in others:
        parts.append(Group(name=f"matrix products {other}", tasks=product_tasks(other), share=1.5))
        parts.append(Group(name=f"attention {other}", tasks=attention_tasks(other), share=1))
        parts.append(Group(name=f"between products {other}", tasks=layer_tasks(other), share=0.5))
    return parts


def random(shape: tuple[int, ...], precision: str, place: Any) -> torch.Tensor:
    """Return a tensor of normal numbers, of which a million differ: drawing all would take longer than the work on them.

    Zeros would be wrong: a GPU needs less power for them and keeps a higher clock.
    """
    number = math.prod(shape)
    block = torch.randn(min(number, BLOCK), device=place).to(TYPES[precision])
    return block.repeat(-(-number // len(block)))[:number].reshape(shape)


def product_tasks(precision: str) -> list[Task]:
    """Return products of QKV, projection, both feed-forward layers and the output layer, in each of WAYS."""
    found = set()
    for hidden, tokens, tensor in itertools.product(HIDDEN, TOKENS, TENSOR):
        pairs = ((hidden, 3 * hidden // tensor), (hidden // tensor, hidden), (hidden, 4 * hidden // tensor))
        head = (hidden, VOCABULARY // tensor) if hidden >= 1024 else (hidden, 4096)
        found |= {(tokens, *pair) for pair in (*pairs, (4 * hidden // tensor, hidden), head)}
    return [_product(shape, way, precision) for shape in sorted(found) for way in WAYS]


def _product(shape: tuple[int, int, int], way: str, precision: str) -> Task:
    tokens, in_width, out_width = shape

    def make(device: Any) -> Call:
        inputs = random((tokens, in_width), precision, device.place)
        weight = random((out_width, in_width), precision, device.place)
        gradient = random((tokens, out_width), precision, device.place)
        return {
            "forward": lambda: torch.matmul(inputs, weight.t()),
            "input gradient": lambda: torch.matmul(gradient, weight),
            "weight gradient": lambda: torch.matmul(gradient.t(), inputs),
        }[way]

    num_bytes = float((tokens * in_width + in_width * out_width + tokens * out_width) * WIDTH_BYTES[precision])
    return Task(
        kind="product",
        name=way,
        precision=precision,
        sizes={"tokens": tokens, "in_width": in_width, "out_width": out_width},
        flops=2.0 * tokens * in_width * out_width,
        num_bytes=num_bytes,
        needs_bytes=num_bytes,
        make=make,
    )


def attention_tasks(precision: str) -> list[Task]:
    """Return causal attention by torch's fused kernels, as the trainer calls it: forward, and forward with backward.

    FLOPs are those of the full square, 4 s^2 d per head forward and twice as many backward (Korthikanti et al. 2022, appendix A,
    https://arxiv.org/abs/2205.05198), though a causal kernel does half.
    """
    sizes = itertools.product(LENGTHS, HEAD_WIDTHS, HEADS, ("forward", "both"))
    return [_attention((heads, length, width), way, precision) for length, width, heads, way in sizes]


def _attention(sizes: tuple[int, int, int], way: str, precision: str) -> Task:
    heads, length, width = sizes

    def make(device: Any) -> Call:
        query, key, value, gradient = (random((1, *sizes), precision, device.place) for _ in range(4))
        attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        if way == "forward":
            return lambda: attend(query, key, value)
        leaves = tuple(tensor.requires_grad_() for tensor in (query, key, value))
        return lambda: torch.autograd.grad(attend(query, key, value), leaves, gradient)

    passes = 1 if way == "forward" else 3
    entries = 4.0 * heads * length * width * passes
    return Task(
        kind="attention",
        name=way,
        precision=precision,
        sizes={"heads": heads, "sequence_length": length, "head_width": width},
        flops=4.0 * heads * length**2 * width * passes,
        num_bytes=entries * WIDTH_BYTES[precision],
        needs_bytes=entries * 4,
        make=make,
    )


def copy_tasks(precision: str) -> list[Task]:
    """Return copies of several sizes: one read and one write."""
    return [_stream("copy", {"entries": entries}, 2.0 * entries, precision, _copy) for entries in COPIED]


def layer_tasks(precision: str) -> list[Task]:
    """Return GELU, LayerNorm and bias-and-residual, forward with backward; bytes: each tensor of [tokens, width] once per pass.

    GELU reads 1 and writes 1, its backward reads 2 and writes 1; a norm the same; bias and residual read 2 and write 1, backward
    sums one gradient for the bias (reads 1).
    """
    sizes = [{"tokens": tokens, "width": width} for tokens in STREAM_TOKENS for width in STREAM_WIDTHS]
    return [
        _stream(name, size, passes * size["tokens"] * size["width"], precision, work)
        for size in sizes
        for name, passes, work in (("gelu", 5.0, _gelu), ("norm", 5.0, _norm), ("residual", 4.0, _residual))
    ]


def _stream(name: str, sizes: dict[str, int], entries: float, precision: str, work: Callable[..., Call]) -> Task:
    num_bytes = entries * WIDTH_BYTES[precision]
    return Task(
        kind="stream",
        name=name,
        precision=precision,
        sizes=sizes,
        num_bytes=num_bytes,
        needs_bytes=2 * num_bytes,
        make=lambda device: work(tuple(sizes.values()), precision, device.place),
    )


def _copy(shape: tuple[int, ...], *like: Any) -> Call:
    source = random(shape, *like)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _gelu(shape: tuple[int, ...], *like: Any) -> Call:
    inputs, gradient = random(shape, *like).requires_grad_(), random(shape, *like)
    return lambda: torch.autograd.grad(torch.nn.functional.gelu(inputs), inputs, gradient)


def _norm(shape: tuple[int, ...], *like: Any) -> Call:
    inputs, gradient = random(shape, *like).requires_grad_(), random(shape, *like)
    weight, bias = (random(shape[1:], *like).requires_grad_() for _ in range(2))
    norm = torch.nn.functional.layer_norm
    return lambda: torch.autograd.grad(norm(inputs, shape[1:], weight, bias), (inputs, weight, bias), gradient)


def _residual(shape: tuple[int, ...], *like: Any) -> Call:
    inputs, residual = (random(shape, *like).requires_grad_() for _ in range(2))
    gradient, bias = random(shape, *like), random(shape[1:], *like).requires_grad_()
    return lambda: torch.autograd.grad(inputs + bias + residual, (inputs, residual, bias), gradient)


def step_tasks() -> list[Task]:
    """Return steps of torch's fused AdamW on fp32 parameters."""

    def make(number: int, device: Any) -> Call:
        parameter = torch.nn.Parameter(random((number,), "fp32", device.place))
        parameter.grad = random((number,), "fp32", device.place)
        return torch.optim.AdamW([parameter], lr=1e-3, fused=True).step

    return [
        Task(
            kind="step",
            name="adam",
            precision="fp32",
            sizes={"parameters": number},
            num_bytes=STEP_BYTES * number,
            needs_bytes=16.0 * number,
            make=partial(make, number),
        )
        for number in STEPPED
    ]


def launch_tasks(precision: str) -> list[Task]:
    """Return a row of tiny kernels, and a chain of tiny differentiable operators, forward with backward (two kernels each)."""

    def kernels(device: Any) -> Call:
        one = torch.zeros(8, device=device.place)

        def launch() -> None:
            for _ in range(KERNELS):
                one.add_(1)

        return launch

    def operators(device: Any) -> Call:
        leaf = torch.zeros(8, device=device.place, requires_grad=True)

        def launch() -> None:
            chained: torch.Tensor = leaf
            for _ in range(KERNELS):
                chained = chained * 1.5
            chained.sum().backward()  # type: ignore[no-untyped-call]

        return launch

    named = (("kernel", KERNELS, kernels), ("operator", 2 * KERNELS, operators))
    return [
        Task(kind="launch", name=name, precision=precision, sizes={"kernels": number}, make=make)
        for name, number, make in named
    ]


def all_reduce_tasks(ranks: int) -> list[Task]:
    """Return all-reduces of several sizes; their FLOPs are not counted, their bytes are the tensor's."""

    def make(size: int, device: Any) -> Call:
        message = torch.zeros(size // 4, device=device.place)
        return lambda: dist.all_reduce(message)

    return [
        Task(
            kind="all_reduce",
            name="sum",
            precision="fp32",
            sizes={"ranks": ranks, "message_bytes": size},
            num_bytes=float(size),
            needs_bytes=3.0 * size,
            together=True,
            make=partial(make, size),
        )
        for size in MESSAGES
    ]
