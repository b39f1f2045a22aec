"""What runs a planned configuration: its command, and the shortlist as a file for JUBE."""

from dataclasses import MISSING

from nlp_bench.config import catalog
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.problem import AXES, Problem, Setting
from nlp_bench.plan.ranking import Answer, Row

POINTS = 5  # configurations of a shortlist, the published one besides
SETS = {
    "modelParameter": (
        "point", "nlp_model_size", "tp_size", "pp_size", "micro_batch_size", "global_batch_size", "sequence_length",
    ),
    "systemParameter": ("system", "nodes", "gpus_per_node"),
    "executeset": ("nlp_bench",),
}  # fmt: skip
"""Parameter set to the parameters in it; all others are in tuningParameter."""


def shortlist(answer: Answer, points: int = POINTS) -> list[Row]:
    """Return the best rows and the published one, each once. Raises NlpBenchError where none fits."""
    best = list(answer.rows[:points])
    if not best:
        raise NlpBenchError(
            "--emit-jube: no configuration is predicted to fit, so there is nothing to run; add --nodes"
        )
    if answer.published is not None and answer.published.fits != "no" and not any(row.published for row in best):
        best.append(answer.published)
    return best


def sweep_text(rows: list[Row], problem: Problem, *, model: str, system: str) -> str:
    """Return the text of a workflow that runs each row as one point; `jube run FILE` takes it as it is.

    It is benchmark/jube/nlp_benchmark.yaml with its paths made absolute and parameters set after `init_with`, which JUBE 2.5.1
    and 2.7.1 let a set override. Raises UsageError where the workflow has no parameter for what was planned.
    """
    root, workflow = catalog.root(), catalog.root() / catalog.WORKFLOW
    problem.refuse_other_format("--emit-jube")
    if not workflow.is_file():
        raise UsageError(
            f"--emit-jube: {root} holds no {catalog.WORKFLOW}; make a working folder by `nlp-bench init DIR` and call it there"
        )
    text = workflow.read_text(encoding="utf-8")
    for up, folder in (("/../..", root), ("/..", root / "benchmark"), ("", workflow.parent)):
        text = text.replace(f"$jube_benchmark_home{up}", str(folder))
    text, parts = text.replace('init_with: "../../', f'init_with: "{root}/'), f"{root}/jube/parameters.yaml"
    values = _values(rows, problem, model=model, system=system)
    values["nlp_bench"] = f'"bash \\"{root}/benchmark/env/nlp-bench\\""'
    sets_of = {parameter: name for name, parameters in SETS.items() for parameter in parameters}
    for name in ("modelParameter", "tuningParameter", "systemParameter", "executeset"):
        own = {key: value for key, value in values.items() if sets_of.get(key, "tuningParameter") == name}
        line = f'  - {{name: {name}, init_with: "{parts}"}}\n'
        sets, text = text.count(line), text.replace(line, _parameter_set(name, parts, own))
        if sets != 1:
            raise NlpBenchError(
                f"--emit-jube: {catalog.WORKFLOW} has no line for {name} where one was expected; it was changed by hand"
            )
    return _head(rows) + text[text.index("name: nlp_benchmark") :]


def _head(rows: list[Row]) -> str:
    lines = [
        "# Written by nlp-bench plan --emit-jube: its shortlist, one point each. jube run FILE, jube continue, jube result -a",
        "# Predicted, not measured:",
        *(f"# point {place}: {row.report_s:.0f} s, {row.memory}, {row.sizes.layout}" for place, row in enumerate(rows)),
    ]
    return "\n".join(lines) + "\n"


def _parameter_set(name: str, parts: str, values: dict[str, str]) -> str:
    mode = {key: "mode: python, " if value.endswith('[$point]"') else "" for key, value in values.items()}
    lines = [f"  - name: {name}", f'    init_with: "{parts}"', "    parameter:"]
    lines += [f"      - {{name: {key}, {mode[key]}_: {value}}}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _values(rows: list[Row], problem: Problem, *, model: str, system: str) -> dict[str, str]:
    """Return YAML values: a list by point where rows differ, one word where they do not; what is as the files have it is left out."""
    own = problem.model.training.recompute
    axes = {name: axis for name, axis in AXES.items() if axis.aspect != "recompute"}
    points = {axis.jube: [getattr(row.sizes, name) for row in rows] for name, axis in axes.items()}
    for axis in axes.values():
        if axis.default is None:
            points[axis.jube] = ["default" if value == axis.usual else value for value in points[axis.jube]]
    points["sequence_parallel"] = [row.sizes.sequence_parallel or row.sizes.tp == 1 for row in rows]
    for name, axis in AXES.items():
        if axis.aspect == "recompute":
            points[axis.jube] = [row.sizes.partial_recompute.get(name, "default") for row in rows]
    points["recompute_granularity"] = ["default" if row.sizes.recompute == own else row.sizes.recompute for row in rows]
    found = {
        "point": f'"{",".join(str(place) for place in range(len(rows)))}"',
        "nlp_model_size": f'"{model}"',
        "system": f'"{system}"',
        "nodes": f'"{rows[0].nodes}"',
        "gpus_per_node": f'"{problem.gpus_per_node}"',
        "global_batch_size": f'"{problem.global_batch_size}"',
        "sequence_length": f'"{problem.model.architecture.sequence_length}"',
    }
    for name, values in points.items():
        column = [str(value).lower() if isinstance(value, bool) else value for value in values]
        if set(column) == {"default"}:
            continue
        one = f'"{column[0]}"' if len(set(column)) == 1 else '"[' + ",".join(map(repr, column)) + '][$point]"'
        found[name] = one
    return found


def run_words(problem: Problem, sizes: Setting, *, model: str, system: str) -> list[str]:
    """Return the options of `nlp-bench submit` for one run, every switch named; `model` and `system` are names or paths of data files."""
    words: dict[str, object] = {
        "model": model,
        "system": system,
        "nodes": sizes.num_gpus // problem.gpus_per_node,
        "gpus-per-node": problem.gpus_per_node,
    }
    switches: dict[str, object] = {}
    for name, axis in AXES.items():
        value = getattr(sizes, name)
        if axis.aspect == "recompute" and name != "recompute":
            switches |= {key: one for key, one in sizes.partial_recompute.items() if key == name}
        elif axis.values:
            switches[axis.word or axis.jube] = value
        elif axis.default is MISSING or value != axis.usual:
            words[axis.word or axis.jube] = value
    words |= {"global-batch-size": sizes.global_batch_size, "sequence-length": sizes.sequence_length, **switches}
    found: list[str] = []
    for name, value in words.items():
        found += ["--" + name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return found
