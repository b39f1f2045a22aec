"""What the server process does first: Ctrl-C while it imports torch ends it without a word. Imported by that process only.

Afterwards multiprocessing's server ignores Ctrl-C itself, and so do the ranks (`be_rank`): the parent ends them.
"""

import os
import signal

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # as a shell counts Ctrl-C
