"""Whatever a message or a page tells a person to type exists: subcommands, verbs and options are held against the parsers."""

import ast
import re
from collections.abc import Iterator

import pytest
from support.processes import ROOT

from nlp_bench.cli.parser import HINTS, parser_of
from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.train.arguments import spellings

pytestmark = pytest.mark.slow

SOURCES = sorted((ROOT / "src/nlp_bench").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^|[\s`'\"(])nlp-bench ([a-z]+)(?: ([a-z]+))?([^\n;`,)&|#]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?!_)\b")
FOREIGN = {"--standalone", "--tag"}
"""Options of torchrun and of JUBE that errors name."""
QUOTED = re.compile(r"`nlp-bench ([a-z]+)")


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown_in_commands(text: str, known: dict[str, set[str]]) -> set[str]:
    found = {name for name in QUOTED.findall(text) if name not in SUBCOMMANDS}
    for name, verb, rest in COMMAND.findall(text):
        whole = f"{name} {verb}" if f"{name} {verb}" in known else name
        unquoted = re.sub(r"\"[^\"]*\"|'[^']*'", "", rest)  # --train-args holds the trainer's
        found |= {f"{whole} {one}" for one in OPTION.findall(unquoted) if one not in known.get(whole, known["any"])}
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    names = [name for one, entry in SUBCOMMANDS.items() for name in (one, *(f"{one} {verb}" for verb in entry.verbs))]
    found = {name: set(parser_of(name).spellings) for name in names}
    return found | {"any": set().union(*found.values())}


def test_what_sources_and_pages_say_to_type_exists(known: dict[str, set[str]]) -> None:
    """Commands everywhere, and options in errors."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    whole = {path: "\n".join(texts(tree)) for path, tree in trees.items()}
    whole |= {path: path.read_text(encoding="utf-8") for path in PAGES}
    found = {path: unknown_in_commands(text, known) for path, text in whole.items()}
    allowed = known["any"] | set(spellings()) | set(HINTS) | FOREIGN
    for path, tree in trees.items():
        raised = "\n".join(text for node in ast.walk(tree) if isinstance(node, ast.Raise) for text in texts(node))
        found[path] |= {*OPTION.findall(raised)} - allowed
    assert {path: words for path, words in found.items() if words} == {}
    assert sum(len(COMMAND.findall(text)) for text in whole.values()) > 300  # the pattern finds something


def test_a_command_that_there_is_not_is_found(known: dict[str, set[str]]) -> None:
    assert unknown_in_commands("see: nlp-bench submit --mock-dat X", known) == {"submit --mock-dat"}
    assert unknown_in_commands("`nlp-bench plan learn --top 3`", known) == {"plan learn --top"}
    assert unknown_in_commands("with `nlp-bench sumbit`", known) == {"sumbit"}
    assert unknown_in_commands('nlp-bench submit --mock-data --train-args "--lr 3"', known) == set()
