"""What one run trained and how, under one set of names: what run.json asked for, and what the log itself prints.

The names are those of `logs.common` (Megatron-LM's arguments) and the ones of `OURS`. Rules, comparison, scaling, sweeps and the
count of floating-point operations all read this one record.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

from nlp_bench.immutable import immutable
from nlp_bench.layout.shape import NETWORKS, OWN
from nlp_bench.logs.common import ARGUMENTS, LOW_BIT, OTHER_NETWORKS, STATED, VARIANTS
from nlp_bench.logs.record import Attempt, Fact
from nlp_bench.measure import Fields, Json, Texts

Value = int | float | str | bool
RUN_JSON = "run.json"  # the source of what a run of ours was asked to do

LOW_PRECISIONS = frozenset({*LOW_BIT.values(), "int8"})
"""Values of `precision` that a program says at its start where it is switched on; one whose start says nothing has none of them."""
OURS = (
    "model", "num_parameters", "precision", "accelerator", "gpu", "nodes", "gpus_per_node", "gradient_accumulation_steps",
    "system",
)  # fmt: skip
"""Names that no argument has: `precision` is bf16, fp16, fp32, fp8 or fp4; `gpu` the words that name the device."""
PARTS = (*(name for switch, others in OTHER_NETWORKS.items() for name in (switch, *others)), *VARIANTS)
"""What a training has that is not of every whole dense transformer with full attention; one whose log says nothing of them has none."""
SHAPE = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "seq_length", "vocab_size",
    "swiglu", "untie_embeddings_and_output_weights", "position_embedding_type", "normalization", "model_family",
    "decoder_seq_length", *PARTS,
)  # fmt: skip
TRAINING = (
    "precision", "optimizer", "adam_beta1", "adam_beta2", "adam_eps", "lr", "min_lr", "lr_decay_style", "lr_decay_samples",
    "lr_warmup_samples", "weight_decay", "clip_grad", "attention_dropout", "hidden_dropout", "init_method_std",
)  # fmt: skip
FROZEN = (*SHAPE, *TRAINING)  # what two runs must have in common to be compared: the workload of the benchmark
FREE = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "data_parallel_size", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    "sequence_parallel", "use_distributed_optimizer", "recompute_granularity", "recompute_method", "recompute_num_layers",
    "nodes", "gpus_per_node", "world_size",
)  # fmt: skip
"""What a person may tune: the configuration of the run."""
OF_SPEED = (*SHAPE, "precision", *FREE)  # what a step takes its time for
_FROM_RUN = {
    "model": "model.name",
    "system": "system.name",
    "accelerator": "system.accelerator",
    "gpu": "system.gpu.name",
    "nodes": "parallel.nodes",
    "gpus_per_node": "parallel.gpus_per_node",
    "world_size": "parallel.num_gpus",
    "tensor_model_parallel_size": "parallel.tensor",
    "pipeline_model_parallel_size": "parallel.pipeline",
    "data_parallel_size": "parallel.data",
    "micro_batch_size": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch.gradient_accumulation_steps",
    "global_batch_size": "batch.global_batch_size",
    "seq_length": "model.architecture.sequence_length",
    "position_embedding_type": "model.architecture.position_embedding",
    "model_family": "model.family",
    "recompute_granularity": "training.recompute",
    "context_parallel_size": "parallel.context",
    "recompute_method": "tuning.recompute_method",
    "recompute_num_layers": "tuning.recompute_num_layers",
    "use_distributed_optimizer": "tuning.use_distributed_optimizer",
    **{
        name: f"model.architecture.{name}"
        for name in ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "vocab_size", "init_method_std")
    },
    **{
        name: f"training.{name}"
        for name in (
            "precision", "log_interval", "adam_beta1", "adam_beta2", "adam_eps", "lr", "min_lr", "lr_decay_style",
            "lr_decay_samples", "lr_warmup_samples", "weight_decay", "clip_grad", "attention_dropout", "hidden_dropout", "seed",
        )
    },
}  # fmt: skip
_OF_FAMILIES = {
    "activation": "activation",
    "kv_channels": "head_width",
    "num_query_groups": "num_query_groups",
    "normalization": "normalization",
    "decoder_seq_length": "decoder_sequence_length",
    "vocab_extra_ids": "vocab_extra_ids",
}
_OF_FAMILIES |= {name: name for name in sorted(OWN - {*_OF_FAMILIES.values()})}
"""What a run.json that names its family says in `model.architecture` beyond the shape of a plain GPT."""
HEADINGS = {
    "tensor_model_parallel_size": "TP",
    "pipeline_model_parallel_size": "PP",
    "virtual_pipeline_model_parallel_size": "VPP",
    "context_parallel_size": "CP",
    "expert_model_parallel_size": "EP",
    "data_parallel_size": "DP",
    "micro_batch_size": "micro batch",
    "gradient_accumulation_steps": "GAS",
    "global_batch_size": "batch",
    "recompute_granularity": "recompute",
}
_FROM_FACTS = {
    "parameters": "num_parameters",
    "device": "gpu",
    "sequence_length": "seq_length",
    "num_devices": "world_size",
    "precision": "precision",
}


class Setting(NamedTuple):
    """One thing that is known of a run."""

    value: Value
    source: str  # RUN_JSON, `log line N`, or what else states it, in words


_shared = lru_cache(maxsize=1 << 14, typed=True)(Setting)


def _setting(value: Value, source: str) -> Setting:
    """Return a setting: one object for all runs that have it, which goes to another process once. A 0.0 may be -0.0, which equals it."""
    return Setting(value, source) if value == 0 and isinstance(value, float) else _shared(value, source)


@immutable
class Workload:
    """All that is known."""

    asked: Mapping[str, Setting] = field(default_factory=dict)  # what run.json (or a published table) says
    logged: Mapping[str, Setting] = field(default_factory=dict)  # what the log prints
    implied: Mapping[str, Setting] = field(default_factory=dict)
    """What the log of such a run.json prints once it has come so far: a run that failed before is of the same configuration."""
    is_published: bool = False  # whether it is a row of a published table, which may name a model by its size alone

    @property
    def is_of_run(self) -> bool:
        """Say whether a run.json states any of it."""
        return any(found.source == RUN_JSON for found in (*self.asked.values(), *self.logged.values()))

    def setting(self, name: str) -> Setting | None:
        """Return what ran as far as it is known: the log's word, else what was asked for."""
        return self.logged.get(name) or self.asked.get(name)

    def configured(self, name: str) -> Setting | None:
        """Return what the log says or, where it ended before, would have said."""
        return self.logged.get(name) or self.implied.get(name) or self.asked.get(name)

    def value(self, name: str) -> Value | None:
        """Return the value of `setting`, None where nobody says it."""
        found = self.setting(name)
        return found.value if found else None

    def count(self, name: str) -> int | None:
        """Return the value as a whole number above 0, None where there is none."""
        value = self.value(name)
        is_count = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < math.inf
        return int(value) if is_count else None  # type: ignore[arg-type]

    def values(self, names: Texts) -> dict[str, Value]:
        """Return those of `names` that are known."""
        return {name: found.value for name in names if (found := self.setting(name))}

    def to_json(self) -> Json:
        """Return `asked` and `logged` as objects of name to value."""
        return {
            "asked": {name: found.value for name, found in self.asked.items()},
            "logged": {name: found.value for name, found in self.logged.items()},
        }


