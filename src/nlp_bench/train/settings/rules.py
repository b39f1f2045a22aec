"""The rules of settings, those of single values as tables, and of the files of the data that they name. No torch here."""

import math
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.config.table import nonce
from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError, explained, require
from nlp_bench.files import parse_json
from nlp_bench.layout.rules import RULES, Sizes, asked_sizes, refuse
from nlp_bench.measure.anytime import percent
from nlp_bench.train.settings.families import FAMILIES, check_family

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

NO_VOCABULARY = "vocab_size: not given; add --vocab-size N, --vocab-file FILE or --tokenizer-model tokenizer.json"
NOT_NEGATIVE = (
    "lr", "min_lr", "lr_warmup_iters", "lr_warmup_samples", "weight_decay", "clip_grad", "adam_eps", "seed", "manual_gc_interval",
    "vocab_extra_ids",
)  # fmt: skip
SHARES = ("attention_dropout", "hidden_dropout", "adam_beta1", "adam_beta2", "mask_prob", "short_seq_prob")  # in [0, 1)
OTHERS = (
    "rotary_percent", "eval_interval", "eval_iters", "timing_log_level", "profile_step_start", "profile_step_end",
)  # fmt: skip
"""Numbers with a rule of their own, or none. All other numbers must be finite and above 0, if given."""
EXCLUSIVE = (
    ("train_iters", "train_samples"), ("lr_decay_iters", "lr_decay_samples"), ("lr_warmup_iters", "lr_warmup_samples"),
    ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"), ("ddp_bucket_size", "ddp_num_buckets"),
    ("bf16", "fp16"), ("swiglu", "geglu"), ("overlap_p2p_communication_warmup_flush", "no_overlap_p2p_communication"),
    ("accumulate_allreduce_grads_in_fp32", "no_accumulate_allreduce_grads_in_fp32"),
)  # fmt: skip
"""Pairs of which at most one may be given."""
NEEDS = {
    "save_interval": "--save FOLDER",
    "keep_checkpoints": "--save FOLDER",
    "async_save": "--save FOLDER",
    "exit_on_missing_checkpoint": "--load FOLDER",
    "manual_gc_interval": "--manual-gc",
    "fp8_param_gather": "--fp8-format",
    "align_param_gather": "--overlap-param-gather",
    "ddp_bucket_size": "--overlap-grad-reduce, without which there is one bucket",
    "ddp_num_buckets": "--overlap-grad-reduce, without which there is one bucket",
    "no_align_grad_reduce": "--overlap-grad-reduce, without which there is one bucket",
    "wandb_exp_name": "--wandb-project",
    "wandb_save_dir": "--wandb-project",
}
"""Setting to another option that it needs."""
BY_RANKS = ("GPUs", "global batch", "micro-batch groups")  # rules that need the number of ranks
LATER = (*BY_RANKS, "sequence")
"""Not checked here. "sequence": runs of the benchmark keep it; this trainer, like Megatron-LM's, needs it only with --sequence-parallel."""
TRANSFORMER_IMPL = {"transformer_engine": "te", "local": "torch"}  # Megatron-LM's values to those of --kernels
MAX_SEED = 2**31  # megatron-core shuffles with numpy's RandomState, of 32 bits, and adds to the seed on some ranks


def check(s: "Settings") -> None:
    """Raise UsageError for the first rule that is broken."""
    _check_values(vars(s))
    for rules in (_check_shape, _check_parallel, _check_run, _check_data, check_family):
        rules(s)


def _check_values(values: Mapping[str, Any]) -> None:
    may_be_zero = {*NOT_NEGATIVE, *SHARES, *OTHERS} - {"mask_prob"}
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in may_be_zero:
            require(0 < value < math.inf, f"{name}: {value} is not positive")
    for name in NOT_NEGATIVE:
        require(not values[name] < 0, f"{name}: {values[name]} is negative")
        require(values[name] < math.inf, f"{name}: {values[name]} is no finite number")
    for name in SHARES:
        require(0 <= values[name] < 1, f"{name}: {values[name]} is not in [0, 1)")
    for one, other in EXCLUSIVE:
        if values[one] is True and values[other]:
            raise UsageError(f"{one}: excludes --{other.replace('_', '-')}; give one of them")
        both = values[one] and values[other]
        require(not both, f"{one}: {values[one]} and {other} {values[other]} exclude each other; give one")
    for name, option in NEEDS.items():
        needed = option.split(",")[0].split()[0].removeprefix("--").replace("-", "_")
        require(bool(values[needed]) or not values[name], f"{name}: needs {option}")


