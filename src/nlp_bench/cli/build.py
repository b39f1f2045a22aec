"""Compile and warm the fused kernels of this machine, once; a second call finds them and says so."""

import argparse
from pathlib import Path

EXAMPLE = "nlp-bench build --apex https://github.com/NVIDIA/apex --arch 9.0"
APEX_COMMIT = "8ffc901e50bbf740fdb6d5bccb17f66a6ec8604e"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench build`."""
    parser.add_argument(
        "--apex", metavar="SOURCE", help="git URL or folder of NVIDIA Apex; without it torch's kernels run"
    )
    parser.add_argument(
        "--apex-commit", default=APEX_COMMIT, metavar="COMMIT", help="commit of Apex (default: %(default)s)"
    )
    parser.add_argument(
        "--arch", metavar="X.Y", help="compute capability of the GPU, where this machine has none to ask"
    )
    parser.add_argument("--root", type=Path, help="folder that holds `build` (default: this repository)")


def run(options: argparse.Namespace) -> int:
    """Build; print one line per item and the folder; return 0."""
    import re

    from nlp_bench.build.environment import build_folder
    from nlp_bench.build.key import Apex, this_machine
    from nlp_bench.build.maker import make_build
    from nlp_bench.errors import UsageError

    if options.arch and not re.fullmatch(r"\d+\.\d+", options.arch):
        raise UsageError(f"arch: {options.arch!r} is not a compute capability like 9.0")
    apex = Apex(source=options.apex, commit=options.apex_commit) if options.apex else None
    folder = make_build(build_folder(options.root or _root()), this_machine(options.arch), apex, _say)
    print(folder)
    return 0


def _root() -> Path:
    from nlp_bench.config.catalog import root

    return root()


def _say(line: str) -> None:
    print(line, flush=True)  # a build takes long; each item shows when it is done
