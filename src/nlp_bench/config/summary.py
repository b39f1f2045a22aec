"""A resolved run in a few lines for a person."""

from nlp_bench.config.run import Run


def summary(run: Run) -> str:
    """Return the run as aligned lines: model, machine, layout with its arithmetic, batch, length, data."""
    shape, parallel, batch, launch = run.model.architecture, run.parallel, run.batch, run.launch
    tokens = batch.global_batch_size * batch.sequence_length
    unit = "GPUs" if run.system.accelerator == "cuda" else "CPU ranks"
    context = f" x context {parallel.context}" if parallel.context > 1 else ""
    recompute = [] if run.training.recompute == "none" else ["--recompute-granularity", run.training.recompute]
    rows = {
        "model": f"{run.model.name}: {shape.num_layers} layers, hidden {shape.hidden_size}, "
        f"{shape.num_attention_heads} heads, sequence {shape.sequence_length}",
        "system": f"{run.system.name} ({run.system.description}), launcher {launch.launcher}"
        + (f", queue {launch.queue}" if launch.queue else ""),
        "ranks": f"{parallel.nodes} node(s) x {parallel.gpus_per_node} = {parallel.num_gpus} {unit}",
        "layout": f"tensor {parallel.tensor} x pipeline {parallel.pipeline}{context} x data {parallel.data}",
        "tuning": " ".join([*recompute, *run.tuning.words()])
        + (f"; trainer {run.tuning.trainer}" if run.tuning.trainer != "nlp-bench" else ""),
        "batch": f"micro {batch.micro_batch_size} x accumulation {batch.gradient_accumulation_steps} x data "
        f"{parallel.data} = {batch.global_batch_size} samples, {tokens} tokens",
        "length": f"{run.training.iterations} iterations, a log line every {run.training.log_interval}, "
        + (f"less where the mean is known to {run.tuning.until} before, " if run.tuning.until else "")
        + f"at most {launch.timelimit}",
        "data": " ".join(run.data.words) or "mock (generated tokens)",
    }
    return "\n".join(f"{name:<7} {text}" for name, text in rows.items())
