"""Dropout as on a GPU."""

import torch


def dropout(tensor: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """Keep a mask of one byte per element; a CPU keeps one of the tensor's type (torch's Dropout.cpp, `is_fused_kernel_acceptable`)."""
    del inplace
    return torch.native_dropout(tensor, p, training)[0] if training and p else tensor
