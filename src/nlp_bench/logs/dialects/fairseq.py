"""fairseq and metaseq: words per second and per update, as `key=value`, as JSON, or as a table of an epoch."""

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late, pairs_in, take_facts
from nlp_bench.logs.scan import Line, slim

_VALUE = rb'"?([-+\d.eE]{1,40}|nan|inf)"?(?=[\s,|}]|$)'
_PAIR = late(rb'(?<![\w-])"?(wps|ups|wpb|num_updates|wall|loss|gnorm|oom)"?(?:=|: ?)' + _VALUE)
_CELL = late(rb"\| (wps|wpb|num_updates|loss|gnorm) " + _VALUE)
_PLACE = late(rb"\bepoch (\d{1,9})(?: \| [^|\r\n]{0,80}?)?:?\s{1,40}(\d{1,18}) / (\d{1,18})\b")
_EPOCH = late(rb"\| train \| epoch \d")
_HEAD = late(rb'\bepoch \d{1,9}(?: \| [^|\r\n]{0,80}?)?:?\s{1,40}\d{1,18} / \d|\{"|\d/\d{1,18} \[')
_OF_DEVICE = b"training on xla:"
_OF_ONE = {"tokens_per_second": "tokens_per_second_per_device", "tokens": "tokens_per_device"}
_TWICE = late(rb"\bwpb\b[^\r\n]{1,4000}\bwpb\b|\bwps\b[^\r\n]{1,4000}\bwps\b")
_BEGIN = late(rb"\bepoch \d|\{|\bloss=")
_FACTS = (rb"\btraining on (?P<num_devices>\d{1,9}) (?:devices|GPUs)\b",)
_MOST_WORDS = 1e13  # per second; overflowing meters have printed 8.9e+19
_LEAST_WALL_S = 10.0  # the wall clock is printed in whole seconds
_MAY_BE_NAN = (b"loss", b"gnorm")
_Pairs = dict[bytes, float]


class _Parser(Parser):
    """Newer meters are of the interval; older ones are running means, instead of which the clock between two lines is used."""

    def __init__(self) -> None:
        self.last_wall: float | None = None
        self.marks: set[bytes] = set()
        self.epochs: list[tuple[Line, dict[str, float]]] = []

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read one line; those of validation have keys of their own (`valid_wps`) or do not match."""
        take_facts(_FACTS, text, line, findings)
        if line.is_ended and _EPOCH.search(text) and b"| wps " in text:
            values = _interval(pairs_in(_CELL, text, line, _MAY_BE_NAN))
            self.epochs.append((slim(line), values))
        pairs = pairs_in(_PAIR, text, line, _MAY_BE_NAN)
        if b"wps" in pairs and self._is_whole(line, text, pairs):
            self._record(line, text, pairs, findings)
        elif b"wps" in pairs:
            # What distinguishes a running mean from a rate may be cut off.
            findings.record(line, {}, is_whole=False)

    def _is_whole(self, line: Line, text: bytes, pairs: _Pairs) -> bool:
        """Say whether the line has the parts, before and after the numbers, that decide what its rates mean."""
        if _TWICE.search(text) or not _HEAD.search(text):
            return False  # the half of a line, or two halves
        has = {b"wall": b"wall" in pairs, b"num_updates": b"num_updates" in pairs, _OF_DEVICE: _OF_DEVICE in text}
        marks = {mark for mark, is_there in has.items() if is_there}
        self.marks |= marks  # a line without one of those of another line has lost it
        return marks == self.marks and (line.is_ended or b"wall" in pairs)

    def _record(self, line: Line, text: bytes, pairs: _Pairs, findings: Findings) -> None:
        begin = _BEGIN.search(text)
        label = label_of(text[: begin.start()]) if begin else b""
        values = _interval(pairs)
        place = _PLACE.search(text)
        if "iteration" not in values and place:
            values["iteration"] = (float(place[1]) - 1) * float(place[3]) + float(place[2])
        if _OF_DEVICE in text:
            values = {_OF_ONE.get(name, name): value for name, value in values.items()}
        elif b"oom" in pairs and b"wall" in pairs:
            values.pop("elapsed_s", None)
            if self.last_wall is not None and 0 <= pairs[b"wall"] - self.last_wall < _LEAST_WALL_S:
                return
            self.last_wall = pairs[b"wall"]
            values["clock_s"] = pairs[b"wall"]
        elif b"num_updates" not in pairs and place and "elapsed_s" in values:
            # The oldest meters start with the epoch: words so far / words per second is the time since its start.
            values["clock_s"] = float(place[2]) * values.pop("elapsed_s")
        findings.record(line, values, label=label)

    def finish(self, findings: Findings) -> None:
        """Report the means of the epochs if there is no interval."""
        if findings.num_records:
            return
        if findings.unreadable and not self.epochs:
            findings.refuse("every line of fairseq is cut or spliced where it says what its rates mean")
        for line, values in self.epochs:
            findings.record(line, values)
        if self.epochs:
            findings.remark("the records are means of whole epochs")


def _interval(pairs: _Pairs) -> dict[str, float]:
    """Return an interval's quantities; words per update / words per second is more exact than the rounded updates per second."""
    names = {b"num_updates": "iteration", b"loss": "lm_loss", b"gnorm": "grad_norm", b"wps": "tokens_per_second"}
    values = {name: pairs[key] for key, name in names.items() if key in pairs}
    if b"wpb" in pairs:
        values["tokens"] = pairs[b"wpb"]
    if 0 < pairs.get(b"wps", 0.0) < _MOST_WORDS and pairs.get(b"wpb"):
        values["elapsed_s"] = pairs[b"wpb"] / pairs[b"wps"]
    elif pairs.get(b"ups"):
        values["elapsed_s"] = 1 / pairs[b"ups"]
    return values


DIALECTS = (
    Dialect(
        name="fairseq",
        title="fairseq, metaseq",
        source="facebookresearch/fairseq fairseq/logging/progress_bar.py, fairseq/trainer.py; facebookresearch/metaseq",
        example="2026-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 4000 loss=9.5, ppl=724.08, wps=65536, "
        "ups=0.5, wpb=131072, bsz=64, num_updates=100, lr=1e-05, gnorm=1.5, train_wall=200, wall=210",
        trap="wps is of the machine and counts target words; the first is 0; older meters are running means",
        needles=(b"wps=", b'"wps":', b"| wps ", b"| training on "),
        parser=_Parser,
    ),
)
