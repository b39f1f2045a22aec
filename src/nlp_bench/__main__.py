"""`python -m nlp_bench` is the same as the command `nlp-bench`."""

import sys

from nlp_bench.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
