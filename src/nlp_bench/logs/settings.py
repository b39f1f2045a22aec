"""What a log prints of the program's settings and versions: the arguments, the libraries, the size of the model.

The names are Megatron-LM's argument names with underscores (`hidden_size`), whatever the program calls them. Sources:
NVIDIA/Megatron-LM megatron/training/arguments.py (`_print_args`), nlp_bench/train/dump.py, and NCCL's own messages
(NVIDIA/nccl src/init.cc `NCCL version`, src/transport/net_ib.cc and net_socket.cc `NET/IB`, `NET/Socket`, and in src/transport/
`Channel ... via P2P/...`, `via SHM/...`, `via NET/...`).
"""

import math
import re
from functools import lru_cache

from nlp_bench.logs.clean import pieces
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line

Value = int | float | str | bool | None

ARGUMENTS = frozenset(
    {
        "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "group_query_attention",
        "kv_channels", "seq_length", "max_position_embeddings", "encoder_seq_length", "vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by",
        "swiglu", "untie_embeddings_and_output_weights", "position_embedding_type", "normalization", "disable_bias_linear",
        "add_bias_linear", "init_method_std", "num_experts", "bf16", "fp16", "fp8", "params_dtype", "recompute_granularity",
        "recompute_method", "recompute_num_layers", "recompute_activations", "optimizer", "adam_beta1", "adam_beta2", "adam_eps",
        "lr", "min_lr", "lr_decay_style", "lr_decay_samples", "lr_warmup_samples", "weight_decay", "clip_grad",
        "attention_dropout", "hidden_dropout", "seed", "train_iters", "train_samples", "log_interval", "world_size",
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage", "context_parallel_size", "expert_model_parallel_size", "data_parallel_size",
        "sequence_parallel", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_flash_attn",
        "transformer_impl", "micro_batch_size", "global_batch_size", "mock_data", "model_family",
        "encoder_num_layers", "decoder_num_layers", "decoder_seq_length", "geglu", "vocab_extra_ids", "bert_no_binary_head",
        "data_path", "tokenizer_type",
    }
)  # fmt: skip
"""Arguments that say what is trained and how; all others of a dump are passed over."""
_WORDS = {"True": True, "False": False, "None": None}
_WHOLE = re.compile(r"[-+]?\d{1,18}")
_DECIMAL = re.compile(r"[-+]?(?:\d{1,18}\.\d{0,18}|\d{1,18})(?:[eE][-+]?\d{1,3})?")
_DUMPED = re.compile(rb"(?:^|[\s:])(\w{2,64}) \.{2,} (\S.{0,300}?)\s*$")
_OF_NEOX = re.compile(rb"\.{3,}(?:default|updated)$")
_VERSIONS = re.compile(rb" > versions: (.{1,600}?)\s*$")
_KERNEL = re.compile(rb" > (attention|optimizer|recompute|backend): (.{1,200}?)\s*$")
_CHANNEL = re.compile(rb"NCCL INFO Channel .{1,80} via (P2P|SHM|NET/\w{2,40}|NVLS|C2C)(?![\w-])(?:/\d{1,4}(/GDRDMA))?")
_SENTENCES = (
    (re.compile(rb" > number of parameters: (\d{1,18})\s*$"), "num_parameters"),
    (
        re.compile(rb" > padded vocab \(size: \d{1,12}\) with \d{1,12} dummy tokens \(new size: (\d{1,12})\)"),
        "padded_vocab_size",
    ),
    (re.compile(rb" > checkpoints: loaded .{1,4096} s: (\d{1,18}) iterations, "), "loaded_iterations"),
    (re.compile(rb" > clocks of the ranks: within (\d{1,9}\.\d{1,9}) s"), "clock_spread_s"),
    (re.compile(rb" > seal: opened; run\.json SHA-256 (\w{4,64});"), "run_sha256"),
    (re.compile(rb"NCCL (?:INFO )?version (\d+\.\d+\.\d+(?:\+cuda[\d.]+)?)"), "nccl_version"),
    (re.compile(rb"NCCL INFO (?:Using network (\w{2,40})|NET/(\w{2,40}) ?: Using)"), "nccl_transport"),
)
_WORDED = {"nccl_version", "nccl_transport", "run_sha256"}


def value_of(text: str) -> Value:
    """Return what Python printed as `text`: a number, True, False, None, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


@lru_cache(maxsize=4096)  # the arguments of many runs are the same
def _dumped(raw: bytes) -> tuple[tuple[str, Value], ...]:
    """Return the arguments that a line dumps, as a rule one or none."""
    found = []
    for text in pieces(raw) if b" ...." in raw else ():
        argument = _DUMPED.search(text)
        if argument and argument[1].decode() in ARGUMENTS:
            found.append((argument[1].decode(), value_of(_OF_NEOX.sub(b"", argument[2]).decode(errors="replace"))))
    return tuple(found)


class _Parser(Parser):
    """Remembers the kinds of channels that NCCL told."""

    def __init__(self) -> None:
        self.channels: set[str] = set()

    def take(self, line: Line, findings: Findings) -> None:
        """Read the arguments, versions and sizes of one line."""
        raw = line.text[:4096]
        arguments = _dumped(raw)
        for name, value in arguments:
            findings.setting(name, value, line)
        for text in () if arguments else pieces(raw):
            self._sentence(text, line, findings)

    def _sentence(self, text: bytes, line: Line, findings: Findings) -> None:
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
            for form, name in _SENTENCES:
                if found := form.search(text):
                    word = next(group for group in found.groups() if group).decode(errors="replace")
                    findings.setting(name, word if name in _WORDED else value_of(word), line)


SETTINGS = Dialect(
    name="settings",
    title="any program",
    source="none",
    example="  hidden_size ..................................... 12288",
    trap="a command line says what was asked for, the dump of the arguments what ran",
    needles=(
        b" ....",
        b" > versions: ",
        b" > number of parameters: ",
        b" > padded vocab",
        b" > attention: ",
        b" > optimizer: ",
        b" > recompute: ",
        b" > backend: ",
        b"NCCL version",
        b"NCCL INFO version",
        b"Using network",
        b"INFO NET/",
        b"NCCL INFO Channel ",
        b" > clocks of the ranks: ",
        b" > checkpoints: loaded ",
        b" > seal: opened; ",
    ),
    parser=_Parser,
)
