"""Progress bars: PyTorch Lightning's, `Epoch 0:  41%|####  | 41/100 [...]`, alone and with NeMo 1's metrics, and any other of tqdm.

NeMo's metrics have three significant digits (`consumed_samples=1.63e+6`); rounded counts are not used as exact ones.
"""

import math
import operator
from functools import partial
from typing import NamedTuple

import numpy as np

from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late
from nlp_bench.logs.progress_bar import NEEDLES, Bar, BarBook, Series, line_of, report_series
from nlp_bench.logs.quantity import Rounded, rounded
from nlp_bench.logs.scan import Line

_METRIC = late(
    rb"(?<!\w)(global_step|consumed_samples|train_step_timing in s|reduced_train_loss)=([-+\d.eEnaif]{1,24})"
)
# Programs that use Lightning, or run next to it, and log more than its bar; not "unknown", which reads the bar itself.
_BETTER = (
    "mlperf-mllog", "nemo-2", "nemo-automodel", "megatron-lm", "megatron-bridge", "deepspeed", "hf-trainer", "litgpt",
    "composer", "fairseq", "jube-table",
)  # fmt: skip
_NAME = late(rb"(?:^|,) {0,4}([^=,]{1,80})=")
_SLOWER, _MIN_PARTS = 1.05, 3
"""How many times as long as its steps the clock of a bar takes in the median of so many parts of 20 s, from which it counts in their place."""
_NEMO = (b"global_step=", b"consumed_samples=", b"train_step_timing in s=")


class _Step(NamedTuple):
    """One drawing of NeMo's bar."""

    line: Line
    bar: Bar
    metrics: dict[bytes, Rounded]
    names: tuple[bytes, ...]  # of all its metrics; it is kept until the next one, as they must be those of a neighbour
    is_known: bool

    def exact(self, name: bytes) -> int | None:
        metric = self.metrics.get(name)
        return int(metric.value) if metric and not metric.error and math.isfinite(metric.value) else None

    def counts_steps(self) -> bool:
        """Say whether the bar may count training steps: its count is at most one above the step (below it in later epochs)."""
        step = self.metrics.get(b"global_step")
        return step is None or self.bar.done - step.value <= 1 + step.error

    def follows(self, before: "_Step") -> bool:
        """Say whether this is a later step than `before`, not the same bar drawn again."""
        one, two = before.exact(b"global_step"), self.exact(b"global_step")
        return self.bar.done != before.bar.done if one is None or two is None else two > one


class _Batch:
    """The samples of a step, where unrounded counts determine them."""

    def __init__(self) -> None:
        self.last: tuple[int, int] | None = None
        self.ratios: set[float] = set()

    def add(self, step: int | None, samples: int | None) -> None:
        if step is None or not samples:
            return
        if self.last and step > self.last[0] and len(self.ratios) < 2:
            self.ratios.add((samples - self.last[1]) / (step - self.last[0]))
        self.last = step, samples

    def size(self) -> float | None:
        """Return the difference of the samples per step; of a single bar, the ratio of samples and steps if it is an integer."""
        ratios = self.ratios
        if not ratios and self.last:
            step, samples = self.last
            # NeMo counts steps from 0, and samples before or after the step, depending on the version.
            ratios = {samples / n for n in (step, step + 1) if n and samples % n == 0}
        (ratio, *others) = ratios or {0.0}
        return ratio if not others and ratio > 0 and ratio == int(ratio) else None


