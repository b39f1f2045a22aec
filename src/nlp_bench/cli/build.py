"""Compile and warm the fused kernels of this machine, once; a second call finds them and says so."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.config.options import add_fields
from nlp_bench.config.request import Request

if TYPE_CHECKING:
    from nlp_bench.build.environment import Machine
    from nlp_bench.config.system import System

EXAMPLE = "nlp-bench build --apex https://github.com/NVIDIA/apex --te --arch 9.0"
APEX_COMMIT = "8ffc901e50bbf740fdb6d5bccb17f66a6ec8604e"
TRANSFORMER_ENGINE = "transformer_engine[pytorch]==2.11.0"  # megatron-core 0.16.1 asks for >=2.9, <2.12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench build`."""
    parser.add_argument(
        "--apex", metavar="SOURCE", help="git URL or folder of NVIDIA Apex; without it torch's kernels run"
    )
    parser.add_argument(
        "--apex-commit", default=APEX_COMMIT, metavar="COMMIT", help="commit of Apex (default: %(default)s)"
    )
    parser.add_argument(
        "--te",
        nargs="?",
        const=TRANSFORMER_ENGINE,
        metavar="REQUIREMENT",
        help="Transformer Engine, as pip names it (default: %(const)s); its torch part is compiled here",
    )
    parser.add_argument(
        "--arch", metavar="X.Y", help="compute capability of the GPU, where this machine has none to ask"
    )
    text = "file of benchmark/systems: its gpu.compute_capability, software.apex and transformer_engine"
    add_fields(parser, Request, ["system"], {"system": text})
    parser.add_argument("--run", type=Path, metavar="FILE", help="the same, of this run.json's system")
    parser.add_argument(
        "--scanner",
        action="store_true",
        help="only the compiled reader of logs, for a package that was installed without it",
    )
    parser.add_argument("--root", type=Path, help="folder that holds `build` (default: this repository)")


def run(options: argparse.Namespace) -> int:
    """Build and try every kernel; print one line per item and kernel, and the folder; return 0."""
    if options.scanner:
        from nlp_bench.build.scanner import build_scanner

        print(build_scanner())
        return 0
    from nlp_bench.build.environment import Apex, Extras, build_folder
    from nlp_bench.build.maker import make_build
    from nlp_bench.config.catalog import load_system, root
    from nlp_bench.config.run import read_run

    system = read_run(options.run).system if options.run else load_system(options.system) if options.system else None
    source = options.apex or (system.software.apex if system else "")
    apex = Apex(source=source, commit=options.apex_commit) if source else None
    engine = options.te or (system.software.transformer_engine if system else "")
    extras = Extras(apex=apex, transformer_engine=engine)
    print(make_build(build_folder(options.root or root()), _machine(options.arch, system), extras, _say))
    return 0


def _machine(arch: str | None, system: "System | None") -> "Machine":
    """Return what is built for; a login node without a GPU builds for the system's nodes."""
    import re

    from nlp_bench.build.environment import this_machine
    from nlp_bench.errors import UsageError

    if arch and not re.fullmatch(r"\d+\.\d+", arch):
        raise UsageError(f"arch: {arch!r} is not a compute capability like 9.0")
    machine = this_machine(arch)
    if machine.arch != "cpu" or machine.cuda == "none":
        return machine
    if system and system.gpu and system.gpu.compute_capability:
        return this_machine(system.gpu.compute_capability)
    raise UsageError(
        "arch: torch is a CUDA build, but no GPU is seen here; give --arch X.Y, or gpu.compute_capability in the system file"
    )


def _say(line: str) -> None:
    print(line, flush=True)  # a build takes long; each item shows when it is done
