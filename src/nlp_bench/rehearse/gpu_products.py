"""Weight gradients that the matrix product itself adds to their float32 sum, as cuBLAS does on a GPU."""

from collections.abc import Callable
from typing import Any

import torch

from nlp_bench.rehearse.flops import product
from nlp_bench.rehearse.tracker import Tracker
from nlp_bench.train.kernels import native


def way_of(tracker: Tracker) -> Callable[[torch.device, torch.dtype], tuple[str, native.Accumulate]]:
    """Return what stands for `native_way`, which would try the product on the GPU."""

    def accumulate(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> Any:
        tracker.flops["addmm"] += product(gradient.t(), inputs)
        return total

    def way(_device: torch.device, dtype: torch.dtype) -> tuple[str, native.Accumulate]:
        if dtype == torch.float32:
            return next(iter(native.WAYS)), native.same_type
        return next(iter(native.WAYS)), accumulate

    return way
