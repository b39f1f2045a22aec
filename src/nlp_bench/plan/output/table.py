"""Configurations as a table, and the words that all answers share."""

import textwrap
from collections.abc import Iterable, Sequence

from nlp_bench.plan.answer.answer import Row
from nlp_bench.plan.search.problem import Problem
from nlp_bench.show.grid import TEXT, Column, Style, shown, tokens_in_words

MARK = "*"
"""Stands behind the rank of the published configuration."""
WIDTH = 120
"""Letters of a sentence's line on a terminal."""


def say(style: Style, *sentences: str) -> list[str]:
    """Return sentences as lines; on a terminal long ones are broken."""
    if style is not TEXT:
        return [style.sentence(text) for text in sentences]
    return [line for text in sentences for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def question(problem: Problem) -> str:
    """Return what is asked, in one line."""
    gpu = problem.system.gpu.name if problem.system.gpu else ""
    machine = f"{problem.nodes} nodes x {problem.gpus_per_node} {gpu} = {problem.num_gpus} GPUs"
    return f"{problem.model.name} on {problem.system.name}, {machine}, {batch(problem)}: predicted, not measured"


def batch(problem: Problem) -> str:
    """Return the batch and the tokens."""
    return f"global batch {problem.global_batch_size}, {tokens_in_words(problem.tokens)} tokens"


def columns(rows: Sequence[Row]) -> list[Column]:
    """Return the columns of a table of configurations."""
    sizes, usual = [row.sizes for row in rows], common(rows)
    own = [
        ", ".join([*_ends(row), *(word for word in row.sizes.switches.values() if word not in usual)]) for row in rows
    ]
    nodes = [row.nodes for row in rows]
    return shown([
        column("rank", [f"{row.rank or '-'}{MARK if row.published else ''}" for row in rows]),
        column("nodes", nodes if len(set(nodes)) > 1 else ["" for _ in rows]),
        column("report\ntime s", [digits(row.report_s) for row in rows]),
        column("90 %\ninterval", [f"{digits(row.low_s)}-{digits(row.high_s)}" for row in rows]),
        column("\ntokens/s", [f"{row.tokens_per_second:.0f}" for row in rows]),
        column("iteration\ns", [f"{row.iteration_s:.4g}" for row in rows]),
        column("TP", [one.tp for one in sizes]),
        column("PP", [one.pp for one in sizes]),
        column("VPP", [one.vpp for one in sizes]),
        column("CP", [one.cp for one in sizes]),
        column("DP", [one.dp for one in sizes]),
        column("micro\nbatch", [one.micro_batch_size for one in sizes]),
        column("GAS", [one.gas for one in sizes]),
        column(f"memory GiB\nof {rows[0].capacity_gib:g}", [f"{row.memory_gib:.1f}" for row in rows]),
        column("fits", [row.fits for row in rows], is_text=True),
        column("what limits it", [row.limits for row in rows], is_text=True),
        column("apart from that", own, is_text=True),
    ])  # fmt: skip


def column(heading: str, cells: Iterable[object], *, is_text: bool = False) -> Column:
    """Return a column of anything that has a text."""
    return Column(heading=heading, cells=tuple(str(cell) for cell in cells), is_text=is_text)


def digits(value: float) -> str:
    """Return a number with three digits at least, none behind the point from a thousand on."""
    return f"{value:.{0 if value >= 1000 else 1 if value >= 100 else 2}f}"


def _ends(row: Row) -> list[str]:
    first, last = row.sizes.first_layers, row.sizes.last_layers
    if first and last:
        return [f"first and last stage {first} and {last} layers"]
    return [f"{name} stage {number} layers" for name, number in (("first", first), ("last", last)) if number]


def common(rows: Sequence[Row]) -> list[str]:
    """Return the settings of the switches that all rows but the published one share; of that one the table names what differs."""
    best = [row.sizes.switches for row in rows if not row.published] or [row.sizes.switches for row in rows]
    words = {word: None for switches in best for word in switches.values()}
    names = {word: name for switches in best for name, word in switches.items()}
    return [word for word in words if all(switches.get(names[word], word) == word for switches in best)]


def seconds(row: Row) -> str:
    """Return the report time with its interval."""
    return f"{digits(row.report_s)} s ({digits(row.low_s)}-{digits(row.high_s)} s)"


def held(row: Row) -> str:
    """Return what the memory is spent on."""
    return ", ".join(f"{name} {part:.1f} GiB" for name, part in row.memory_parts_gib.items() if part >= 0.05)


def switches(row: Row) -> str:
    """Return the settings of the switches."""
    return ", ".join(row.sizes.switches.values())
