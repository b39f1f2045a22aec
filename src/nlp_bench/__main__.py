"""`python -m nlp_bench` is the same as the command `nlp-bench`."""

import sys

try:
    from nlp_bench.cli.main import main
except KeyboardInterrupt:  # Ctrl-C in the first moments, when nothing is begun
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
