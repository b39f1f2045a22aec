"""From a request to a run: tags, data files, defaults, arithmetic and the scheduler's limits, in that order."""

import argparse
import contextlib
import os
import re
import xml.etree.ElementTree as ET  # its usual name
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nlp_bench.clock import now
from nlp_bench.config import catalog, machine, scheduler
from nlp_bench.config.model import Architecture, Layout, Model, RunModel, Training, check_size, num_parameters
from nlp_bench.config.options import given, spellings
from nlp_bench.config.origin import origin, upstream
from nlp_bench.config.request import (
    BatchOptions,
    LaunchOptions,
    ParallelOptions,
    Request,
    ShapeOptions,
    SlurmOptions,
    TrainingOptions,
    TuningOptions,
)
from nlp_bench.config.run import Batch, Data, Launch, Parallel, Run, Tuning, anchored
from nlp_bench.config.scheduler import DIRECTIVE_LETTERS, LOCAL
from nlp_bench.config.system import System
from nlp_bench.config.values import words
from nlp_bench.data import PREFIX, default_folder
from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import some
from nlp_bench.layout.rules import RULES, divisors, multiple, refuse
from nlp_bench.terminal import say


def resolve(request: Request, *, ask_scheduler: bool = True) -> Run:
    """Resolve `request`; raises UsageError naming field, value, rule and remedy. `ask_scheduler` False leaves out the refusals that the scheduler decides."""
    model = catalog.load_model(request.model or "tiny")
    named = _named_system(request)
    wanted = request.launcher or (catalog.load_system(named).launcher if named else None)
    cluster = machine.cluster(wanted) if wanted != LOCAL and (ask_scheduler or not named) else None
    system = catalog.load_system(named or machine.detect_system(cluster))
    if ask_scheduler and not request.system and named and (doubt := machine.doubt(system, cluster)):
        say(f"warning: {doubt}; unset it, or name one by --system or a tag")
    launcher = _launcher(request, system, cluster, ask_scheduler=ask_scheduler)
    layout = system.layout_of(model)
    accelerator, ranks = machine.settle(system)
    chosen, own = given(request, ShapeOptions), model.architecture
    width = own.ffn_hidden_size * chosen.get("hidden_size", own.hidden_size) // own.hidden_size
    architecture = replace(own, ffn_hidden_size=width, **chosen)
    training = _training(request, model.training)
    if accelerator == "cpu":
        training = replace(training, precision="fp32")  # what CPU ranks train in
    system = _with_slurm(request, system)
    preferred = {
        "nodes": layout.nodes,
        "gpus_per_node": layout.gpus_per_node or ranks,
        "tensor": layout.tensor_parallel,
        "pipeline": layout.pipeline_parallel,
    }
    chosen_sizes = given(request, ParallelOptions)
    sizes: dict[str, Any] = preferred | chosen_sizes
    if system.gpus_per_node == "auto" and not layout.gpus_per_node and "gpus_per_node" not in chosen_sizes:
        sizes["gpus_per_node"] = _sharing(request, model, layout, sizes)
    if launcher == LOCAL and sizes["nodes"] != 1:
        raise UsageError(
            f"parallel.nodes: {sizes['nodes']} nodes, but the local launcher has this machine only; model {model.name} needs a "
            "system with a scheduler (tag slurm), or --nodes 1 and a layout that fits it"
        )
    parallel = Parallel(**sizes)
    run = Run(
        created=now(),
        nlp_bench=origin(),
        model=RunModel(
            name=model.name,
            family=model.family,
            parameters_billion=model.parameters_billion
            if architecture == model.architecture
            else float(f"{num_parameters(model.family, architecture) / 1e9:.3g}"),
            architecture=architecture,
        ),
        system=replace(system, accelerator=accelerator, gpus_per_node=ranks, layout={}),
        launch=Launch(
            # The name of a model file may have a blank, a line of sbatch may not.
            job_name=system.slurm.job_name_prefix + re.sub(f"[^{DIRECTIVE_LETTERS}]+", "_", model.name),
            **{"queue": system.slurm.queue, "account": system.slurm.account, "timelimit": layout.timelimit}
            | _launch(request, launcher),
        ),
        parallel=parallel,
        batch=_batch(request, model, layout, parallel, architecture),
        training=training,
        data=_data(request),
        tuning=_tuning(request, training),
        nonce=request.nonce,
    )
    run = _with_deviations(run)
    _refuse_layout(run)
    _within_limits(run, ranks, ask_scheduler=ask_scheduler and cluster is not None)
    return run


