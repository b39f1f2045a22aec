"""How the model is spread over the ranks, and what one optimizer step holds: the arithmetic in one place."""

from dataclasses import dataclass

from nlp_bench.config import checks
from nlp_bench.config.model import Architecture
from nlp_bench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Nodes, ranks and the parallel sizes."""

    nodes: int
    """Nodes of the job."""
    gpus_per_node: int
    """Ranks per node, one per GPU (or CPU ranks)."""
    tensor: int
    """Ranks that share each layer."""
    pipeline: int
    """Stages that the layers are cut into."""
    context: int = 1
    """Ranks that share each sequence."""

    def __post_init__(self) -> None:
        checks.positive(
            parallel__nodes=self.nodes,
            parallel__gpus_per_node=self.gpus_per_node,
            parallel__tensor=self.tensor,
            parallel__pipeline=self.pipeline,
            parallel__context=self.context,
        )
        words = "tp*pp" if self.context == 1 else "tp*pp*cp"
        checks.multiple("parallel", "nodes*gpus_per_node", self.num_gpus, words, self.model_parallel)

    @property
    def num_gpus(self) -> int:
        """All ranks of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def model_parallel(self) -> int:
        """Ranks that share one replica of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Data-parallel size: replicas of the model."""
        return self.num_gpus // self.model_parallel

    def share(self, global_batch_size: int, micro_batch_size: int) -> None:
        """Refuse a global batch that the replicas cannot share, and name the numbers of nodes that can."""
        per_pass = self.data * micro_batch_size
        if global_batch_size % per_pass == 0:
            return
        ranks = {nodes: nodes * self.gpus_per_node for nodes in range(1, global_batch_size * self.model_parallel + 1)}
        works = [
            str(nodes)
            for nodes, number in ranks.items()
            if number % self.model_parallel == 0
            and global_batch_size % (number // self.model_parallel * micro_batch_size) == 0
        ]
        raise UsageError(
            f"batch: global_batch_size = {global_batch_size} is not a multiple of dp*micro_batch_size = {self.data}*{micro_batch_size} = "
            f"{per_pass} (remainder {global_batch_size % per_pass}); with {self.gpus_per_node} ranks per node these numbers of "
            f"nodes work: {', '.join(works) or 'none; lower --micro-batch-size'}"
        )

    def fit(self, architecture: Architecture, *, stacked_layers: int | None) -> None:
        """Refuse a model that these sizes do not divide; `stacked_layers` are what the stages share evenly, None: unevenly."""
        shape = architecture
        if stacked_layers is not None:
            checks.multiple("parallel.pipeline", "num_layers", stacked_layers, "pp", self.pipeline)
        checks.multiple("parallel.tensor", "num_attention_heads", shape.num_attention_heads, "tp", self.tensor)
        checks.multiple("parallel.tensor", "ffn_hidden_size", shape.ffn_hidden_size, "tp", self.tensor)
        checks.multiple("parallel.tensor", "sequence_length", shape.sequence_length, "tp", self.tensor)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The samples of one optimizer step."""

    micro_batch_size: int
    """Samples in one forward pass of one pipeline."""
    gradient_accumulation_steps: int
    """Micro batches per optimizer step and pipeline (GAS)."""
    global_batch_size: int
    """Samples of one optimizer step over all replicas."""
    sequence_length: int
    """Tokens in one sample."""

    @classmethod
    def resolve(
        cls, *, micro: int, accumulation: int | None, total: int | None, data_parallel: int, sequence_length: int
    ) -> "Batch":
        """Derive GAS from the global batch or the reverse; both given must agree: global = dp * micro * GAS."""
        checks.positive(batch__micro_batch_size=micro)
        if total is None:
            if accumulation is None:
                raise UsageError("batch: gradient_accumulation_steps or global_batch_size is needed")
            total = data_parallel * micro * accumulation
        checks.positive(batch__global_batch_size=total)
        checks.multiple("batch", "global_batch_size", total, "dp*micro_batch_size", data_parallel * micro)
        derived = total // (data_parallel * micro)
        if accumulation is not None and accumulation != derived:
            raise UsageError(
                f"batch: global_batch_size = {total} is not dp*micro_batch_size*gas = "
                f"{data_parallel}*{micro}*{accumulation} = {data_parallel * micro * accumulation}; give one of the two"
            )
        return cls(
            micro_batch_size=micro,
            gradient_accumulation_steps=derived,
            global_batch_size=total,
            sequence_length=sequence_length,
        )
