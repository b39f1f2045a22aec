"""From what is known of a run to the shape and the recompute that its floating-point operations depend on; nothing is guessed."""

import re
from dataclasses import dataclass, field, replace

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout.flops import Recompute
from nlp_bench.layout.rules import METHODS, RECOMPUTE
from nlp_bench.layout.shape import FAMILIES, NETWORKS, OWN, ModelShape, padded_vocab_size, shape_of
from nlp_bench.logs.common import OTHER_NETWORKS
from nlp_bench.measure import Texts
from nlp_bench.measure.workload import RUN_JSON, Setting, Workload, is_on

_REMEDY = "the log's dump of the arguments or a run.json states it"
_SIZE = re.compile(r"(\d{1,4})B")
MAX_COUNT = 10**9  # no width, length or number of layers of a model is larger
MEGATRON_DIVISOR = 128  # Megatron-LM's default of make_vocab_size_divisible_by


@immutable
class Shaped:
    """What the counts need, and why some of it is not known."""

    shape: ModelShape | None = None  # None where a number is missing or two contradict each other
    recompute: Recompute | None = None  # None where the log does not say what was recomputed, or by which kernel
    is_recomputed: bool | None = None
    """Whether recompute of any kind was asked for (the legacy count needs no more); None: not known."""
    why_not: Texts = ()  # one sentence per thing that is missing
    assumed: Texts = ()  # one sentence per thing that was concluded from something else


@dataclass
class _Reading:
    workload: Workload
    sequence_length: int | None
    assumed: list[str] = field(default_factory=list)

    @property
    def is_ours(self) -> bool:
        return "recompute_kernel" in self.workload.logged or self.workload.is_of_run

    def count(self, name: str) -> int | None:
        """Return a whole number above 0 that a model can have; a log may print anything."""
        value = self.workload.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_COUNT:
            return None
        return int(value) if value == int(value) else None

    def flag(self, name: str) -> bool | None:
        value = self.workload.value(name)
        return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


def shaped(workload: Workload, sequence_length: int | None = None) -> Shaped:
    """Return shape and recompute of the run, each None with a sentence why where it cannot be told; `sequence_length` (tokens per sample) is what its tokens were counted with."""
    reading = _Reading(workload, sequence_length)
    _complete_from_benchmark_model(reading)
    shape = recompute = is_recomputed = None
    why_not = []
    try:
        shape = _shape(reading)
        granularity = _granularity(reading)
        is_recomputed = granularity != "none"
        recompute = _recompute(reading, granularity)
    except UsageError as error:
        why_not.append(str(error))
    return Shaped(
        shape=shape,
        recompute=recompute,
        is_recomputed=is_recomputed,
        why_not=tuple(why_not),
        assumed=tuple(reading.assumed),
    )


def _complete_from_benchmark_model(reading: _Reading) -> None:
    """Complete a row of a published table that names only the size: the rules of the benchmark freeze the shape of that size."""
    model = reading.workload.asked.get("model")
    size = _SIZE.fullmatch(str(model.value)) if model and reading.workload.is_published else None
    if size is None or reading.workload.value("num_layers"):
        return
    from nlp_bench.config.catalog import load_model  # noqa: PLC0415  # only a published table pays for it

    try:
        found = load_model(size[1])
    except NlpBenchError:
        return  # a size that the benchmark does not have
    source = f"benchmark/models/{found.name}.toml"
    values = {**vars(found.architecture), "recompute_granularity": found.training.recompute}
    settings = {name: Setting(value, source) for name, value in values.items()}
    reading.workload = replace(reading.workload, asked={**settings, **reading.workload.asked})
    reading.assumed.append(
        f"shape and recompute of the benchmark's model {found.name} ({source}), which the rules freeze"
    )


def _shape(reading: _Reading) -> ModelShape:
    workload = reading.workload
    for name in OTHER_NETWORKS:
        value = workload.value(name)
        if is_on(name, value):
            raise UsageError(
                f"no FLOPs: {name} is {str(value)[:40]}, and only whole dense transformers with full attention are counted"
            )
    if workload.value("decoder_seq_length") and not workload.value("model_family"):
        raise UsageError(
            "no FLOPs: decoder_seq_length is stated, so that it is no GPT, and no model_family, which T5 needs"
        )
    family = str(workload.value("model_family") or "gpt")
    family = NETWORKS.get(family, family)
    if family not in FAMILIES:
        raise UsageError(f"no FLOPs: model_family {family[:40]!r} is none of {', '.join(FAMILIES)}")
    names = ["num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads"]
    names += ["decoder_seq_length"] if family == "t5" else []
    found = {name: reading.count(name) for name in names}
    found["seq_length"] = reading.sequence_length or reading.count("seq_length")
    vocabulary = _padded_vocabulary(reading)
    missing = [name for name, value in found.items() if value is None] + ([] if vocabulary else ["padded_vocab_size"])
    if missing:
        raise UsageError(f"no FLOPs: {', '.join(missing)} not known; {_REMEDY}")
    layers, hidden, ffn, heads, *_ = (value or 0 for value in found.values())
    length = found["seq_length"] or 0
    learned = workload.value("position_embedding_type") == "learned_absolute"
    # Megatron-LM prints num_query_groups 1 where group_query_attention is False.
    is_grouped = reading.flag("group_query_attention") is not False
    own = {name: reading.count(name) for name in OWN} | {
        "num_decoder_layers": reading.count("decoder_num_layers") or layers,
        "decoder_sequence_length": found.get("decoder_seq_length"),
        "relative_positions": workload.value("position_embedding_type") == "relative",
        "binary_head": not reading.flag("bert_no_binary_head"),
    }
    return shape_of(
        family,
        **own,
        num_layers=reading.count("encoder_num_layers") or layers,
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_query_groups=(reading.count("num_query_groups") if is_grouped else None) or heads,
        sequence_length=length,
        padded_vocab_size=vocabulary or 0,
        gated=_gated(reading, hidden, ffn),
        head_width=reading.count("kv_channels"),
        untied_embeddings=bool(reading.flag("untie_embeddings_and_output_weights")),
        linear_biases=not (reading.flag("disable_bias_linear") or reading.flag("add_bias_linear") is False),
        norm_biases=workload.value("normalization") != "RMSNorm",
        num_learned_positions=(reading.count("max_position_embeddings") or length) if learned else 0,
    )


