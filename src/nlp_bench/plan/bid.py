"""A bid: a committed time, and all that its prediction rests on. Nothing in it was measured by the bidder."""

import dataclasses
import hashlib
import re
import shlex
from pathlib import Path
from typing import Any

from nlp_bench.clock import now
from nlp_bench.config import catalog
from nlp_bench.config.origin import origin
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.constants import deviations as constant_deviations
from nlp_bench.plan.constants import own_file, read_constants
from nlp_bench.plan.neighbours import Near, extrapolated, nearest, offered, read_points
from nlp_bench.plan.problem import Problem
from nlp_bench.plan.ranking import Answer, Row
from nlp_bench.plan.sweep import run_words

SCHEMA = "nlp-bench/bid/1"


@immutable
class Bid:
    """One page. Every time and memory in it is predicted, except those of `near`, which are published measurements."""

    commitment_s: float  # steady time that is committed to
    basis: str  # how it follows from the prediction
    row: Row  # the configuration and what is predicted of it
    problem: Problem
    changed: tuple[str, ...]
    """What of its model, its machine and the planner's tables is not as nlp-bench ships it, or contradicts a data sheet."""
    near: tuple[Near, ...]  # published measurements nearest to it
    extrapolated: tuple[str, ...]  # where the configuration lies outside their range
    rules: tuple[str, ...]  # which of the benchmark's rules the offer keeps
    constants: str  # the file of the planner's constants and its hash
    sheets: str  # the same of the table of data sheets
    program: str  # version and commit of nlp-bench
    created: str  # time of its making, ISO 8601
    not_measured: tuple[str, ...]
    commands: dict[str, str]  # the commands that prove it, by purpose

    def record(self) -> dict[str, Any]:
        """Return the JSON object of the sheet."""
        row, problem = self.row, self.problem
        return {
            "schema": SCHEMA,
            "what": "a prediction, not a measurement",
            "created": self.created,
            "program": self.program,
            "constants": self.constants,
            "data_sheets": self.sheets,
            "commitment_s": self.commitment_s,
            "basis": self.basis,
            "not_as_shipped": list(self.changed),
            "tokens": problem.tokens,
            "model": problem.model.name,
            "system": problem.system.name,
            "nodes": row.nodes,
            "gpus_per_node": problem.gpus_per_node,
            "predicted": {
                "report_time_s": row.report_s,
                "low90_s": row.low_s,
                "high90_s": row.high_s,
                "iteration_s": row.iteration_s,
                "tokens_per_second": row.tokens_per_second,
                "time_shares": row.shares,
                "memory_gib": row.memory_gib,
                "memory_parts_gib": row.memory_parts_gib,
                "fits": row.fits,
            },
            "gpu_memory_gib": row.capacity_gib,
            "configuration": dataclasses.asdict(row.sizes),
            "commands": self.commands,
            "nearest_measurements": [dataclasses.asdict(point) for point in self.near],
            "extrapolated": list(self.extrapolated),
            "rules": list(self.rules),
            "not_measured": list(self.not_measured),
        }


def bid(  # noqa: PLR0913  # each is a file or an option
    answer: Answer,
    *,
    margin: float | None = None,
    model: str | None = None,
    system: str | None = None,
    constants: Path | None = None,
    points: Path | None = None,
) -> Bid:
    """Offer the best configuration of an answer that fits.

    `margin` is added to the predicted time, in percent of it; None: the upper end of the 90 % interval is committed to.
    `model` and `system` are names or paths, `points` are published measurements; None: the checkout's.
    Raises NlpBenchError where no configuration fits, UsageError on a margin below 0 and on a number format that no run of ours has.
    """
    if not answer.rows:
        raise NlpBenchError(
            "--bid: no configuration is predicted to fit the GPU, so there is nothing to offer; add --nodes"
        )
    row, problem = answer.rows[0], answer.problem
    problem.refuse_other_format("--bid")
    commitment_s, basis = _commitment(row, margin)
    offer, rows, made = offered(problem, row.sizes), read_points(points), origin()
    table = _identity(constants or catalog.table("plan.toml"))
    if problem.constants != read_constants(constants):
        table += ", corrected by measured runs (--learn)"
    deviations, changes = problem.deviations_with(row.sizes.recompute), constant_deviations(problem.constants)
    of_file = own_file()  # the next lines say it with what --constants and --learn change
    words = run_words(problem, row.sizes, model=model or problem.model.name, system=system or problem.system.name)
    commit = made.commit or ""
    state = commit[commit.index("+") :] if "+" in commit else ""
    return Bid(
        commitment_s=commitment_s,
        basis=basis,
        row=row,
        problem=problem,
        changed=(
            *(f"{deviation}: not the benchmark" for deviation in deviations),
            *(doubt for doubt in problem.doubts if doubt not in of_file),
            *(f"the constants, {table}: {one}" for one in changes),
        ),
        near=nearest(offer, rows),
        extrapolated=tuple(extrapolated(offer, rows)),
        rules=tuple(_rules(problem, deviations)),
        constants=table,
        sheets=_identity(catalog.table("accelerators.toml")),
        program=f"nlp-bench {made.version}" + (f", commit {commit[:12]}{state}" if commit else ""),
        created=now(),
        not_measured=(
            f"no run of this configuration on {problem.system.name}: neither time nor memory",
            "stability over hours: failures of nodes, slow nodes, a shared network or file system",
            "power and energy, and the loss that is reached",
        ),
        commands={verb: shlex.join(["nlp-bench", verb, *words]) for verb in ("rehearse", "submit")},
    )


def _commitment(row: Row, margin: float | None) -> tuple[float, str]:
    if margin is None:
        return row.high_s, "upper end of the 90 % interval of the prediction"
    if not 0 <= margin <= 1000:
        raise UsageError(
            f"--margin: {margin:g} is not a number of percent from 0 to 1000; 10 commits to 1.1 times the prediction"
        )
    committed = row.report_s * (1 + margin / 100)
    place = "below" if committed < row.high_s else "at or above"
    return (
        committed,
        f"predicted time + {margin:g} % margin, {place} the upper end of the 90 % interval ({row.high_s:.0f} s predicted)",
    )


def _rules(problem: Problem, deviations: tuple[str, ...]) -> list[str]:
    shape, name = problem.model.architecture, problem.model.name
    kept = f"shape and training parameters of {name} unchanged"
    broken = f"NOT OBEYED: this is not the {name} that nlp-bench ships: {', '.join(deviations)}"
    titles = [
        f"{table.get('title')} ({file}.toml): {broken if deviations else kept}"
        for file, table in catalog.rule_files()
        if name in table.get("models", ())
    ]
    return [
        f"{problem.batch} samples, sequence {shape.sequence_length} tokens, {problem.precision}",
        f"steady time: time of {problem.tokens:,} tokens at the predicted tokens per second",
        *(titles or [f"no file of benchmark/rules is about model {name}"]),
    ]


def _identity(path: Path) -> str:
    """Return a file's name, the newest date in it (of its fits), and the first digits of its SHA-256."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NlpBenchError(f"{path} cannot be read: {error.strerror}") from error
    dates = re.findall(rb"\b20\d\d-\d\d-\d\d\b", content)
    newest = f", newest date in it {max(dates).decode()}" if dates else ""
    return f"{path.name}{newest}, SHA-256 {hashlib.sha256(content).hexdigest()[:12]}"
