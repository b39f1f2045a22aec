"""A finished run of ours on the reference machine: run.json resolved, its log printed by the trainer's own functions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nlp_bench.config.origin import Origin
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.layout.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.measure.judgement import RuleFinding
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.rules.apply import measured_folder, measured_log, wanted
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout, model_shape
from nlp_bench.train.logline import Interval, argument_lines, fact_lines, format_line

COMMIT = "5" * 40
VERSIONS = "nlp-bench 0.1.0, Python 3.11.7, torch {torch}, megatron-core 0.16.1, CUDA 12.6"
STEPS = (6.1, 5.21, 5.22, 5.2, 5.23, 5.21, 5.19, 5.22, 5.2, 5.21, 5.23, 5.2, 5.22, 5.21, 5.2)
Make = Callable[..., Path]
OWN = 'schema = "nlp-bench/rules/1"\nextends = "jupiter-nlp"\n'  # the head of a rule file of a centre


def rule_file(folder: Path, text: str, name: str = "own.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def ours(folder: Path, rules: str | None = None) -> RunResult:
    return measured_folder(folder, "run", rules=wanted(rules)).entry


def foreign(log: str, folder: Path, rules: str = "jupiter-nlp", **sizes: int) -> RunResult:
    (folder / "somebody.log").write_text(log)
    (entry,) = measured_log(str(folder / "somebody.log"), Overrides(**sizes), rules=wanted(rules))  # type: ignore[arg-type]
    return entry


def finding(entry: RunResult, rule: str) -> RuleFinding:
    (found,) = [one for one in entry.rules.findings if one.rule == rule]  # type: ignore[union-attr]
    return found


def asked(model: str, **choices: object) -> Run:
    """Return what `nlp-bench check` resolves, at a clean commit and with data."""
    run = resolve(Request(model=model, system="juwels-booster", **choices), ask_scheduler=False)  # type: ignore[arg-type]
    data = replace(run.data, path=run.data.path and "data/corpus_text_document")
    return replace(run, nlp_bench=Origin(version="0.1.0", commit=COMMIT), data=data)


def log_of(
    run: Run,
    *,
    words: Sequence[str] = (),
    torch: str = "2.8.0+cu126",
    parameters: int | None = None,
    seconds: Sequence[float] = STEPS,
    skipped: int = 0,
    loss: float = 8.0,
    without: Sequence[int] = (),
) -> str:
    """Return the log of `run` as the trainer prints it; `words` are arguments that differ from what run.json asked for."""
    settings = parse([*training_arguments(run), *words])
    layout = Layout.of(settings, run.parallel.num_gpus)
    counted = model_shape(settings, layout).parameters if parameters is None else parameters
    shape, batch = model_shape(settings, layout), layout.global_batch_size
    legacy_flops = legacy_flops_per_iteration(shape, batch, recompute=settings.granularity is not None)
    model_flops = model_flops_per_token(shape) * batch * settings.seq_length
    facts = {"versions": VERSIONS.format(torch=torch), "device": "NVIDIA A100-SXM4-40GB"}
    facts["number of parameters"] = f"{counted}"
    lines = argument_lines(settings, layout) + fact_lines(facts)
    for number, elapsed_s in enumerate(seconds, start=1):
        iteration = number * settings.log_interval
        interval = Interval(
            iteration=iteration, train_iters=layout.train_iters, consumed_samples=iteration * layout.global_batch_size,
            elapsed_s=elapsed_s, learning_rate=1e-6, global_batch_size=layout.global_batch_size, loss=loss - 0.01 * number, loss_scale=1.0,
            grad_norm=1.0, num_skipped=skipped, num_nan=0, legacy_flops=legacy_flops, model_flops=model_flops,
            sequence_length=settings.seq_length, num_gpus=layout.world_size, peak_bytes=2**34, unix_time_s=1.8e9 + settings.log_interval * sum(seconds[:number]),
        )  # fmt: skip
        if number not in without:
            lines.append(format_line(interval))
    return "".join(f"[default3]:{line}\n" for line in lines)
