"""Weight gradients that the matrix product itself adds to their float32 sum, as cuBLAS does on a GPU."""

from collections.abc import Callable
from typing import Any

import torch

from nlp_bench.rehearse.flops import product
from nlp_bench.rehearse.tracker import Tracker
from nlp_bench.train.kernels import products


def way_of(tracker: Tracker) -> Callable[[torch.device, torch.dtype], tuple[str, products.Accumulate]]:
    """Return what stands for `native_way`, which would try the product on the GPU."""

    def accumulate(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> Any:
        tracker.flops["addmm"] += product(gradient.t(), inputs)
        return total

    def way(_device: torch.device, dtype: torch.dtype) -> tuple[str, products.Accumulate]:
        if dtype == torch.float32:
            return next(iter(products.WAYS)), products.same_type
        return next(iter(products.WAYS)), accumulate

    return way
