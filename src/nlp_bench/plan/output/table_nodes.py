"""The answer to: how many nodes, as text or markdown."""

from collections.abc import Sequence

from nlp_bench.plan.answer.answer import Row
from nlp_bench.plan.answer.nodes import Nodes
from nlp_bench.plan.output.table import batch, columns, common, say, seconds
from nlp_bench.show.grid import Style

MAX_SPANS = 12


def nodes_lines(found: Nodes, style: Style) -> list[str]:
    """Return the answer to: how many nodes within this time."""
    problem, rows = found.problem, _rows(found)
    asked = f"{problem.model.name} on {problem.system.name} within {found.limit_s:g} s, {batch(problem)}"
    lines = [*style.heading(f"{asked}: predicted, not measured"), *say(style, *_found(found)), ""]
    if rows:
        lines += [*style.table(columns(rows)), "", *say(style, f"with {', '.join(common(rows))}")]
    peak = f"on less than {found.fewest} nodes not even the data sheet's peak would do"
    divides = (
        f"the global batch of {problem.global_batch_size} stays fixed; numbers of nodes from {found.first} to {problem.nodes} that some "
        f"layout divides with it: {ranges(found.usable)}"
    )
    return lines + say(style, peak, divides)


def _rows(found: Nodes) -> list[Row]:
    rows = [found.within, found.surely if found.surely is not found.within else None, found.fastest]
    return [row for row in rows if row is not None]


def _found(found: Nodes) -> list[str]:
    most = found.problem.nodes
    if found.within is None:
        if found.fastest is None:
            return [f"impossible on at most {most} nodes: nothing fits"]
        best = found.fastest
        return [f"impossible on at most {most} nodes: the best reachable is {seconds(best)} on {best.nodes} nodes"]
    lines = [
        f"{found.within.nodes} nodes: predicted {seconds(found.within)}, {100 * (found.margin or 0):.1f} % below the limit"
    ]
    if found.surely is None:
        return [*lines, f"up to {most} nodes the upper end of the 90 % interval is never within the limit"]
    if found.surely is found.within:
        return [*lines, "the upper end of the 90 % interval is within the limit too"]
    return [
        *lines,
        f"{found.surely.nodes} nodes: the upper end of the 90 % interval is within the limit too: {seconds(found.surely)}",
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Return "1, 2, 4-6" for 1 2 4 5 6; of many the first, and how many there are."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    if len(words) > MAX_SPANS:
        return f"{', '.join(words[:MAX_SPANS])}, … ({len(numbers)} in all)"
    return ", ".join(words) or "none"