def workload_of(run: Fields | None, settings: Mapping[str, Fact], attempt: Attempt | None = None) -> Workload:
    """Return the workload of a run: `run` is run.json or None, `settings` and `attempt` what its log says."""
    run = run or {}
    return Workload(asked=_asked(run), logged=_logged(settings, attempt), implied=_implied(run))


def lookup(record: Fields, dotted: str) -> Any:
    """Return `record["a"]["b"]` for "a.b", None where a part is missing."""
    value: Any = record
    for part in dotted.split("."):
        # Of JSON or TOML: asking for a Mapping costs tenfold.
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _asked(run: Fields) -> dict[str, Setting]:
    found = {name: lookup(run, dotted) for name, dotted in _FROM_RUN.items()}
    if found["model_family"]:
        found |= {name: lookup(run, f"model.architecture.{theirs}") for name, theirs in _OF_FAMILIES.items()}
        found["untie_embeddings_and_output_weights"] = lookup(run, "model.architecture.tied_embeddings") is False
        found["disable_bias_linear"] = lookup(run, "model.architecture.biases") is False
        found["model_family"] = NETWORKS.get(str(found["model_family"]), found["model_family"])  # the trainer's word
    if found["recompute_granularity"] == "none":
        found["recompute_granularity"] = None
    if found["accelerator"] == "cpu":
        found["gpu"], found["precision"] = None, "fp32"  # CPU ranks train in fp32, whatever the model asks for on a GPU
    # A run.json that somebody wrote by hand may hold a list or an object: that is no setting.
    return {name: _setting(value, RUN_JSON) for name, value in found.items() if isinstance(value, int | float | str)}


