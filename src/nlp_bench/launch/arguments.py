"""The trainer's arguments of a run, under Megatron-LM's names."""

from nlp_bench.config.run import Run


def training_arguments(run: Run) -> list[str]:
    """Return the words behind `python -m nlp_bench.train`: shape, layout, batch, optimizer, data."""
    pairs = {**_shape(run), **_optimizer(run)}
    words = [word for name, value in pairs.items() for word in (f"--{name}", str(value))]
    words += ["--use-distributed-optimizer"]
    words += ["--sequence-parallel"] if run.parallel.tensor > 1 else []
    words += [] if run.training.precision == "fp32" else [f"--{run.training.precision}"]
    words += [] if run.training.recompute == "none" else ["--recompute-granularity", run.training.recompute]
    return words + (
        ["--data-path", run.data.path, "--data-cache-path", run.data.cache] if run.data.path else ["--mock-data"]
    )


def _shape(run: Run) -> dict[str, object]:
    shape = run.model.architecture
    return {
        "num-layers": shape.num_layers,
        "hidden-size": shape.hidden_size,
        "ffn-hidden-size": shape.ffn_hidden_size,
        "num-attention-heads": shape.num_attention_heads,
        "seq-length": shape.sequence_length,
        "max-position-embeddings": shape.sequence_length,
        "position-embedding-type": shape.position_embedding,
        "vocab-size": shape.vocab_size,
        "init-method-std": shape.init_method_std,
        "tensor-model-parallel-size": run.parallel.tensor,
        "pipeline-model-parallel-size": run.parallel.pipeline,
        "micro-batch-size": run.batch.micro_batch_size,
        "global-batch-size": run.batch.global_batch_size,
    }


def _optimizer(run: Run) -> dict[str, object]:
    training = run.training
    loss_scale = {"initial-loss-scale": 4096, "min-loss-scale": 1.0, "loss-scale-window": 500, "hysteresis": 2}
    return {
        "train-iters": training.iterations,
        "log-interval": training.log_interval,
        "optimizer": "adam",
        "adam-beta1": training.adam_beta1,
        "adam-beta2": training.adam_beta2,
        "adam-eps": training.adam_eps,
        "lr": training.lr,
        "min-lr": training.min_lr,
        "lr-decay-style": training.lr_decay_style,
        "lr-decay-samples": training.lr_decay_samples,
        "lr-warmup-samples": training.lr_warmup_samples,
        "weight-decay": training.weight_decay,
        "clip-grad": training.clip_grad,
        "attention-dropout": training.attention_dropout,
        "hidden-dropout": training.hidden_dropout,
        "seed": training.seed,
        **(loss_scale if training.precision == "fp16" else {}),
    }