class _Lightning(Parser):
    """Collects the bars of all epochs; with NeMo's metrics it is NeMo's log, else Lightning's."""

    def __init__(self, *, is_nemo: bool) -> None:
        self.is_nemo = is_nemo
        self.book = BarBook()
        self.by_step, self.timed = Series(None), Series(None)
        self.steps: list[tuple[Line, dict[str, float]]] = []
        self.part: list[float] = []
        self.slower: list[float] = []
        self.batch = _Batch()
        self.last: _Step | None = None
        self.odd: _Step | None = None
        self.pending: _Step | None = None
        self.has_metrics = False

    def take(self, line: Line, findings: Findings) -> None:
        """Collect the bars of the line; step times are reported at once."""
        for bar in self.book.take(line, "epoch"):
            written = _METRIC.findall(bar.postfix)
            names = tuple(_NAME.findall(bar.postfix))
            if len(dict(written)) < len(written) or len(names) != bar.postfix.count(b"="):
                continue  # the halves of two bars
            self.has_metrics = self.has_metrics or any(name in bar.postfix for name in _NEMO)
            if self.is_nemo and written:
                before = self.pending
                # Names may differ in number: a program appends metrics and replaces none.
                is_like = before is not None and all(map(operator.eq, names, before.names))
                self._release(findings, is_known=is_like)
                metrics = {name: value for name, text in written if (value := rounded(text))}
                self.pending = _Step(line_of(line, bar), bar, metrics, names, is_known=is_like or before is None)

    def _release(self, findings: Findings, *, is_known: bool) -> None:
        """Read the pending bar, unless it is spliced from two lines."""
        step, self.pending = self.pending, None
        if step is None:
            return
        if not (step.is_known or is_known):
            findings.record(step.line, {}, is_whole=False)
            return
        if step.metrics and (self.last is None or step.follows(self.last)):
            self._step(step)
            number = step.exact(b"global_step")
            if number is not None:
                self.by_step.add(step.line, step.bar._replace(done=number + 1, seconds_per_unit=None))

    def _step(self, step: _Step) -> None:
        self.last = step
        self.odd = self.odd if step.counts_steps() else step
        number = step.exact(b"global_step")
        self.batch.add(number, step.exact(b"consumed_samples"))
        elapsed, loss = step.metrics.get(b"train_step_timing in s"), step.metrics.get(b"reduced_train_loss")
        if elapsed is None or not elapsed.value > 0:
            return
        iteration = step.bar.done if number is None else number + 1
        values = {"iteration": float(iteration), "elapsed_s": elapsed.value}
        self.steps.append((step.line, values if loss is None else {**values, "lm_loss": loss.value}))
        points = self.timed.points
        before, num_points = points[-1:], len(points)
        self.part.append(elapsed.value)
        self.timed.add(step.line, step.bar._replace(done=iteration, seconds_per_unit=None))
        if len(points) > num_points:
            self.slower += [
                (points[-1][2] - clock) / (points[-1][1] - done) / float(np.mean(self.part))
                for _, done, clock in before
            ]
            self.part.clear()

    def finish(self, findings: Findings) -> None:
        """Report the batch that NeMo states and, where it states no step times, those of the bar."""
        self._release(findings, is_known=False)
        series = self.book.longest()
        if not series or self.is_nemo != self.has_metrics:
            return
        batch = self.batch.size() if self.last else None
        if batch and self.last:
            findings.fact("global_batch_size", batch, self.last.line)
        if self.steps:
            self._times(findings)
            return
        if self.odd is None:
            if report_series(series, findings) and not self.is_nemo:
                findings.doubt(
                    "an iteration is a unit of Lightning's bar: a micro-batch where gradients are accumulated"
                )
            return
        if report_series(self.by_step, findings, has_total=False):
            return
        findings.record(self.odd.line, {"iteration": self.odd.bar.done, "clock_s": series.points[-1][2]})
        missing = ("sequence_length",) if batch else ("sequence_length", "global_batch_size")
        step = self.odd.metrics[b"global_step"].value
        findings.refuse(
            f"the bar counts {self.odd.bar.done} units where global_step is {step:g}: they are not training steps (old bars count "
            "validation too), and a rounded step cannot replace them",
            *missing,
        )

    def _times(self, findings: Findings) -> None:
        """Report the times of the steps, or those of the bar where its clock shows that they leave something out in each part of the run."""
        losses = [(values["iteration"], values["lm_loss"]) for _, values in self.steps if "lm_loss" in values]
        is_slower = len(self.slower) >= _MIN_PARTS and np.median(self.slower) > _SLOWER
        if is_slower and report_series(self.timed, findings, losses=losses):
            findings.remark(
                f"the steps are timed by the bar: {np.median(self.slower):.3g} times as much time passed as train_step_timing says, which leaves "
                "the loading of data out"
            )
            return
        for line, values in self.steps:
            findings.record(line, values)


_OWN_TIMES = (b"SamplesPerSec=", b"train_runtime", b":::MLLOG")
"""Needles of programs that state their own times: their bars are not used."""


class _Tqdm(Parser):
    """Collects every bar that may be a training's; the longest-running one is used."""

    def __init__(self) -> None:
        self.book = BarBook()
        self.has_own_times = False

    def take(self, line: Line, _findings: Findings) -> None:
        self.has_own_times = self.has_own_times or any(words in line.text for words in _OWN_TIMES)
        if any(needle in line.text for needle in NEEDLES):
            self.book.take(line, "train")

    def finish(self, findings: Findings) -> None:
        series = self.book.longest()
        if series and not self.has_own_times and report_series(series, findings):
            findings.doubt("an iteration is one unit of the bar: a micro-batch where the program accumulates gradients")


DIALECTS = (
    Dialect(
        name="nemo-1",
        believes_settings=True,
        title="NVIDIA NeMo 1, BioNeMo, AWS Neuron's NeMo",
        source="NVIDIA/NeMo nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py; Lightning-AI/pytorch-lightning "
        "src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        example="Epoch 0:   1%|          | 250/30000 [10:00<11:54:00, v_num=, reduced_train_loss=3.090, global_step=249.0, "
        "consumed_samples=64000.0, train_step_timing in s=2.400]",
        trap="three digits only, so the batch cannot be told from consumed_samples=1.63e+6; old bars count validation too; the time of a step "
        "leaves the loading of its data out",
        needles=NEEDLES,
        parser=partial(_Lightning, is_nemo=True),
        yields_to=_BETTER,
    ),
    Dialect(
        name="lightning",
        title="PyTorch Lightning",
        source="Lightning-AI/pytorch-lightning src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        example="Epoch 0:  41%|####      | 410/1000 [02:03<02:57,  3.33it/s, v_num=0, train_loss=3.10]",
        trap="the bar counts batches of the data loader, not optimizer steps; it/s above one per second, s/it below",
        needles=NEEDLES,
        parser=partial(_Lightning, is_nemo=False),
        yields_to=_BETTER,
    ),
    Dialect(
        name="tqdm",
        title="any program with a tqdm bar around its training steps",
        source="tqdm/tqdm tqdm/std.py, format_meter",
        example="Training:  41%|####      | 41/100 [01:22<01:58,  2.01s/it, loss=3.1]",
        trap="s/it below one iteration per second, it/s above; rates are smoothed, the clock has whole seconds, n is cut to "
        "micro-batches in many programs, and downloads and evaluations have bars too",
        needles=(*NEEDLES, *_OWN_TIMES),
        parser=_Tqdm,
        yields_to=("*", "unknown", "deepspeed", "nemo-1", "lightning"),
    ),
)
