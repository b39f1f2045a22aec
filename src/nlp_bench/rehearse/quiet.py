"""Makes Ctrl-C end the server process silently, and an error in a line, while it imports torch. Imported first, and by that process only.

Afterwards multiprocessing's server ignores Ctrl-C itself, and so do the ranks (`be_rank`): the parent ends them.

It hides this machine's GPUs from torch: a rank computes on none, and a fork of a process that has seen one cannot use it, which torch's
autograd engine would try for each GPU that it counts.
"""

import logging
import os
import signal
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # ROCm's torch reads this variable too
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # says that there is a CUDA toolkit and no GPU
signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # as a shell counts Ctrl-C
sys.excepthook = lambda kind, error, _: print(f"nlp-bench: importing torch: {kind.__name__}: {error}", file=sys.stderr)
