"""Imports between the packages point one way."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/nlp_bench"
OUTSIDE = {"__init__", "__main__", "api"}
"""Doors of the package, which nothing inside it may import."""


def package(module: str) -> str:
    first = module.split(".")[1]
    return first if (SOURCE / first).is_dir() else "base" if first not in OUTSIDE else first


@cache
def imports() -> dict[str, set[str]]:
    """Package -> packages that it imports, those inside functions among them."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        here = package("nlp_bench." + ".".join(path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nlp_bench":
                names = [f"{node.module}.{name.name}" for name in node.names]
            elif isinstance(node, ast.Import):
                names = [name.name for name in node.names if name.name.startswith("nlp_bench.")]
            found[here] |= {package(name) for name in names} - {here}
    return found


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for one in graph.get(waiting.pop(), set()) - seen:
            seen.add(one)
            waiting.append(one)
    return seen


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    graph = imports()
    reach = {one: reached(graph, one) for one in graph}
    knots = {frozenset({one} | {other for other in reach[one] if one in reach.get(other, ())}) for one in graph}
    assert [sorted(knot) for knot in knots if len(knot) > 1] == []


def test_nothing_inside_imports_the_doors() -> None:
    assert {(one, door) for one, those in imports().items() for door in those & OUTSIDE if one not in OUTSIDE} == set()
