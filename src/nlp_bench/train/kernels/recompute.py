"""What the backward pass computes again, in megatron-core's words."""

from typing import Any

from nlp_bench.train.settings import Settings

MEANING = {
    "mlp": "feed-forward blocks",
    "layernorm": "normalisations",
}


def recomputed_modules(settings: Settings) -> list[str]:
    """Return the modules that selective recompute runs twice.

    core_attn is none: every attention kernel here is a fused one that keeps no scores and recomputes them by itself, so a
    checkpoint around it would only run it once more.
    """
    return (
        [name for name in settings.recompute_modules if name in MEANING] if settings.granularity == "selective" else []
    )


def recompute(settings: Settings) -> dict[str, Any]:
    """Return the fields of megatron-core's TransformerConfig."""
    if settings.granularity == "full":
        return {
            "recompute_granularity": "full",
            "recompute_method": settings.recompute_method,
            "recompute_num_layers": settings.recompute_num_layers,
        }
    if "layernorm" not in recomputed_modules(settings):
        return {}
    return {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}  # mlp is ours: feedforward.py


def recompute_text(settings: Settings) -> str:
    """Say what is computed again, for the log."""
    if settings.granularity == "full":
        return f"full: whole layers, {settings.recompute_method}, {settings.recompute_num_layers}"
    fused = "the fused attention kernel recomputes its scores"
    if settings.granularity is None:
        return f"none asked for; {fused} all the same"
    names = [MEANING[name] for name in recomputed_modules(settings)]
    if not names:
        return "selective: attention only, and its fused kernel does that by itself (no checkpoint is made)"
    return f"selective: {' and '.join(names)}; {fused} by itself"
