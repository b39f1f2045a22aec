"""Imports everything that a rehearsed rank needs; a server process does so once, and each rank is a fork of it.

torch.cuda is redirected to the CPU, as in a CPU rank (train/cpu.py), and functions that torch.compile would make one kernel of are
marked as such while megatron-core is imported.
"""

import gc
import os
import warnings

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as the trainer does, or megatron-core warns
# of packages that are not installed: as the trainer does
warnings.filterwarnings("ignore", module=r"(megatron|torch)\.")

import torch  # noqa: E402  # after the lines above
import torch._dynamo  # noqa: E402  # which torch's functions for shapes import at their first use

from nlp_bench.rehearse.tracker import one_kernel  # noqa: E402
from nlp_bench.train import cpu  # noqa: E402

torch.set_num_threads(1)  # before any operator has started threads, which a fork would not have
cpu.install(compiler=one_kernel)

from nlp_bench.rehearse import iteration  # noqa: E402, F401  # imports the rest

gc.freeze()  # what was imported is never garbage: the collector of a rank can skip it
