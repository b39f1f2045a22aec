# ruff: noqa: INP001  # scripts, not a package
"""The models of gpu_training.py, and how much of each fits a GPU: layers, then samples per micro-batch.

Bytes per parameter of ours: 2 of bfloat16, 4 of its gradient sum, 12 of float32 master weight and Adam's two moments.
"""

from dataclasses import dataclass, replace

BYTES_PER_PARAMETER = 18
STATIC_SHARE = 0.72
"""Share of the GPU's memory that weights, gradients and optimizer may take; the rest is for activations."""
ACTIVATION_SHARE = 0.80
"""Share of what is left that activations may take by the estimate below."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One dense model on one GPU."""

    name: str
    """As in the table."""
    layers: int
    """Transformer layers that are trained."""
    full_layers: int
    """Transformer layers that the model has."""
    width: int
    """Hidden size."""
    heads: int
    """Query heads."""
    inner: int
    """Inner width of the feed-forward block."""
    vocabulary: int
    """Tokens, before padding to a multiple of 128."""
    groups: int
    """Key/value heads."""
    llama: bool
    """RMSNorm, SwiGLU, no biases, untied embeddings; else GPT-3's form with rotary positions."""
    length: int = 2048
    """Tokens per sample."""
    micro: int = 8
    """Samples per forward pass."""
    batch: int = 32
    """Samples per step."""

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding table."""
        return -(-self.vocabulary // 128) * 128

    @property
    def parameters_per_layer(self) -> int:
        """Weights of one layer's matrices."""
        width_of_values = self.width // self.heads * self.groups
        attention = 2 * self.width * self.width + 2 * self.width * width_of_values
        return attention + (3 if self.llama else 2) * self.width * self.inner

    @property
    def parameters(self) -> int:
        """Weights of all matrices."""
        tables = (2 if self.llama else 1) * self.padded_vocabulary * self.width
        return self.layers * self.parameters_per_layer + tables

    @property
    def activation_bytes_per_token(self) -> int:
        """What the backward pass needs, without recompute and with fused attention, norms and activations in bfloat16.

        Per layer: two residuals and two norms, queries, keys, values and the rotated ones, the context, the inner products
        and their activation; on top the logits once and their gradient's temporaries.
        """
        head = self.width // self.heads
        heads = 2 * head * (2 * self.heads + 3 * self.groups)
        feed_forward = 2 * self.inner * (3 if self.llama else 2)
        return self.layers * (2 * 6 * self.width + heads + feed_forward) + 4 * self.padded_vocabulary


MODELS = (
    Model(name="GPT 1.3B", layers=24, full_layers=24, width=2048, heads=16, inner=8192, vocabulary=50257, groups=16, llama=False),
    Model(name="GPT 2.7B", layers=32, full_layers=32, width=2560, heads=32, inner=10240, vocabulary=50257, groups=32, llama=False),
    Model(
        name="Llama 8B-like", layers=32, full_layers=32, width=4096, heads=32, inner=14336, vocabulary=128256, groups=8,
        llama=True, batch=16,
    ),
)  # fmt: skip
"""Shapes: Brown et al. 2020 (arXiv 2005.14165, table 2.1) and the Llama 3 report (arXiv 2407.21783, table 3)."""

SMOKE = tuple(
    replace(
        model,
        layers=2,
        width=64,
        heads=4,
        inner=128,
        vocabulary=500,
        groups=2 if model.llama else 4,
        length=32,
        micro=2,
        batch=4,
    )
    for model in MODELS
)
"""The same code on a CPU within seconds."""


def fitted(model: Model, memory_bytes: int) -> Model:
    """Return `model` with as many layers, and then samples per micro-batch, as the memory holds by the estimates above."""
    tables = replace(model, layers=0).parameters
    room = STATIC_SHARE * memory_bytes / BYTES_PER_PARAMETER - tables
    layers = max(1, min(model.full_layers, int(room / model.parameters_per_layer)))
    smaller = replace(model, layers=layers)
    left = ACTIVATION_SHARE * (memory_bytes - BYTES_PER_PARAMETER * smaller.parameters)
    micro = model.micro
    while micro > 1 and micro * model.length * smaller.activation_bytes_per_token > left:
        micro //= 2
    return replace(smaller, micro=micro)


def arguments(model: Model, *, iterations: int, bf16: bool) -> list[str]:
    """Return the words of our trainer, which are Megatron-LM's too."""
    form = "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights"
    grouped = f"--group-query-attention --num-query-groups {model.groups}"
    text = (
        f"--num-layers {model.layers} --hidden-size {model.width} --num-attention-heads {model.heads} "
        f"--ffn-hidden-size {model.inner} --seq-length {model.length} --max-position-embeddings {model.length} "
        f"--micro-batch-size {model.micro} --global-batch-size {model.batch} --train-iters {iterations} --log-interval 1 "
        "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --mock-data "
        "--lr 1e-4 --min-lr 1e-4 --lr-decay-style constant --clip-grad 1.0 --weight-decay 0.01 "
        f"{'--bf16 ' if bf16 else ''}{form if model.llama else ''} {grouped if model.groups != model.heads else ''}"
    )
    return text.split()
