"""One configuration as plain whole numbers: for sentences, tables, and the trainer's options."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nlp_bench.plan.configurations import RECOMPUTE, SHARDING, Configurations


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes and switches of one configuration."""

    num_gpus: int
    """Ranks of the job."""
    tp: int
    """Tensor-parallel size."""
    pp: int
    """Pipeline-parallel size."""
    vpp: int
    """Virtual stages of each pipeline rank; 1 without interleaving."""
    cp: int
    """Context-parallel size."""
    dp: int
    """Data-parallel size; rounded down where the GPUs do not divide."""
    micro_batch_size: int
    """Samples of one forward pass."""
    gas: int
    """Micro-batches of one iteration and pipeline; rounded down where the batch does not divide."""
    global_batch_size: int
    """Samples of one iteration."""
    first_layers: int
    """Layers of the first stage where it differs, else 0."""
    last_layers: int
    """Layers of the last stage where it differs, else 0."""
    recompute: str
    """none, selective or full."""
    sequence_parallel: bool
    """Whether normalisations are split along the sequence."""
    distributed_optimizer: bool
    """Whether the optimizer state is shared out."""
    overlap_grad_reduce: bool
    """Whether gradients are reduced during the backward pass."""
    overlap_param_gather: bool
    """Whether parameters are gathered during the forward pass."""
    num_layers: int
    """Transformer layers."""
    num_heads: int
    """Attention heads."""
    num_groups: int
    """Key and value heads."""
    ffn_hidden_size: int
    """Inner width of the feed-forward block."""
    sequence_length: int
    """Tokens of a sample."""

    @property
    def layout(self) -> str:
        """The sizes in one line."""
        parts = [f"TP {self.tp}", f"PP {self.pp}"]
        parts += [f"VPP {self.vpp}"] if self.vpp > 1 else []
        parts += [f"CP {self.cp}"] if self.cp > 1 else []
        parts += [f"DP {self.dp}", f"micro batch {self.micro_batch_size}", f"GAS {self.gas}"]
        parts += [f"first stage {self.first_layers} layers"] if self.first_layers else []
        parts += [f"last stage {self.last_layers} layers"] if self.last_layers else []
        return ", ".join(parts)

    @property
    def switches(self) -> dict[str, str]:
        """What is on or off, in words, by what it is about; with one tensor-parallel rank nothing is split along the sequence."""
        overlap = {(False, False): "no overlap", (True, False): "overlapped gradients"}
        split = "sequence parallel" if self.sequence_parallel else "no sequence parallel"
        return {
            "recompute": f"recompute {self.recompute}",
            **({"sequence": split} if self.tp > 1 else {}),
            "optimizer": "distributed optimizer" if self.distributed_optimizer else "no distributed optimizer",
            "overlap": overlap.get(
                (self.overlap_grad_reduce, self.overlap_param_gather), "overlapped gradients and parameters"
            ),
        }


def sizes_of(c: Configurations, place: int) -> Sizes:
    """Return the configuration at `place`."""

    def at(value: Any) -> Any:
        return np.asarray(value).reshape(-1)[place if np.ndim(value) else 0].item()

    s, n = c.spread, c.network
    return Sizes(
        num_gpus=int(at(s.num_gpus)),
        tp=int(at(s.tensor)),
        pp=int(at(s.pipeline)),
        vpp=int(at(s.virtual)),
        cp=int(at(s.context)),
        dp=int(at(s.data)),
        micro_batch_size=int(at(s.micro_batch_size)),
        gas=int(at(s.global_batch_size)) // max(1, round(at(s.data) * at(s.micro_batch_size))),
        global_batch_size=int(at(s.global_batch_size)),
        first_layers=int(at(s.first_layers)),
        last_layers=int(at(s.last_layers)),
        recompute=RECOMPUTE[at(s.recompute)],
        sequence_parallel=at(s.sequence_parallel),
        distributed_optimizer=at(s.sharding) >= SHARDING.index("optimizer"),
        overlap_grad_reduce=at(s.overlap_grad_reduce),
        overlap_param_gather=at(s.overlap_param_gather),
        num_layers=int(at(n.num_layers)),
        num_heads=int(at(n.num_attention_heads)),
        num_groups=int(at(n.num_query_groups)),
        ffn_hidden_size=int(at(n.ffn_hidden_size)),
        sequence_length=int(at(n.sequence_length)),
    )
