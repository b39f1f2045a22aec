"""Imports everything that a rehearsed rank needs; a server process does so once, and each rank is a fork of it.

Meanwhile Ctrl-C ends that process silently, and an error in a line; afterwards multiprocessing's server ignores Ctrl-C itself, and so do
the ranks (`be_rank`): the parent ends them. This machine's GPUs are hidden from torch: a rank computes on none, and a fork of a process
that has seen one cannot use it, which torch's autograd engine would try for each GPU that it counts.

torch.cuda is redirected to the CPU, as in a CPU rank (train/cpu.py), and functions that torch.compile would make one kernel of are
marked as such while megatron-core is imported.
"""

import gc
import logging
import os
import signal
import sys
import warnings

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # as a shell counts Ctrl-C
sys.excepthook = lambda kind, error, _: print(f"nlp-bench: importing torch: {kind.__name__}: {error}", file=sys.stderr)
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # ROCm's torch reads this variable too
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as the trainer does, or megatron-core warns
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # says that there is a CUDA toolkit and no GPU
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
