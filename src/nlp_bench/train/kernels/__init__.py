"""Which kernels run: Transformer Engine's, Apex's or torch's own, by what is installed; one file per maker."""

from nlp_bench.train.kernels.choice import choose_kernels
from nlp_bench.train.kernels.kernels import Kernels

__all__ = ["Kernels", "choose_kernels"]
