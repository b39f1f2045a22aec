"""Progress bars: PyTorch Lightning's, `Epoch 0:  41%|####  | 41/100 [...]`, alone and with NeMo 1's metrics, and any other of tqdm.

NeMo's metrics have three significant digits (`consumed_samples=1.63e+6`); rounded counts are not used as exact ones.
"""

import math
from functools import partial
from itertools import pairwise

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


class _Lightning(Parser):
    """Collects the bars of all epochs; with NeMo's metrics it is NeMo's log, else Lightning's."""

    def __init__(self, *, is_nemo: bool) -> None:
        self.is_nemo = is_nemo
        self.book = BarBook()
        self.by_step = Series(None)
        self.steps: list[tuple[Line, dict[str, float]]] = []
        self.last = -1
        self.samples: tuple[int, int] | None = None  # step and consumed samples
        self.batches: set[float] = set()
        self.odd: tuple[Line, int, float] | None = None
        self.has_metrics = False

    def take(self, line: Line, _findings: Findings) -> None:
        """Collect the bars of the line."""
        for bar in self.book.take(line, "epoch"):
            written = _METRIC.findall(bar.postfix)
            if len(dict(written)) < len(written) or len(_NAME.findall(bar.postfix)) != bar.postfix.count(b"="):
                continue  # the halves of two bars
            self.has_metrics |= any(name in bar.postfix for name in _NEMO)
            if self.is_nemo and written:
                self._step(line_of(line, bar), bar, {name: value for name, text in written if (value := rounded(text))})

    def _step(self, line: Line, bar: Bar, metrics: dict[bytes, Rounded]) -> None:
        rounded_step = metrics.get(b"global_step")
        number, samples = (_exact(metrics.get(name)) for name in (b"global_step", b"consumed_samples"))
        iteration = bar.done if number is None else number + 1
        if iteration == self.last:
            return  # the same bar drawn again
        self.last = iteration
        # The count of a bar is at most one above the step (below it in later epochs).
        if rounded_step and bar.done - rounded_step.value > 1 + rounded_step.error:
            self.odd = line, bar.done, rounded_step.value
        if number is not None and samples:
            if self.samples and number > self.samples[0]:
                self.batches.add((samples - self.samples[1]) / (number - self.samples[0]))
            self.samples = number, samples
        elapsed, loss = metrics.get(b"train_step_timing in s"), metrics.get(b"reduced_train_loss")
        if elapsed and elapsed.value > 0:
            values = {"iteration": float(iteration), "elapsed_s": elapsed.value}
            self.steps.append((line, values if loss is None else {**values, "lm_loss": loss.value}))
        if self.steps or number is not None:
            self.by_step.add(line, bar._replace(done=iteration, seconds_per_unit=None))

    def _batch(self) -> float | None:
        """Return the difference of the samples per step; of a single bar, the ratio of samples and steps if it is an integer."""
        batches = self.batches
        if not batches and self.samples:
            step, samples = self.samples
            # NeMo counts steps from 0, and samples before or after the step, depending on the version.
            batches = {samples / n for n in (step, step + 1) if n and samples % n == 0}
        (batch, *others) = batches or {0.0}
        return batch if not others and batch > 0 and batch == int(batch) else None

    def finish(self, findings: Findings) -> None:
        """Report the batch that NeMo states and, where it states no step times, those of the bar."""
        series = self.book.longest()
        if not series or self.is_nemo != self.has_metrics:
            return
        if batch := self._batch():
            findings.fact("global_batch_size", batch, self.by_step.points[0][0])
        if self.steps:
            self._times(findings)
        elif self.odd is None:
            if report_series(series, findings) and not self.is_nemo:
                findings.doubt(
                    "an iteration is a unit of Lightning's bar: a micro-batch where gradients are accumulated"
                )
        elif not report_series(self.by_step, findings, has_total=False):
            line, done, step = self.odd
            findings.record(line, {"iteration": done, "clock_s": series.points[-1][2]})
            findings.refuse(
                f"the bar counts {done} units where global_step is {step:g}: they are not training steps (old bars count validation "
                "too), and a rounded step cannot replace them",
                *("sequence_length", "global_batch_size")[: 1 if batch else 2],
            )

    def _times(self, findings: Findings) -> None:
        """Report the times of the steps, or those of the bar where its clock shows that they leave something out in each part of the run."""
        done, times = (np.array([values[name] for _, values in self.steps]) for name in ("iteration", "elapsed_s"))
        slower = [
            (clock - before) / (end - begin) / own.mean()
            for (_, begin, before), (_, end, clock) in pairwise(self.by_step.points)
            if (own := times[(done > begin) & (done <= end)]).size
        ]
        losses = [(values["iteration"], values["lm_loss"]) for _, values in self.steps if "lm_loss" in values]
        is_slower = len(slower) >= _MIN_PARTS and np.median(slower) > _SLOWER
        if is_slower and report_series(self.by_step, findings, losses=losses):
            findings.remark(
                f"the steps are timed by the bar: {np.median(slower):.3g} times as much time passed as train_step_timing says, which leaves "
                "the loading of data out"
            )
            return
        for line, values in self.steps:
            findings.record(line, values)


def _exact(metric: Rounded | None) -> int | None:
    return int(metric.value) if metric and not metric.error and math.isfinite(metric.value) else None


class _Tqdm(Parser):
    """Collects every bar that may be a training's; the longest-running one is used."""

    def __init__(self) -> None:
        self.book = BarBook()

    def take(self, line: Line, _findings: Findings) -> None:
        self.book.take(line, "train")

    def finish(self, findings: Findings) -> None:
        series = self.book.longest()
        if series and report_series(series, findings):
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
        needles=NEEDLES,
        parser=_Tqdm,
        yields_to=("*", "unknown", "deepspeed", "nemo-1", "lightning"),
    ),
)