def _multiple(name: str, value: int, divisor: int, rule: str) -> None:
    require(value % divisor == 0, f"{name}: {value} is not a multiple of {rule} = {divisor}")


def _check_shape(s: "Settings") -> None:
    require(0 < s.rotary_percent <= 1, f"rotary_percent: {s.rotary_percent} is not in (0, 1]")
    if s.kv_channels is None:
        _multiple("hidden_size", s.hidden_size, s.num_attention_heads, "num_attention_heads")
    if s.group_query_attention:
        require(s.num_query_groups is not None, "num_query_groups: not given, and --group-query-attention needs it")
        _multiple("num_attention_heads", s.num_attention_heads, s.query_groups, "num_query_groups")
    else:
        require(s.num_query_groups is None, f"num_query_groups: {s.num_query_groups} needs --group-query-attention")
    longest = s.max_position_embeddings
    for name, length in (("seq_length", s.seq_length), ("decoder_seq_length", s.decoder_seq_length or 0)):
        require(longest >= length, f"max_position_embeddings: {longest} is less than {name} = {length}")
    if s.position_embedding_type == "rope":
        rule = f"is the rotated width of a head ({s.rotary_percent} of {s.head_width})"
        even = s.rotated_width > 0 and s.rotated_width % 2 == 0
        require(even, f"rotary_percent: {s.rotated_width} {rule}; it must be even and above 0")


def sizes_of(s: "Settings", *, world_size: int | None = None) -> Sizes:
    """Return the sizes for the rules of a valid layout; without a world size, of one replica."""
    num_gpus = s.model_parallel_size if world_size is None else world_size
    return Sizes(
        **asked_sizes(s, num_layers=s.stack_depth, pipeline=s.pipeline_model_parallel_size),
        num_gpus=num_gpus,
        tensor=s.tensor_model_parallel_size,
        pipeline=s.pipeline_model_parallel_size,
        context=s.context_parallel_size,
        micro_batch_size=s.micro_batch_size,
        global_batch_size=s.global_batch_size or num_gpus // s.model_parallel_size * s.micro_batch_size,
        microbatch_group=s.microbatch_group_size_per_virtual_pipeline_stage or 0,
        sequence_parallel=s.sequence_parallel,
        num_layers=s.stack_depth,
        num_attention_heads=s.num_attention_heads,
        num_query_groups=s.query_groups,
        ffn_hidden_size=s.ffn_width,
        sequence_length=s.seq_length,
        decoder_sequence_length=s.decoder_seq_length or 0,
    )


def argument_of(field: str) -> str:
    """Return the trainer's argument for a field of run.json."""
    section, _, name = field.partition(".")
    if section == "parallel" and name:
        return f"{name}_model_parallel_size".replace("context_model", "context")
    return {"batch": "global_batch_size"}.get(field, name or field)


