"""nanochat with its kin, and build-nanogpt: `dt` and `tok/sec` of one step of the whole machine."""

import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.forms import Pattern

_LOSS = rb"(?P<lm_loss>[-+\d.eE]{1,40}|nan|inf)"
_RATE = rb"(?P<tokens_per_second>[\d,]{1,30}(?:\.\d{1,20})?)(?=\s|$)"

DIALECTS = (
    Dialect(
        name="nanochat",
        title="nanochat (base, mid, sft), autoresearch",
        source="karpathy/nanochat scripts/base_train.py, mid_train.py, chat_sft.py; karpathy/autoresearch train.py",
        example="step 00120/21400 (0.56%) | loss: 6.300000 | lrm: 1.00 | dt: 500.00ms | tok/sec: 1,048,576 | "
        "bf16_mfu: 47.65 | epoch: 1 | total time: 0.87m | eta: 177.3m",
        trap="the total batch size is in tokens; autoresearch writes all steps into one line with carriage returns",
        needles=(b" | tok/sec: ", b"Tokens / micro-batch / rank: ", b"Total batch size "),
        parser=Pattern(
            record=re.compile(
                rb"\bstep (?P<iteration>\d{1,18})(?:/(?P<total_iterations>\d{1,18}))? \([\d.]{1,20}%\) \| loss: "
                + _LOSS
                + rb" \|[^\r\n]{0,120}? dt: (?P<elapsed_ms>[\d.]{1,30}) ?ms \| tok/sec: "
                + _RATE
            ),
            facts=(
                re.compile(rb"Tokens / micro-batch / rank: \d{1,9} x (?P<sequence_length>\d{1,9}) = "),
                re.compile(rb"Total batch size (?P<tokens>[\d,]{1,30}) => gradient accumulation steps: "),
            ),
            # Each stage of a training (base, mid, sft) prints its sizes anew.
            start=re.compile(rb"Tokens / micro-batch / rank: "),
        ),
        counts_from=0,
    ),
    Dialect(
        name="build-nanogpt",
        title="build-nanogpt and what learners made of it",
        source="karpathy/build-nanogpt train_gpt2.py",
        example="step    10 | loss: 9.500000 | lr 9.0000e-06 | norm: 2.6500 | dt: 500.00ms | tok/sec: 1048576.00",
        trap="tok/sec is of the whole machine; validation and HellaSwag print lines of their own",
        needles=(b"tok/sec", b"tokens/sec", b"tokens_per_sec", b"total desired batch size: "),
        parser=Pattern(
            record=re.compile(
                rb"\b[Ss]tep:? {0,9}(?P<iteration>\d{1,18})(?: ?/ ?(?P<total_iterations>\d{1,18}))? ?[|,] {0,4}"
                rb"(?:train[_ ])?loss:? " + _LOSS + rb"(?=[\s,|])[^\r\n]{0,160}?\b(?:dt|time taken):? "
                rb"(?:(?P<elapsed_ms>[\d.]{1,30}) ?ms|(?P<elapsed_s>[\d.]{1,30}) ?s) ?[|,] {0,4}(?:tok/sec|tokens/sec|tokens_per_sec):? "
                + _RATE
            ),
            facts=(re.compile(rb"total desired batch size: (?P<tokens>[\d,]{1,30})(?=\s|$)"),),
        ),
        counts_from=0,
    ),
)
