"""How many random single changes of the source the tests notice; by hand and nightly (docs/reliability.md has the score).

    python tests/mutation.py --area rules --num 40 --seed 1
    python tests/mutation.py --module src/nlp_bench/rules/limit.py --tests tests/rules --num 0    # 0: every change

A change is made in a copy of the checkout, in one place of one file. Kinds: a comparison turned round or moved by its boundary, and / or, a `not`
less, + / -, * / /, a number off by one (a fraction doubled or halved), True / False, two values of a dict exchanged, an enum's next member,
a return without its value, a statement less, two arguments exchanged, a condition negated. Not changed: annotations, texts and what is
inside f-strings, imports. Noticed is what makes the tests of the area fail, or run for much longer than without it.
What cannot be noticed by anybody stands in EQUIVALENT with its reason, was looked at by somebody, and is not counted.
"""

import argparse
import ast
import copy
import difflib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path("tests/equivalent_mutants.json")
"""[{"file", "before", "after", "reason"}]: the line that the change touches, stripped, without its comment, before and after it."""

AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "measure": (
        ("measure/*.py",),
        ("tests/measure/test_figures.py", "tests/measure", "tests/report/test_report.py",
         "tests/report/test_doubts.py", "tests/logs/test_doubtful_logs.py", "tests/logs/test_logs_as_they_arrive.py", "tests/compare/test_copies.py",
         *(f"tests/test_golden.py::test_the_output_is_the_expected_one[{name}]" for name in ("fixtures", "judged", "samples"))),
    ),
    "rules": (("rules/*.py",), ("tests/rules",)),
    "launch/end": (
        ("launch/end/*.py",),
        ("tests/launch/test_ending.py", "tests/launch/test_advice.py", "tests/launch/test_blame.py",
         "tests/launch/test_retry.py", "tests/launch/test_reused.py", "tests/launch/test_truth.py", "tests/measure/test_until.py"),
    ),
    "bundle": (("evidence/*.py",), ("tests/bundle",)),
    "layout": (("layout/*.py", "train/settings/rules.py"), ("tests/layout", "tests/config/test_resolve.py", "tests/train/test_arguments.py", "tests/plan/test_problem.py",
         "tests/plan/test_search.py")),
    "plan/memory": (("plan/memory/**/*.py",), ("tests/plan/test_memory.py", "tests/plan/test_memory_published.py", "tests/plan/test_agreement.py",
         "tests/test_golden.py::test_the_output_is_the_expected_one[plans]")),
    "plan/search": (("plan/search.py",), ("tests/plan/test_search.py", "tests/plan/test_command.py")),
    "compare": (("analysis/contrast.py", "analysis/comparison.py"), ("tests/compare",)),
}  # fmt: skip
"""Modules below src/nlp_bench, and the tests that hold them: the quickest first."""

MORE = {
    "src/nlp_bench/measure/curves.py": ["tests/report/test_page.py"],
    "src/nlp_bench/measure/judgement.py": ["tests/rules"],
    "src/nlp_bench/measure/reconcile.py": ["tests/bundle/test_chain.py"],
    "src/nlp_bench/measure/rows.py": ["tests/report/test_columns.py"],
    "src/nlp_bench/measure/shape.py": ["tests/report/test_columns.py"],
}
"""Tests elsewhere that hold a module."""

SKIPPED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMMUTATIVE = {"max", "min", "maximum", "minimum", "hypot", "gcd", "isclose", "allocate", "free", "briefly"}
"""Functions whose arguments may stand in any order."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    kind: str
    function: str
    """The name of the function that it is in; empty: none."""
    source: str
    """The whole file with it."""
    diff: str

    @property
    def key(self) -> str:
        """The same for the same change of the same file."""
        return hashlib.sha256(f"{self.file}\0{self.source}".encode()).hexdigest()[:20]

    @property
    def lines(self) -> tuple[str, str]:
        """What goes and what comes, stripped, without comments."""
        lines = [line.partition("  # ")[0] for line in self.diff.splitlines()]
        both = [" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"]
        return both[0], both[1]


def changes(node: ast.AST, enums: dict[str, list[str]]) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in place of `node`, each with the kind of change."""
    match node:
        case ast.Constant():
            yield from _other_constants(node.value)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.BinOp():
            yield from _other_operators(node)
        case ast.Dict(keys=keys, values=values):
            whole = (place for place in range(len(keys) - 1) if keys[place] and keys[place + 1])
            yield from (("dict values", ast.Dict(keys, _swapped(values, place))) for place in whole)
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in enums.get(name, ()):
            members = enums[name]
            yield "enum member", ast.Attribute(node.value, members[(members.index(attr) + 1) % len(members)])
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return value", ast.Return(ast.Constant(None))
        case (
            ast.Expr(value=ast.Call() | ast.YieldFrom()) | ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue()
        ) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement less", ast.Pass()
        case ast.Call(func=func, args=args) if ast.unparse(func).rpartition(".")[2] not in COMMUTATIVE:
            args = [] if any(isinstance(arg, ast.Starred) for arg in args) else args
            for place in range(len(args) - 1):
                yield "arguments", ast.Call(func, _swapped(args, place), node.keywords)


