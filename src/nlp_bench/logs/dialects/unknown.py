"""Programs without a dialect: only lines that state tokens per second explicitly are read; `--pattern` describes others."""

import re

import numpy as np

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_MAX_BYTES = 2048
_STEP = late(
    rb"(?i)(?:^[\W_]{0,4}(?=\d{1,15} ?/ ?\d{1,15}\W)|(?<![a-z])(?:global|train(?:ing|er)?)?[_ /.]?(?:step|iter(?:ation)?|update)s?\b[\"']?\s?[:=#]?\s{0,8}[\[\"'(]?\s{0,8})"
    rb"(?P<iteration>\d{1,15})(?![\d.,]\d)(?:\s{0,3}(?:/|of)\s{0,3}(?P<total_iterations>\d{1,15})(?![\d.]))?"
)
DEVICE = rb"(?:gpu|device|dev|npu|tpu|hpu|xpu|chip|rank|accelerator|core|die|gcd|worker|card)s?\b"
"""Names of one of several accelerators or processes."""
_PER = rb"(?: ?/ ?|[_ -]?per[_ -]?)"
_DIGITS = rb"\d(?:[\d,]{0,20}\d)?(?:\.\d{0,12})?(?:e[-+]?\d{1,3})?"
_RATE = late(
    # 256.0k tokens/s
    rb"(?i)(?:(?<![\w./])(?P<before>" + _DIGITS + rb")(?P<scale_before>[km]|(?-i:[ ][kKM](?= )))? ?)?"
    rb"(?<![a-z])(?P<prefix>[km])?(?P<unit>tok(?:en)?s?(?P<device_inside>"
    + _PER
    + DEVICE
    + rb")?"
    + _PER
    + rb"s(?:ec(?:ond)?s?)?)(?![a-z]|_(?!per))"
    rb"(?P<device>[ ,(\[]{0,2}" + _PER + DEVICE + rb"|[ (\[]{1,2}per[ -]" + DEVICE + rb")?(?! ?/|[ _-]?per[ _-])"
    # tokens/s: 256,000
    rb"(?:[)\]\"']{0,2}(?P<sign>\s?[:=]\s{0,8}|\s{1,8}))?(?:[\[\"'(]?(?P<behind>"
    + _DIGITS
    + rb")(?P<scale_behind>[km]|(?-i:[ ][kKM](?=\s*(?:$|[|,;)\]}/]))))?"
    rb"(?P<device_behind> ?/ ?" + DEVICE + rb"| per " + DEVICE + rb")?(?![\w.'_/]|[ ]\d{3}\b|(?-i:[ ][kKM]\b)))?"
)
_PER_DEVICE = late(rb"(?i)(?:per|/)[ _-]?" + DEVICE.replace(rb"\b", rb"(?![a-z])"))
_LOSS = late(
    rb"(?i)loss[\"']?\]?\s?[:=]?\s{0,4}(?:tensor\()?\[?(?P<lm_loss>[-+]?[\d.]{1,20}(?:e[-+]?\d{1,3})?|nan|inf)(?![\w.])"
)
_HEADING = late(rb"(?i)(?<![a-z])(?:e?val|evaluat\w{1,5}|validati\w{1,4})(?![a-z])|_eval\b")
_NAMED = late(rb"[A-Za-z_)\]\"'][:= \t]{1,9}$")
_NAMED_RATE = late(rb"(?i)(?:throughput|tput|speed|(?<!learning[ _])rate)[^\d|,;]{0,20}$")
_SHARE = late(rb"(?i)(?<![a-z])per[ _-]?(?:node|host|server|replica|group|stage)(?![a-z])")
"""A part of the machine of which nobody says how many there are."""
_TRAINS = late(rb"(?i)loss|nll|cost|ppl|perplexity")
_MEMORY = rb"[ _:=-]{0,2}(?:(?:gpu|cuda)[ _])?(?:mem|vram|alloc|reserv|[\d.]{1,12} ?[GM]i?B)"
_OTHER = late(
    rb"(?i)\be?val(?:id(?:ation)?|uat\w{1,5})?(?![a-z-])|(?<![a-z])(?:dev|test)[_ /]|infer|generat|rollout|prompt|prefill|decod|sampling|tokeniz|preproc"
    rb"|sav(?:e|ed|ing)\b|checkpoint|teacher|student|data ?load|forward-only|corpus|actor|reward"
    # Of several times, unless it is of the memory; then means of all steps so far, whose last ones they hide.
    rb"|\b(?:max\b|min\b|average|avg|mean|median|peak)(?!"
    + _MEMORY
    + rb")|(?:put|rate|speed|sec|/s)_(?:average|avg|mean|median|peak)|\bsince (?:the )?(?:start|begin)"
    rb"|(?<![a-z])(?:cumulative|overall|running|smoothed|ema)[ _:=)-]{1,3}(?:(?:train\w{0,5}|throughput|rate|speed)[ _:=-]{1,3})?(?:[\d.,]{1,20} ?[km]? ?)?tok"
)
AIM = rb"(?<![a-z])(?:target|goal|roof ?line|theoretical|ideal|expected|required|planned|desired|nominal|budget|limit|ceiling|baseline|reference)"
_AIMED = late(
    rb"(?i)" + AIM + rb"(?:[ _/:=-]{1,3}(?:of|is|rate|speed|throughput|train(?:ing)?|global|total)){0,2}[ _/:=(-]{0,3}$"
)
"""Words right before a rate that was not measured: what somebody wants, or a machine could do."""
_RANK = late(
    rb"(?i)^\W{0,4}(?:rank|local_rank)?\W{0,3}(?P<rank>\d{1,6})\W{0,2}:(?!\d\d:\d\d)|rank\W{0,2}(?P<other>\d{1,6})"
)
_MANY = late(
    rb"(?i)(?:world[_ ]size|num[_ ](?:gpus|devices|processes)|\bgpus|\bdevices|\bworld)\W{1,40}(?P<number>\d{1,6})|(?P<times> x )\d{1,6} ?"
    + DEVICE
    + rb"|\beach\b"
)
_SCALES = {b"": 1.0, b"k": 1e3, b"m": 1e6}
_OF_A_DEVICE, _OF_ALL, _OF_A_PART = "tokens_per_second_per_device", "tokens_per_second", "of a part"
_NOT_SAID = (
    "the log is of no known program; its lines state tokens per second, but not whether of one device or of all of them: say it by --pattern, "
    "with a group (?P<tokens_per_second>...) or (?P<tokens_per_second_per_device>...) (docs/logs.md)"
)
_TWO_RATES = "the log is of no known program, and its lines state two different rates: say by --pattern which is the training's (docs/logs.md)"


