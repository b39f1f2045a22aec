"""Start torchrun with this node's ranks of one run; the job script starts one such process per node."""

import argparse
from pathlib import Path

EXAMPLE = "srun --ntasks-per-node=1 nlp-bench launch RUN_DIR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench launch`."""
    parser.add_argument("run_dir", type=Path, help="folder with run.json")
    parser.add_argument("--addresses", action="store_true", help="print the addresses of the job's nodes instead")
    parser.add_argument("--print", action="store_true", help="print the torchrun command instead of starting it")


def run(options: argparse.Namespace) -> int:  # noqa: RET503  # execvpe does not return
    """Start this node's recorder, then replace this process by torchrun, so that signals and the exit status go straight through."""
    import os
    import shlex

    from nlp_bench.build.environment import build_environment, build_warning
    from nlp_bench.config.catalog import root
    from nlp_bench.config.run import read_run
    from nlp_bench.launch.provenance import write_provenance
    from nlp_bench.launch.rendezvous import addresses, meet
    from nlp_bench.launch.torchrun import rank_environment, torchrun_command
    from nlp_bench.machine.start import start_recorder
    from nlp_bench.orphans import die_with_parent

    run_dir = options.run_dir.resolve()
    resolved = read_run(run_dir)
    if options.addresses:
        print(" ".join(addresses(resolved)))
        return 0
    rendezvous = meet(resolved)
    command = torchrun_command(resolved, rendezvous, run_dir)
    if options.print:
        print(shlex.join(command))
        return 0
    environment = rank_environment(resolved, build_environment(root()))
    if rendezvous.is_host:
        if warning := build_warning(environment):
            print(warning, flush=True)
        write_provenance(run_dir, command, environment, resolved.data.path)
    os.chdir(run_dir)
    die_with_parent()
    start_recorder(resolved, run_dir)
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606  # the point: no shell in between
