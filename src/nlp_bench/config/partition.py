"""What the partition allows: its name, its nodes, its longest time; asked of Slurm before anything is submitted."""

from nlp_bench.config.machine import ask_slurm, scontrol_field
from nlp_bench.config.run import Run
from nlp_bench.config.slurm_text import records
from nlp_bench.config.values import seconds_of
from nlp_bench.errors import UsageError


def check(run: Run) -> None:
    """Refuse a partition that does not exist, more nodes than it has, and a longer time than it gives.

    Silent where Slurm does not list its partitions: sbatch then decides.
    """
    listing = ask_slurm("scontrol", "show", "partition", "--oneliner")
    found = records(listing or "", "PartitionName")
    if not found:
        return
    if "," in run.launch.queue:
        return  # a list of partitions: Slurm takes the first that fits
    queue = run.launch.queue or next((name for name, line in found.items() if "Default=YES" in line), "")
    if queue not in found:
        raise UsageError(f"launch.queue: Slurm has no partition {queue!r} (it has: {', '.join(sorted(found))})")
    _check_nodes(run, queue, found[queue])
    longest = seconds_of(scontrol_field(found[queue], "MaxTime"))
    wanted = seconds_of(run.launch.timelimit)
    if longest is not None and wanted is not None and wanted > longest:
        raise UsageError(
            f"launch.timelimit: {run.launch.timelimit}, but partition {queue} gives at most {scontrol_field(found[queue], 'MaxTime')}"
        )


def _check_nodes(run: Run, queue: str, line: str) -> None:
    limits = [scontrol_field(line, "TotalNodes"), scontrol_field(line, "MaxNodes")]
    most = min((int(limit) for limit in limits if limit.isdigit()), default=None)
    if most is not None and run.parallel.nodes > most and run.system.slurm.oversize == "refuse":
        raise UsageError(
            f"parallel.nodes: {run.parallel.nodes} nodes, but partition {queue} has at most {most}; "
            "choose fewer --nodes or another --queue"
        )
