"""What every rehearsed rank needs imported; a server process imports it once, and each rank is a fork of that one.

The names of torch.cuda that megatron-core asks for are answered by the CPU, as in a CPU rank (train/cpu.py). What torch.compile
would make one kernel of is marked as such while megatron-core is imported.
"""

import gc
import os
import warnings

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as the trainer does, or megatron-core warns
# of packages that are not installed: as the trainer does
warnings.filterwarnings("ignore", module=r"(megatron|torch)\.")

import torch  # noqa: E402  # behind the two lines above
import torch._dynamo  # noqa: E402  # which torch's functions for shapes import at their first use

from nlp_bench.rehearse.tracker import one_kernel  # noqa: E402
from nlp_bench.train import cpu  # noqa: E402

torch.set_num_threads(1)  # before any operator has started threads, which a fork would not have
cpu.install(compiler=one_kernel)

from nlp_bench.rehearse import iteration  # noqa: E402, F401  # imports the rest

gc.freeze()  # what was imported is never garbage: ranks need not look through it
