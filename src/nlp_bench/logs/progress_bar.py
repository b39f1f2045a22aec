"""Progress bars of tqdm and similar programs: `desc: 41%|####      | 41/100 [01:22<01:58,  2.01s/it, loss=3.1]`.

The clock of a bar has whole seconds, so only its differences over many seconds are precise; its rate is smoothed, or the mean
since the start of the bar. Its units are the iterations of the loop: steps, micro-batches, files.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Findings
from nlp_bench.logs.quantity import duration_s, number
from nlp_bench.logs.scan import Line, slim

NEEDLES = (b"%|", b"it [", b"/? [")  # between percentage and bar; where the total is unknown, of tqdm and of Lightning
COARSE_S = 20.0
"""Least difference of a clock with whole seconds that is used: 5 % off at worst, and the errors of neighbours cancel."""
_MIN_SPAN_S = 60.0
_MAX_SERIES = 256
NOTHING: Mapping[str, float] = MappingProxyType({})
_RESUMED = 1.25  # how much slower the units after the first drawing may be than those before it
_UNIT = rb"(?:it|batch|step|steps|iter)"
_RATE = rb"(?:, {1,6}(?:\?|([\d.]{1,12}))(?:(" + _UNIT + rb")/s|s/" + _UNIT + rb"))?(?:, ?([^\]]{0,4000}))?\]"
_BAR = re.compile(
    rb"(?<![\d.])(\d{1,12})(?:/(?:(\d{1,12})|\?) \[(\d[\d:]{3,15})<(?:\?|[\d:]{4,16}|\d{1,6} days?, [\d:]{4,16})|it \[(\d[\d:]{3,15}))"
    + _RATE
)
_OTHER_UNIT = re.compile(rb", {1,6}[\d.?]{1,12} ?[a-zA-Z]{1,12}/s|, {1,6}[\d.]{1,12}s/[a-zA-Z]{1,12}")
_TORN_RATE = re.compile(rb" {0,6}\d[\d.]{0,12}[a-zA-Z]")
_PERCENT = re.compile(rb"\d{1,3}$")
_DRAWING = re.compile(rb"\|[^|]{0,4000}\|$")
_LABEL = re.compile(rb"(?:[\w.\-]{0,40}\d:\s?){1,2}")  # of a rank or a host
_RUNNER = re.compile(rb"^(?:\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)?\s*(?:std(?:err|out) [FP]|\d\d[OE]\+?)?\s*\|?")
"""What stands behind the stamp that a runner puts before a line: of a container's runtime (CRI), of GitLab's runner, of docker compose."""
_EPOCH = re.compile(rb"(?:^|[\s:\]])Epoch \d{1,9}[\s:]{0,4}$")
_TRAINING = re.compile(rb"(?i)\btrain|\bsteps?\b|\biter|\bepochs?\b")
_OTHER = re.compile(
    rb"(?i)\b(?:eval|valid|val\b|test|predict|generat|infer|download|load|fetch|map\b|filter|sav|convert|pack|prepar|sanity)|token|shard"
)


class Bar(NamedTuple):
    """One drawing of a bar."""

    description: bytes  # all text of the line before the percentage
    done: int  # units done
    total: int | None  # units in all, None where the bar does not know
    clock_s: float  # whole seconds since the start of the bar
    seconds_per_unit: float | None  # the inverse of the rate, rounded to three digits or so
    postfix: bytes  # text after the rate


def bars(text: bytes) -> Iterator[Bar]:
    """Return the bars in one piece of a line; those that count bytes, files or examples are left out."""
    begin = 0
    for found in _BAR.finditer(text):
        before, begin = text[begin : found.start()].rstrip(), found.end()
        done, total, clock, open_clock, rate, per_second, postfix = found.groups()
        words, percent, drawing = before.rpartition(b"%|")
        seconds = duration_s(clock or open_clock)
        if seconds is None:
            continue
        if postfix and (_OTHER_UNIT.match(b", " + postfix) or _TORN_RATE.match(postfix) or b"%|" in postfix):
            continue  # it counts something else than steps, or runs into another bar
        if total is None:
            words = _DRAWING.sub(b"", before)
        elif not percent or not drawing.endswith(b"|") or not words[-1:].isdigit():
            continue
        else:
            words = _PERCENT.sub(b"", words)
        speed = number(rate or b"") or 0.0
        per_unit = None if speed <= 0 else 1 / speed if per_second else speed
        description = words.strip().rstrip(b":").rstrip()
        yield Bar(description, int(done), int(total) if total else None, seconds, per_unit, postfix or b"")


def line_of(line: Line, bar: Bar) -> Line:
    """Return the line with the words of the bar alone.

    A bar has no line feed: what follows on its line is the next message, whose time stamp is not the bar's.
    """
    return slim(line._replace(text=b"%b %b" % (bar.description, bar.postfix)))


def loop_of(bar: Bar) -> str:
    """Return the kind of loop: "train" (also without a description), "epoch" (`Epoch 3`, as Lightning writes) or "other"."""
    words = bar.description.rpartition(b"}")[2][-120:]
    if _OTHER.search(words):
        return "other"
    if _EPOCH.search(words) or b"v_num=" in bar.postfix:
        return "epoch"
    words = _RUNNER.sub(b"", label_of(re.split(rb"[\])>]", words)[-1])).strip()
    if not words and bar.total is None:
        return "other"
    return "train" if not words or _LABEL.fullmatch(words + b":") or _TRAINING.search(words) else "other"


@dataclass
class Series:
    """The drawings of one bar, thinned; where a new bar is drawn for each epoch, the counts of all epochs are added up."""

    total: int | None
    points: list[tuple[Line, float, float]] = field(default_factory=list)
    """Line, units and seconds since the start of the series."""
    num_bars: int = 1
    last: tuple[Line, Bar] | None = None
    base: tuple[float, float] = (0.0, 0.0)
    first: tuple[float, float] = (0.0, 0.0)  # units and seconds of the first drawing that counts any unit
    aside: Bar | None = None  # a drawing long before the last one: another one behind it is of a bar that was resumed

    def add(self, line: Line, bar: Bar) -> None:
        """Add the next drawing."""
        if self.last:
            before, aside, self.aside = self.last[1], self.aside, None
            is_resumed = aside and aside.done <= bar.done and 2 * bar.clock_s < before.clock_s
            if is_resumed or (2 * bar.done < before.done and 2 * bar.clock_s < before.clock_s):
                self.base = self.base[0] + (0 if is_resumed else before.done), self.base[1] + before.clock_s
                self.num_bars += 1
            elif bar.done <= before.done or bar.clock_s < before.clock_s:
                self.aside = bar if 2 * max(bar.clock_s, COARSE_S) < before.clock_s else None
                return  # drawn again, or by another process
        self.last = line_of(line, bar), bar
        done, clock = self.base[0] + bar.done, self.base[1] + bar.clock_s
        self.first = self.first if self.first[0] else (done, clock)
        if not self.points or clock - self.points[-1][2] >= COARSE_S:
            self.points.append((self.last[0], done, clock))

    @property
    def mean_s(self) -> float:
        """Seconds per unit between the first drawing that counts any unit and the last; 0 where there is only one."""
        units = self.base[0] + (self.last[1].done if self.last else 0) - self.first[0]
        return (self.seconds - self.first[1]) / units if units > 0 else 0.0

    @property
    def is_resumed(self) -> bool:
        """Say whether the units of the first drawing were not done in its seconds: it counts on from a checkpoint."""
        units, clock = self.first
        return (units - 1) * self.mean_s > _RESUMED * (clock + 1)

    @property
    def seconds(self) -> float:
        """Seconds that the bar has run, over all epochs."""
        return self.base[1] + (self.last[1].clock_s if self.last else 0.0)


class BarBook:
    """The bars of one attempt by their total; the longest-running one is the training's."""

    def __init__(self) -> None:
        self.series: dict[int | None, Series] = {}

    def take(self, line: Line, loop: str) -> list[Bar]:
        """Remember and return the bars of a line that belong to `loop` (see `loop_of`)."""
        found = [bar for bar, its_loop in _of_line(line.text) if its_loop == loop]
        for bar in found:
            if bar.total not in self.series and len(self.series) < _MAX_SERIES:
                self.series[bar.total] = Series(bar.total)
            if bar.total in self.series:
                self.series[bar.total].add(line, bar)
        return found

    def longest(self, total: float | None = None) -> Series | None:
        """Return the bar of `total` units if there is one, else the one that ran longest."""
        chosen = self.series.get(int(total)) if total else None
        return chosen or max(self.series.values(), key=lambda series: series.seconds, default=None)


