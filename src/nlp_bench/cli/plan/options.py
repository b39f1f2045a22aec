"""The options of `nlp-bench plan`, and the question that they ask."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.words import days, seconds, tokens
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.config.model import Model
    from nlp_bench.config.system import System
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.search.problem import Fixed, Problem

FORMATS = ("table", "json", "csv", "markdown", "html")
SIZES = {
    "--tp": ("tp", "tensor parallel size"),
    "--pp": ("pp", "pipeline parallel size"),
    "--vpp": ("vpp", "virtual stages of each pipeline rank, 1 for none"),
    "--cp": ("cp", "context parallel size"),
    "--micro-batch-size": ("micro_batch_size", "samples in one forward pass"),
    "--gas": ("gas", "gradient accumulation steps: micro-batches of an iteration"),
    "--first-layers": ("first_layers", "layers of the first pipeline stage, where it differs"),
    "--last-layers": ("last_layers", "layers of the last pipeline stage, where it differs"),
}
"""Option, field of Fixed, help."""
LONG = {
    "--tp": "--tp-size",
    "--pp": "--pp-size",
    "--vpp": "--num-virtual-stages-per-pipeline-rank",
    "--cp": "--context-parallel-size",
    "--first-layers": "--decoder-first-pipeline-num-layers",
    "--last-layers": "--decoder-last-pipeline-num-layers",
}
"""The names that `nlp-bench submit` takes."""
SWITCHES = {
    "--sequence-parallel": "sequence_parallel",
    "--use-distributed-optimizer": "distributed_optimizer",
    "--overlap-grad-reduce": "overlap_grad_reduce",
    "--overlap-param-gather": "overlap_param_gather",
}
"""Option and field of Fixed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan`."""
    _add_question(parser.add_argument_group("what is asked"))
    _add_fixed(parser.add_argument_group("held fixed instead of searched (Megatron-LM's names work too)"))
    _add_other_questions(parser.add_argument_group("other questions"))
    _add_output(parser.add_argument_group("where the answer goes"))


def _add_question(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--model", metavar="M", help="file of benchmark/models (175, 13, llama_8b), or a path")
    group.add_argument("--system", metavar="S", help="file of benchmark/systems, or a path (default: this machine's)")
    group.add_argument("--nodes", metavar="N", help="nodes of the job (default: the model's); with --time the most")
    group.add_argument("--gpus-per-node", metavar="G", help="GPUs of each (default: the system's)")
    group.add_argument(
        "--global-batch-size", metavar="B", help="samples of an iteration (default: the benchmark's; it stays fixed)"
    )
    group.add_argument("--sequence-length", metavar="L", help="tokens of a sample (frozen by the rules)")
    group.add_argument("--precision", metavar="WORD", help="bf16, fp16, fp8 (default: the model's)")
    group.add_argument(
        "--tokens", type=tokens, metavar="T", help="tokens of the training: 20000000 (default), 300B, 1.5T"
    )
    group.add_argument("--constants", type=Path, metavar="FILE", help="constants instead of benchmark/plan.toml")
    group.add_argument(
        "--learn",
        type=Path,
        nargs="+",
        metavar="RESULTS",
        help="correct the constants by measured runs of this machine",
    )


def _add_fixed(group: "argparse._ArgumentGroup") -> None:
    for option, (name, text) in SIZES.items():
        names = [option, *([LONG[option]] if option in LONG else [])]
        group.add_argument(*names, dest=name, metavar="N", help=text)
    group.add_argument(
        "--recompute",
        "--recompute-granularity",
        metavar="WORD",
        help="none, selective, full, or any to search all three",
    )
    for option, name in SWITCHES.items():
        group.add_argument(option, dest=name, metavar="BOOL", nargs="?", const="true", help="true or false")


def _add_other_questions(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--why", action="store_true", help="explain one configuration: the published one, changed by what is held fixed"
    )
    group.add_argument(
        "--time", type=seconds, metavar="SECONDS", help="the fewest nodes on which the report time is at most this"
    )
    group.add_argument("--model-size", metavar="auto", help="the largest GPT that trains --tokens in --days")
    group.add_argument("--days", type=days, metavar="D", help="of --model-size auto")
    group.add_argument("--bid", action="store_true", help="a bid sheet of the best configuration")
    group.add_argument(
        "--margin", type=float, metavar="PERCENT", help="of --bid: commit to the prediction and so much more"
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--top", default="10", metavar="K", help="rows of the table (default 10)")
    group.add_argument("--format", choices=FORMATS, help="form of the answer (default table; html: of --bid only)")
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="write the answer here, or into this folder, instead of printing it"
    )
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw time over memory into FILE.svg or FILE.png")
    group.add_argument(
        "--rehearse",
        metavar="N",
        help="rehearse the N best as well: the trainer's own step, without a GPU (some seconds each)",
    )
    group.add_argument(
        "--emit-jube",
        type=Path,
        metavar="FILE",
        help="write the best and the published configuration as a sweep: jube run FILE",
    )


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


def number(options: argparse.Namespace, name: str) -> int | None:
    """Return an option that is a whole number above 0, None where it is not given."""
    from nlp_bench.config.request import UNSET, whole_number

    value = getattr(options, name)
    return None if value in {None, *UNSET} else whole_number(name, value)


def fixed_of(options: argparse.Namespace) -> "Fixed":
    """Return what the options hold fixed."""
    from nlp_bench.config.tuning import switch
    from nlp_bench.plan.search.problem import RECOMPUTE_WORDS, Fixed

    sizes = {name: number(options, name) for name, _ in SIZES.values()}
    switches = {
        name: None if getattr(options, name) is None else switch(option.removeprefix("--"), getattr(options, name))
        for option, name in SWITCHES.items()
    }
    if options.recompute is not None and options.recompute not in RECOMPUTE_WORDS:
        raise UsageError(f"--recompute: {options.recompute[:40]!r} is not one of {', '.join(RECOMPUTE_WORDS)}")
    return Fixed(**sizes, **switches, recompute=options.recompute)  # type: ignore[arg-type]  # None or of the field's type


def system_of(options: argparse.Namespace) -> "System":
    """Return the system that the options name, or that this machine is."""
    from nlp_bench.config import catalog

    if options.system is not None:
        return catalog.load_system(options.system)
    from nlp_bench.config.request import Request
    from nlp_bench.config.resolve import resolve_system

    return resolve_system(Request())


def model_of(options: argparse.Namespace) -> "Model":
    """Return the model that the options name, with the sequence length that they give."""
    from nlp_bench.config import catalog

    model = catalog.load_model(options.model)
    length = number(options, "sequence_length")
    if length is None:
        return model
    return replace(model, architecture=replace(model.architecture, sequence_length=length))


def problem_of(options: argparse.Namespace, model: "Model", system: "System", constants: "Constants") -> "Problem":
    """Return the question about one model."""
    from nlp_bench.measure.throughput import REPORT_TOKENS
    from nlp_bench.plan.search.problem import make_problem

    return make_problem(
        model,
        system,
        constants,
        nodes=number(options, "nodes"),
        gpus_per_node=number(options, "gpus_per_node"),
        global_batch_size=number(options, "global_batch_size"),
        tokens=options.tokens or REPORT_TOKENS,
        precision=options.precision,
        fixed=fixed_of(options),
    )