def _padded_vocabulary(reading: _Reading) -> int | None:
    """Return the rows of the embedding: as stated, else padded as Megatron-LM does, which needs the tensor-parallel size."""
    stated, words = reading.count("padded_vocab_size"), reading.workload.setting("vocab_size")
    entries = reading.count("vocab_size")
    if entries and words and words.source == RUN_JSON:
        entries += reading.count("vocab_extra_ids") or 0  # our trainer's log counts the sentinels already
    tensor = reading.count("tensor_model_parallel_size")
    if stated or not entries or not tensor:
        return stated
    divisor = reading.count("make_vocab_size_divisible_by") or MEGATRON_DIVISOR
    padded = padded_vocab_size(entries, divisor, tensor)
    reading.assumed.append(
        f"vocabulary of {entries} padded to {padded}, a multiple of {divisor} x {tensor} (tensor parallel)"
    )
    return padded


def _gated(reading: _Reading, hidden: int, ffn: int) -> bool:
    activation, said = reading.workload.value("activation"), reading.flag("swiglu")
    if reading.flag("geglu") or activation is not None:
        return reading.flag("geglu") or str(activation).endswith("glu")
    if said is not None or reading.is_ours:
        return bool(said)
    if ffn == 4 * hidden:
        reading.assumed.append("nothing says swiglu, and the feed-forward width is 4 x hidden: counted as not gated")
        return False
    raise UsageError(f"no FLOPs: swiglu not known (feed-forward {ffn}, hidden {hidden}); {_REMEDY}")


def _granularity(reading: _Reading) -> str:
    """Return what was asked to be recomputed; raises UsageError where nobody says it. Programs print nothing where nothing was asked."""
    said = reading.workload.value("recompute_granularity")
    if said is not None and str(said) not in RECOMPUTE:
        words = f"recompute_granularity {str(said)[:40]!r} is none of {', '.join(RECOMPUTE)}"
        raise UsageError(f"no hardware and legacy FLOPs: {words}")
    if said in {None, "none"} and reading.flag("recompute_activations"):
        return "selective"
    if said is not None:
        return str(said)
    # Megatron-LM knows sequence_parallel, which it always prints, since the version that knows recompute_granularity.
    if reading.is_ours or reading.workload.setting("sequence_parallel"):
        return "none"
    raise UsageError(f"no hardware and legacy FLOPs: what was recomputed is not known; {_REMEDY}")


def _recompute(reading: _Reading, granularity: str) -> Recompute:
    is_fused, is_wrapped = _kernel(reading)
    is_full, method = granularity == "full", str(reading.workload.value("recompute_method") or "")
    pipeline, layers = reading.count("pipeline_model_parallel_size"), reading.count("recompute_num_layers")
    if is_full and method not in METHODS:
        raise UsageError(f"no hardware FLOPs: recompute_method is {method[:40]!r}, none of {', '.join(METHODS)}")
    if is_full and method == "block" and not (pipeline and layers):
        words = "recompute of the method block needs recompute_num_layers and pipeline_model_parallel_size"
        raise UsageError(f"no hardware FLOPs: {words}")
    return Recompute(
        granularity=granularity,
        method=method if is_full else "uniform",
        num_layers=layers,
        num_stages=(pipeline or 1) * (reading.count("virtual_pipeline_model_parallel_size") or 1),
        fused_attention=is_fused,
        wraps_fused_attention=is_wrapped,
    )


def _kernel(reading: _Reading) -> tuple[bool, bool]:
    """Return whether attention is fused and whether selective recompute wraps the kernel; raises UsageError where it is not known.

    Source: NVIDIA/Megatron-LM. Its own layers (transformer_impl local) call flash attention outside of the recomputed part;
    megatron-core's attention.py (`_checkpointed_attention_forward`) recomputes Transformer Engine's whole attention module.
    """
    if reading.is_ours:
        return True, False
    implementation = reading.workload.value("transformer_impl")
    if implementation == "transformer_engine":
        reading.assumed.append("Transformer Engine's attention counted as one fused kernel")
        return True, True
    if (flash := reading.flag("use_flash_attn")) is None:
        words = "whether one fused kernel computes the attention is not known (use_flash_attn, transformer_impl)"
        raise UsageError(f"no hardware FLOPs: {words}")
    return flash, False