def as_recorded(run: Run) -> Run:
    """Return a run that somebody may have edited in run.json, with the deviations that it lacks; raises UsageError where its parts contradict each other."""
    batch, shape, edited = run.batch, run.model.architecture, "run.json was edited: resolve it anew by nlp-bench check"
    _refuse_layout(run)
    _refuse_batch(batch, run.parallel.data, edited)
    if batch.sequence_length != shape.sequence_length:
        raise UsageError(
            f"batch.sequence_length: {batch.sequence_length}, but model.architecture.sequence_length is "
            f"{shape.sequence_length}; {edited}"
        )
    check_size(run.model.parameters_billion, run.model.family, shape)
    return _with_deviations(run)


def _with_deviations(run: Run) -> Run:
    """Return `run` with the deviations that it lacks. How long it trains is free, and CPU ranks train in fp32."""
    free = {"iterations", "log_interval"} | ({"precision"} if run.system.accelerator == "cpu" else set())
    found = catalog.deviations(run.model, run.training, free)
    return replace(run, deviations=(*run.deviations, *(one for one in found if one not in run.deviations)))


def _refuse_layout(run: Run) -> None:
    # train_args may set the group
    refuse(run.sizes, tuple(rule for rule in RULES if rule.code != "micro-batch groups"))


def _refuse_batch(batch: Batch, replicas: int, remedy: str) -> None:
    micro, gas = batch.micro_batch_size, batch.gradient_accumulation_steps
    if batch.global_batch_size != replicas * micro * gas:
        raise UsageError(
            f"batch: global_batch_size = {batch.global_batch_size} is not dp*micro_batch_size*gas = {replicas}*{micro}*{gas} = "
            f"{replicas * micro * gas}; {remedy}"
        )


def for_another_job(run: Run, request: Request) -> Run:
    """Return a recorded run with those options of `request` that concern its job alone; raises UsageError for others, and where the queue cannot grant them."""
    chosen = given(request, Request)
    of_job = [one.name for one in fields(Request) if one.metadata["of_job"]]
    if other := next((name for name in chosen if name not in of_job), None):
        allowed = " ".join(spellings(Request, name)[0] for name in of_job)
        raise UsageError(
            f"--run: a run.json is resolved already, it takes no {spellings(Request, other)[0]}; leave one of the two out "
            f"(of its job may be said anew: {allowed})"
        )
    if not chosen:
        return run
    launch = replace(run.launch, **_launch(request, run.launch.launcher))
    changed = replace(run, nonce=request.nonce or run.nonce, launch=launch, system=_with_slurm(request, run.system))
    if launch.launcher != LOCAL:
        scheduler.get_scheduler(launch.launcher).check_limits(changed)
    return changed


def resolve_system(request: Request) -> System:
    """Return the system that a request names, or that this machine is."""
    return catalog.load_system(_named_system(request) or machine.detect_system(machine.cluster()))


def _named_system(request: Request) -> str | None:
    named = request.system or os.environ.get("NLP_BENCH_SYSTEM")
    return named or (LOCAL if request.launcher == LOCAL else None)


def _launcher(request: Request, system: System, cluster: str | None, *, ask_scheduler: bool) -> str:
    wanted = request.launcher or system.launcher
    one = scheduler.get_scheduler(wanted)
    if wanted != LOCAL and cluster is None and ask_scheduler:
        raise UsageError(
            f"launch.launcher: {wanted}, but no {one.title} answers here {one.absent}, or use the tag local; "
            f"`nlp-bench submit … --print` shows the job script without {one.title}{one.led_by()}"
        )
    if wanted not in {LOCAL, system.launcher}:
        raise UsageError(
            f"launch.launcher: {wanted}, but benchmark/systems/{system.name}.toml describes a machine without it; "
            f"name a {one.title} system ({', '.join(n for n in catalog.names('systems') if n != system.name)})"
        )
    return wanted


def _training(request: Request, training: Training) -> Training:
    chosen = given(request, TrainingOptions)
    interval = min(training.log_interval, chosen.get("iterations", training.iterations))
    return replace(training, **{"log_interval": interval} | chosen)


def _tuning(request: Request, training: Training) -> Tuning:
    chosen = given(request, TuningOptions)
    if chosen.get("num_virtual_stages_per_pipeline_rank") == 1:
        del chosen["num_virtual_stages_per_pipeline_rank"]
    if training.recompute == "full":  # each layer alone, as in Megatron-LM's scripts
        chosen = {"recompute_method": "uniform", "recompute_num_layers": 1} | chosen
    if chosen.get("trainer") == "megatron-lm":
        chosen |= upstream()
    return Tuning(**chosen | {"train_args": anchored(chosen.get("train_args", ()))})


