"""One model: the frozen shape and training parameters, and the defaults of the free ones."""

from nlp_bench.config.options import Checked, from_zero, one_of
from nlp_bench.config.request import ShapeOptions, TrainingOptions
from nlp_bench.config.table import file_name, multiple, timelimit
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout.shape import NETWORKS, ModelShape, shape_of

PRECISIONS = {"bf16": ("--bf16",), "fp16": ("--fp16",), "fp32": (), "fp8": ("--bf16", "--fp8-format", "hybrid")}
"""Number formats, each with the trainer's words for it."""


@immutable
class Architecture(ShapeOptions, Checked, where="model"):
    """The shape of the network, frozen by the rules of the benchmark."""

    ffn_hidden_size: int  # Width of the feed-forward layer.
    vocab_size: int  # Words of the tokenizer, before padding.
    position_embedding: str = one_of("rope", "learned_absolute", "relative", default="rope")
    """rope, learned_absolute, or T5's relative."""
    rotary_base: int = 10000  # Base period of rope.
    head_width: int | None = None  # Width of one attention head; left out: hidden size / heads.
    num_query_groups: int | None = None  # Key and value heads, where query heads share them.
    activation: str = one_of("gelu", "geglu", "swiglu", default="gelu")
    """Of the feed-forward layer: gelu, or gated: geglu, swiglu."""
    normalization: str = one_of("LayerNorm", "RMSNorm", default="LayerNorm")  # LayerNorm or RMSNorm.
    norm_epsilon: float = 1e-5  # Added to the variance inside the normalisation.
    biases: bool = True  # Whether linear layers have biases.
    tied_embeddings: bool = True  # Whether the output layer uses the embedding's weights.
    decoder_sequence_length: int | None = None  # Tokens of T5's decoder in one sample.
    vocab_extra_ids: int = from_zero(0)  # T5's sentinels, beyond the words of the tokenizer.
    tokenizer: str = "GPT2BPETokenizer"  # Kind of tokenizer that the vocabulary is of, by Megatron-LM's names.
    init_method_std: float = 0.02  # Standard deviation of the initial weights.

    def _check(self) -> None:
        heads = self.num_attention_heads
        if self.head_width is None:
            multiple("model", "hidden_size", self.hidden_size, "num_attention_heads", heads)
        if self.num_query_groups is not None:
            multiple("model", "num_attention_heads", heads, "num_query_groups", self.num_query_groups)


@immutable
class Training(TrainingOptions, Checked, where="training"):
    """What controls the training, frozen by the rules of the benchmark (Adam, its schedule, the precision)."""

    precision: str = one_of(*PRECISIONS)
    """Number format of weights and arithmetic on a GPU: bf16, fp16, fp32, or fp8 (8-bit matrix products, the rest bf16). CPU ranks
    always train in fp32."""
    adam_beta1: float  # Decay of Adam's first moment.
    adam_beta2: float  # Decay of Adam's second moment.
    adam_eps: float  # Adam's epsilon.
    lr: float  # Highest learning rate.
    min_lr: float  # Learning rate at the end of the decay.
    lr_decay_style: str = one_of("cosine", "linear", "constant")  # Shape of the decay: cosine, linear or constant.
    lr_decay_samples: int = from_zero()  # Samples until the learning rate is `min_lr`.
    lr_warmup_samples: int = from_zero()  # Samples of linear warm-up.
    weight_decay: float  # Decoupled weight decay.
    clip_grad: float  # Largest norm of the gradient.
    attention_dropout: float  # Share of attention probabilities that are dropped.
    hidden_dropout: float  # Share of the residual stream's additions that are dropped.
    seed: int = from_zero()  # Seed of the initial weights and of the order of the data.

    def _check(self) -> None:
        multiple("training", "iterations", self.iterations, "log_interval", self.log_interval)


@immutable
class _Preferred(Checked):
    """What a run uses where no option says otherwise."""

    nodes: int | None = None  # Nodes of the job.
    tensor_parallel: int | None = None  # Ranks that share each layer.
    pipeline_parallel: int | None = None  # Stages that the layers are cut into.
    micro_batch_size: int | None = None  # Samples in one forward pass of one pipeline.
    timelimit: str | None = None  # Time limit of the job, HH:MM:SS.


@immutable
class Layout(_Preferred, where="system.layout"):
    """A layout that this machine prefers for one model; missing fields keep the model's defaults."""

    gpus_per_node: int | None = None  # Ranks per node.


@immutable
class Defaults(_Preferred, where="model.defaults"):
    """What a run of a model uses where no option says otherwise; free to optimise. None may be missing."""

    global_batch_size: int  # Samples of one optimizer step, on every machine; GAS follows from it.

    def _check(self) -> None:
        for name, value in vars(self).items():
            if value is None:
                raise UsageError(f"model.defaults.{name}: missing; add it to the data file")
        timelimit("model.defaults.timelimit", self.timelimit or "")


@immutable
class RunModel(Checked, where="model"):
    """What run.json has of a model: its identity and shape."""

    name: str  # The file's name without .toml; also the tag.
    family: str = one_of(*NETWORKS)  # The kind of network: gpt, t5, mt5 (t5 with a multilingual vocabulary) or bert.
    parameters_billion: float  # The size people call it by, in 10^9 parameters.
    architecture: Architecture  # The shape that is trained; that of the file is frozen.

    def _check(self) -> None:
        file_name("model.name", self.name)


@immutable
class Model(RunModel):
    """One model file of benchmark/models."""

    training: Training  # The frozen training parameters.
    defaults: Defaults  # The free parameters' defaults.

    def _check(self) -> None:
        if (NETWORKS[self.family] == "t5") != (self.architecture.decoder_sequence_length is not None):
            raise UsageError(
                f"model.decoder_sequence_length: {self.architecture.decoder_sequence_length} with family {self.family}; t5 and mt5 "
                "need it, the others have no decoder beside an encoder"
            )
        check_size(self.parameters_billion, self.family, self.architecture)


def check_size(billion: float, family: str, shape: Architecture) -> None:
    """Raise UsageError where a stated size in 10^9 parameters is not that of the shape."""
    counted = num_parameters(family, shape) / 1e9
    if abs(counted - billion) > 0.1 * counted:
        raise UsageError(
            f"model.parameters_billion: {billion:g}, but the architecture has {counted:.4g} billion "
            "(attention, feed-forward and embedding, without biases); write the true size"
        )


def model_shape(family: str, shape: Architecture) -> ModelShape:
    """Return the shape of a model; its vocabulary is not padded, as that depends on the layout."""
    others = {
        "num_decoder_layers": shape.num_layers,
        "relative_positions": shape.position_embedding == "relative",
        "num_query_groups": shape.num_query_groups or shape.num_attention_heads,
        "padded_vocab_size": shape.vocab_size,
        "gated": shape.activation != "gelu",
        "untied_embeddings": not shape.tied_embeddings,
        "linear_biases": shape.biases,
        "norm_biases": shape.normalization == "LayerNorm",
        "num_learned_positions": shape.sequence_length if shape.position_embedding == "learned_absolute" else 0,
    }
    return shape_of(NETWORKS[family], **vars(shape) | others)


def num_parameters(family: str, shape: Architecture) -> int:
    """Return the size that people call a model by: the matrices of layers and embeddings, without padding."""
    return model_shape(family, shape).weights
