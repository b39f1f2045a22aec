"""The log of a program that nobody has described: read by its names and units, and believed only where its numbers agree."""

import math

import numpy as np

from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line
from nlp_bench.logs.unknown.collecting import MAX_RECORDS, Collector
from nlp_bench.logs.unknown.keeping import HIGH, Verdict
from nlp_bench.logs.unknown.rows import MISSING, Shape
from nlp_bench.logs.unknown.weighing import weigh

_FEW = 3
_INTRO = "unknown dialect, read by its units"
_HELP = "lines that state tokens per second of the whole machine, or the seconds of each step, would decide it"


class UnknownParser:
    """Collects lines by their form; which form is the training's is decided at the end."""

    def __init__(self) -> None:
        self.found = Collector()

    def take(self, line: Line, findings: Findings) -> None:
        """Take apart what is new on the line."""
        del findings
        self.found.take(line)

    def finish(self, findings: Findings) -> None:
        """Weigh the forms against each other and tell what the best one says."""
        self.found.close()
        shapes = _whole(self.found.shapes)
        weighed = [(s, weigh(s, self.found.settings, is_training=self.found.is_training)) for s in shapes]
        believed = [(shape, verdict) for shape, verdict in weighed if verdict.columns]
        doubted = [(shape, verdict) for shape, verdict in weighed if verdict.doubts]
        if believed and self.found.num_learned > 1:
            findings.refuse(f"{_INTRO}: a step of reinforcement learning generates text, too")
        elif len(believed) > 1 and all(len(shape) == 1 for shape, _ in believed):
            findings.refuse(f"{_INTRO}: each record has a form of its own, and none is repeated")
        elif believed:
            _, verdict = max(believed, key=lambda pair: len(pair[0]) * (1.5 if pair[1].sure == HIGH else 1.0))
            _tell(findings, verdict, list(self.found.labels))
            if self.found.num_rows > MAX_RECORDS:
                findings.remark(f"only the first {MAX_RECORDS} records are read")
        elif doubted:
            _, verdict = max(doubted, key=lambda pair: len(pair[0]))
            findings.refuse(f"{_INTRO}: {'; '.join(dict.fromkeys(verdict.doubts))}; {_HELP}", *verdict.missing)


def _whole(shapes: dict[str, Shape]) -> list[Shape]:
    """Return the forms without those that are cut or spliced records of another.

    Of records that end in a number and others that go on behind it, the former were cut, unless the latter are a few.
    """
    left_out = set()
    for key, shape in shapes.items():
        other = shapes.get(f"open {key}")
        if other is not None:
            left_out.add(key if len(shape) * 3 < len(other) else f"open {key}")
    return [shape for key, shape in shapes.items() if key not in left_out]


def _tell(findings: Findings, verdict: Verdict, labels: list[bytes]) -> None:
    """Tell the records and facts of `verdict`."""
    names = list(verdict.columns)
    rows = np.column_stack([verdict.columns[name] for name in names]).tolist()
    # Many lines that a known dialect takes for torn ones of its own are another program's whole ones; a few are torn.
    doubted = findings.doubted.intersection(place[1] for place in verdict.places)
    doubted = doubted if len(doubted) <= _FEW else frozenset()
    for values, (offset, number, label, _) in zip(rows, verdict.places, strict=True):
        if number in doubted:
            continue
        row = {name: value for name, value in zip(names, values, strict=True) if _is_given(name, value)}
        if "iteration" in row:
            findings.record(_line(number, offset), row, label=labels[label])
    for name, (fact, number) in verdict.facts.items():
        findings.fact(name, fact, _line(number, 0))
    said = "; ".join(dict.fromkeys([*verdict.notes, *verdict.doubts]))
    findings.remark(f"{_INTRO} ({verdict.sure}): {said}")


def _is_given(name: str, value: float) -> bool:
    return value != MISSING if name == "lm_loss" else not math.isnan(value)


def _line(number: int, offset: int) -> Line:
    """Return the place of a line; its text is not kept."""
    return Line(number, offset, b"", is_ended=True, following=lambda _: [])