def _check_parallel(s: "Settings") -> None:
    sizes = sizes_of(s)
    refuse(sizes, tuple(rule for rule in RULES if rule.code not in LATER), argument_of)
    uneven = sizes.first_layers or sizes.last_layers
    require(
        not uneven or not FAMILIES[s.model_family].has_decoder,
        f"decoder_first_pipeline_num_layers: {uneven} is for gpt and bert; {s.model_family} divides its layers evenly",
    )
    if sizes.virtual > 1 and s.no_overlap_p2p_communication:  # Megatron-LM refuses it too
        rule = "needs pipeline_model_parallel_size above 2, or a rank takes an activation for a gradient"
        require(sizes.pipeline > 2, f"no_overlap_p2p_communication: with interleaving it {rule}; leave it out")
    if (parts := s.context_parallel_size) > 1:
        why = f"{s.model_family} has no causal sequence to share"
        require(FAMILIES[s.model_family].is_causal, f"context_parallel_size: {parts} is for gpt; {why}")
        theirs = s.cp_comm_type == "all_gather" or s.wanted_kernels in {"te", "auto"}
        needs = "needs --kernels te (Transformer Engine); torch's attention has all_gather"
        require(theirs, f"cp_comm_type: {s.cp_comm_type} {needs}")
    if s.tp_comm_overlap:
        many = s.sequence_parallel and s.tensor_model_parallel_size > 1
        require(many, "tp_comm_overlap: needs --sequence-parallel and --tensor-model-parallel-size above 1")


def _check_run(s: "Settings") -> None:
    require(bool(s.train_iters or s.train_samples), "train_iters: not given; add --train-iters N or --train-samples N")
    spoilt = f"eval_iters: {s.eval_iters}: an evaluation would spoil the throughput; use --eval-iters 0"
    require(s.eval_iters == 0, spoilt)
    if s.until is not None:
        percent("until", s.until)
        for name in ("save", "load", "profile"):
            require(not getattr(s, name), f"until: {s.until} is for a measurement in one piece; leave --{name} out")
    room = "the seeds of numpy's generator with room for those of ranks"
    require(s.seed < MAX_SEED, f"seed: {s.seed} is not below 2**31, {room}")
    require(s.min_lr <= s.lr, f"min_lr: {s.min_lr} is greater than lr = {s.lr}")
    nonce("nonce", s.nonce)
    require(s.timing_log_level in {0, 1, 2}, f"timing_log_level: {s.timing_log_level} is none of 0, 1, 2")
    there = s.wandb_project is None or find_spec("wandb") is not None
    remedy = "pip install wandb, or leave --wandb-project out"
    require(there, f"wandb_project: the package wandb is not installed; {remedy}")
    if s.profile:
        start, end, ranks = s.profile_step_start, s.profile_step_end, s.profile_ranks
        require(start >= 1, f"profile_step_start: {start}: iterations are counted from 1")
        require(start < end, f"profile_step_end: {end} is not after profile_step_start = {start}")
        words = " ".join(map(str, ranks)) or "none"
        require(bool(ranks) and min(ranks) >= 0, f"profile_ranks: {words}: give ranks from 0 on")
    if s.transformer_impl and s.kernels != "auto":
        means = TRANSFORMER_IMPL[s.transformer_impl]
        text = f"transformer_impl: {s.transformer_impl} means --kernels {means}, and --kernels {s.kernels} is given"
        require(means == s.kernels, f"{text}; give one of them")
    if s.fp8_format:
        usable = s.wanted_kernels in {"te", "auto"} and s.bf16
        require(usable, f"fp8_format: {s.fp8_format} needs --bf16 and --kernels te (Transformer Engine)")
    else:
        require(
            s.fp8_recipe == "delayed", f"fp8_recipe: {s.fp8_recipe} needs --fp8-format (`fp8_format` of a model file)"
        )
    if s.tp_comm_overlap:
        require(s.wanted_kernels in {"te", "auto"}, "tp_comm_overlap: needs --kernels te (Transformer Engine)")
    if s.recompute_modules:
        require(s.granularity == "selective", "recompute_modules: needs --recompute-granularity selective")
    if s.recompute_method or s.recompute_num_layers:
        asked = f"recompute_method: {s.recompute_method}, {s.recompute_num_layers} layers"
        require(s.granularity == "full", f"{asked}: needs --recompute-granularity full")
    if s.granularity == "full":
        known = s.recompute_method is not None and s.recompute_num_layers is not None
        require(known, "recompute_granularity: full needs --recompute-method and --recompute-num-layers")