def _other_constants(value: object) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(value, bool):
        yield "True/False", ast.Constant(not value)
    elif isinstance(value, int):
        yield from (("number", ast.Constant(other)) for other in (value + 1, value - 1))
    elif isinstance(value, float) and value:
        yield from (("number", ast.Constant(other)) for other in (value * 2, value / 2))


def _other_operators(node: ast.Compare | ast.BoolOp | ast.UnaryOp | ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    changed = [*ops[:place], other(), *ops[place + 1 :]]
                    yield "comparison", ast.Compare(node.left, changed, node.comparators)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, ARITHMETIC[type(op)](), right)


def _swapped(parts: list[ast.expr], place: int) -> list[ast.expr]:
    return [*parts[:place], parts[place + 1], parts[place], *parts[place + 2 :]]


def sites(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, bool, str]]:
    """Yield the nodes that may be changed, each with whether it is a condition and the function that it is in."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    conditions: list[ast.expr] = []
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            conditions = [node.test]
        case ast.comprehension():
            conditions = node.ifs
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_comment", "type_params", "type_ignores"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom) or not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield child, child in conditions, function
            yield from sites(child, function)


def mutants(root: Path, file: str, enums: dict[str, list[str]]) -> list[Mutant]:
    """Return every change of `file`."""
    text = (root / file).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Mutant] = {}
    for node, is_condition, function in sites(ast.parse(text)):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        options = list(changes(node, enums))
        if is_condition and not isinstance(node, ast.Compare | ast.UnaryOp):
            options.append(("condition negated", ast.UnaryOp(ast.Not(), node)))
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        for kind, new in options:
            words = ast.unparse(ast.fix_missing_locations(copy.deepcopy(new)))
            if isinstance(new, ast.expr) and not isinstance(new, ast.Constant | ast.Attribute | ast.Call):
                words = f"({words})"
            mutated = (text[:first] + words.encode() + text[last:]).decode()
            lines = difflib.unified_diff(text.decode().splitlines(), mutated.splitlines(), lineterm="", n=0)
            diff = "\n".join(list(lines)[2:])
            one = Mutant(file=file, line=node.lineno, kind=kind, function=function, source=mutated, diff=diff)
            compile(mutated, file, "exec")
            found[one.key] = one
    return list(found.values())


def enums_of(root: Path) -> dict[str, list[str]]:
    """Return the members of each enum of the source."""
    found = {}
    for path in sorted((root / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Enum" in text else ():
            if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases):
                lines = [line.targets[0] for line in node.body if isinstance(line, ast.Assign)]
                found[node.name] = [name.id for name in lines if isinstance(name, ast.Name)]
    return found


class Trees:
    """Copies of the checkout in which the tests run, one for each job."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        self.root, self.folder = root, folder
        self.free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            shutil.copytree(root, folder / str(number), ignore=SKIPPED, symlinks=True)
            self.free.put(folder / str(number))
        self.stamp = int(time.time()) - 10_000_000

    def run(self, tests: list[str], mutant: Mutant | None = None, limit_s: float = 3600) -> tuple[str, float]:
        """Return noticed, survived or timeout, and the seconds that the tests took."""
        tree = self.free.get()
        try:
            if mutant:
                (tree / mutant.file).write_text(mutant.source, encoding="utf-8")
                # Compiled files are told apart by whole seconds.
                self.stamp += 1
                os.utime(tree / mutant.file, (self.stamp, self.stamp))
            return self._tested(tree, tests, mutant, limit_s)
        finally:
            if mutant:
                shutil.copy2(self.root / mutant.file, tree / mutant.file)
            self.free.put(tree)

    def _tested(self, tree: Path, tests: list[str], mutant: Mutant | None, limit_s: float) -> tuple[str, float]:
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "support.callers", f"--basetemp={tree}-tmp"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        paths = os.pathsep.join((str(tree / "src"), str(tree / "tests")))
        environment = os.environ | {"PYTHONPATH": paths, "REHEARSED": str(self.folder)}
        environment["CALLERS"] = str(self.folder / "callers.json")
        if mutant:
            environment["FIRST"] = f"{mutant.file}::{mutant.function}"
        began = time.monotonic()
        with (
            (tree / "pytest.txt").open("wb") as said,
            subprocess.Popen(
                command, cwd=tree, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            ) as process,
        ):
            try:
                word = "noticed" if process.wait(limit_s) else "survived"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                word = "timeout"
        return word, time.monotonic() - began


