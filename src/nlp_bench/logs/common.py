"""What a log of any program may state besides its records: settings and versions, model and accelerators, evaluations and checkpoints.

No rate needs it; it serves to check one. The names of settings are Megatron-LM's argument names with underscores (`hidden_size`),
whatever the program calls them. Sources: NVIDIA/Megatron-LM megatron/training/arguments.py (`_print_args`), training.py (`validation loss at
iteration`) and checkpointing.py (`saving checkpoint at iteration`); nlp_bench/train/logline.py; and NCCL's own messages (NVIDIA/nccl
src/init.cc `NCCL version`, src/transport/net_ib.cc and net_socket.cc `NET/IB`, `NET/Socket`, and in src/transport/ `Channel ... via P2P/...`,
`via SHM/...`, `via NET/...`). `profiling iteration 10 on rank 0` is our own trainer's.

Only totals of parameters are read, not those of one rank or shard. A mixture of experts computes with a part of its parameters, so a log
that mentions experts gives no number of parameters here.
"""

import math
import re
from functools import lru_cache

from nlp_bench.logs.clean import pieces
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late, take_facts
from nlp_bench.logs.quantity import number
from nlp_bench.logs.record import LOAD, Event
from nlp_bench.logs.scan import Line

Value = int | float | str | bool | None
_MAX_BYTES = 4096

