"""One dataclass per subcommand: its options, `EXAMPLE` and `run`; `registry` names their files, of which only the one called is imported."""

import sys

try:
    import nlp_bench.cli.main  # noqa: F401  # first, before any command: pip's script for nlp-bench has no place for this
except (EOFError, TypeError, ValueError) as error:
    from nlp_bench.bytecode import cut_bytecode

    if not (why := cut_bytecode(error)):
        raise
    sys.exit(f"nlp-bench: error: {why}")
