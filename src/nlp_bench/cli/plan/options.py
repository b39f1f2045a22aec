"""The options of `nlp-bench plan`, and the question that they ask."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    add_constants,
    add_format,
    add_limit,
    add_overwrite,
    add_tokens,
    refuse_to_replace,
)
from nlp_bench.config.options import Container, spellings
from nlp_bench.config.request import RECOMPUTE, Request, add_run_options
from nlp_bench.config.values import OneOf, UnlessDefault, duration, percent, size
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.config.model import Model
    from nlp_bench.config.system import System
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.problem import Fixed, Problem

FORMATS = ("table", "json", "csv", "markdown", "html")
FIXED = {
    "tensor": "tp",
    "pipeline": "pp",
    "context": "cp",
    "num_virtual_stages_per_pipeline_rank": "vpp",
    "decoder_first_pipeline_num_layers": "first_layers",
    "decoder_last_pipeline_num_layers": "last_layers",
    "micro_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gas",
    "sequence_parallel": "sequence_parallel",
    "use_distributed_optimizer": "distributed_optimizer",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
}
"""Field of Request, field of Fixed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan`."""
    _add_question(parser.add_argument_group("what is asked"))
    _add_fixed(parser.add_argument_group("held fixed instead of searched"))
    _add_other_questions(parser.add_argument_group("other questions"))
    _add_output(parser.add_argument_group("where the answer goes"))


def _add_question(group: Container) -> None:
    texts = {
        "model": "file of benchmark/models (175, 13, llama_8b), or a path",
        "system": "file of benchmark/systems, or a path (default: this machine's)",
        "nodes": "nodes of the job (default: the model's); with --time the most",
        "gpus_per_node": "GPUs of each (default: the system's)",
        "global_batch_size": "samples of an iteration (default: the benchmark's; it stays fixed)",
        "sequence_length": "tokens of a sample (frozen by the rules); 2048 or 2Ki",
    }
    add_run_options(group, texts, texts)
    group.add_argument("--precision", metavar="WORD", help="bf16, fp16, fp8, mxfp8, nvfp4, ... (default: the model's)")
    add_tokens(group, default=None)
    add_constants(group)
    group.add_argument(
        "--learn",
        type=Path,
        nargs="+",
        metavar="RESULTS",
        help="correct the constants by measured runs of this machine",
    )


def _add_fixed(group: Container) -> None:
    add_run_options(group, FIXED)
    text = "none, selective, full, or any to search all three"
    read = UnlessDefault(OneOf(*RECOMPUTE, "any"))
    names = spellings(Request, "recompute")
    group.add_argument(*names, dest="recompute", type=read, metavar="WORD", help=text)


def _add_other_questions(group: Container) -> None:
    group.add_argument(
        "--why", action="store_true", help="explain one configuration: the published one, changed by what is held fixed"
    )
    add_limit(group, "--time", text="the fewest nodes on which the report time is at most this")
    group.add_argument("--model-size", metavar="auto", help="the largest GPT that trains --tokens in --days")
    group.add_argument("--days", type=duration("d"), metavar="D", help="of --model-size auto")
    group.add_argument("--bid", action="store_true", help="a bid sheet of the best configuration")
    group.add_argument(
        "--margin", type=percent, metavar="PERCENT", help="of --bid: commit to the prediction and so much more"
    )


def _add_output(group: Container) -> None:
    group.add_argument("--top", type=UnlessDefault(size), metavar="K", help="rows of the table (default 10)")
    add_format(group, *FORMATS, default=None, text="form of the answer (default table; html: of --bid only)")
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="write the answer here, or into this folder, instead of printing it"
    )
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw time over memory into FILE.svg or FILE.png")
    group.add_argument(
        "--rehearse",
        type=size,
        metavar="N",
        help="rehearse the N best as well: the trainer's own step, without a GPU (some seconds each)",
    )
    group.add_argument(
        "--emit-jube",
        type=Path,
        metavar="FILE",
        help="write the best and the published configuration as a sweep: jube run FILE",
    )
    add_overwrite(group, "replace a FILE that exists")


def check_combination(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    questions = {"--why": options.why, "--time": options.time, "--model-size": options.model_size, "--bid": options.bid}
    asked = [name for name, value in questions.items() if value]
    if len(asked) > 1:
        raise UsageError(f"plan: {' and '.join(asked)} are two questions; ask one at a time")
    drawn = {"--plot": options.plot, "--emit-jube": options.emit_jube, "--rehearse": options.rehearse}
    for name, value in drawn.items():
        if value and asked and asked != ["--bid"]:
            raise UsageError(f"plan: {name} goes with the ranking, not with {asked[0]}")
    for name, value, of in (("--days", options.days, "--model-size"), ("--margin", options.margin, "--bid")):
        if value is not None and of not in asked:
            raise UsageError(f"plan: {name} goes with {of}")
    if options.format == "html" and not options.bid:
        raise UsageError("plan: --format html is of --bid; the ranking has table, json, csv and markdown")
    if options.format == "csv" and asked:
        raise UsageError(f"plan: {asked[0]} has no --format csv; choose table, json or markdown")
    if options.model_size is not None:
        _check_size(options)
    elif options.model is None:
        raise UsageError(
            f"plan: --model M is missing; known: {_known('models')}; or --model-size auto --days D --tokens T"
        )


def check_files(options: argparse.Namespace) -> None:
    """Raise UsageError where the answer would replace a file."""
    for name, path in {"--output": options.output, "--plot": options.plot, "--emit-jube": options.emit_jube}.items():
        refuse_to_replace(name, path, overwrite=options.overwrite)


def _check_size(options: argparse.Namespace) -> None:
    if options.model_size != "auto":
        raise UsageError(f"--model-size: {options.model_size[:40]!r} is not auto; a known size is --model M")
    if options.model is not None:
        raise UsageError("plan: --model and --model-size exclude each other; give one of them")
    missing = [name for name in ("days", "tokens") if getattr(options, name) is None]
    if missing:
        raise UsageError(
            f"--model-size auto: {' and '.join('--' + name for name in missing)} missing; for example --days 5 --tokens 300B"
        )


def _known(kind: str) -> str:
    from nlp_bench.config.catalog import names

    return ", ".join(names(kind))


def fixed_of(options: argparse.Namespace) -> "Fixed":
    """Return what the options hold fixed."""
    from nlp_bench.plan.problem import Fixed

    return Fixed(**{to: getattr(options, name) for name, to in FIXED.items()}, recompute=options.recompute)


def system_of(options: argparse.Namespace) -> "System":
    """Return the system that the options name, or that this machine is."""
    from nlp_bench.config import catalog

    if options.system is not None:
        return catalog.load_system(options.system)
    from nlp_bench.config.resolve import resolve_system

    return resolve_system(Request())


def model_of(options: argparse.Namespace) -> "Model":
    """Return the model that the options name, with the sequence length that they give."""
    from nlp_bench.config import catalog
    from nlp_bench.plan.problem import with_sequence_length

    return with_sequence_length(catalog.load_model(options.model), options.sequence_length)


def problem_of(options: argparse.Namespace, model: "Model", system: "System", constants: "Constants") -> "Problem":
    """Return the question about one model."""
    from nlp_bench.measure.throughput import REPORT_TOKENS
    from nlp_bench.plan.problem import make_problem

    return make_problem(
        model,
        system,
        constants,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        global_batch_size=options.global_batch_size,
        tokens=options.tokens or REPORT_TOKENS,
        precision=options.precision,
        fixed=fixed_of(options),
    )
