"""`nlp-bench doctor`: what is wrong with this machine or its nodes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import form
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import flag, value
from nlp_bench.config.request import from_options, shared
from nlp_bench.config.values import duration
from nlp_bench.files import write_json
from nlp_bench.immutable import immutable
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nlp_bench.doctor.checks import Examined
    from nlp_bench.doctor.place import Place

RUN = "for which run"
NODES = "testing nodes (a Slurm job; inside an allocation at once; without Slurm this machine)"


@immutable
class Doctor(Command):
    """What is wrong with this machine, before a job waits in the queue: each check with evidence and the command to type next.

    Exit code 0: no check failed; 1: one failed, or a node stands out; 2: a wrong word. docs/doctor.md tells what each check means.
    """

    EXAMPLE = """nlp-bench doctor --system juwels-booster --model 175
  nlp-bench doctor --checks jube,disk,data
  nlp-bench doctor --nodes all                 # a job of a minute on every node of the partition: which ones are slow, or silent"""

    system: str | None = shared("system", group=RUN)
    model: str | None = shared("model", group=RUN)  # File of benchmark/models (default: tiny), or a path.
    launcher: str | None = shared("launcher", group=RUN)
    data_path: str | None = shared("data_path", group=RUN)
    queue: str | None = shared("queue", group=RUN)
    account: str | None = shared("account", group=RUN)
    timelimit: str | None = shared("timelimit", group=RUN)
    gres: str | None = shared("gres", group=RUN)
    container_image: str | None = shared("container_image", group=RUN)
    runs: Path | None = value(metavar="DIR", group=RUN)  # Where runs will be written (default: reports/runs).
    checks: str | None = value(metavar="A,B")  # These checks only (--list names them).
    list: bool = flag()  # Name the checks and end.
    verbose: bool = flag()  # Evidence of the checks that are well, too.
    format: str = form("table", "json")
    which: str | None = value("--nodes", metavar="WHICH", group=NODES)
    """All nodes of the partition that are up, a number of them, or a list: node[1-3],node7."""
    wait: float = value(read=duration("s"), default=3600.0, metavar="SECONDS", group=NODES)
    """How long the job may wait and run (default: 3600)."""
    join: float = value("--join-timeout", "--join", read=duration("s"), default=60.0, metavar="SECONDS", group=NODES)
    """How long the nodes wait for each other (default: 60)."""
    output: Path | None = value(metavar="DIR", group=NODES)
    """Folder of the test's records (default: reports/doctor/TIME)."""
    test_this_node: Path | None = value(metavar="DIR", group=NODES, hidden=True)  # what the job starts

    def run(self) -> int:
        from nlp_bench.doctor.checks import CHECKS, chosen, examine, is_bad
        from nlp_bench.doctor.nodes import test_this_node
        from nlp_bench.doctor.place import look_around

        if self.list:
            width = max(map(len, CHECKS))
            print("\n".join(f"{name:<{width}}  {check.well}" for name, check in CHECKS.items()))
            return 0
        names = chosen(self.checks)
        if self.test_this_node:
            test_this_node(self.test_this_node)
            return 0
        place = look_around(from_options(self), runs=self.runs)
        if self.which is not None:
            return self._nodes(place, self.which, names)
        examined = examine(place, names)
        self._print(place, examined)
        return 1 if is_bad(examined) else 0

    def _print(self, place: "Place", examined: "Sequence[Examined]") -> None:
        from nlp_bench.doctor.checks import counts, record, table

        if self.format == "json":
            print(json.dumps(record(place, examined), indent=1, ensure_ascii=False))
            return
        print(table(examined, is_verbose=self.verbose))
        say(counts(examined))

    def _nodes(self, place: "Place", which: str, names: "Sequence[str]") -> int:
        """Examine this node, test the others, write doctor.json; return 1 where either found a fault."""
        from nlp_bench.doctor.checks import examine, is_bad, record
        from nlp_bench.doctor.nodes import carry_out, choose, end_of_errors, prepare, read_nodes
        from nlp_bench.doctor.verdict import text, verdict

        choice = choose(place, which)
        examined = examine(place, names) if self.checks else []
        folder = prepare(place, choice, self.output, join_s=self.join)
        end = carry_out(place, folder, wait_s=self.wait, say=say)
        found = verdict(choice, read_nodes(folder), place.accelerator, folder=folder, end=end)
        found["errors"] = end_of_errors(folder) if found["bad"] else []
        whole = record(place, examined, nodes=found)
        write_json(folder / "doctor.json", whole)
        if self.format == "json":
            print(json.dumps(whole, indent=1, ensure_ascii=False))
        else:
            if examined:
                self._print(place, examined)
                print()
            print(text(found, end))
        return 1 if found["bad"] or end.why or is_bad(examined) else 0
