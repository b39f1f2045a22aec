"""Karpathy's trainers and their derivatives: nanoGPT, llama2.c, nanochat, build-nanogpt, llm.c, modded-nanogpt."""

from math import prod

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import At, Match, Pattern, PatternParser, Values, late, take_facts
from nlp_bench.logs.quantity import COUNTS_ELSE, bounds, number, numbers
from nlp_bench.logs.scan import Line, slim

_COMMAS = rb"[\d,]{1,30}"
_SAME = 0.02  # between a rate x its time and what it counts: both are rounded
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


class _NanoGpt(PatternParser):
    """Remembers the last evaluation, whose time is part of that of the iteration with the same number."""

    _evaluation = late(rb"(?:^|\s)step (\d{1,18}): train loss ")
    evaluated = -1

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if evaluation := self._evaluation.search(text):
            self.evaluated = int(evaluation[1])
        super().text(text, line, findings)

    def values(self, values: Values, at: At) -> Values:
        if values["iteration"] == self.evaluated:
            values.pop("elapsed_s", None)
            at.findings.remark("the times of iterations with an evaluation inside are left out")
        return values


_MICRO_BATCH = late(rb"^Tokens / micro-batch: (" + _COMMAS + rb")\s*$")


class _NanoChat(PatternParser):
    """Knows by its time what a rate counts: versions that accumulate gradients divide one micro-batch by the time of all."""

    micro_batch = 0.0

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if found := _MICRO_BATCH.search(text):
            self.micro_batch = number(found[1]) or 0.0
        super().text(text, line, findings)

    def values(self, values: Values, at: At) -> Values:
        tokens = values.get("tokens_per_second", 0.0) * values.get("elapsed_s", 0.0)
        whole = at.findings.known("tokens") or tokens
        if self.micro_batch < whole and abs(tokens - self.micro_batch) < _SAME * self.micro_batch:
            what = f"one micro-batch of {whole / self.micro_batch:.4g}"
            at.findings.fact(COUNTS_ELSE, what, at.line)
        return values


_STEP = late(rb"(?:\bstep[:= -] ?|^|[|\]] )[\[( ]{0,9}(\d{1,12}) ?/ ?(\d{1,12})[\])]?(?=[\s,:|-])")
_PAIR = late(
    rb"(?<![\w/.-])([A-Za-z][A-Za-z_/-]{0,29})(?: ?[:=] {0,9}| {1,9}-? ?)"
    rb"([-+]?\d[\d.,]{0,30}(?:[eE][-+]?\d{1,3})?|nan|inf) ?(ms|s|min|m|h)?(?=[\s,;|)\]]|$)"
)
_CALLED = {
    b"train_loss": "lm_loss",
    b"loss": "lm_loss",
    b"train_time": "clock_s",
    b"t": "clock_s",
    b"tok/s": "rate",
    b"tokens/s": "rate",
}
"""Names of the fields in the versions of the program, with underscores."""
_SECONDS = {b"ms": 1e-3, b"s": 1.0, b"m": 60.0, b"min": 60.0, b"h": 3600.0}
_PRODUCT = rb"(\d[\d_]{0,15}(?: ?\* ?\d[\d_]{0,15}){0,6})"
_FIELD = late(
    rb"^\s{1,16}(batch_size|sequence_length|seq_len|train_seq_len|train_batch_size)(?: ?: ?int)? ?= ?"
    + _PRODUCT
    + rb"\s{0,8}(#.*)?$"
)
_COUNTED_IN = late(rb"\bin (tokens|sequences)\b")
_TOKENS_AT_TOP = late(rb"^batch_size = " + _PRODUCT + rb"\s*$")
_SCHEDULE = late(rb"\b(?:train_)?bs_schedule\b.{0,40}=|^def get_bs\(|\bTrainingStage\(.{0,200}\bbatch_size=")
_SOURCE = {
    "asserted": late(rb"^assert world_size == (\d{1,4})(?![\w-])"),
    "accumulated": late(rb"^grad_accum_steps = (\d{1,4}) // world_size\b"),
    "world_size": late(rb"\b(?=world_size \* args\.(?:train_)?seq_len\b)()"),
}
"""Lines of the source: GPUs, micro-batches, and that the length is that of each GPU."""
_FACTS = tuple(
    rb"(?<![\w.-])(?:%b)['\"]?(?:=|: ?)(?P<%b>\d{1,18})(?=[\s,;)}]|$)" % pair
    for pair in (
        (rb"(?:train_|global_)?batch_tokens|tokens_per_(?:step|batch|iteration)", b"tokens"),
        (rb"(?:train_)?seq_len", b"sequence_length"),
        (b"world_size", b"num_devices"),
    )
)
_GPU = late(rb"^\|\s{1,4}(\d{1,3})\s{1,4}(\w[\w ./+-]{2,40}?)\s{1,40}(?:On|Off|N/A) ")
_MEMORY = late(rb"\|\s{1,12}(\d{1,9})MiB / {0,9}\d{1,9}MiB \|")
_IN_USE_MIB = 500  # a GPU that no program uses holds a few MiB
_CLASS_LINES, _TABLE_LINES, _TOP_LINES = 60, 90, 4
SCHEDULED = (
    "the batch size changes by a schedule inside the printed source, and the lines of the steps do not say which batch was "
    "theirs"
)