def _check_data(s: "Settings") -> None:
    require(s.mock_data != bool(s.data_path), "data_path: give exactly one of --data-path PREFIX and --mock-data")
    if s.data_path:
        parse_blend(s.data_path)
    try:
        weights = [float(word) for word in s.split.split(",")]
    except ValueError as error:
        raise UsageError(f"split: {s.split!r} is no list of weights like 969,30,1") from error
    is_plain = len(weights) <= 3 and set(s.split) <= set("0123456789., ")  # as megatron-core parses it
    require(is_plain, f"split: {s.split!r} is no list of up to three weights in plain digits, like 969,30,1")
    require(weights[0] > 0, f"split: {s.split!r} leaves no documents for training")
    entries = vocabulary_entries(s)
    if s.vocab_size is None:
        require(entries is not None, NO_VOCABULARY)
    elif entries is not None:
        file = s.vocab_file or s.tokenizer_model
        require(s.vocab_size >= entries, f"vocab_size: {s.vocab_size} is less than the {entries} entries of {file}")


def check_files(s: "Settings") -> None:
    """Raise UsageError where a file of the data is damaged, or was made with another tokenizer than that of the training."""
    if not s.data_path:
        return
    from nlp_bench.data.indexed import check_indexed, check_tokenizer  # noqa: PLC0415  # only where files are read

    names = ("tokenizer_type", "vocab_file", "merge_file", "tokenizer_model", "vocab_size")
    try:
        for prefix in parse_blend(s.data_path).prefixes:
            check_indexed(prefix)
            check_tokenizer(prefix, **{name: getattr(s, name) for name in names})
    except PermissionError as error:
        raise UsageError(
            f"data_path: {error.filename}: {explained(error)}; or take other data by --data-path, as `nlp-bench data --output FOLDER` makes them"
        ) from error


def resolved_vocab_size(s: "Settings") -> int:
    """Return the size of the vocabulary, sentinels included; raises UsageError where neither an option nor a file states it."""
    entries = s.vocab_size or vocabulary_entries(s)
    if entries is None:
        raise UsageError(NO_VOCABULARY)
    return entries + s.vocab_extra_ids


def vocabulary_entries(s: "Settings") -> int | None:
    """Return the greatest token id of the vocabulary's file + 1, or None without one; raises UsageError if unreadable."""
    if s.vocab_file is not None:
        if s.vocab_file.endswith(".txt"):
            return len(wordpiece_numbers(s) or {})
        return _greatest("vocab_file", s.vocab_file, lambda found: found.values()) + 1
    if s.tokenizer_model is not None and s.tokenizer_model.endswith(".json"):
        return _greatest("tokenizer_model", s.tokenizer_model, _numbers) + 1
    return None


def wordpiece_numbers(s: "Settings") -> dict[str, int] | None:
    """Return piece to token id of a vocab.txt, a piece per line; None without one. Raises UsageError if it is unreadable or lacks [CLS], [SEP] or [MASK]."""
    if s.vocab_file is None or not s.vocab_file.endswith(".txt"):
        return None
    pieces = _read("vocab_file", s.vocab_file).splitlines()
    numbers = {piece: number for number, piece in enumerate(pieces)}
    missing = [piece for piece in ("[CLS]", "[SEP]", "[MASK]") if piece not in numbers]
    require(not missing, f"vocab_file: {s.vocab_file} is no WordPiece vocabulary: it has no {', '.join(missing)}")
    return numbers


def _numbers(tokenizer: Any) -> Iterable[int]:
    """Return the token ids of a tokenizer.json (Hugging Face's tokenizers): of a table of pieces, or a list (Unigram)."""
    table = tokenizer["model"]["vocab"]
    added = (int(one["id"]) for one in tokenizer.get("added_tokens", ()))
    return chain(table.values() if isinstance(table, dict) else range(len(table)), added)


def _greatest(field: str, file: str, numbers: Callable[[Any], Iterable[int]]) -> int:
    try:
        return max(int(number) for number in numbers(parse_json(_read(field, file))))
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise UsageError(f"{field}: {file} is not a JSON object of token numbers: {error}") from error


def _read(field: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        remedy = "make one with nlp-bench data, or give --vocab-size N"
        raise UsageError(f"{field}: cannot read {file}: {why}; {remedy}") from error