def _launch(request: Request, launcher: str) -> dict[str, Any]:
    """Return the options of the start of the job; this machine has no queue."""
    chosen = given(request, LaunchOptions) | {"launcher": launcher}
    if launcher != LOCAL:
        return chosen
    if unused := [f"{name} {chosen[name]}" for name in ("queue", "account") if chosen.get(name)]:
        say(f"warning: {' and '.join(unused)}: not used, for the run starts on this machine, without a queue")
    return chosen | {"queue": "", "account": ""}


def _batch(request: Request, model: Model, layout: Layout, parallel: Parallel, shape: Architecture) -> Batch:
    """Derive GAS from the global batch, or the reverse where GAS is given; both given must agree: global = dp * micro * GAS."""
    chosen, replicas = given(request, BatchOptions), parallel.data
    micro, total = _samples(request, model, layout)
    if total is None:
        total = replicas * micro * chosen["gradient_accumulation_steps"]
    if total % (replicas * micro):
        raise _unshared(parallel, total, micro)
    batch = Batch(
        micro_batch_size=micro,
        gradient_accumulation_steps=chosen.get("gradient_accumulation_steps", total // (replicas * micro)),
        global_batch_size=total,
        sequence_length=shape.sequence_length,
    )
    _refuse_batch(batch, replicas, "give one of the two")
    return batch


def _samples(request: Request, model: Model, layout: Layout) -> tuple[int, int | None]:
    """Return the micro batch and the global one: the model's, the same on every machine, or None where it follows from a given GAS."""
    known: dict[str, Any] = {**vars(layout), **given(request, BatchOptions)}
    own = None if "gradient_accumulation_steps" in known else model.defaults.global_batch_size
    return known["micro_batch_size"], known.get("global_batch_size", own)


def _sharing(request: Request, model: Model, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Return the most ranks of a node that share the global batch evenly: a laptop of 6 cores has 3, which 8 samples do not suit."""
    (micro, total), counted = _samples(request, model, layout), sizes["gpus_per_node"]
    replica = sizes["tensor"] * sizes["pipeline"] * sizes.get("context", 1)
    for ranks in range(counted if total else 0, 0, -1):
        replicas, left = divmod(sizes["nodes"] * ranks, replica)
        if not left and total % (replicas * micro) == 0:  # type: ignore[operator]  # the loop is empty without it
            if ranks < counted:
                say(f"{ranks} of {counted} ranks are started: {total} samples, {micro} at a time, are for no more")
            return ranks
    return counted


_NUM_NAMED = 5  # numbers of nodes that a refusal names


def _unshared(parallel: Parallel, total: int, micro: int) -> UsageError:
    """Return the refusal of a global batch that the replicas cannot share; it names the nearest batches, and numbers of nodes, that work."""
    ranks, group, each = parallel.gpus_per_node, parallel.ranks_per_replica, parallel.data * micro
    replicas = [] if total % micro else divisors(total // micro)
    works = [number * group // ranks for number in replicas if number * group % ranks == 0]
    works.sort(key=lambda nodes: abs(nodes - parallel.nodes))
    batches = ", ".join(str(near) for near in (total // each * each, total // each * each + each) if near)
    of = f"dp*micro_batch_size = {parallel.data}*{micro}"
    nodes = some(works, _NUM_NAMED) or ("none; lower --micro-batch-size" if micro > 1 else "none")
    return UsageError(
        f"batch: {multiple('global_batch_size', total, of, each)}; batches that work here: {batches}; layouts that do: nlp-bench "
        f"plan; with {ranks} ranks per node these numbers of nodes work: {nodes}"
    )


def _with_slurm(request: Request, system: System) -> System:
    """Return `system` with the requested options of Slurm in place of its own, further arguments after its own."""
    chosen = given(request, SlurmOptions)
    longer = {name: getattr(system.slurm, name) + value for name, value in chosen.items() if isinstance(value, tuple)}
    container = replace(system.container, image=request.container_image or system.container.image)
    return replace(system, slurm=replace(system.slurm, **chosen | longer), container=container)


def _data(request: Request) -> Data:
    folder = default_folder(catalog.root())
    if request.data_path == "mock":
        return Data(path="", cache=str(folder / "cache"))
    if request.data_path is None:
        return Data(path=str(folder / PREFIX), cache=_writable(folder / "cache"), invented=True)
    whole = Path(f"{request.data_path}.bin").is_file()  # a path with blanks is no blend
    try:
        blend = parse_blend((request.data_path,) if whole else words(request.data_path))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--data-path: {error}") from error
    paths = [Path(prefix).absolute() for prefix in blend.prefixes]
    missing = [f"{path}{end}" for path in paths for end in (".bin", ".idx") if not Path(f"{path}{end}").is_file()]
    if missing:
        tilde = (
            " (no shell replaces a ~ behind =; write $HOME)" if any(p.startswith("~") for p in blend.prefixes) else ""
        )
        raise UsageError(
            f"data.path: {' and '.join(missing)} not found{tilde}; give the prefix without .bin/.idx, or make the pair with "
            "`nlp-bench data prepare`"
        )
    found = Data(path=str(paths[0]), cache=_writable(paths[0].parent / "cache", folder / "cache"))
    if len(paths) == 1:
        return found
    weights = [()] * len(paths) if blend.weights is None else [(f"{weight:g}",) for weight in blend.weights]
    return replace(
        found, blend=tuple(word for pair in zip(weights, paths, strict=True) for word in (*pair[0], str(pair[1])))
    )


def _writable(*wanted: Path) -> str:
    """Return the first of the folders that may be written or made, else "cache": of the run's own folder, in which the ranks start."""
    for path in wanted:
        if os.access(next(one for one in (path, *path.parents) if os.path.lexists(one)), os.W_OK):
            return str(path)
    return "cache"


def _within_limits(run: Run, ranks: int, *, ask_scheduler: bool) -> None:
    parallel = run.parallel
    if run.system.accelerator == "cuda" and parallel.gpus_per_node > ranks:
        raise UsageError(
            f"parallel.gpus_per_node: {parallel.gpus_per_node}, but {run.system.name} has {ranks} GPUs per node"
        )
    container = run.system.container
    if container.image and container.runtime == "pyxis" and run.launch.launcher == LOCAL:
        raise UsageError(
            "system.container.runtime: pyxis is a part of srun, and this run starts without one: let the system file say "
            'runtime = "apptainer", or start nlp-bench within the container'
        )
    if ask_scheduler and run.launch.launcher != LOCAL:
        scheduler.get_scheduler(run.launch.launcher).check_limits(run)


UPSTREAM = "megatron_lm"  # the tag of Megatron-LM's own trainer


def read_tags(jube_run: Path) -> list[str]:
    """Return the tags of a JUBE run. Raises UsageError where the command names more in several `--tag`: JUBE keeps those of the last one."""
    tags = [element.text.strip() for element in _configuration(jube_run).findall("selection/tag") if element.text]
    command = ""
    with contextlib.suppress(FileNotFoundError), (jube_run / "parse.log").open(errors="replace") as log:
        command = log.readline()  # JUBE begins it with its command
    options = [words.split() for words in re.findall(r"(?<= )(?:-t|--ta?g?)[ =]?((?:[^\s-]\S* ?)+)", command)]
    named = [*dict.fromkeys(tag for words in options for tag in words)]
    if len(options) > 1 and (lost := [tag for tag in named if tag not in tags]):
        raise UsageError(
            f"--tag: JUBE takes the last one only, and left out {', '.join(lost)}: write --tag {' '.join(named)}"
        )
    return tags


OUR_SETS = ("modelParameter", "tuningParameter", "systemParameter")
"""JUBE's parameter sets of a run (jube/parameters.yaml)."""


def refuse_unused(jube_run: Path, known: Mapping[str, str]) -> None:
    """Refuse a parameter of a JUBE run that nothing uses: it would change nothing, in silence. `known`: our parameters by all names of their options."""
    document = _configuration(jube_run)
    texts = [word for one in document.iter() for word in (one.text or "", *one.attrib.values())]
    shown = [one.text or "" for one in document.iter("column")]
    used = {*re.findall(r"\$\{?(\w+)", "\n".join(texts)), *shown, *known.values(), "point"}
    ours = [f"benchmark/parameterset[@name='{name}']/parameter" for name in OUR_SETS]
    for name in (one.attrib["name"] for path in ours for one in document.findall(path) if "export" not in one.attrib):
        if name not in used:
            meant = (
                f"; did you mean {known[name]}?" if name in known else nearest(name, [*known.values()], listed=False)
            )
            raise UsageError(f"parameter {name} is used by nothing{meant or '; take it out'}")


def refuse_other_parameters() -> None:
    """Refuse the parameters of another checkout, to which JUBE_INCLUDE_PATH led JUBE (it puts each of its folders before "../../jube")."""
    own = catalog.root() / "jube/parameters.yaml"
    for folder in filter(None, os.environ.get("JUBE_INCLUDE_PATH", "").split(":")):
        taken = Path(folder) / "../../jube/parameters.yaml"
        if taken.is_file() and own.is_file() and taken.read_bytes() != own.read_bytes():
            raise UsageError(
                f"JUBE_INCLUDE_PATH: JUBE took {taken} in place of {own}: unset JUBE_INCLUDE_PATH, and start anew"
            )


def refuse_repeated_parameters() -> None:
    """Refuse a parameter that stands twice in jube/parameters.yaml, or whose value is a list of YAML: JUBE takes the last one and says nothing.

    Those of a tag differ on purpose.
    """
    path = catalog.root() / "jube/parameters.yaml"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if found := re.search(r"^[^\n#]*\b_[\"']?:[ \t]*(?:\[|(?:#.*)?\n[ \t]*- )", text, re.MULTILINE):
        raise UsageError(
            f"{path} line {text.count(chr(10), 0, found.start()) + 1}: the value is a list of YAML, of which JUBE takes the last one alone: "
            'write one text in quotes, "4,8"'
        )
    lines = text.splitlines()
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        found = re.match(r"\s*- *\{ *[\"']?name[\"']?: *[\"']?(\w+)", line)
        if found is None or re.search(r"\b(?:tag|duplicate)\b[\"']?:", line):
            continue
        if (before := seen.setdefault(found[1], number)) != number:
            raise UsageError(
                f"parameter {found[1]} stands twice in {path} (lines {before} and {number}), and JUBE takes the last one: take one of them out"
            )


def _configuration(jube_run: Path) -> "ET.ElementTree[ET.Element]":
    """Return the configuration.xml that JUBE 2.5 to 2.7 write into a run's folder."""
    path = jube_run / "configuration.xml"
    try:
        return ET.parse(path)  # noqa: S314  # written by JUBE a moment ago, in the user's own folder
    except (OSError, ET.ParseError) as error:
        raise UsageError(f"--jube-run: {path} cannot be read as JUBE's configuration: {error}") from error


def apply_tags(request: Request, tags: list[str]) -> Request:
    """Fill what `request` leaves open from `tags`. Raises UsageError on an unknown tag and on two of one kind."""
    models, systems = catalog.names("models"), catalog.names("systems")
    known = {*models, *systems, *scheduler.BUILT_IN, UPSTREAM, REHEARSE}
    launchers = scheduler.BUILT_IN if known.issuperset(tags) else scheduler.scheduler_names()
    if other := next((tag for tag in tags if tag not in {*known, *launchers}), None):
        words = dict.fromkeys([*models, *systems, *launchers, UPSTREAM, REHEARSE])  # `local` is a system and a launcher
        raise UsageError(f"tag: {other!r} is unknown{nearest(other, [*words])}")
    left = [tag for tag in tags if tag != REHEARSE]  # it decides what is done with the run, not which one
    # Launchers before systems: the system `local` and the launcher `local` go together.
    for kind, chosen in {"launcher": launchers, "model": models, "system": systems, "trainer": [UPSTREAM]}.items():
        found, left = [tag for tag in left if tag in chosen], [tag for tag in left if tag not in chosen]
        if len(set(found)) > 1:
            raise UsageError(f"tag: {' and '.join(found)} are two tags for one {kind}; keep one")
        named = getattr(request, kind)
        if found and named is not None and kind in {"model", "system"} and Path(named).stem != found[0]:
            where = "nlp_model_size" if kind == "model" else kind
            say(f"warning: the tag {found[0]} counts for nothing: the parameter {where} says {named}")
        if found and named is None:
            word = "megatron-lm" if found[0] == UPSTREAM else found[0]
            request = replace(request, **{kind: word})  # type: ignore[arg-type]  # all kinds are words
    return request


REHEARSE = "rehearse"  # the tag of JUBE under which nothing is submitted
REFERENCE = "juwels-booster"  # the machine whose results are published: a laptop rehearses jobs of many nodes for it


def for_rehearsal(request: Request) -> Request:
    """Return `request` with the machine that it is rehearsed for; the launcher follows from it.

    A named system stays. Otherwise it is this machine, or the reference machine where no file describes this one
    and the model needs more than one node. Raises UsageError for a cluster that no file describes.
    """
    if request.system is not None or request.launcher == "local":
        return request
    found = machine.detect_system(machine.cluster())
    nodes = request.nodes or catalog.load_model(request.model or "tiny").defaults.nodes or 1
    return replace(request, system=REFERENCE if found == "local" and nodes > 1 else found)
