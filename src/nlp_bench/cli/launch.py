"""Start torchrun with this node's ranks of one run; the job script starts one such process per node."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlp_bench.config.run import Run
    from nlp_bench.launch.nodes.rendezvous import Rendezvous

EXAMPLE = "srun --ntasks-per-node=1 nlp-bench launch RUN_DIR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench launch`."""
    parser.add_argument("run_dir", type=Path, help="folder with run.json")
    parser.add_argument("--addresses", action="store_true", help="print the addresses of the job's nodes instead")
    parser.add_argument(
        "--port", action="store_true", help="print a free port of this node for the ranks to meet at instead"
    )
    parser.add_argument(
        "--again",
        type=int,
        metavar="STATUS",
        help="say by exit code 0 whether srun, which has ended with this status, is to be called once more instead",
    )
    parser.add_argument(
        "--elapsed", type=int, default=0, metavar="SECONDS", help="with --again: how long the job has been running"
    )
    parser.add_argument("--print", action="store_true", help="print the torchrun command instead of starting it")


def run(options: argparse.Namespace) -> int:
    """Start this node's recorder and torchrun, and watch over both to their end; return torchrun's exit status."""
    import shlex

    from nlp_bench import seal
    from nlp_bench.config.run import read_run
    from nlp_bench.config.scheduler import get_scheduler
    from nlp_bench.errors import NlpBenchError
    from nlp_bench.launch import starts
    from nlp_bench.launch.folder import refuse_importable
    from nlp_bench.launch.nodes.rendezvous import FIRST_PORT, NUM_PORTS, addresses, free_port, meet, port_of
    from nlp_bench.launch.nodes.torchrun import torchrun_command
    from nlp_bench.orphans import die_with_parent

    if not (options.addresses or options.port or options.print):
        die_with_parent()  # first of all: a script that was killed by now has nobody to wait for the training
    run_dir = options.run_dir.resolve()
    resolved = read_run(run_dir)
    if options.again is not None:
        return int(not starts.once_more(resolved, run_dir, exit_status=options.again, elapsed_s=options.elapsed))
    if not (options.addresses or options.port or options.print):
        starts.claim(resolved, run_dir)
    sealed = "" if options.print else seal.refuse_changed(run_dir)
    refuse_importable(run_dir)
    if options.addresses:
        if (run_dir / "outcome.json").exists():  # requeued by hand, or by Slurm after the run was given up
            raise NlpBenchError(f"{run_dir} holds a run that has ended (outcome.json); nothing is trained in it again")
        print(" ".join(addresses(resolved)))
        return 0
    if options.port:
        own = get_scheduler(resolved.launch.launcher).allocation()
        print(free_port(port_of(own.job_id if own else "0", run_dir), (FIRST_PORT, NUM_PORTS)))
        return 0
    rendezvous = meet(resolved)
    command = torchrun_command(resolved, rendezvous, run_dir)
    if options.print:
        print(shlex.join(command))
        return 0
    return _train(resolved, run_dir, rendezvous, command, sealed)


def _train(resolved: "Run", run_dir: Path, rendezvous: "Rendezvous", command: list[str], sealed: str) -> int:
    import os
    import sys

    from nlp_bench import seal
    from nlp_bench.build.environment import build_environment, build_warning
    from nlp_bench.config.catalog import root
    from nlp_bench.launch import ambient
    from nlp_bench.launch.nodes.rendezvous import check_meeting
    from nlp_bench.launch.nodes.supervise import supervise
    from nlp_bench.launch.nodes.torchrun import rank_environment, write_provenance
    from nlp_bench.machine.recorder import start_recorder

    check_meeting(rendezvous)
    foreign = ambient.taken_out(os.environ, ambient.OF_RANKS, resolved.system.environment)
    for name in foreign:  # of torchrun's, and not from the system file: it would change what run.json says
        del os.environ[name]
    environment = {**rank_environment(resolved, build_environment(root())), seal.VARIABLE: sealed}
    if rendezvous.is_host:
        if foreign:
            print(ambient.said(foreign), file=sys.stderr, flush=True)
        if warning := build_warning(environment):
            print(warning, flush=True)
        write_provenance(run_dir, command, environment, resolved.data.path, taken_out=foreign)
    os.chdir(run_dir)
    start_recorder(resolved, run_dir)
    under_script = "NLP_BENCH_NODES" in os.environ  # by hand, the log is a terminal
    return supervise(
        command, {**os.environ, **environment}, resolved, run_dir, watches=under_script and rendezvous.is_host
    )
