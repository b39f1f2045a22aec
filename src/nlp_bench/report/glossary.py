"""What each file and each column of a report means, in one sentence: the text of docs/report.md."""

from collections.abc import Mapping

from nlp_bench.measure import rows
from nlp_bench.report.output import FILES
from nlp_bench.report.table import COLUMNS, LIMIT_COLUMNS
from nlp_bench.show.escape import escaped_markdown

MEANING = {
    "source": "where the run was read: the path as it was given",
    "model": "name of the model, where a run.json or a table tells it",
    "outcome": "how the run ended; only VALID and MEASURED ones carry numbers",
    "num_gpus": "GPUs of the whole run; CPU ranks where `accelerator` is cpu",
    "accelerator": "cuda or cpu, where a run.json or the log tells it",
    "global_batch_size": "samples per iteration, the last one where it changes",
    "sequence_length": "tokens per sample",
    "num_records": "logged intervals that were believed",
    "tokens_per_second_reference": "batch x sequence / mean of every logged time, warm-up included: the published formula",
    "time_to_report_reference_s": "tokens of the hypothetical training / `tokens_per_second_reference`, in seconds",
    "tokens_per_second_steady": "tokens / time over the steady window, of the whole machine",
    "tokens_per_second_ci95_low": "lower end of its 95 % interval",
    "tokens_per_second_ci95_high": "upper end of its 95 % interval",
    "time_to_report_steady_s": "tokens of the hypothetical training / `tokens_per_second_steady`, in seconds: the number to compare",
    "time_to_report_ci95_low_s": "lower (faster) end of its 95 % interval, in seconds",
    "time_to_report_ci95_high_s": "upper (slower) end of its 95 % interval, in seconds",
    "tokens_per_second_sustained": "tokens / wall clock from the first counted iteration to the last, nothing left out",
    "time_to_report_sustained_s": "tokens of the hypothetical training / `tokens_per_second_sustained`, in seconds",
    "tokens_per_second_per_gpu": "`tokens_per_second_steady` / `num_gpus`",
    "seconds_per_iteration_mean": "mean time of an iteration over the records of the steady window, in seconds",
    "window_first_iteration": "first iteration of the steady window",
    "window_last_iteration": "last iteration of the steady window",
    "supplied": "values of the command line that the log does not show, or contradicts: `sequence_length=8192 (log: 4096)`",
    "dialect": "dialect of the log, or reference-table for published values",
    "reasons": "why there is no number, or what to know about it",
    "joules_per_token": "energy per token over the steady window, as metered, in joules",
    "energy_kwh": "energy of the hypothetical training: `joules_per_token` x tokens, in kWh",
    "mean_power_w_per_gpu": "mean power of a GPU over the steady window, in watts",
    "cost": "`energy_kwh` x the price of --price-per-kwh",
    "rules": "what the rules of the benchmark say: VALID, INVALID, or that evidence is missing",
    "model_tflops_per_gpu": "model FLOP/s per GPU in units of 10^12, causal attention counted as half",
    "model_tflops_full_attention_per_gpu": "the same with the whole attention matrix counted",
    "hardware_tflops_per_gpu": "FLOP/s per GPU in units of 10^12 with the recompute that really ran",
    "legacy_tflops_per_gpu": "the count of older tables: x 4/3 for full recompute, whether it ran or not",
    "mfu": "`model_tflops_per_gpu` / peak of the GPU in this number format, 0 to 1",
    "hfu": "`hardware_tflops_per_gpu` / the same peak",
    "mfu_full_attention": "`model_tflops_full_attention_per_gpu` / the same peak",
    "limit": "only with --limit: PASS, FAIL or NOT PROVEN",
    "limit_s": "only with --limit: the limit in seconds",
    "limit_margin": "only with --limit: (limit - time) / limit of the steady time, of the reference time where there is no other",
    "limit_worst_margin": "only with --limit: the same of the slow end of the 95 % interval",
}
"""By the name of the column."""


def columns_markdown() -> str:
    """Return the table of columns."""
    return _columns({name: MEANING[name] for name in (*COLUMNS, *LIMIT_COLUMNS)})


def records_markdown() -> str:
    """Return the table of the columns of a logged line."""
    return _columns(rows.MEANING)


def _columns(meaning: Mapping[str, str]) -> str:
    lines = [f"| `{name}` | {_cell(what)} |" for name, what in meaning.items()]
    return "\n".join(["| column | meaning |", "|---|---|", *lines]) + "\n"


def files_markdown() -> str:
    """Return the table of files."""
    lines = [f"| `{name}` | {_cell(what)} |" for name, what in FILES.items()]
    return "\n".join(["| file | content |", "|---|---|", *lines]) + "\n"


def _cell(text: str) -> str:
    # Backquotes are meant; between them nothing is markup.
    return "`".join(part if index % 2 else escaped_markdown(part) for index, part in enumerate(text.split("`")))