class _ModdedNanoGpt(Parser):
    """Collects the settings in the source, which the program prints first, and derives the facts at the first step.

    The clock is cumulative and pauses for validation. The batch size is in one of these forms: sequences and their length; tokens; a
    length for each GPU; a schedule of several batch sizes, which the lines of the steps do not state.
    """

    def __init__(self) -> None:
        self.source: dict[str, int] = {}
        self.at: Line | None = None
        self.validations: list[tuple[Line, dict[str, float]]] = []
        self.num_steps = 0
        self.is_scheduled = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if (found := _STEP.search(text)) and self._step(line, text, found, findings):
            return
        if b"class Hyperparameters" in text:
            self._fields(line, findings)
        else:
            self._words(line, text, findings)

    def _step(self, line: Line, text: bytes, found: Match, findings: Findings) -> bool:
        """Report the fields behind the number of a step, and say whether its clock is among them."""
        pairs = [(key.replace(b"-", b"_"), *rest) for key, *rest in _PAIR.findall(text, found.end())]
        named = {_CALLED[key]: (value, unit) for key, value, unit in pairs if key in _CALLED}
        clock_text, unit = named.get("clock_s", (b"", b""))
        clock = number(clock_text)
        is_validation = any(key.startswith(b"val") for key, _, _ in pairs)
        if clock is None or unit not in _SECONDS or not (is_validation or "lm_loss" in named or b"train_time:" in text):
            return False
        self._facts(findings)
        clock *= _SECONDS[unit]
        values = {"iteration": float(found[1]), "total_iterations": float(found[2])}
        if len({key for key, *_ in pairs}) < len(pairs):  # the halves of two lines
            findings.record(line, {}, is_whole=False)
            return True
        values["clock_s"] = clock
        if rate := number(named["rate"][0]) if "rate" in named else None:
            tokens, printed = findings.known("tokens"), bounds(clock_text)
            if not tokens:
                values["consumed_tokens"] = rate * clock
            # The mean rate since the start tells the clock to more digits, where it agrees with the printed ones.
            elif printed and printed[0] <= (fine := values["iteration"] * tokens / rate) / _SECONDS[unit] <= printed[1]:
                values["clock_s"] = fine
        if is_validation:
            self.validations.append((slim(line), values))
            return True
        values |= numbers([("lm_loss", named.get("lm_loss", (b"",))[0])])
        if "per_device" in self.source:
            values["tokens_per_device"] = float(self.source["per_device"])
        self.num_steps += 1
        findings.record(line, values, label=label_of(text[: found.start()]))
        return True

    def _fields(self, line: Line, findings: Findings) -> None:
        findings.start(line)
        self.source, self.at = {}, slim(line)
        for text in line.following(_CLASS_LINES):
            if text and not text[:1].isspace():
                break
            if found := _FIELD.match(text):
                # The first unit in a comment counts, the rest may be of another line.
                name, unit = found[1].decode(), _COUNTED_IN.search(found[3] or b"")
                counts_tokens = (
                    name == "batch_size" and unit and unit[1] == b"tokens" and b"batch" in unit.string[: unit.start()]
                )
                name = "tokens" if name == "train_batch_size" or counts_tokens else name
                self.source.setdefault(name, _product(found[2]))

    def _words(self, line: Line, text: bytes, findings: Findings) -> None:
        take_facts(_FACTS, text, line, findings)
        self.is_scheduled |= _SCHEDULE.search(text) is not None
        for name, expression in _SOURCE.items():
            if found := expression.search(text):
                self.source.setdefault(name, int(found[1] or b"1"))
        if text.startswith(b"val_tokens = "):
            for top in filter(None, map(_TOKENS_AT_TOP.match, line.following(_TOP_LINES))):
                findings.start(line)
                self.source["tokens"], self.at = _product(top[1]), slim(line)
        if b"NVIDIA-SMI" in text:
            self._table(line)

    def _table(self, line: Line) -> None:
        """Count the GPUs that use memory: the program prints the table when all its processes run."""
        lines = line.following(_TABLE_LINES)
        named, held = (list(filter(None, map(search, lines))) for search in (_GPU.match, _MEMORY.search))
        # Each GPU has its number and one line of memory, unless lines were lost or repeated.
        if [int(found[1]) for found in named] == list(range(len(held))):
            self.source.setdefault("in_use", sum(int(found[1]) > _IN_USE_MIB for found in held))

    def _facts(self, findings: Findings) -> None:
        source, line = self.source, self.at
        if not source or not line:
            return
        self.at = None
        if devices := source.get("asserted", source.get("in_use")):
            findings.fact("num_devices", float(devices), line)
            if "asserted" not in source:
                findings.remark("number of GPUs: those that hold memory in the table of nvidia-smi")
        length = source.get("train_seq_len", source.get("seq_len")) if "world_size" in source else None
        if length and "accumulated" in source:
            source.setdefault("tokens", length * source["accumulated"])
        if "tokens" in source:
            findings.fact("tokens", float(source["tokens"]), line)
        elif "batch_size" in source and "sequence_length" in source:
            findings.fact("global_batch_size", float(source["batch_size"]), line)
            findings.fact("sequence_length", float(source["sequence_length"]), line)
        elif length:
            source["per_device"] = length

    def finish(self, findings: Findings) -> None:
        """Use the clock between two validations if there is no step; refuse a schedule of batch sizes."""
        for line, values in () if self.num_steps else self.validations:
            findings.record(line, values)
        if self.is_scheduled and findings.num_records:
            findings.refuse(SCHEDULED)