def _implied(run: Fields) -> dict[str, Setting]:
    """Return the arguments that a trainer concludes from a run.json that names its family; --train-args cannot change them."""
    if not lookup(run, "model.family"):
        return {}

    def count(dotted: str) -> int:
        value = lookup(run, dotted)
        return value if isinstance(value, int) else 0

    is_ours = lookup(run, "tuning.trainer") == "nlp-bench"
    shared = count("tuning.num_layers_per_virtual_pipeline_stage") * count("parallel.pipeline")
    stages = count("tuning.num_virtual_stages_per_pipeline_rank")
    stages = stages or (count("model.architecture.num_layers") // shared if shared > 0 else 0)
    words, sentinels = count("model.architecture.vocab_size"), count("model.architecture.vocab_extra_ids")
    groups = count("model.architecture.num_query_groups")
    found = {
        "optimizer": "adam",
        "swiglu": lookup(run, "model.architecture.activation") == "swiglu",
        # Megatron-LM prints one group where no heads share any.
        "num_query_groups": groups or (count("model.architecture.num_attention_heads") if is_ours else 1),
        "vocab_size": words + sentinels if is_ours else None,
        "sequence_parallel": count("parallel.tensor") > 1 and bool(count("tuning.sequence_parallel")),
        "virtual_pipeline_model_parallel_size": stages if stages > 1 else None,
    }
    return {name: _setting(value, RUN_JSON) for name, value in found.items() if isinstance(value, int | str)}


def _logged(settings: Mapping[str, Fact], attempt: Attempt | None) -> dict[str, Setting]:
    facts = attempt.facts if attempt else {}
    found = {_FROM_FACTS[name]: fact for name, fact in facts.items() if name in _FROM_FACTS and not fact.other}
    logged = {
        name: _setting(fact.value, f"log line {fact.line_number}") for name, fact in {**found, **settings}.items()
    }
    for switch, others in OTHER_NETWORKS.items():
        has_part = is_on(switch, logged[switch].value if switch in logged else None)
        for name in (switch, *others):
            if name in logged and (not has_part or logged[name].value is False):
                del logged[name]
    for name in list(logged):  # off, and its default, which older versions do not print
        if logged[name].value in _USUAL and (name in VARIANTS or sets_apart(name)):
            del logged[name]
    # The number format by the arguments; fp32 where a dump says that it is none of them.
    on = (
        name
        for name in (*LOW_BIT, "bf16", "fp16")
        if settings.get(name) and settings[name].value not in {False, "False"}
    )
    form = next(on, None)
    if dumped := settings.get(form) if form else settings.get("bf16") or settings.get("fp16"):
        logged["precision"] = _setting(LOW_BIT.get(form or "", form or "fp32"), f"log line {dumped.line_number}")
    if attempt and len(attempt.records) and (batch := attempt.records[-1].global_batch_size):
        logged["global_batch_size"] = _setting(batch, f"log line {attempt.records[-1].line_number}")
    if device := logged.pop("gpu", None):
        is_cpu = str(device.value).lower().startswith("cpu")
        logged["accelerator"] = _setting("cpu" if is_cpu else "cuda", device.source)
        if not is_cpu:
            logged["gpu"] = device
    return logged


_USUAL = frozenset({
    False, "none", "[]", "auto", "native", "no_shard", "AttnBackend.auto", "torch.float32", "['p2p']", "allgather", "deepep", "delayed",
})  # fmt: skip
"""Values of VARIANTS and of what only sets runs apart that a log need not state."""
_OFF = frozenset({None, 0, "0", "none", "None"})  # 0 equals False
_NOTHING_OF = {
    "num_experts": (1, "1", "[1]"),  # Megatron-DeepSpeed prints a list
    "trainable_percent": (100, 100.0),
}


_WITH_MEANING = ARGUMENTS.union(OURS, STATED)


def sets_apart(name: str) -> bool:
    """Return whether a setting is an argument of a log's dump that may change how fast a training is and has no other meaning here."""
    return name not in _WITH_MEANING and not name.endswith(("_version", "_kernel"))


def is_on(switch: str, value: Value | None) -> bool:
    """Return whether the value of one of `OTHER_NETWORKS` makes the model another network."""
    if value in _NOTHING_OF.get(switch, ()):
        return False
    return value not in _OFF and not str(value).startswith("(-1,")  # a window of all tokens


def heading(name: str) -> str:
    """Return what users call a setting."""
    return HEADINGS.get(name, name.replace("_", " "))