_ASIDE = (
    "the log is of no known program, and lines after the heading of an evaluation (line {line}) look like those of the training: say by "
    "--pattern which lines are the training's (docs/logs.md)"
)
_ALONE = "the log is of no known program, and states tokens per second in one line only; --pattern takes it as a record (docs/logs.md)"
_GUESS = (
    "no known program: the tokens per second that its lines state are taken, those of no device alone as of the whole machine, which is a guess "
    "and proves nothing; describe the lines by --pattern with a group (?P<tokens_per_second>...) or (?P<tokens_per_second_per_device>...) "
    "(docs/logs.md), and they count like any others"
)
_LEAST = 2


class _Stated(Parser):
    """Reads explicit rates; remembers whether the log mentions several processes, and an evaluation."""

    def __init__(self) -> None:
        self.has_many = self.has_ranks = False
        self.heading = 0
        self._last: tuple[float | None, bytes, dict[str, float]] = None, b"", {}
        """Iteration, process and rates of the last record."""

    def take(self, line: Line, findings: Findings) -> None:
        for whole in pieces(line.text):
            text = whole[:_MAX_BYTES]
            many = _MANY.search(text)
            self.has_many = self.has_many or bool(many and many["number"] != b"1")
            trains, step = _TRAINS.search(text), _STEP.search(text)
            if not trains and not self.heading and _HEADING.search(text):
                self.heading = line.number
            if not step or not trains or _OTHER.search(text):
                continue
            loss = _LOSS.search(text)
            rates, is_whole = _rates(text, loss, is_ended=line.is_ended or len(whole) > _MAX_BYTES)
            if any(len(numbers) > 1 for numbers in rates.values()):
                findings.refuse(_TWO_RATES)
            if _OF_A_PART in rates:
                findings.refuse(_NOT_SAID)
            if not rates:
                continue
            if self.heading:
                findings.refuse(_ASIDE.format(line=self.heading))
            rank = _RANK.search(text)
            stated = {**step.groupdict(), **(loss.groupdict() if loss else {})}
            counts = {name: found for name, value in stated.items() if value and (found := number(value)) is not None}
            row = {name: numbers[0] for name, numbers in rates.items() if is_whole and name != _OF_A_PART}
            label, last = label_of(text[: step.start()]), self._last
            self._last = counts.get("iteration"), label, row
            # One process may print a line twice, with the same rate.
            is_of_another = last[0] == self._last[0] and last[1] != label and last[2] != row
            self.has_ranks |= is_of_another or bool(rank and int(rank["rank"] or rank["other"]))
            findings.record(line, {**counts, **row}, label=label, is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Refuse a single line, and a rate that may be of one of several devices; doubt the others."""
        if 0 < findings.num_records < _LEAST:
            findings.refuse(_ALONE)
        if (self.has_many or self.has_ranks) and _is_given(findings, _OF_ALL) and not _is_given(findings, _OF_A_DEVICE):
            findings.refuse(_NOT_SAID)
        if not findings.refusal:
            findings.doubt(_GUESS)


def _is_given(findings: Findings, name: str) -> bool:
    return bool(np.isfinite(findings.column(name)).any())


def _rates(text: bytes, loss: re.Match[bytes] | None, *, is_ended: bool) -> tuple[dict[str, list[float]], bool]:
    """Return the different rates of a line by quantity, and whether none of them may be cut short."""
    values: dict[str, list[float]] = {}
    is_whole = True
    for found in _RATE.finditer(text):
        has_sign = bool(found["sign"] and found["sign"].strip())
        # `loss 2.31 tokens/s 256000`: the number before has a name of its own, unlike that of `throughput 9589 tokens/s 40259 MB`.
        is_loss = loss and loss.start("lm_loss") == found.start("before")
        before, front = None if is_loss else found["before"], text[: max(found.start("before"), 0)]
        has_own_name = _NAMED.search(front) and not _NAMED_RATE.search(front)
        is_behind = found["behind"] and (has_sign or not before or has_own_name)
        digits = found["behind"] if is_behind else None if has_sign else before
        scale = (found["scale_behind"] if is_behind else found["scale_before"]) or found["prefix"] or b""
        value = number(digits) if digits else None
        if value is None or any(_AIMED.search(text[: found.start(name)]) for name in ("before", "unit") if found[name]):
            continue
        is_device = found["device_inside"] or found["device"] or (is_behind and found["device_behind"])
        near = max(0, found.start("unit") - 40)
        is_device = is_device or _PER_DEVICE.search(text[near : found.start("unit")])
        is_part = _SHARE.search(text[near : found.end() + len(b", per host")])
        numbers = values.setdefault(_OF_A_PART if is_part else _OF_A_DEVICE if is_device else _OF_ALL, [])
        numbers += {value * _SCALES[scale.lower().strip()]}.difference(numbers)
        # The last word of a cut line may be incomplete: `tok_per_s` may be the beginning of `tok_per_s_per_npu`.
        is_whole = is_whole and (is_ended or b" " in text[found.end() :])
    return values, is_whole


_NEEDLES = (
    b"tok", b"Tok", b"TOK", b"world", b"World", b"gpus", b"GPUs", b"evices", b"processes", b"valuat", b"alidat",
    b"_eval",
)  # fmt: skip


DIALECTS = (
    Dialect(
        name="unknown",
        title="any other program whose lines state tokens per second",
        source="none",
        example="[train] update 100 | loss 2.310 | 256.0k tokens/s",
        trap="a rate of one device looks like that of all: refused where the log tells of several, `--pattern` says it",
        needles=_NEEDLES,
        parser=_Stated,
        yields_to=("*",),
    ),
)