class State:
    """What was found before, so that a run that was stopped goes on: one line of JSON for each mutant."""

    def __init__(self, path: Path, digest: str, *, again: bool) -> None:
        self.path, self.digest = path, digest
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        known = [json.loads(line) for line in lines]
        believed = {"noticed", "timeout"} if again else set()
        self.words = {one["key"]: one["word"] for one in known if one["digest"] == digest or one["word"] in believed}

    def add(self, mutant: Mutant, word: str) -> None:
        """Keep the word on one mutant."""
        self.words[mutant.key] = word
        line = {"key": mutant.key, "digest": self.digest, "word": word, "file": mutant.file, "diff": mutant.diff}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def digest_of(root: Path) -> str:
    """Return a digest of all source and tests."""
    found = hashlib.sha256()
    for path in sorted([*(root / "src").rglob("*.py"), *(root / "tests").rglob("*.py")]):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:20]


def is_equivalent(mutant: Mutant, listed: list[dict[str, str]]) -> bool:
    """Say whether somebody looked at the change and found that it changes nothing."""
    return any((one["file"], one["before"], one["after"]) == (mutant.file, *mutant.lines) for one in listed)


def drawn(root: Path, files: list[str], num: int, seed: int) -> tuple[list[Mutant], int]:
    """Return `num` changes of all that `files` allow (0: all), drawn at random, and the number of equivalent ones among them."""
    enums = enums_of(root)
    every = [one for file in files for one in mutants(root, file, enums)]
    chosen = random.Random(seed).sample(every, min(num or len(every), len(every)))  # noqa: S311  # a draw, not a secret
    listed = json.loads((root / EQUIVALENT).read_text(encoding="utf-8")) if (root / EQUIVALENT).exists() else []
    counted = [one for one in chosen if not is_equivalent(one, listed)]
    return counted, len(chosen) - len(counted)


def run_area(
    trees: Trees, state: State, name: str, files: list[str], tests: list[str], args: argparse.Namespace
) -> int:
    """Run the tests on each mutant of an area, print what was found, and return the number of survivors."""
    chosen, num_equivalent = drawn(args.root, files, args.num, args.seed)
    waiting = [one for one in chosen if one.key not in state.words]
    if waiting:
        more = {name for mutant in waiting for name in MORE.get(mutant.file, ())}
        word, seconds = trees.run([*tests, *sorted(more)])
        if word != "survived":
            said = [path.read_text(encoding="utf-8", errors="replace") for path in trees.folder.glob("*/pytest.txt")]
            words = f"{name}: the tests fail without any change: pytest {' '.join(tests)}"
            raise SystemExit(f"{words}\n{''.join(said)[-3000:]}")
        limit_s = 30 + 2 * seconds  # noting the calls took time, too

        def one(mutant: Mutant) -> None:
            word, _ = trees.run([*tests, *MORE.get(mutant.file, ())], mutant, limit_s)
            state.add(mutant, word)
            print(f"{word:9} {mutant.file}:{mutant.line} {mutant.kind}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(one, waiting))
    words = Counter(state.words[one.key] for one in chosen)
    for mutant in sorted(chosen, key=lambda one: (one.file, one.line)):
        if state.words[mutant.key] == "survived":
            print(f"survived: {mutant.file}:{mutant.line} {mutant.kind}\n{mutant.diff}\n")
    num_noticed = words["noticed"] + words["timeout"]
    share = f"{num_noticed / len(chosen):.0%}" if chosen else "-"
    print(
        f"{name}: {num_noticed} of {len(chosen)} mutants noticed ({share}; {words['timeout']} by a timeout), "
        f"{num_equivalent} equivalent ones not counted; seed {args.seed}"
    )
    return words["survived"]


def main() -> int:
    """Run from the command line; 0 if no mutant survived, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=AREAS, help="a row of AREAS; default: all")
    parser.add_argument("--module", action="append", help="a file in place of an area; needs --tests")
    parser.add_argument("--tests", nargs="+", help="tests for --module, or in place of those of the area")
    parser.add_argument("--num", type=int, default=40, help="mutants of each area, 0 for all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree in which tests run at the same time")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout (default: this one)")
    state = Path(tempfile.gettempdir()) / f"nlp-bench-mutation-{os.getuid()}.jsonl"
    parser.add_argument("--state", type=Path, default=state)
    parser.add_argument("--again", action="store_true", help="believe what was noticed before source or tests changed")
    args = parser.parse_args()
    if args.module:
        if not args.tests:
            parser.error("--module needs --tests")
        rows = {", ".join(args.module): (args.module, args.tests)}
    else:
        below = args.root / "src/nlp_bench"
        rows = {
            name: (sorted(str(path.relative_to(args.root)) for glob in AREAS[name][0] for path in below.glob(glob)),
                   args.tests or list(AREAS[name][1]))
            for name in args.area or AREAS
        }  # fmt: skip
    state = State(args.state, digest_of(args.root), again=args.again)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees = Trees(args.root, Path(folder), args.jobs)
        survivors = [run_area(trees, state, name, *row, args) for name, row in rows.items()]
    return 1 if any(survivors) else 0


if __name__ == "__main__":
    sys.exit(main())
