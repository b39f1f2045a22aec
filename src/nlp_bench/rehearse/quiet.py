"""Makes Ctrl-C end the server process silently, and an error in a line, while it imports torch. Imported first, and by that process only.

Afterwards multiprocessing's server ignores Ctrl-C itself, and so do the ranks (`be_rank`): the parent ends them.
"""

import os
import signal
import sys

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # as a shell counts Ctrl-C
sys.excepthook = lambda kind, error, _: print(f"nlp-bench: importing torch: {kind.__name__}: {error}", file=sys.stderr)