LOW_BIT = {"fp4": "fp4", "fp8": "fp8", "fp8_format": "fp8", "fp8_hybrid": "fp8", "fp8_e4m3": "fp8"}
"""Argument to the number format of matrix products that it switches on, in today's Megatron-LM and those before it."""
OTHER_NETWORKS = {
    "num_experts": (
        "moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq", "moe_shared_expert_intermediate_size",
        "moe_expert_capacity_factor", "moe_router_force_load_balancing", "topk",
    ),
    "multi_latent_attention": ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
    "experimental_attention_variant": ("linear_attention_freq",),
    "window_size": ("window_attn_skip_freq",),
    "is_hybrid_model": ("hybrid_attention_ratio", "hybrid_mlp_ratio", "mamba_state_dim"),
    "hybrid_override_pattern": (),
    "heterogeneous_layers_config_path": (),
    "mtp_num_layers": (),
    "lora_r": ("lora_alpha",),
    "trainable_percent": (),
    # examples/multimodal/multimodal_args.py and pretrain_vlm.py
    "vision_model_type": (),
    "freeze_LM": (),
    "freeze_ViT": (),
}  # fmt: skip
"""Argument of Megatron-LM (megatron/training/arguments.py, core_v0.16.1) or of what is built on it that makes the training another one
than of a whole dense transformer with full attention, to those that count only with it: they have defaults in every dump."""
VARIANTS = (
    "sft", "perform_rl_step", "qk_layernorm", "reset_attention_mask", "reset_position_ids", "eod_mask_loss", "squared_relu",
)  # fmt: skip
"""Arguments that change what is trained and leave a dense transformer; False where a log does not have them."""
ARGUMENTS = frozenset(
    {
        "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "group_query_attention",
        "kv_channels", "seq_length", "max_position_embeddings", "encoder_seq_length", "vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by",
        "swiglu", "untie_embeddings_and_output_weights", "position_embedding_type", "normalization", "disable_bias_linear",
        "add_bias_linear", "init_method_std", "num_experts", "bf16", "fp16", "params_dtype", "recompute_granularity",
        "recompute_method", "recompute_num_layers", "recompute_activations", "optimizer", "adam_beta1", "adam_beta2", "adam_eps",
        "lr", "min_lr", "lr_decay_style", "lr_decay_samples", "lr_warmup_samples", "weight_decay", "clip_grad",
        "attention_dropout", "hidden_dropout", "seed", "train_iters", "train_samples", "log_interval", "world_size",
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage", "context_parallel_size", "expert_model_parallel_size", "data_parallel_size",
        "sequence_parallel", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_flash_attn",
        "transformer_impl", "micro_batch_size", "global_batch_size", "mock_data", "model_family", "variable_seq_lengths",
        "encoder_num_layers", "decoder_num_layers", "decoder_seq_length", "geglu", "vocab_extra_ids", "bert_no_binary_head",
        "data_path", "tokenizer_type",
    }
).union(LOW_BIT, VARIANTS, OTHER_NETWORKS, *OTHER_NETWORKS.values())  # fmt: skip
"""Arguments that define what is trained and how. What else a dump states only sets runs apart."""
# What cannot change the speed of an iteration: paths and names, logging, checkpoints and evaluations, the values of an optimizer, other programs.
_OF_NO_SPEED = re.compile(
    "(?:^|_)(?:"
    "paths?|dir|directory|files?|prefix|project|name|id|tag|version|title|addr|url|port|rank|log|logging|logger|tensorboard|wandb|verbosity|verbose|"
    "profile|profiler|nsys|straggler|barrier|ckpt|exit|eval|valid|test|iters?|iterations?|samples?|steps|interval|timeouts?|minutes|mins|seconds|"
    "restart|rerun|autoresume|inprocess|ft|seed|lr|decay|warmup|wd|beta1?|beta2|eps|epsilon|momentum|coeff|std|init|mult|rate|scale|window|hysteresis|clip|"
    "consumed|curr|vocab|merge|tokens?(?!_disp|_drop)|tokenizer|tiktoken|trust|inference|result|bert|biencoder|ict|indexer|retriever|evidence|vision|dino|swin|"
    "img|fim|rl|grpo|langrl|refit|muon|prob|classes|channels|patch"
    ")(?:_|$)|^(?:no_)?(?:load|save)(?:_|$)|^(?:split|finetune|start_time|num_microbatches|train_batch_size|gas|global_num_gpus)$"
)
_WIDTHS = {29, 32, 48}  # of a name and its dots in the dumps of DeepSpeed, of old and of today's Megatron-LM
# The argument whose None is a choice; that of others says nothing.
_SAYS_NO = {("recompute_granularity", "None"): "none"}
_CONSTANTS = {"True": True, "False": False, "None": None}
_INTEGER = late(r"[-+]?\d{1,18}")
_DECIMAL = late(r"[-+]?(?:\d{1,18}\.\d{0,18}|\d{1,18})(?:[eE][-+]?\d{1,3})?")
_DUMPED = late(rb"(?:^|[\s:])(\w{2,64}) (\.{2,}) (\S.{0,300}?)\s*$")
_OF_NEOX = late(rb"\.{3,}(?:default|updated)$")
_VERSIONS = late(rb" > versions: (.{1,600}?)\s*$")
_KERNEL = late(rb" > (attention|optimizer|recompute|backend): (.{1,200}?)\s*$")
_CHANNEL = late(rb"NCCL INFO Channel .{1,80} via (P2P|SHM|NET/\w{2,40}|NVLS|C2C)(?![\w-])(?:/\d{1,4}(/GDRDMA))?")
LOADED = late(rb" > checkpoints: loaded .{1,4096} s: (\d{1,18}) iterations, ")  # our own trainer
_SENTENCES = {
    "num_parameters": late(rb" > number of parameters: (\d{1,18})\s*$"),
    "padded_vocab_size": late(
        rb" > padded vocab \(size: \d{1,12}\) with \d{1,12} dummy tokens \(new size: (\d{1,12})\)"
    ),
    "loaded_iterations": LOADED,
    "clock_spread_s": late(rb" > clocks of the ranks: within (\d{1,9}\.\d{1,9}) s"),
    "run_sha256": late(rb" > seal: opened; run\.json SHA-256 (\w{4,64});"),
    # huggingface/peft src/peft/peft_model.py print_trainable_parameters
    "trainable_percent": late(
        rb"trainable params: [\d,]{1,20} \|\| all params: [\d,]{1,20} \|\| trainable%: (\d{1,3}(?:\.\d{1,6})?)"
    ),
    "nccl_version": late(rb"NCCL (?:INFO )?version (\d+\.\d+\.\d+(?:\+cuda[\d.]+)?)"),
    "nccl_transport": late(rb"NCCL INFO (?:Using network (\w{2,40})|NET/(\w{2,40}) ?: Using)"),
}
STATED = (*_SENTENCES, "nccl_channels")
"""Settings that a log states in other sentences than its dump, besides the versions and kernels."""
_TEXTS = {"nccl_version", "nccl_transport", "run_sha256"}  # settings that are no numbers, whatever they look like


