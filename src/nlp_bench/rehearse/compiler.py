"""A stand-in for torch.compile: the function as it is, whose intermediate results do not count as memory."""

import functools
from collections.abc import Callable
from typing import Any

from nlp_bench.rehearse.tracker import Tracker

_COMPILING: list[Tracker] = []
"""The tracker of a rank whose kernels are compiled; none on a CPU rank."""


def compile_for(tracker: Tracker) -> None:
    """Let all functions that `one_kernel` has wrapped be one kernel each from now on."""
    _COMPILING[:] = [tracker]


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as torch.compile would run it, as far as memory goes: what is left of it are results and saved tensors.

    Which tensors it saves for the backward pass autograd decides, here as with the compiler (whose partitioner may save less).
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if not _COMPILING:
            return function(*arguments, **options)
        with _COMPILING[0].storages.one_kernel():
            return function(*arguments, **options)

    return run
