"""Which kernels compute, in which number format, and what the backward pass computes again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nlp_bench.train.settings.rules import one_of, positive, require, words_of

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

RECOMPUTABLE = ("core_attn", "mlp", "layernorm")
TRANSFORMER_IMPL = {"transformer_engine": "te", "local": "torch"}
"""What Megatron-LM's words mean here."""


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """Kernels, precision and recompute."""

    kernels: str = one_of("auto", "te", "apex", "torch", default="auto")
    """Transformer Engine, Apex or torch's own; auto takes the first of these that is installed and works."""
    transformer_impl: str | None = one_of("local", "transformer_engine")
    """Megatron-LM's name: transformer_engine means --kernels te, local means torch."""
    use_flash_attn: bool = False
    """Accepted for old scripts: attention always runs through a fused kernel."""
    no_bias_gelu_fusion: bool = False
    """Leave bias and GELU apart."""
    no_bias_swiglu_fusion: bool = False
    """Leave bias and the gate of SwiGLU apart."""
    no_bias_dropout_fusion: bool = False
    """Leave bias, dropout and addition apart."""
    no_rope_fusion: bool = False
    """Rotate by separate operators."""
    no_gradient_accumulation_fusion: bool = False
    """Sum weight gradients by an operator of their own instead of inside the matrix product."""
    cross_entropy_loss_fusion: bool = False
    """Accepted for old scripts: the loss is always fused where a kernel for it works; see --no-cross-entropy-loss-fusion."""
    no_cross_entropy_loss_fusion: bool = False
    """Compute the loss by separate operators."""

    bf16: bool = False
    """Train in bfloat16 with float32 master weights and gradient sums."""
    fp16: bool = False
    """Train in float16 with float32 master weights and a dynamic loss scale."""
    fp8_format: str | None = one_of("e4m3", "hybrid")
    """Matrix products in 8-bit floats: e4m3, or hybrid (e5m2 for gradients); needs Transformer Engine and such a GPU."""
    fp8_recipe: str = one_of("delayed", "tensorwise", "mxfp8", "blockwise", default="delayed")
    """How the 8-bit floats are scaled."""
    fp8_param_gather: bool = False
    """Keep and gather the parameters in 8-bit floats."""
    initial_loss_scale: float = 2.0**32
    """First loss scale of float16."""
    min_loss_scale: float = 1.0
    """Smallest loss scale of float16."""
    loss_scale_window: int = 1000
    """Iterations without overflow after which the loss scale doubles."""
    hysteresis: int = 2
    """Overflows before the loss scale is halved."""

    recompute_granularity: str | None = one_of("selective", "full")
    """What is recomputed in the backward pass."""
    recompute_activations: bool = False
    """The same as --recompute-granularity selective."""
    recompute_modules: tuple[str, ...] = words_of(*RECOMPUTABLE)
    """What selective recompute covers; default: core_attn, which every attention kernel here recomputes by itself."""
    recompute_method: str | None = one_of("uniform", "block")
    """How full recompute divides the layers."""
    recompute_num_layers: int | None = None
    """Layers per recomputed group (uniform) or recomputed layers per stage (block)."""
    use_cpu_initialization: bool = False
    """Draw the initial weights on the CPU, the same for every parallel layout; always so on CPU ranks."""

    @property
    def granularity(self) -> str | None:
        """What is recomputed: `selective`, `full` or None."""
        return self.recompute_granularity or ("selective" if self.recompute_activations else None)

    @property
    def params_dtype(self) -> str:
        """Name of the torch type of the parameters."""
        return "bfloat16" if self.bf16 else "float16" if self.fp16 else "float32"

    @property
    def wanted_kernels(self) -> str:
        """`kernels`, or what Megatron-LM's name for it means."""
        if self.transformer_impl and self.kernels == "auto":
            return TRANSFORMER_IMPL[self.transformer_impl]
        return self.kernels


def check_kernels(s: "Settings") -> None:
    """Raise UsageError for the first rule about kernels, precision or recompute that is broken."""
    positive(
        vars(s), ("recompute_num_layers", "initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis")
    )
    require(not (s.bf16 and s.fp16), "bf16: excludes --fp16; give one of them")
    if s.transformer_impl and s.kernels != "auto":
        means = TRANSFORMER_IMPL[s.transformer_impl]
        text = f"transformer_impl: {s.transformer_impl} means --kernels {means}, and --kernels {s.kernels} is given"
        require(means == s.kernels, f"{text}; give one of them")
    if s.fp8_format:
        usable = s.wanted_kernels in {"te", "auto"} and s.bf16
        require(usable, f"fp8_format: {s.fp8_format} needs --bf16 and --kernels te (Transformer Engine)")
    require(not s.fp8_param_gather or bool(s.fp8_format), "fp8_param_gather: needs --fp8-format")
    if s.tp_comm_overlap:
        require(s.wanted_kernels in {"te", "auto"}, "tp_comm_overlap: needs --kernels te (Transformer Engine)")
    _check_recompute(s)


def _check_recompute(s: "Settings") -> None:
    if s.recompute_modules:
        require(s.granularity == "selective", "recompute_modules: needs --recompute-granularity selective")
    if s.recompute_method or s.recompute_num_layers:
        asked = f"recompute_method: {s.recompute_method}, {s.recompute_num_layers} layers"
        require(s.granularity == "full", f"{asked}: needs --recompute-granularity full")
    if s.granularity == "full":
        known = s.recompute_method is not None and s.recompute_num_layers is not None
        require(known, "recompute_granularity: full needs --recompute-method and --recompute-num-layers")