def _product(text: bytes) -> int:
    return prod(int(factor.replace(b"_", b"")) for factor in text.split(b"*"))


_NEEDLES = (
    b"train_time", b"train-time", b" avg:", b" avg=", b"step_avg", b"class Hyperparameters", b"bs_schedule", b"def get_bs(", b"TrainingStage(",
    b"assert world_size == ", b"grad_accum_steps = ", b"world_size * args.", b"batch_tokens", b"tokens_per_", b"seq_len", b"world_size",
    b"val_tokens = ", b"NVIDIA-SMI",
)  # fmt: skip


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
            start=rb"tokens per iteration will be: ",
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
            *(b" tok/s", b" ms)", b"| total batch size ", b"| sequence length T ", b"| num_processes "),
            *(b" and total_batch_size=", b"total desired batch size: ", b" tel:", b" trl:"),
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
            start=rb"\| sequence length T {1,40}\|",
            refused=(
                (rb"^s:\d{1,18} (?:tel|trl|eval):[-+\d.]",),
                "the log has losses only, no times: no tokens per second can be computed",
            ),
            reads_each_line=False,
        ),
    ),
    Dialect(
        name="nanochat",
        title="nanochat (base, mid, sft), autoresearch",
        source="karpathy/nanochat scripts/base_train.py, mid_train.py, chat_sft.py; karpathy/autoresearch train.py",
        example="step 00120/21400 (0.56%) | loss: 6.300000 | lrm: 1.00 | dt: 500.00ms | tok/sec: 1,048,576 | "
        "bf16_mfu: 47.65 | epoch: 1 | total time: 0.87m | eta: 177.3m",
        trap="the total batch size is in tokens; autoresearch writes all steps into one line with carriage returns",
        needles=(b" | tok/sec: ", b"Tokens / micro-batch", b"Total batch size "),
        parser=Pattern(
            record=rb"\bstep <iteration>(?:/<total_iterations>)? \([\d.]{1,20}%\) \| loss: <lm_loss> \|"
            rb"[^\r\n]{0,120}? dt: <elapsed_ms> ?ms \| tok/sec: " + _RATE,
            facts=(
                rb"Tokens / micro-batch / rank: \d{1,9} x <sequence_length> = ",
                rb"Total batch size (?P<tokens>" + _COMMAS + rb") => gradient accumulation steps: ",
            ),
            # Each stage of a training (base, mid, sft) prints its sizes again.
            start=rb"Tokens / micro-batch / rank: ",
            reading=_NanoChat,
        ),
        counts_from=0,
    ),
    Dialect(
        name="nanogpt",
        title="nanoGPT",
        source="karpathy/nanoGPT train.py",
        example="iter 1200: loss 3.5000, time 250.00ms, mfu 40.00%",
        trap="mfu is of one process; an iteration with an evaluation contains its time",
        needles=(b"ms, mfu ", b", time ", b"tokens per iteration will be: ", b", val loss ", b"Overriding: block_size"),
        parser=Pattern(
            record=rb"(?<![\w.])iter <iteration>: loss <lm_loss>, time <elapsed_ms> ?ms(?=[\s,]|$)",
            facts=_SIZES,
            start=rb"tokens per iteration will be: ",
            reads_each_line=False,
            reading=_NanoGpt,
        ),
        counts_from=0,
    ),
    Dialect(
        name="modded-nanogpt",
        title="modded-nanogpt speedruns, parameter-golf",
        source="KellerJordan/modded-nanogpt train_gpt.py and records/; openai/parameter-golf train_gpt.py",
        example="step:20/1000 train_loss:6.5000 train_time:1000ms step_avg:100.00ms",
        trap="train_time is cumulative, set to 0 after step 10 in early versions, and pauses for validation",
        needles=_NEEDLES,
        parser=_ModdedNanoGpt,
    ),
)
