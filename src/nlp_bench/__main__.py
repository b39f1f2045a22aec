"""`python -m nlp_bench`, or `python .../nlp_bench/__main__.py`, is the same as the command `nlp-bench`.

Nothing of the current folder can be imported: `-m` would put it first, and a run folder or somebody else's evidence may hold a random.py.
"""

import os
import sys

_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib imports more, from wherever
if not getattr(sys.flags, "safe_path", False):  # Python 3.11 and PYTHONSAFEPATH: then nothing was put there
    sys.path[0] = _parent  # in place of the current folder, or of this file's, whose names are not those of modules
elif _parent not in sys.path:
    sys.path.insert(0, _parent)

try:
    from nlp_bench.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before anything is started
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