def value_of(text: str) -> Value:
    """Return the value that Python printed as `text`: a number, True, False, None, or the text itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


@lru_cache(maxsize=4096)  # the arguments of many runs are the same
def _dumped(raw: bytes) -> tuple[tuple[str, Value], ...] | None:
    """Return the arguments that a line of a dump states and that count; None where it is no such line."""
    if b" ...." not in raw:
        return None
    found = [(each[1].decode(), each[2], each[3]) for text in pieces(raw) if (each := _DUMPED.search(text))]
    known = (
        (name, _OF_NEOX.sub(b"", text).decode(errors="replace"))
        for name, dots, text in found
        if name in ARGUMENTS or (len(name) + len(dots) in _WIDTHS and _may_count(name, text))
    )
    return tuple((name, value_of(_SAYS_NO.get((name, text), text))) for name, text in known) if found else None


def _may_count(name: str, text: bytes) -> bool:
    """Return whether the value of an argument that has no meaning here may set runs apart: paths and objects in memory do not."""
    return b"/" not in text and text[:1] != b"<" and text != b"{" and not _OF_NO_SPEED.search(name)


class _Settings(Parser):
    """Settings and versions; remembers the kinds of channels that NCCL logged."""

    def __init__(self) -> None:
        self.channels: set[str] = set()

    def take(self, line: Line, findings: Findings) -> None:
        raw = line.text[:_MAX_BYTES]
        arguments = _dumped(raw)
        if arguments is None:
            for text in pieces(raw):
                self.text(text, line, findings)
            return
        for name, value in arguments:
            findings.setting(name, value, line)

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if found := _VERSIONS.search(text):
            for part in found[1].decode(errors="replace").split(", "):
                name, _, version = part.rpartition(" ")
                findings.setting(f"{name.lower().replace('-', '_')}_version", version, line)
        elif found := _KERNEL.search(text):
            findings.setting(f"{found[1].decode()}_kernel", found[2].decode(errors="replace"), line)
        elif found := _CHANNEL.search(text):
            self.channels.add((found[1] + (found[2] or b"")).decode(errors="replace"))
            findings.setting("nccl_channels", ", ".join(sorted(self.channels)), line)
        else:
            for name, form in _SENTENCES.items():
                if found := form.search(text):
                    written = next(group for group in found.groups() if group).decode(errors="replace")
                    findings.setting(name, written if name in _TEXTS else value_of(written), line)


_N = rb"(\d[\d,]{0,18}(?:\.\d{1,6})?) ?([KMBT]|billion|million)?\b"
_PARAMETERS = tuple(
    late(rb"(?i)" + form)
    for form in (
        rb"total number of parameters in (billions): (\d{1,6}(?:\.\d{1,6})?)",
        rb"(?:number of |num(?:ber)? |total |model )(?:trainable |model )?param(?:eter)?s(?: \(total\))?\s?[:=] ?" + _N,
        rb"size: " + _N + rb" total parameters",
    )
)
_ARGUMENT = late(rb"(?:^|[\s:])(num_layers|hidden_size) \.{2,} (\d{1,9})\s*$")
PARAMETERS_PER_LAYER = 8
"""In units of hidden size squared, a lower bound: GPT has 12 (4 for the attention, 8 for the feed-forward of width 4h)."""
_PART = late(rb"(?i)rank|shard|stage|per[ _]|embedding|layer|active|lora|adapter")
_EXPERTS = late(rb"(?i)(?:num|number of|moe)[_ ](?:moe[_ ])?experts\W{1,40}[1-9]|mixture of experts")
_FACTORS = {b"": 1.0, b"k": 1e3, b"m": 1e6, b"million": 1e6, b"b": 1e9, b"billion": 1e9, b"billions": 1e9, b"t": 1e12}


_FACTS = (
    late(
        rb"(?<![\w.])(?:model\.)?(?:encoder_)?seq_length\s{0,2}[:=]\s{0,2}(?P<sequence_length__whole>\d{2,8})(?![\w.])"
    ),
    late(rb"(?:MEMBER: \d{1,6}/|Starting with (?=\d+ processes))(?P<num_devices__whole>\d{1,6})\b"),
    late(
        rb"\b(?P<device>NVIDIA (?:DGX )?[ABGHVL]{1,2}\d{2,3}\w{0,2}(?:[- ]\w{1,12}){0,3}|AMD Instinct MI\d{3}\w?|Tesla V100\S{0,16}|MI\d{3}X)\b"
    ),
)


class _Machine(Parser):
    """The facts of model and accelerators; remembers whether the log mentions experts."""

    def __init__(self) -> None:
        self.parameters: tuple[float, Line] | None = None
        self.has_experts = False
        self.shape: dict[bytes, tuple[float, Line]] = {}

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        text = text[:_MAX_BYTES]
        self.has_experts = self.has_experts or bool(_EXPERTS.search(text))
        take_facts(_FACTS, text, line, findings)
        if argument := _ARGUMENT.search(text):
            self.shape.setdefault(argument[1], (float(argument[2]), line))
        if self.parameters is None and b"aram" in text and not _PART.search(text):
            stated = next((found for form in _PARAMETERS if (found := form.search(text))), None)
            if stated:
                unit, digits = sorted((group or b"" for group in stated.groups()), key=lambda g: g[:1].isdigit())
                value = (number(digits) or 0.0) * _FACTORS[unit.lower()]
                self.parameters = (value, line) if value >= 1e6 else None

    def finish(self, findings: Findings) -> None:
        """Report the parameters, unless the model is a mixture of experts."""
        if self.has_experts:
            return
        if self.parameters:
            findings.fact("parameters", *self.parameters)
        elif len(self.shape) == 2:
            (layers, _), (hidden, line) = self.shape[b"num_layers"], self.shape[b"hidden_size"]
            findings.fact("least_parameters", PARAMETERS_PER_LAYER * layers * hidden**2, line)


_MAX_EVENTS = 100_000  # more than any training has: a log may mention checkpoints in every line
_FORMS = {
    "profiler": late(rb"(?<![\w-])profiling iteration \d{1,12} on ranks? \d"),
    "checkpoint": late(
        rb"(?i)(?<![/\w-])sav(?:ing|ed)\b[^|]{0,40}\bcheckpoint(?!ing)|\bcheckpoint(?!ing)[^|]{0,40}\bsaved?\b"
        rb"|(?<![\w-])save-checkpoint(?![\w-])"
    ),
    "evaluation": late(
        rb"(?i)\bvalidation loss\b|\bvalid(?:ation)?_loss\b|\beval(?:uation)?[ _]loss\b|\bevaluating\b|\bvalidate step:"
        rb"|\b(?:running|start\w*) (?:evaluation|validation)\b"
    ),
    LOAD: late(
        rb"(?i)\b(?:load(?:ed|ing)?|restor(?:ed?|ing)|resum(?:ed?|ing)|continuing)\b[^|]{0,60}\b(?:checkpoint(?!ing)|training)\b"
        rb"|\bresuming (?:from|at|training)\b"
    ),
}
"""Kind of event to its pattern; the first that matches counts."""
_NEGATION = late(rb"(?i)\b(?:no|not|never|nothing|without|disabled|skip(?:s|ped|ping)?)\b")
_NEGATION_BYTES = 16  # before the match in which a negation counts: `will not be`


class _Events(Parser):
    """Evaluations, checkpoints that were written or loaded, and profiled iterations."""

    def take(self, line: Line, findings: Findings) -> None:
        """Report an event if the line mentions a checkpoint that was written or loaded, an evaluation or the profiler."""
        text = line.text[:1024]
        for kind, form in _FORMS.items() if len(findings.events) < _MAX_EVENTS else ():
            found = form.search(text)
            if found and not _NEGATION.search(text, max(0, found.start() - _NEGATION_BYTES), found.end()):
                findings.events.append(Event(kind, line.offset, line.number))
                return


SETTINGS = Dialect(
    name="settings",
    needles=(  # not the command line: the dump of the arguments has the values that took effect
        b" ....", b" > versions: ", b" > number of parameters: ", b" > padded vocab", b" > attention: ", b" > optimizer: ",
        b" > recompute: ", b" > backend: ", b"NCCL version", b"NCCL INFO version", b"Using network", b"INFO NET/",
        b"NCCL INFO Channel ", b" > clocks of the ranks: ", b" > checkpoints: loaded ", b" > seal: opened; ", b"trainable params: ",
    ),
    parser=_Settings,
)  # fmt: skip
MACHINE = Dialect(
    name="machine",
    needles=(
        b"aram", b"NVIDIA ", b"AMD Instinct", b"Tesla V100", b"MI300X", b"MI250X", b"xperts", b"num_layers .", b"hidden_size .",
        b"seq_length", b"MEMBER: ", b"Starting with ",
    ),
    parser=_Machine,
)  # fmt: skip
EVENTS = Dialect(
    name="events",
    needles=(
        b"heckpoint", b"alidation", b"validate step:", b"alid_loss", b"val_loss", b"val loss", b"valuat", b"profiling iteration",
        b"esuming ", b"ontinuing training",
    ),
    parser=_Events,
)  # fmt: skip
"""The time of an interval with an event in it is not of training alone."""
