"""Which settings are refused: the rules that need no torch, each with its arithmetic and a remedy."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

POSITIVE = (
    *("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "micro_batch_size"),
    *("ffn_hidden_size", "num_query_groups", "vocab_size", "make_vocab_size_divisible_by", "rotary_base"),
    *(
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "global_batch_size",
        "train_iters",
        "train_samples",
    ),
    *("log_interval", "distributed_timeout_minutes", "exit_duration_in_mins", "recompute_num_layers"),
    *("lr_decay_iters", "lr_decay_samples", "loss_scale_window", "hysteresis", "norm_epsilon", "init_method_std"),
)
NOT_NEGATIVE = ("lr", "min_lr", "lr_warmup_iters", "lr_warmup_samples", "weight_decay", "clip_grad", "adam_eps", "seed")
UNIT_INTERVAL = ("attention_dropout", "hidden_dropout", "adam_beta1", "adam_beta2")
PAIRS = (
    ("train_iters", "train_samples"),
    ("lr_decay_iters", "lr_decay_samples"),
    ("lr_warmup_iters", "lr_warmup_samples"),
)


def check_settings(settings: "Settings") -> None:
    """Raise UsageError for the first rule that `settings` breaks."""
    _check_ranges(settings)
    _check_model(settings)
    _check_schedule(settings)
    _check_unsupported(settings)


def require(condition: bool, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def _check_ranges(settings: "Settings") -> None:
    values = vars(settings)
    for name in POSITIVE:
        require(values[name] is None or values[name] > 0, f"{name}: {values[name]} is not positive")
    for name in NOT_NEGATIVE:
        require(values[name] >= 0, f"{name}: {values[name]} is negative")
    for name in UNIT_INTERVAL:
        require(0 <= values[name] < 1, f"{name}: {values[name]} is not in [0, 1)")
    require(0 < settings.rotary_percent <= 1, f"rotary_percent: {settings.rotary_percent} is not in (0, 1]")
    for first, second in PAIRS:
        both = bool(values[first]) and bool(values[second])
        require(not both, f"{first}: {values[first]} and {second} {values[second]} exclude each other; give one")


def multiple(field: str, value: int, divisor: int, rule: str) -> None:
    """Raise UsageError `field: VALUE is not a multiple of RULE = DIVISOR` unless it is one."""
    require(value % divisor == 0, f"{field}: {value} is not a multiple of {rule} = {divisor}")


def _check_model(s: "Settings") -> None:
    tensor_parallel = s.tensor_model_parallel_size
    multiple("hidden_size", s.hidden_size, s.num_attention_heads, "num_attention_heads")
    multiple("num_attention_heads", s.num_attention_heads, tensor_parallel, "tensor_model_parallel_size")
    multiple("ffn_hidden_size", s.ffn_width, tensor_parallel, "tensor_model_parallel_size")
    multiple("num_layers", s.num_layers, s.pipeline_model_parallel_size, "pipeline_model_parallel_size")
    if s.sequence_parallel:
        multiple("seq_length", s.seq_length, tensor_parallel, "tensor_model_parallel_size (sequence parallelism)")
    if s.group_query_attention:
        require(s.num_query_groups is not None, "num_query_groups: not given, and --group-query-attention needs it")
        multiple("num_attention_heads", s.num_attention_heads, s.query_groups, "num_query_groups")
        multiple("num_query_groups", s.query_groups, tensor_parallel, "tensor_model_parallel_size")
    else:
        require(s.num_query_groups is None, f"num_query_groups: {s.num_query_groups} needs --group-query-attention")
    if s.position_embedding_type == "rope":
        rule = f"is the rotated width of a head ({s.rotary_percent} of {s.hidden_size // s.num_attention_heads})"
        even = s.rotated_width > 0 and s.rotated_width % 2 == 0
        require(even, f"rotary_percent: {s.rotated_width} {rule}; it must be even and positive")
    longest = s.max_position_embeddings
    require(longest >= s.seq_length, f"max_position_embeddings: {longest} is less than seq_length = {s.seq_length}")
    require(not (s.bf16 and s.fp16), "bf16: excludes --fp16; give one of them")


def _check_schedule(s: "Settings") -> None:
    require(bool(s.train_iters or s.train_samples), "train_iters: not given; add --train-iters N or --train-samples N")
    require(s.min_lr <= s.lr, f"min_lr: {s.min_lr} is greater than lr = {s.lr}")
    if s.overlap_param_gather:
        both = s.use_distributed_optimizer and s.overlap_grad_reduce
        require(both, "overlap_param_gather: needs --use-distributed-optimizer and --overlap-grad-reduce")
    if s.recompute_method or s.recompute_num_layers:
        needs = "needs --recompute-granularity full"
        require(
            s.granularity == "full", f"recompute_method: {s.recompute_method}, {s.recompute_num_layers} layers: {needs}"
        )
    if s.granularity == "full":
        known = s.recompute_method is not None and s.recompute_num_layers is not None
        require(known, "recompute_granularity: full needs --recompute-method and --recompute-num-layers")


def _check_unsupported(s: "Settings") -> None:
    require(
        s.save is None, f"save: {s.save}: this trainer measures throughput and writes no checkpoints; leave --save out"
    )
    require(
        s.load is None, f"load: {s.load}: this trainer measures throughput and reads no checkpoints; leave --load out"
    )
    require(
        s.eval_iters == 0, f"eval_iters: {s.eval_iters}: an evaluation would spoil the throughput; use --eval-iters 0"
    )
    require(bool(s.mock_data) != bool(s.data_path), "data_path: give exactly one of --data-path PREFIX and --mock-data")
    if s.tokenizer_type == "GPT2BPETokenizer" and s.vocab_size is None:
        require(s.vocab_file is not None, "vocab_size: not given; add --vocab-size N or --vocab-file vocab.json")
    _check_split(s.split)
    entries = vocabulary_entries(s)
    if s.vocab_size is not None and entries is not None:
        wide = s.vocab_size >= entries
        require(wide, f"vocab_size: {s.vocab_size} is less than the {entries} entries of {s.vocab_file}")


def _check_split(split: str) -> None:
    try:
        weights = [float(word) for word in split.split(",")]
    except ValueError as error:
        raise UsageError(f"split: {split!r} is no list of weights like 969,30,1") from error
    require(weights[0] > 0 and min(weights) >= 0, f"split: {split!r} leaves no documents for training")


def vocabulary_entries(settings: "Settings") -> int | None:
    """Return one more than the greatest token of `vocab_file`, or None without one; raises UsageError if unreadable."""
    if settings.vocab_file is None:
        return None
    path = Path(settings.vocab_file)
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))
        return 1 + int(max(tokens.values()))
    except OSError as error:
        remedy = "make one with nlp-bench data, or give --vocab-size N"
        raise UsageError(f"vocab_file: cannot read {path}: {error.strerror}; {remedy}") from error
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"vocab_file: {path} is not a JSON object of token numbers: {error}") from error