@lru_cache(maxsize=2)  # several dialects read the same line
def _of_line(raw: bytes) -> Sequence[tuple[Bar, str]]:
    """Return the bars of a line, each with its kind of loop."""
    return [(bar, loop_of(bar)) for text in pieces(raw) for bar in bars(text)]


def report_series(
    series: Series,
    findings: Findings,
    *,
    has_total: bool = True,
    each: Mapping[str, float] = NOTHING,
    losses: Sequence[tuple[float, float]] = (),
) -> int:
    """Report the times of a bar; return the number of records.

    `each` is what every record has besides. Clock readings where it ran for minutes, with the last of `losses` (units done, loss) before each; else the rate of its last drawing.
    """
    if not series.last:
        return 0
    total = {"total_iterations": float(series.total)} if series.total and has_total and series.num_bars == 1 else {}
    is_resumed = series.is_resumed
    points = [point for point in series.points if point[1] >= series.first[0]] if is_resumed else series.points
    line, bar = series.last
    if len(points) > 1:  # thinned, it would end before the last drawing
        points = [*points[:-1], (line, series.base[0] + bar.done, series.seconds)]
    if len(points) > 1 and points[-1][2] - points[0][2] >= _MIN_SPAN_S:
        for drawn, done, clock in points:
            known = losses[: bisect_right(losses, done, key=lambda loss: loss[0])]
            loss = {"lm_loss": known[-1][1]} if known else {}
            findings.record(drawn, {"iteration": done, "clock_s": clock, **total, **each, **loss})
        return len(points)
    if is_resumed:  # its rates are smoothed over the units before it
        return 0
    mean = bar.clock_s / bar.done if bar.done and bar.clock_s >= _MIN_SPAN_S else None
    seconds = bar.seconds_per_unit or mean
    if seconds is None:
        return 0
    findings.record(line, {"iteration": series.base[0] + bar.done, "elapsed_s": seconds, **total, **each})
    findings.remark("the time is the rate of the last bar: a smoothed mean, warm-up included where the bar ran briefly")
    return 1
