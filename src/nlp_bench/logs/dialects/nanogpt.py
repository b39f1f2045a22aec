"""Karpathy's trainers and their derivatives: nanoGPT, llama2.c, nanochat, build-nanogpt, llm.c."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.scan import Line

_COMMAS = rb"[\d,]{1,30}"
_RATE = rb"(?P<tokens_per_second>[\d,]{1,30}(?:\.\d{1,20})?)(?=\s|$)"
_DESIRED = rb"total desired batch size: (?P<tokens>" + _COMMAS + rb")(?=\s|$)"
_SIZES = (
    rb"tokens per iteration will be: (?P<tokens>" + _COMMAS + rb")(?=\s|$)",
    rb"^Overriding: block_size = <sequence_length>\s*$",
    rb"breaks down as: \d{1,9} grad accum steps \* <num_devices> processes ",
    (
        rb"breaks down as: (?P<global_batch_size__passes>\d{1,9}) grad accum steps \* (?P<global_batch_size__replicas>\d{1,9}) processes "
        rb"\* (?P<global_batch_size__samples>\d{1,9}) batch size \* <sequence_length> max seq len"
    ),
)

_START = late(rb"tokens per iteration will be: |\| sequence length T {1,40}\|")
"""Behind records: a log to which a program appends may have another size further on. Before the first record two sizes are in doubt."""


class _NanoGpt(PatternParser):
    """Remembers the last evaluation, whose time is part of that of the iteration with the same number."""

    _evaluation = late(rb"(?:^|\s)step (\d{1,18}): train loss ")
    _torn_evaluation = late(rb"loss [-+\d.nainf]{1,30}, val loss ")  # of an iteration whose number is lost
    evaluated = -1
    is_next = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if evaluation := self._evaluation.search(text):
            self.evaluated = int(evaluation[1])
        self.is_next |= not evaluation and self._torn_evaluation.search(text) is not None
        if findings.num_records and _START.search(text):
            findings.start(line)
        super().text(text, line, findings)

    def values(self, values: Values, at: At) -> Values:
        if values["iteration"] == self.evaluated or self.is_next:
            self.is_next = False
            values.pop("elapsed_s", None)
            at.findings.remark("the times of iterations with an evaluation inside are left out")
        return values


_LOSS_ONLY = late(rb"^s:\d{1,18} (?:tel|trl|eval):[-+\d.]")


class _LlmC(PatternParser):
    """Counts the lines of the trainer's own log file, which has no times."""

    num_losses = 0
    is_smoothed = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        self.num_losses += _LOSS_ONLY.search(text) is not None
        self.is_smoothed |= b" MFU" in text  # the trainer in CUDA
        if findings.num_records and _START.search(text):
            findings.start(line)
        super().text(text, line, findings)

    def finish(self, findings: Findings) -> None:
        if not findings.num_records and self.num_losses > 2:
            findings.refuse("the log has losses only, no times: no tokens per second can be computed")
        elif self.is_smoothed and not findings.known("tokens"):
            findings.remark("tok/s of the CUDA trainer is a running mean")


