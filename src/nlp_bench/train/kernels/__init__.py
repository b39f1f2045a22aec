"""Chooses the kernels of Transformer Engine, Apex or torch; one file per provider."""

from nlp_bench.train.kernels.choice import choose_kernels
from nlp_bench.train.kernels.kernels import Kernels

__all__ = ["Kernels", "choose_kernels"]
