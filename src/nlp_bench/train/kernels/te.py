"""Transformer Engine's kernels: linear layers fused with normalisation, attention, 8-bit floats, overlapped communication.

Not tested here: written from megatron-core's extensions/transformer_engine.py and Transformer Engine's documentation,
https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/.
"""

from typing import Any

import torch

from nlp_bench.errors import UsageError
from nlp_bench.train.attention import ContextAttention, FusedAttention, rotary
from nlp_bench.train.kernels import Modules
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.families import FAMILIES

NEEDS = {"delayed": (8, 9), "tensorwise": (8, 9), "blockwise": (9, 0), "mxfp8": (10, 0)}
"""Compute capability for each recipe of 8-bit floats; source: `is_fp8_available`, `is_mxfp8_available` and
`is_fp8_block_scaling_available` of transformer_engine/pytorch."""


def broken(device: torch.device) -> str | None:
    """Run one normalisation of Transformer Engine; return the error, or None."""
    try:
        import transformer_engine.pytorch as te  # noqa: PLC0415  # only where it is installed

        norm = te.LayerNorm(64, params_dtype=torch.bfloat16, device=device)
        answer = norm(torch.randn(8, 64, dtype=torch.bfloat16, device=device))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  # a broken installation may raise anything
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else 'no message'}"
    return None if bool(answer.isfinite().all()) else "its LayerNorm gave numbers that are not finite"


def check_eight_bit(settings: Settings, provider: str, device: torch.device) -> None:
    """Raise UsageError where 8-bit floats are requested and this GPU or its software does not support them."""
    if not settings.fp8_format:
        return
    asked = f"fp8_format: {settings.fp8_format} with --fp8-recipe {settings.fp8_recipe}"
    if provider != "te":
        raise UsageError(
            f"{asked} needs Transformer Engine; install it with `nlp-bench build --te`, or train with --bf16 alone"
        )
    found, needed = torch.cuda.get_device_capability(device), NEEDS[settings.fp8_recipe]
    if found < needed:
        name, (major, minor) = torch.cuda.get_device_name(device), needed
        raise UsageError(
            f"{asked} needs compute capability {major}.{minor} and {name} has {found[0]}.{found[1]}; "
            f"{'use --fp8-recipe delayed' if found >= NEEDS['delayed'] else 'leave --fp8-format out'}"
        )


def modules(settings: Settings) -> Modules:
    """Return the modules of layers; T5 and BERT, whose masks have another form in Transformer Engine, use torch's attention."""
    from megatron.core.extensions import transformer_engine as te  # noqa: PLC0415  # only where it is installed

    return Modules(
        norm=te.TENorm,
        column=te.TEColumnParallelLinear,
        norm_column=te.TELayerNormColumnParallelLinear,
        row=te.TERowParallelLinear,
        attention=_attention(te.TEDotProductAttention, settings) if FAMILIES[settings.model_family].is_causal else None,
    )


def _attention(base: type, settings: Settings) -> type:
    positions = ContextAttention if settings.context_parallel_size > 1 else FusedAttention

    class Attention(base):  # type: ignore[misc]
        """Transformer Engine's attention after our rotation, so that the model needs no table of angles."""

        angles = positions.angles

        def __init__(
            self, config: Any, *, rotated_width: int, rotary_base: int, fused_rotary: bool, **rest: Any
        ) -> None:
            super().__init__(config=config, **rest)
            self.rotated_width, self.rotary_base, self.fused_rotary = rotated_width, rotary_base, fused_rotary
            self.parts = config.context_parallel_size

        def forward(
            self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any
        ) -> torch.Tensor:
            if self.rotated_width:
                query = rotary(query, *self.angles(query), fused=self.fused_rotary)
                key = rotary(key, *self.angles(key), fused=self.fused_rotary)
            return super().forward(query, key, value, *rest, **named)  # type: ignore[no-any-return]

    return Attention


def start_overlap(settings: Settings) -> bool:
    """Allocate the buffers of --tp-comm-overlap, after the ranks are connected. Return whether it is on."""
    if not settings.tp_comm_overlap:
        return False
    from transformer_engine.pytorch.module import base  # noqa: PLC0415  # only where it is installed

    rows = settings.seq_length * settings.micro_batch_size // settings.context_parallel_size
    shape, ranks, fp8 = [rows, settings.hidden_size], settings.tensor_model_parallel_size, bool(settings.fp8_format)
    modes = getattr(base, "UserBufferQuantizationMode", None)  # instead of use_fp8 since Transformer Engine 2.7
    options = {"quantization_modes": [modes.FP8 if fp8 else modes.NONE]} if modes else {"use_fp8": fp8}
    base.initialize_ub(shape=shape, tp_size=ranks, bootstrap_backend="nccl", **options)
    return True