DIALECTS = (
    Dialect(
        name="build-nanogpt",
        title="build-nanogpt and what learners made of it",
        source="karpathy/build-nanogpt train_gpt2.py",
        example="step    10 | loss: 9.500000 | lr 9.0000e-06 | norm: 2.6500 | dt: 500.00ms | tok/sec: 1048576.00",
        trap="tok/sec is of the whole machine; validation and HellaSwag print lines of their own",
        needles=(b"tok/sec", b"tokens/sec", b"tokens_per_sec", b"total desired batch size: "),
        parser=Pattern(
            record=rb"\b[Ss]tep:? {0,9}<iteration>(?: ?/ ?<total_iterations>)? ?[|,] {0,4}(?:train[_ ])?loss:? <lm_loss>(?=[\s,|])"
            rb"[^\r\n]{0,160}?\b(?:dt|time taken):? (?:<elapsed_ms> ?ms|<elapsed_s> ?s) ?[|,] {0,4}"
            rb"(?:tok/sec|tokens/sec|tokens_per_sec):? " + _RATE,
            facts=(_DESIRED,),
        ),
        counts_from=0,
    ),
    Dialect(
        name="llama2-c",
        title="llama2.c",
        source="karpathy/llama2.c train.py",
        example="1200 | loss 1.9500 | lr 5.000000e-04 | 125.00ms | mfu 28.31%",
        trap="the iteration has no word in front of it; mfu is a running mean of one process",
        needles=(b"ms | mfu ", b"tokens per iteration will be: ", b", val loss ", b"breaks down as: "),
        parser=Pattern(
            record=rb"(?:^|\s)<iteration> \| loss <lm_loss> \| lr [-+\d.eE]{1,40} \| <elapsed_ms> ?ms \| mfu ",
            facts=_SIZES,
            reads_each_line=False,
            reading=_NanoGpt,
        ),
        counts_from=0,
    ),
    Dialect(
        name="llm-c",
        title="llm.c (CUDA, C, Python) and its ports",
        source="karpathy/llm.c train_gpt2.cu, train_gpt2.py, train_gpt2.c, llmc/logger.h",
        example="step   20/1000 | loss 7.250000 (+0.50z)| norm 1.5000 (-0.10z)| lr 1.00e-04 | 500.00 ms | "
        "40.0% bf16 MFU | 1048576 tok/s",
        trap="tok/s is a running mean, total batch size is in tokens; the file main.log has no times",
        needles=(
            b" tok/s",
            b" ms)",
            b"| total batch size ",
            b"| sequence length T ",
            b"| num_processes ",
            b" and total_batch_size=",
            b"total desired batch size: ",
            b" tel:",
            b" trl:",
        ),
        parser=Pattern(
            # Between loss and time are norm, learning rate and z-scores, different in every version.
            record=rb"\bstep {1,9}<iteration>(?: ?/ ?<total_iterations>)? ?(?:\||:) "
            rb"(?:train )?loss:? (?P<lm_loss>[-+\d.eE]{1,40}|-?nan|-?inf|NaN)(?:\([a-z]+\))?"
            rb"[^\r\n]{0,160}?[ (](?:<elapsed_ms> ms|<elapsed_s> s)\b(?:[^\r\n]{0,60}? (?P<tokens_per_second>\d{1,18}) tok/s)?",
            facts=(
                rb"\| total batch size {1,40}\| <tokens> ",
                rb"\| sequence length T {1,40}\| <sequence_length> ",
                rb"\| num_processes {1,40}\| <num_devices> ",
                rb"batch_size B=\d{1,9} \* seq_len T=<sequence_length> \* num_processes=<num_devices> and total_batch_size=<tokens>",
                rb"^" + _DESIRED,
            ),
            # Tests of single steps, and the line of build-nanogpt, which would match as well.
            skip=rb"\bOK = \d|\bdt: ",
            reads_each_line=False,
            reading=_LlmC,
        ),
    ),
    Dialect(
        name="nanochat",
        title="nanochat (base, mid, sft), autoresearch",
        source="karpathy/nanochat scripts/base_train.py, mid_train.py, chat_sft.py; karpathy/autoresearch train.py",
        example="step 00120/21400 (0.56%) | loss: 6.300000 | lrm: 1.00 | dt: 500.00ms | tok/sec: 1,048,576 | "
        "bf16_mfu: 47.65 | epoch: 1 | total time: 0.87m | eta: 177.3m",
        trap="the total batch size is in tokens; autoresearch writes all steps into one line with carriage returns",
        needles=(b" | tok/sec: ", b"Tokens / micro-batch / rank: ", b"Total batch size "),
        parser=Pattern(
            record=rb"\bstep <iteration>(?:/<total_iterations>)? \([\d.]{1,20}%\) \| loss: <lm_loss> \|"
            rb"[^\r\n]{0,120}? dt: <elapsed_ms> ?ms \| tok/sec: " + _RATE,
            facts=(
                rb"Tokens / micro-batch / rank: \d{1,9} x <sequence_length> = ",
                rb"Total batch size (?P<tokens>" + _COMMAS + rb") => gradient accumulation steps: ",
            ),
            # Each stage of a training (base, mid, sft) prints its sizes again.
            start=rb"Tokens / micro-batch / rank: ",
        ),
        counts_from=0,
    ),
    Dialect(
        name="nanogpt",
        title="nanoGPT",
        source="karpathy/nanoGPT train.py",
        example="iter 1200: loss 3.5000, time 250.00ms, mfu 40.00%",
        trap="mfu is of one process; an iteration with an evaluation contains its time",
        needles=(
            b"ms, mfu ",
            b", time ",
            b"tokens per iteration will be: ",
            b", val loss ",
            b"Overriding: block_size",
        ),
        parser=Pattern(
            record=rb"(?<![\w.])iter <iteration>: loss <lm_loss>, time <elapsed_ms> ?ms(?=[\s,]|$)",
            facts=_SIZES,
            reads_each_line=False,
            reading=_NanoGpt,
        ),
        counts_from=0,
    ),
)
